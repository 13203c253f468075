"""The tree matcher: the same matches as the evaluator, and no more filter evaluations than its trees predict."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scan_matcher import ScanMatcher
from tests.unit.optimizer.generated_worlds import SOURCES, GeneratedWorld, worlds

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Compare, Contains, Expression, Not, Or
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.matching.compile.compile_plan import compile_base, compile_delta
from runnel.matching.contract import Matcher
from runnel.matching.filters.atoms import truth
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.item_keys import BatchKeys
from runnel.matching.filters.index.plan_words import PlanWords
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.papers.roses.factoring.filter_table import FilterTable, predicates_of
from runnel.papers.roses.tree_matcher import TreeMatcher
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-trees-")
STORAGE = FileStorage(Path(_root.name).as_uri())
TINY = OptimizerSettings(max_clauses=2, max_literals=3, max_constants=1)


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    """Plans that live for a moment need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def base_plan(
    queries: list[PlanQuery], definitions: Mapping[int, Node], limits: OptimizerSettings | None = None
) -> Plan:
    folder = f"base-{next(_folders)}"
    compile_base(STORAGE, folder, queries, definitions, settings=limits)
    return load(STORAGE, PlanVersion(1, folder))


def tree_of(definitions: Mapping[int, Node]) -> TreeMatcher:
    return TreeMatcher(base_plan([PlanQuery(feed) for feed in definitions], definitions))


def rows(matches: Matches) -> list[list[int]]:
    return [matches.row(row).tolist() for row in range(len(matches))]


def item(number: int, feed: str = "One", **attributes: object) -> Item:
    typed = {name: value if isinstance(value, tuple) else (value,) for name, value in attributes.items()}
    return Item(feed, str(number), typed)


def contains(text: str) -> Expression:
    return Contains(Attribute("title"), tuple(text.split()))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(worlds(), st.integers(0, 4))
def test_the_tree_gives_what_the_evaluator_gives(world: GeneratedWorld, since: int) -> None:
    queries = [PlanQuery(feed, since if feed % 2 else 0) for feed in (*world.definitions, *SOURCES[:2])]
    wanted = rows(ScanMatcher(queries, world.definitions).match(world.batch))
    for limits in (None, TINY):
        matcher: Matcher = TreeMatcher(base_plan(queries, world.definitions, limits))
        matches = matcher.match(world.batch)
        assert rows(matches) == wanted
        assert matches.failures == ()
        assert matcher.statistics.fallbacks == 0
        assert matcher.statistics.matches == sum(map(len, wanted))


def test_base_and_delta_and_batches_larger_than_a_chunk() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), contains("rock")), 11: Filter(Read(1), Not(contains("rock")))}
    base = base_plan([PlanQuery(10), PlanQuery(11)], definitions)
    after: dict[int, Node] = {12: Filter(Read(1), contains("jazz"))}
    compile_delta(STORAGE, "delta", [PlanQuery(12)], after, {11}, base.version.base)
    matcher = TreeMatcher(load(STORAGE, PlanVersion(2, base.version.base, "delta")))
    batch = ItemBatch.of([item(n, title="rock" if n % 3 else "jazz") for n in range(1500)], {"One": 1})
    whole = rows(matcher.match(batch))
    assert whole == [[10] if n % 3 else [12] for n in range(1500)]
    assert rows(matcher.match(ItemBatch(batch.records.slice(700, 77)))) == whole[700:777]
    assert rows(matcher.match(ItemBatch(batch.records.slice(0, 0)))) == []


def test_shared_filters_are_asked_once() -> None:
    words = [f"w{number}" for number in range(40)]
    definitions: dict[int, Node] = {
        100 + n: Filter(Read(1), And((contains("rock"), contains(word)))) for n, word in enumerate(words)
    }
    matcher = tree_of(definitions)
    batch = ItemBatch.of([item(n, title="jazz") for n in range(90)] + [item(99, title="rock w7")], {"One": 1})
    assert rows(matcher.match(batch))[-1] == [107]
    # All items are asked for `rock`; only one is asked for the forty words below.
    assert matcher.statistics.candidates == 91 + 40
    assert matcher.statistics.naive_evaluations == 91 * 40


def test_the_measured_cost_is_what_the_model_expects() -> None:
    dice = np.random.default_rng(4)
    shares = 0.5 / np.arange(1, 31) ** 0.5
    definitions: dict[int, Node] = {}
    for feed in range(100, 300):
        chosen = dice.choice(30, dice.integers(1, 4), replace=False, p=shares / shares.sum())
        definitions[feed] = Filter(Read(1), And(tuple(contains(f"w{value}") for value in chosen.tolist())))
    texts = [
        " ".join(f"w{value}" for value in np.flatnonzero(dice.random(30) < shares)) or "none" for _ in range(2000)
    ]
    plan = base_plan([PlanQuery(feed) for feed in definitions], definitions)
    messages = np.array(
        [_share(plan.base.logical.atoms.text(atom), shares) for atom in range(len(plan.base.logical.atoms))]
    )
    matcher = TreeMatcher(plan, shares=[messages])
    batch = ItemBatch.of([item(n, title=text) for n, text in enumerate(texts)], {"One": 1})
    results = rows(matcher.match(batch))
    item_batch = ItemBatch(batch.records.slice(0, 100))
    assert results[:100] == rows(
        ScanMatcher([PlanQuery(feed) for feed in definitions], definitions).match(item_batch)
    )
    cost = matcher.trees(1)[0].cost
    assert matcher.statistics.candidates / 2000 == pytest.approx(cost, rel=0.05)
    assert cost < 0.25 * len(definitions)


def _share(text: str, shares: np.ndarray) -> float:
    return float(shares[int(text.split('"w')[1].rstrip('"]'))])


def test_wider_conditions_stand_above_narrower_ones() -> None:
    price = Attribute("price")
    definitions: dict[int, Node] = {
        10 + bound: Filter(Read(1), Compare(price, ">", float(bound))) for bound in range(10)
    }
    matcher = tree_of(definitions)
    batch = ItemBatch.of([item(n, price=(float(n) - 0.5, -3.0)) for n in range(11)], {"One": 1})
    assert rows(matcher.match(batch)) == [[10 + bound for bound in range(n)] for n in range(11)]
    tree = matcher.trees(1)[0]
    assert len(tree) == 11
    assert tree.depths.max() == 10  # a chain: each bound is asked only where the one below it holds
    assert matcher.statistics.candidates == sum(min(10, n + 1) for n in range(11))


def test_sources_have_trees_of_their_own_and_equal_ones_share() -> None:
    definitions: dict[int, Node] = {
        10: Filter(Read(1), contains("rock")),
        11: Filter(Read(2), contains("rock")),
        12: Filter(Read(3), contains("jazz")),
    }
    matcher = tree_of(definitions)
    items = [item(n, feed, title="rock jazz") for n, feed in enumerate(("One", "Two", "Three", "Four"))]
    batch = ItemBatch.of(items, {"One": 1, "Two": 2, "Three": 3, "Four": 4})
    assert rows(matcher.match(batch)) == [[10], [11], [12], []]
    assert matcher.trees(1)[0] is matcher.trees(2)[0]
    assert matcher.trees(1)[0] is not matcher.trees(3)[0]
    assert len(matcher.trees(4)[0]) == 1


def test_an_atom_that_raises_fails_its_queries_on_that_item_only(monkeypatch: pytest.MonkeyPatch) -> None:
    phrase = contains("red rock")
    definitions: dict[int, Node] = {
        10: Filter(Read(1), phrase),
        11: Filter(Read(1), contains("rock")),
        12: Filter(Read(1), And((phrase, contains("zebra")))),
        13: Filter(Read(1), Or((phrase, contains("rock")))),
        14: Filter(Read(1), Not(phrase)),
    }
    evaluate = truth.evaluate_atom

    def breaks(atom: object, columns: ItemColumns, row: int) -> bool:
        if columns.batch.records.column("id")[row].as_py() == "2":
            raise ZeroDivisionError("injected")
        return evaluate(atom, columns, row)  # type: ignore[arg-type]

    monkeypatch.setattr(truth, "evaluate_atom", breaks)
    matches = tree_of(definitions).match(ItemBatch.of([item(n, title="red rock") for n in (1, 2, 3)], {"One": 1}))
    assert rows(matches) == [[10, 11, 13], [11, 13], [10, 11, 13]]
    assert [(failure.row, failure.query, failure.reason) for failure in matches.failures] == [
        (1, 10, "ZeroDivisionError: injected"),
        (1, 14, "ZeroDivisionError: injected"),
    ]


def test_an_item_that_breaks_the_tree_is_taken_the_slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = PlanWords.add_keys

    def breaks(self: PlanWords, columns: ItemColumns, batch_keys: BatchKeys) -> None:
        if "poison" in columns.texts:
            raise MemoryError("injected")
        cut(self, columns, batch_keys)

    monkeypatch.setattr(PlanWords, "add_keys", breaks)
    definitions: dict[int, Node] = {
        10: Filter(Read(1), contains("rock")),
        11: Filter(Read(1), Compare(Attribute("price"), ">", 3.0)),
    }
    matcher = tree_of(definitions)
    batch = ItemBatch.of(
        [item(n, title=text, price=5.0) for n, text in enumerate(("rock", "poison", "rock"))], {"One": 1}
    )
    matches = matcher.match(batch)
    assert rows(matches) == [[10, 11], [11], [10, 11]]
    assert matcher.statistics.fallbacks == 1


def test_a_table_knows_the_predicates_of_a_source() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), contains("rock")), 11: Filter(Read(2), contains("jazz"))}
    logical = base_plan([PlanQuery(10), PlanQuery(11)], definitions).base.logical
    assert len(predicates_of(logical, 1)) == len(predicates_of(logical, 2)) == 1
    assert not len(predicates_of(logical, 9))
    tree = FilterTable.of(logical).tree(predicates_of(logical, 2))
    assert tree.predicates.row(1).tolist() == predicates_of(logical, 2).tolist()
