"""Implementations are loaded by name, and the implementations of papers only if they are named."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from runnel import entry_points
from runnel.entry_points import load_named, plugin_names
from runnel.errors import InputError

PROGRAM = """
import sys
from runnel.algebra.nodes.query import Read
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base
from runnel.matching.explain.explain_query import explain_query
from runnel.matching.operators.orders.choose_order import choose_order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import PlanVersion, load
from runnel.storage.file_storage import FileStorage
storage = FileStorage("file://" + sys.argv[1])
compile_base(storage, "base", [PlanQuery(7)], {7: Read(1)})
plan = load(storage, PlanVersion(1, "base"))
assert build_matcher(plan).match(ItemBatch.of([Item("One", "1", {})], {"One": 1})).total == 1
assert explain_query(7, plan).lines()
choose_order(OrderProblem.of([[0], [1]], [0, 1], [0.5, 0.5], [1.0, 1.0]))
print([name for name in sys.modules if name.startswith("runnel.papers")])
"""


def test_matching_explaining_and_ordering_do_not_load_papers(tmp_path: object) -> None:
    words = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a plug-in with the name of a built-in implementation, and one whose module is missing."""
    group = "runnel.matchers"
    entries = [
        EntryPoint("index", "antiquity:Index", group),
        EntryPoint("index", "runnel.matching.filters.index.index_matcher:IndexMatcher", group),
        EntryPoint("broken", "no_such_module:Matcher", group),
    ]
    monkeypatch.setattr(entry_points, "entry_points", lambda group: entries if group == "runnel.matchers" else [])
    for cached in (plugin_names, load_named):
        monkeypatch.setattr(entry_points, cached.__name__, cached.__wrapped__)


@pytest.mark.usefixtures("installed")
def test_built_in_names_take_precedence_and_unloadable_names_are_refused() -> None:
    assert entry_points.plugin_names("runnel.matchers") == ("broken", "index")
    assert entry_points.load_named("runnel.matchers", "index").__name__ == "IndexMatcher"
    with pytest.raises(InputError, match=r"'broken' of runnel\.matchers cannot be loaded") as broken:
        entry_points.load_named("runnel.matchers", "broken")
    assert broken.value.hint == "reinstall the package of no_such_module:Matcher"
    with pytest.raises(InputError, match="no entry point named 'x'") as unknown:
        entry_points.load_named("runnel.matchers", "x")
    assert unknown.value.hint == "installed: broken, index"
    with pytest.raises(InputError) as empty:
        entry_points.load_named("runnel.nothing", "")
    assert empty.value.hint == "install the package that provides it"
