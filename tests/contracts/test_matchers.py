"""The contract of matchers: on the same items, every matcher returns the matches of the reference evaluator."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.partitioned_matcher import PartitionedMatcher
from tests.scan_matcher import ScanMatcher
from tests.unit.algebra.generated_trees import json_trees, trees
from tests.unit.algebra.generated_trees import patterns as tree_patterns
from tests.unit.matching.graphs.generated_graphs import graphs as rdf_graphs
from tests.unit.matching.graphs.generated_graphs import patterns
from tests.unit.matching.graphs.test_graph_matcher import hostile
from tests.unit.optimizer.generated_worlds import SOURCES, GeneratedWorld, nodes, worlds
from tests.unit.scaleout.anchored_worlds import anchored_worlds
from tests.unit.scaleout.divided_plans import closed_routes

from runnel.algebra.nodes.attributes import WHOLE, Attribute
from runnel.algebra.nodes.expressions import (
    And,
    AtomRelation,
    Between,
    Compare,
    Contains,
    ContainsPattern,
    Exists,
    Expression,
    In,
    Not,
    Or,
    Truth,
)
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.algebra.semantics.evaluate import accepts
from runnel.algebra.trees.steps import NameTest, Step
from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.algebra.values.word_patterns import word_patterns
from runnel.entry_points import plugin_names
from runnel.errors import CorruptDataError, InputError
from runnel.matching.compile.build_matcher import GROUP, build_matcher, find_matcher, matcher_name
from runnel.matching.compile.compile_plan import compile_base, compile_delta, compile_merged
from runnel.matching.contract import Matcher
from runnel.matching.explain.explain_query import explain_query
from runnel.matching.filters.atoms import atom_layout, truth
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.matching.filters.index.index_matcher import IndexMatcher
from runnel.matching.filters.index.part_index import PartIndex
from runnel.matching.filters.streams import settle_doubts
from runnel.matching.filters.streams.stream_matcher import StreamMatcher
from runnel.matching.filters.streams.stream_part import StreamPart
from runnel.matching.graphs.search.graph_matcher import GraphMatcher
from runnel.matching.trees.tree_part import TreePart
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.model.trees.document_tree import DocumentTree
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.papers.roses.tree_matcher import TreeMatcher
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.scaleout.divide.make_partitioning import make_partitioning
from runnel.scaleout.partitioning import STRATEGIES, Strategy
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-matchers-")
STORAGE = FileStorage(Path(_root.name).as_uri())
CASES = settings(max_examples=120, deadline=None, derandomize=True)
TINY = OptimizerSettings(max_clauses=2, max_literals=3, max_constants=1)


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    """Do not sync plans to disk, because they exist only during a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def base_plan(
    queries: list[PlanQuery],
    definitions: Mapping[int, Node],
    limits: OptimizerSettings | None = None,
    matcher: str = "streams",
) -> Plan:
    folder = f"base-{next(_folders)}"
    compile_base(STORAGE, folder, queries, definitions, settings=limits, matcher=matcher)
    return load(STORAGE, PlanVersion(1, folder))


def delta_plan(base: Plan, queries: list[PlanQuery], definitions: Mapping[int, Node], dead: set[int]) -> Plan:
    folder = f"delta-{next(_folders)}"
    compile_delta(STORAGE, folder, queries, definitions, dead, base.version.base)
    return load(STORAGE, PlanVersion(2, base.version.base, folder))


def merged_plan(plan: Plan) -> Plan:
    folder = f"merged-{next(_folders)}"
    compile_merged(STORAGE, folder, plan)
    return load(STORAGE, PlanVersion(3, folder))


def partitioned(
    plan: Plan,
    count: int = 2,
    strategy: Strategy | None = None,
    most_conditions: int | None = None,
    budget_bytes: int | None = None,
) -> PartitionedMatcher:
    """A matcher of the plan with a partitioned base. A budget of one byte loads each partition for each batch."""
    made = make_partitioning(
        STORAGE,
        plan.base.logical,
        stored_atoms(plan.base),
        base=plan.version.base,
        count=count,
        strategy=strategy,
        most_conditions=most_conditions,
        new_folder=lambda: f"piece-{next(_folders)}",
    )
    version = replace(plan.version, distribution=made.folder)
    return PartitionedMatcher(STORAGE, version, budget_bytes=budget_bytes)


def rows(matches: Matches) -> list[list[int]]:
    return [matches.row(row).tolist() for row in range(len(matches))]


def expected(batch: ItemBatch, queries: list[PlanQuery], definitions: Mapping[int, Node]) -> list[list[int]]:
    """Return the matches of the reference evaluator, item by item and query by query."""
    results = []
    columns = batch.feeds.tolist(), batch.sequences.tolist(), batch.records.column("accepted").to_pylist()
    for (feed, sequence, accepted), attributes in zip(zip(*columns, strict=True), batch.attributes(), strict=True):
        results.append(
            sorted(
                query.id
                for query in queries
                if sequence > query.since and accepts(Read(query.id), feed, attributes, definitions, accepted)
            )
        )
    return results


def all_queries(world: GeneratedWorld, since: int = 0, sources: tuple[int, ...] = SOURCES[:2]) -> list[PlanQuery]:
    return [PlanQuery(feed, since if feed % 2 else 0) for feed in (*world.definitions, *sources)]


@CASES
@given(worlds(), st.integers(0, 4))
def test_every_matcher_matches_like_the_reference(world: GeneratedWorld, since: int) -> None:
    queries = all_queries(world, since)
    wanted = expected(world.batch, queries, world.definitions)
    plan, cut = base_plan(queries, world.definitions), base_plan(queries, world.definitions, TINY)
    matchers: dict[str, Matcher] = {
        "scan": ScanMatcher(queries, world.definitions),
        "streams": StreamMatcher(plan),
        "streams of cut normal forms": StreamMatcher(cut),
        "index": IndexMatcher(plan),
        "index of cut normal forms": IndexMatcher(cut),
        "tree": TreeMatcher(plan),
        "tree of cut normal forms": TreeMatcher(cut),
    }
    for name, matcher in matchers.items():
        matches = matcher.match(world.batch)
        assert rows(matches) == wanted, name
        assert matches.failures == ()
        assert matcher.statistics.items == len(world.items)
        assert matcher.statistics.fallbacks == 0, name
        assert matcher.statistics.matches == sum(map(len, wanted))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(worlds())
def test_matcher_chosen_by_the_settings_matches_like_the_reference(world: GeneratedWorld) -> None:
    queries = all_queries(world)
    wanted = expected(world.batch, queries, world.definitions)
    kinds: dict[str, type[Matcher]] = {"streams": StreamMatcher, "tree": TreeMatcher, "index": IndexMatcher}
    assert set(plugin_names(GROUP)) == set(kinds)
    for name in kinds:
        matcher = build_matcher(base_plan(queries, world.definitions, matcher=name))
        assert isinstance(matcher, kinds[name])
        assert rows(matcher.match(world.batch)) == wanted, name


@settings(max_examples=60, deadline=None, derandomize=True)
@given(worlds(), st.data())
def test_a_delta_and_a_merged_base_match_like_a_new_base(world: GeneratedWorld, data: st.DataObject) -> None:
    before = all_queries(world)
    base = base_plan(before, world.definitions)
    removed = data.draw(st.sets(st.sampled_from([query.id for query in before])))
    changed = data.draw(st.sets(st.sampled_from(sorted(world.definitions))))
    after = dict(world.definitions)
    for feed in sorted(changed):
        after[feed] = data.draw(nodes(SOURCES))
    after[50] = data.draw(nodes((*SOURCES, *after)))
    # A view that reads a changed one changes with it, so the delta holds every view that is left.
    fresh = [PlanQuery(feed) for feed in after if feed not in removed]
    kept = [PlanQuery(source) for source in SOURCES[:2] if source not in removed]
    plan = delta_plan(base, fresh, after, removed)
    wanted = expected(world.batch, [*fresh, *kept], after)
    assert rows(build_matcher(plan).match(world.batch)) == wanted
    for name in plugin_names(GROUP):
        assert rows(find_matcher(name)(plan).match(world.batch)) == wanted, name
    merged = merged_plan(plan)
    assert rows(build_matcher(merged).match(world.batch)) == wanted
    assert set(merged.base.logical.query_ids.tolist()) == {query.id for query in (*fresh, *kept)}
    assert rows(build_matcher(base).match(world.batch)) == expected(world.batch, before, world.definitions)


COUNTS = st.sampled_from([1, 2, 3, 5])
MOST = st.one_of(st.none(), st.integers(1, 8))
# A source that is asked for as a whole opens its routes, and then nothing is lost that a router forgets.
WHOLE_SOURCES = st.sampled_from([(), (), SOURCES[:2]])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.one_of(worlds(), anchored_worlds), st.integers(0, 4), COUNTS, MOST, st.booleans(), WHOLE_SOURCES)
def test_partitions_together_match_like_the_reference(
    world: GeneratedWorld, since: int, count: int, most: int | None, in_full: bool, sources: tuple[int, ...]
) -> None:
    queries = all_queries(world, since, sources)
    wanted = expected(world.batch, queries, world.definitions)
    plan = base_plan(queries, world.definitions, None if in_full else TINY)
    for strategy in STRATEGIES:
        budget = 1 if strategy == "spread" else None
        with closed_routes() if in_full else nullcontext():
            matcher = partitioned(plan, count, strategy, most, budget_bytes=budget)
        for turn in (1, 2):
            matches = matcher.match(world.batch)
            assert rows(matches) == wanted, strategy
            assert matches.failures == ()
            assert matcher.statistics.items == turn * len(world.items)
            assert matcher.statistics.fallbacks == 0
            assert matcher.statistics.matches == turn * sum(map(len, wanted))
            assert matcher.statistics.naive_evaluations == turn * len(world.items) * len(queries)
        assert matcher.counters["false_copies"] <= matcher.counters["copies"] <= 2 * count * len(world.items)
        assert len(matcher.held) <= (count if budget is None else 1)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(worlds(), st.data())
def test_partitions_respect_queries_removed_by_delta_and_version(world: GeneratedWorld, data: st.DataObject) -> None:
    before = all_queries(world)
    base = base_plan(before, world.definitions)
    ids = st.sets(st.sampled_from([query.id for query in before]))
    dead, later = data.draw(ids), data.draw(ids)
    fresh = [PlanQuery(feed) for feed in world.definitions if feed % 2 and feed not in dead]
    whole = delta_plan(base, fresh, world.definitions, dead)
    plan = replace(whole, version=replace(whole.version, removed=tuple(sorted(later))))
    left = [query for query in before if query.id not in dead | later]
    matcher = partitioned(plan, data.draw(COUNTS), most_conditions=data.draw(MOST))
    wanted = expected(world.batch, left, world.definitions)
    assert rows(matcher.match(world.batch)) == wanted
    assert rows(build_matcher(plan).match(world.batch)) == wanted


def test_plan_stores_the_matcher_and_the_delta_uses_that_of_its_base() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), contains("rock")), 11: Filter(Read(2), contains("jazz"))}
    base = base_plan([PlanQuery(10), PlanQuery(11)], definitions, matcher="tree")
    assert isinstance(build_matcher(base), TreeMatcher)
    after: dict[int, Node] = {12: Filter(Union((Read(2), Read(3))), contains("rock"))}
    plan = delta_plan(base, [PlanQuery(12)], after, {11})
    assert matcher_name(plan) == "tree"
    matcher = build_matcher(plan)
    assert isinstance(matcher, TreeMatcher)
    feeds = {"One": 1, "Two": 2, "Three": 3, "Four": 4}
    batch = ItemBatch.of([Item(feed, str(n), {"title": ("rock jazz",)}) for n, feed in enumerate(feeds)], feeds)
    assert rows(matcher.match(batch)) == [[10], [12], [12], []]
    assert (matcher.statistics.items, matcher.statistics.matches) == (4, 3)


@pytest.mark.parametrize("name", plugin_names(GROUP))
def test_failures_keep_their_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    definitions: dict[int, Node] = {10: Filter(Union((Read(1), Read(2))), Compare(Attribute("title"), ">=", "red"))}
    plan = base_plan([PlanQuery(10)], definitions)

    def breaks(*_: object) -> bool:
        raise ZeroDivisionError("injected")

    monkeypatch.setattr(truth, "evaluate_atom", breaks)
    monkeypatch.setattr(settle_doubts, "evaluate_atom", breaks)
    feeds = {"One": 1, "Two": 2}
    batch = ItemBatch.of([Item(("One", "Two")[n % 2], str(n), {"title": ("x",)}) for n in range(5)], feeds)
    matches = find_matcher(name)(plan).match(batch)
    assert rows(matches) == [[]] * 5
    assert [(failure.row, failure.query) for failure in matches.failures] == [(n, 10) for n in range(5)]


def test_invalid_matcher_name_is_refused_and_missing_name_means_streams() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), contains("rock"))}
    plan = base_plan([PlanQuery(10)], definitions, matcher="index")

    def named(name: bytes) -> Plan:
        changed = {**plan.base.layout, "matcher.name": np.frombuffer(name, dtype=np.uint8)}
        return replace(plan, base=replace(plan.base, layout=changed))

    with pytest.raises(CorruptDataError, match="name of the plan's matcher is not ASCII text"):
        build_matcher(named(b"\xff"))
    with pytest.raises(InputError, match="has no entry point named 'inedx'") as refused:
        build_matcher(named(b"inedx"))
    assert refused.value.hint == "did you mean index?"
    kept = {name: array for name, array in plan.base.layout.items() if name != "matcher.name"}
    assert isinstance(build_matcher(replace(plan, base=replace(plan.base, layout=kept))), StreamMatcher)


def item(number: int, **attributes: object) -> Item:
    typed = {name: value if isinstance(value, tuple) else (value,) for name, value in attributes.items()}
    return Item("One", str(number), typed)


def contains(text: str, attribute: str = "title") -> Expression:
    return Contains(Attribute(attribute), tuple(text.split()))


def test_equal_numbers_and_booleans_are_distinct() -> None:
    definitions: dict[int, Node] = {
        10: Filter(Read(1), Compare(Attribute("x"), "=", 1.0)),
        11: Filter(Read(1), Compare(Attribute("x"), "=", True)),
        12: Filter(Read(1), In(Attribute("x"), (0.0, "0"))),
    }
    batch = ItemBatch.of([item(1, x=1.0), item(2, x=True), item(3, x=-0.0), item(4, x="1")], {"One": 1})
    matcher = build_matcher(base_plan([PlanQuery(feed) for feed in definitions], definitions))
    assert rows(matcher.match(batch)) == [[10], [11], [12], []]


def test_large_batches_and_slices_of_batches_match_alike() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), contains("rock")), 11: Filter(Read(1), Not(contains("rock")))}
    batch = ItemBatch.of([item(n, title="rock" if n % 3 else "jazz") for n in range(1500)], {"One": 1})
    matcher = build_matcher(base_plan([PlanQuery(10), PlanQuery(11)], definitions))
    whole = rows(matcher.match(batch))
    assert whole == [[10] if n % 3 else [11] for n in range(1500)]
    assert rows(matcher.match(ItemBatch(batch.records.slice(700, 77)))) == whole[700:777]
    assert rows(matcher.match(ItemBatch(batch.records.slice(0, 0)))) == []


def test_keys_with_equal_hashes_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atom_layout, "hash_key", lambda slot, token: 7)
    monkeypatch.setattr("runnel.matching.filters.atoms.item_keys.hash_key", lambda slot, token: 7)
    texts = ["rock", "jazz", "folk"]
    definitions: dict[int, Node] = {10 + n: Filter(Read(1), contains(text)) for n, text in enumerate(texts)}
    batch = ItemBatch.of([item(n, title=text) for n, text in enumerate([*texts, "none"])], {"One": 1})
    matcher = build_matcher(base_plan([PlanQuery(feed) for feed in definitions], definitions))
    assert rows(matcher.match(batch)) == [[10], [11], [12], []]


INDEXED = pytest.mark.parametrize("made", [IndexMatcher, StreamMatcher])
DIVIDED = pytest.mark.parametrize("made", [IndexMatcher, StreamMatcher, partitioned])


@DIVIDED
def test_an_atom_that_raises_fails_its_queries_on_that_item_only(
    made: Callable[[Plan], Matcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Compare(Attribute("title"), ">=", "red")  # the order of texts is known to the reference evaluator only
    definitions: dict[int, Node] = {
        10: Filter(Read(1), slow),
        11: Filter(Read(1), contains("rock")),
        12: Filter(Read(1), And((slow, contains("zebra")))),
        13: Filter(Read(1), Or((slow, contains("rock")))),
        14: Filter(Read(1), Not(slow)),
        15: Filter(Read(1), And((contains("rock"), Or((Not(slow), contains("red")))))),
        16: Filter(Read(1), And((contains("rock"), Or((Not(slow), contains("zebra")))))),
    }
    evaluate = truth.evaluate_atom

    def breaks(atom: object, columns: ItemColumns, row: int) -> bool:
        if columns.batch.records.column("id")[row].as_py() == "2":
            raise ZeroDivisionError("injected")
        return evaluate(atom, columns, row)  # type: ignore[arg-type]

    monkeypatch.setattr(truth, "evaluate_atom", breaks)
    monkeypatch.setattr(settle_doubts, "evaluate_atom", breaks)
    batch = ItemBatch.of([item(n, title="red rock") for n in (1, 2, 3)], {"One": 1})
    for limits in (None, TINY):
        matcher = made(base_plan([PlanQuery(feed) for feed in definitions], definitions, limits))
        matches = matcher.match(batch)
        assert rows(matches) == [[10, 11, 13, 15], [11, 13, 15], [10, 11, 13, 15]]
        assert [(failure.row, failure.query, failure.reason) for failure in matches.failures] == [
            (1, query, "ZeroDivisionError: injected") for query in (10, 14, 16)
        ]
        assert matcher.statistics.failures == 3


@INDEXED
def test_item_that_breaks_the_index_is_evaluated_by_the_reference(
    made: type[IndexMatcher | StreamMatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    definitions: dict[int, Node] = {
        10: Filter(Read(1), contains("rock")),
        11: Filter(Read(1), Compare(Attribute("price"), ">", 3.0)),
    }
    for part in (PartIndex, StreamPart):
        matched = part.match

        def breaks(self: object, columns: ItemColumns, *rest: object, matched: Any = matched) -> Any:
            if "poison" in columns.texts:
                raise MemoryError("injected")
            return matched(self, columns, *rest)

        monkeypatch.setattr(part, "match", breaks)
    titles = ["rock", "poison", "rock"]
    batch = ItemBatch.of([item(n, title=title, price=5.0) for n, title in enumerate(titles)], {"One": 1})
    matcher = made(base_plan([PlanQuery(10), PlanQuery(11)], definitions))
    matches = matcher.match(batch)
    assert rows(matches) == [[10, 11], [11], [10, 11]]
    assert matches.failures == ()
    assert matcher.statistics.fallbacks == 1


@DIVIDED
def test_fallback_evaluation_records_a_failure_per_query(
    made: Callable[[Plan], Matcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object, **__: object) -> bool:
        raise ValueError("injected")

    definitions: dict[int, Node] = {10: Filter(Read(1), contains("rock")), 11: Read(1)}
    matcher = made(base_plan([PlanQuery(10), PlanQuery(11)], definitions))
    monkeypatch.setattr(PartIndex, "match", breaks)
    monkeypatch.setattr(StreamPart, "match", breaks)
    monkeypatch.setattr("runnel.matching.filters.index.match_slowly.holds", breaks)
    matches = matcher.match(ItemBatch.of([item(1, title="rock")], {"One": 1}))
    assert rows(matches) == [[11]]
    assert [(failure.row, failure.query, failure.reason) for failure in matches.failures] == [
        (0, 10, "ValueError: injected")
    ]


def test_query_that_cannot_be_evaluated_is_quarantined() -> None:
    # A phrase without words has no meaning to the evaluator; the language refuses it, a plan must survive it.
    definitions: dict[int, Node] = {10: Filter(Read(1), Contains(Attribute("title"), ())), 11: Read(1)}
    queries = [PlanQuery(10), PlanQuery(11)]
    batch = ItemBatch.of([item(1, title="rock")], {"One": 1})
    for matcher in (ScanMatcher(queries, definitions), build_matcher(base_plan(queries, definitions))):
        matches = matcher.match(batch)
        assert rows(matches) == [[11]]
        assert [(failure.row, failure.query) for failure in matches.failures] == [(0, 10)]


def test_sharing_is_counted() -> None:
    definitions: dict[int, Node] = {feed: Filter(Read(1), contains("rock")) for feed in range(10, 110)}
    matcher = build_matcher(base_plan([PlanQuery(feed) for feed in definitions], definitions))
    matcher.match(ItemBatch.of([item(1, title="rock"), item(2, title="jazz")], {"One": 1}))
    assert matcher.statistics.naive_evaluations == 200
    assert matcher.statistics.candidates == 1
    assert matcher.statistics.matches == 100


def to_sql(expression: Expression) -> str:
    """Translate a condition on single-valued numbers and texts to SQL, as an independent check of the semantics."""
    match expression:
        case And(parts):
            return "(" + " AND ".join(map(to_sql, parts)) + ")"
        case Or(parts):
            return "(" + " OR ".join(map(to_sql, parts)) + ")"
        case Not(part):
            return f"(NOT {to_sql(part)})"
        case Compare(attribute, operator, constant):
            return f"coalesce({attribute.name} {operator} {constant!r}, false)"
        case Between(attribute, low, high):
            return f"coalesce({attribute.name} BETWEEN {low!r} AND {high!r}, false)"
        case In(attribute, constants):
            return f"coalesce({attribute.name} IN ({', '.join(map(repr, constants))}), false)"
        case Exists(attribute):
            return f"({attribute.name} IS NOT NULL)"
        case Truth(value):
            return str(value)
        case _:
            raise AssertionError(expression)


_numbers = st.sampled_from([-2.0, 0.0, 1.0, 1.5, 9.0])
_names = st.sampled_from(["a", "b", "c"])
_number_atoms: st.SearchStrategy[Expression] = st.sampled_from(["x", "y"]).flatmap(
    lambda name: st.one_of(
        st.builds(Compare, st.just(Attribute(name)), st.sampled_from(["=", "<", "<=", ">", ">="]), _numbers),
        st.builds(Between, st.just(Attribute(name)), _numbers, _numbers),
        st.builds(In, st.just(Attribute(name)), st.lists(_numbers, min_size=1, max_size=3).map(tuple)),
        st.builds(Exists, st.just(Attribute(name))),
    )
)
_text_atoms: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Compare, st.just(Attribute("name")), st.sampled_from(["=", "<", ">="]), _names),
    st.builds(In, st.just(Attribute("name")), st.lists(_names, min_size=1, max_size=3).map(tuple)),
)
_sql_conditions = st.recursive(
    st.one_of(_number_atoms, _text_atoms),
    lambda inner: st.one_of(
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=8,
)
_sql_items = st.fixed_dictionaries({}, optional={"x": _numbers, "y": _numbers, "name": _names})


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(_sql_conditions, min_size=1, max_size=5), st.lists(_sql_items, min_size=1, max_size=6))
def test_sql_database_matches_like_the_matcher(conditions: list[Expression], things: list[dict[str, object]]) -> None:
    definitions: dict[int, Node] = {10 + n: Filter(Read(1), condition) for n, condition in enumerate(conditions)}
    matcher = build_matcher(base_plan([PlanQuery(feed) for feed in definitions], definitions))
    batch = ItemBatch.of([item(n, **thing) for n, thing in enumerate(things)], {"One": 1})
    with duckdb.connect() as database:
        database.execute("CREATE TABLE items (n INTEGER, x DOUBLE, y DOUBLE, name VARCHAR)")
        for n, thing in enumerate(things):
            database.execute("INSERT INTO items VALUES (?, ?, ?, ?)", [n, *map(thing.get, ("x", "y", "name"))])
        wanted: list[list[int]] = [[] for _ in things]
        for feed, condition in zip(definitions, conditions, strict=True):
            for (n,) in database.execute(f"SELECT n FROM items WHERE {to_sql(condition)}").fetchall():
                wanted[n].append(feed)
    assert rows(matcher.match(batch)) == wanted


def test_a_plan_without_queries_matches_nothing() -> None:
    batch = ItemBatch.of([item(1, published=datetime(2026, 11, 15, tzinfo=UTC))], {"One": 1})
    matches = build_matcher(base_plan([], {})).match(batch)
    assert rows(matches) == [[]]
    assert matches.queries.dtype == np.int64


def test_range_bounds_are_exact() -> None:
    edges = [1.0, np.nextafter(1.0, 2.0).item(), np.nextafter(1.0, 0.0).item(), -1.0, 0.0, 2.0]
    operators: list[AtomRelation] = ["=", "<", "<=", ">", ">="]
    conditions: list[Expression] = [Compare(Attribute("price"), operator, 1.0) for operator in operators]
    conditions += [Between(Attribute("price"), 0.0, 1.0), Between(Attribute("price"), 1.0, 0.0)]
    definitions: dict[int, Node] = {10 + n: Filter(Read(1), condition) for n, condition in enumerate(conditions)}
    queries = [PlanQuery(feed) for feed in definitions]
    batch = ItemBatch.of([item(n, price=edge) for n, edge in enumerate(edges)], {"One": 1})
    wanted = expected(batch, queries, definitions)
    assert wanted[0] == [10, 12, 14, 15]
    assert rows(build_matcher(base_plan(queries, definitions)).match(batch)) == wanted


_BEGINNINGS = [
    "c",
    "co",
    "conc",
    "concert",
    "straß",
    "STRASS",
    "é",
    "mu",
    "muse'",
    "서",
    "서울",
    "20",
    "internationali",
]
_TITLE_WORDS = [
    *("Concert", "CONCRETE", "con\u00adcert", "cone", "Straße", "STRASSEN", "strasse", "élan", "e\u0301tat", "Étude"),
    *("Muse's", "muse’s", "muse", "서울특별시", "서울", "2026", "20", "東京", "東", "タワー", "İstanbul", "c"),
    *("internationalisation", "internationalität", "x" * 70, "x" * 69 + "y"),
]
_patterns = st.lists(
    st.one_of(
        st.sampled_from(_BEGINNINGS).map(lambda start: f"{start}*"),
        st.builds("{}{}{}".format, st.sampled_from(_BEGINNINGS), st.sampled_from(["*", "?", "??*"]), st.just("t")),
        st.sampled_from(["*", "?", "*t", "concert", "東", "京", "x" * 66 + "*", "İ*", "i*"]),
    ),
    min_size=1,
    max_size=3,
).map(lambda parts: word_patterns(" ".join(parts)))
_pattern_atoms: st.SearchStrategy[Expression] = st.builds(
    ContainsPattern, st.sampled_from([Attribute("title")] * 2 + [Attribute("body"), WHOLE]), _patterns
)
_pattern_conditions = st.one_of(
    _pattern_atoms,
    st.builds(Not, _pattern_atoms),
    st.builds(lambda *parts: And(parts), _pattern_atoms, st.one_of(_pattern_atoms, st.builds(Not, _pattern_atoms))),
    st.builds(lambda *parts: Or(parts), _pattern_atoms, _pattern_atoms),
)
_pattern_texts = st.lists(st.sampled_from(_TITLE_WORDS), max_size=4).map(" ".join)
_pattern_items = st.fixed_dictionaries(
    {},
    optional={
        "title": st.lists(st.one_of(_pattern_texts, st.just(20.0)), min_size=1, max_size=3).map(tuple),
        "body": _pattern_texts,
        "other": _pattern_texts,
    },
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(_pattern_conditions, min_size=1, max_size=8), st.lists(_pattern_items, min_size=1, max_size=6))
def test_word_patterns_match_alike_in_every_matcher(
    conditions: list[Expression], things: list[dict[str, object]]
) -> None:
    definitions: dict[int, Node] = {10 + n: Filter(Read(1), condition) for n, condition in enumerate(conditions)}
    queries = [PlanQuery(feed) for feed in definitions]
    batch = ItemBatch.of([item(n, **thing) for n, thing in enumerate(things)], {"One": 1})
    wanted = expected(batch, queries, definitions)
    plan = base_plan(queries, definitions)
    for made in (StreamMatcher, IndexMatcher, TreeMatcher):
        matches = made(plan).match(batch)
        assert rows(matches) == wanted, made
        assert matches.failures == ()


@pytest.mark.parametrize("made", [StreamMatcher, IndexMatcher, TreeMatcher])
def test_prefix_pattern_is_decided_by_the_index(made: type[StreamMatcher | IndexMatcher | TreeMatcher]) -> None:
    definitions: dict[int, Node] = {
        10: Filter(Read(1), ContainsPattern(Attribute("title"), ("conc*",))),
        11: Filter(Read(1), Not(ContainsPattern(WHOLE, ("conc*",)))),
        12: Filter(Read(1), ContainsPattern(Attribute("title"), ("conc*", "h?ll"))),
    }
    titles = ["Concert Hall", "rock", "cone hall", "hall concert"]
    batch = ItemBatch.of(
        [item(n, title=titles[n % 4], body="concrete" if n == 5 else "") for n in range(600)], {"One": 1}
    )
    queries = [PlanQuery(feed) for feed in definitions]
    whole = made(base_plan(queries, definitions))
    answers = rows(whole.match(batch))
    assert answers[:6] == [[10, 12], [11], [11], [10], [10, 12], []]
    assert answers[6:] == [answers[n % 4] for n in range(6, 600)]
    # Only the row of two patterns is asked of items, and only of those with a word that begins like one of them.
    assert whole.statistics.atom_evaluations <= 300
    alone = made(base_plan(queries[:2], definitions))
    assert rows(alone.match(batch)) == [[query for query in row if query != 12] for row in answers]
    assert alone.statistics.atom_evaluations == 0


@st.composite
def pattern_worlds(
    draw: st.DrawFn, attribute: str, patterns: st.SearchStrategy[Expression], values: st.SearchStrategy[Any]
) -> GeneratedWorld:
    """Generate items with values of a family, and queries with its patterns, words, `not` and `or`."""
    others: list[Expression] = [contains("rock"), contains("jazz"), Exists(Attribute(attribute))]
    words: st.SearchStrategy[Expression] = st.sampled_from(others)
    leaves: st.SearchStrategy[Expression] = st.one_of(patterns, patterns, words)
    conditions = st.recursive(leaves, wider, max_leaves=6)
    definitions: dict[int, Node] = {}
    for feed in range(10, 10 + draw(st.integers(1, 5))):
        read = draw(st.sampled_from((*SOURCES, *definitions)))
        definitions[feed] = Filter(Read(read), draw(conditions))
    items = []
    for number in range(draw(st.integers(0, 6))):
        attributes: dict[str, Any] = {"title": (draw(st.sampled_from(["rock", "jazz rock", "folk"])),)}
        carried = draw(st.lists(values, max_size=2))
        if carried:
            attributes[attribute] = tuple(carried)
        items.append(Item(draw(st.sampled_from(["One", "Two", "Three"])), str(number), attributes))
    return GeneratedWorld(definitions, tuple(items))


def wider(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(st.builds(And, several), st.builds(Or, several), st.builds(Not, inner))


graph_worlds = pattern_worlds("graph", patterns(), rdf_graphs)
# Patterns without marks, because `close_condition` joins patterns that share variables.
tree_worlds = pattern_worlds("tree", tree_patterns(is_marked=False), st.one_of(trees, json_trees))
PATTERN_WORLDS = pytest.mark.parametrize("worlds", [graph_worlds, tree_worlds], ids=["graph", "tree"])


@PATTERN_WORLDS
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_patterns_match_alike_in_every_matcher(
    worlds: st.SearchStrategy[GeneratedWorld], data: st.DataObject
) -> None:
    world = data.draw(worlds)
    queries = all_queries(world)
    wanted = expected(world.batch, queries, world.definitions)
    plan, cut = base_plan(queries, world.definitions), base_plan(queries, world.definitions, TINY)
    matchers: dict[str, Matcher] = {
        "scan": ScanMatcher(queries, world.definitions),
        "streams": StreamMatcher(plan),
        "streams of cut normal forms": StreamMatcher(cut),
        "index": IndexMatcher(plan),
        "tree": TreeMatcher(plan),
        "tree of cut normal forms": TreeMatcher(cut),
    }
    for name, matcher in matchers.items():
        matches = matcher.match(world.batch)
        assert rows(matches) == wanted, name
        assert (matches.failures, matcher.statistics.fallbacks) == ((), 0), name
    removed = data.draw(st.sets(st.sampled_from([query.id for query in queries])))
    fresh = [PlanQuery(feed) for feed in world.definitions if feed not in removed and feed % 2]
    kept = [query for query in queries if query.id not in removed and query not in fresh]
    changed = delta_plan(plan, fresh, world.definitions, removed)
    left = expected(world.batch, [*fresh, *kept], world.definitions)
    assert rows(build_matcher(changed).match(world.batch)) == left
    assert rows(build_matcher(merged_plan(changed)).match(world.batch)) == left


@PATTERN_WORLDS
@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.data(), COUNTS, MOST)
def test_patterns_match_alike_in_partitions(
    worlds: st.SearchStrategy[GeneratedWorld], data: st.DataObject, count: int, most: int | None
) -> None:
    world = data.draw(worlds)
    queries = all_queries(world)
    wanted = expected(world.batch, queries, world.definitions)
    plan = base_plan(queries, world.definitions)
    for strategy in STRATEGIES:
        matches = partitioned(plan, count, strategy, most).match(world.batch)
        assert (rows(matches), matches.failures) == (wanted, ()), strategy


@pytest.mark.parametrize("kind", [StreamMatcher, IndexMatcher, TreeMatcher, partitioned])
def test_a_graph_that_takes_too_long_fails_only_the_queries_that_need_it(
    kind: Callable[[Plan], Matcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"steps_of_shape": 2_000, "steps_of_graph": 1_000_000}
    monkeypatch.setattr(GraphMatcher.__init__, "__kwdefaults__", limits)
    pattern, graph = hostile()
    definitions: dict[int, Node] = {
        10: Filter(Read(1), pattern),
        11: Filter(Read(1), Not(pattern)),
        12: Filter(Read(1), Or((pattern, contains("rock")))),
        13: Filter(Read(1), And((pattern, contains("jazz")))),
        14: Filter(Read(1), contains("rock")),
    }
    items = [item(1, title="rock"), item(2, title="rock", graph=graph), item(3, title="jazz")]
    batch = ItemBatch.of(items, {"One": 1})
    matcher = kind(base_plan([PlanQuery(feed) for feed in definitions], definitions))
    matches = matcher.match(batch)
    assert rows(matches) == [[11, 12, 14], [12, 14], [11]]
    assert [(failure.row, failure.query) for failure in matches.failures] == [(1, 10), (1, 11)]
    assert all("too many" in failure.reason for failure in matches.failures)


@pytest.mark.parametrize("kind", [StreamMatcher, IndexMatcher, TreeMatcher, partitioned])
def test_a_tree_that_takes_too_much_work_fails_only_the_queries_that_need_it(
    kind: Callable[[Plan], Matcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TreePart.__init__, "__kwdefaults__", {"most": 500, "most_per_tree": 1_000_000})
    pattern = TreePattern(Step("//", NameTest("b"), condition=Step("/", NameTest("c"))))
    definitions: dict[int, Node] = {
        10: Filter(Read(1), pattern),
        11: Filter(Read(1), Not(pattern)),
        12: Filter(Read(1), Or((pattern, contains("rock")))),
        13: Filter(Read(1), TreePattern(Step("//", NameTest("d")))),
    }
    wide = DocumentTree.read(f"<a>{'<b><c/></b>' * 1_000}<d/></a>")
    items = [item(1, title="rock"), item(2, title="rock", tree=wide), item(3, tree=DocumentTree.read("<b><c/></b>"))]
    matches = kind(base_plan([PlanQuery(feed) for feed in definitions], definitions)).match(
        ItemBatch.of(items, {"One": 1})
    )
    assert rows(matches) == [[11, 12], [12, 13], [10, 12]]
    assert [(one.row, one.query) for one in matches.failures] == [(1, 10), (1, 11)]
    assert all("takes too many steps" in one.reason for one in matches.failures)


def test_a_graph_pattern_is_explained_as_it_was_written() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), hostile()[0])}
    text = "\n".join(explain_query(10, base_plan([PlanQuery(10)], definitions)).lines())
    assert "graph {" in text
    assert "<urn:p>" in text
