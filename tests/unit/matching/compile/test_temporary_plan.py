"""Temporary plans: their folder is deleted after use."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.algebra.nodes.query import Read
from runnel.matching.compile.temporary_plan import TemporaryPlan, load_temporary
from runnel.plan.logical_plan import PlanQuery


def compile_temporary() -> TemporaryPlan:
    return TemporaryPlan([PlanQuery(1)], {1: Read(2)})


def test_folder_is_deleted_at_the_end_of_a_with_block_even_after_an_error() -> None:
    temporary = compile_temporary()
    with temporary as plan:
        assert plan.base.queries.query_ids.tolist() == [1]
        assert load_temporary(temporary.folder).base.queries.query_ids.tolist() == [1]
    assert not Path(temporary.folder).exists()
    temporary = compile_temporary()
    with pytest.raises(RuntimeError), temporary:
        raise RuntimeError
    assert not Path(temporary.folder).exists()


def test_folder_is_deleted_with_the_object() -> None:
    temporary = compile_temporary()
    folder = Path(temporary.folder)
    assert folder.exists()
    del temporary
    gc.collect()
    assert not folder.exists()


def test_kept_folder_is_deleted_when_the_process_exits() -> None:
    program = """
from pathlib import Path
from tests.unit.matching.compile.test_temporary_plan import compile_temporary
temporary = compile_temporary()
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
