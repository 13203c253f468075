"""Temporary plans: their folder goes away when nobody needs it any more."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.algebra.nodes.query import Read
from runnel.matching.compile.temporary_plan import TemporaryPlan, load_temporary
from runnel.plan.logical_plan import PlanQuery


def compiled() -> TemporaryPlan:
    return TemporaryPlan([PlanQuery(1)], {1: Read(2)})


def test_the_folder_goes_away_at_the_end_of_a_block_also_after_an_error() -> None:
    temporary = compiled()
    with temporary as plan:
        assert plan.base.queries.query_ids.tolist() == [1]
        assert load_temporary(temporary.folder).base.queries.query_ids.tolist() == [1]
    assert not Path(temporary.folder).exists()
    temporary = compiled()
    with pytest.raises(RuntimeError), temporary:
        raise RuntimeError
    assert not Path(temporary.folder).exists()


def test_the_folder_goes_away_with_the_object() -> None:
    temporary = compiled()
    folder = Path(temporary.folder)
    assert folder.exists()
    del temporary
    gc.collect()
    assert not folder.exists()


def test_a_kept_folder_goes_away_when_the_process_exits() -> None:
    program = """
from pathlib import Path
from tests.unit.matching.compile.test_temporary_plan import compiled
temporary = compiled()
temporary.keep_until_exit()
temporary.keep_until_exit()
folder = temporary.folder
del temporary
assert Path(folder).exists()
print(folder)
"""
    folder = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert folder
    assert not Path(folder).exists()
