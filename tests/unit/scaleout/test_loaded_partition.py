"""Partitions and delta together give the results of the whole plan: matches, claims, decisions and bindings."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.matching.gates.gated_worlds import SOURCES as DISTINCT_SOURCES
from tests.unit.matching.gates.gated_worlds import GatedWorld, gated_worlds, nodes, readers_of
from tests.unit.matching.operators.decide.operator_worlds import OperatorWorld, operator_worlds
from tests.unit.matching.operators.decide.test_decider import decided
from tests.unit.scaleout.divided_plans import divided, pieces_of

from runnel.algebra.graphs.edges import Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.expressions import Compare, Contains
from runnel.algebra.nodes.query import Filter, Gated, Node, Read
from runnel.algebra.semantics.distinct import Distinct
from runnel.errors import CorruptDataError
from runnel.matching.compile.compile_plan import compile_base, compile_delta
from runnel.matching.compile.loaded_plan import LoadedPlan
from runnel.matching.gates.claims import Claims
from runnel.model.bindings import Bindings
from runnel.model.graph import RdfGraph
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.plan.gates import Gate
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.scaleout.partitioning import read_partitioning
from runnel.scaleout.route.loaded_partition import delta_plan, load_partition, load_router
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-pieces-")
STORAGE = FileStorage(Path(_root.name).as_uri())
TITLE = Attribute("title")


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def base_of(queries: list[PlanQuery], definitions: dict[int, Node]) -> Plan:
    folder = f"base-{next(_folders)}"
    compile_base(STORAGE, folder, queries, definitions)
    return load(STORAGE, PlanVersion(1, folder))


def with_delta(
    base: Plan, queries: list[PlanQuery], definitions: dict[int, Node], dead: set[int], removed: tuple[int, ...] = ()
) -> Plan:
    folder = f"delta-{next(_folders)}"
    compile_delta(STORAGE, folder, queries, definitions, dead, base.version.base)
    return load(STORAGE, PlanVersion(2, base.version.base, folder, removed))


def described(claims: Claims) -> list[tuple[object, ...]]:
    """Return the item, the query, the gate and the data of each claim."""
    items, routes = claims.items.to_pylist(), claims.routes.to_pylist()
    tables = {kind: table.to_pylist() for kind, table in claims.data.items()}
    kinds = {gate.feed: gate.rule.kind for gate in claims.gates}
    return [
        (
            *items[item].values(),
            *routes[route].values(),
            None if datum < 0 else str(tables[kinds[routes[route]["query"]]][datum]),
        )
        for item, route, datum in (claim.values() for claim in claims.rows.to_pylist())
    ]


Told = tuple[set[tuple[int, int]], set[tuple[object, ...]], set[Gate]]


def matches_and_claims(pieces: list[LoadedPlan], items: ItemBatch) -> Told:
    """Return the matches without gates by row, the claims, and the gates of the claims."""
    kept, claimed, gates = set(), [], set()
    for piece in pieces:
        matches, claims = piece.matcher.match(items), Claims.of([])
        if piece.keeper.is_needed:
            matches, claims = piece.keeper.take_out(items, matches)
        for row in range(len(items)):
            kept |= {(row, query) for query in matches.row(row).tolist()}
        claimed += described(claims)
        gates |= set(claims.gates)
    assert len(claimed) == len(set(claimed)), "two partitions make the same claim"
    return kept, set(claimed), gates


@given(gated_worlds(), st.integers(1, 3), st.data())
@settings(max_examples=16, deadline=None, derandomize=True)
def test_partitions_make_the_claims_of_the_whole_plan(world: GatedWorld, count: int, data: st.DataObject) -> None:
    """The delta adds and redefines feeds, and reads `distinct` feeds of the base; some feeds are removed."""
    feeds = sorted(world.definitions)
    in_base = set(feeds[: data.draw(st.integers(1, len(feeds)))])
    changed = data.draw(st.sampled_from(sorted(in_base)))
    before = dict(world.definitions)
    before[changed] = data.draw(nodes([*DISTINCT_SOURCES, *(feed for feed in feeds if feed < changed)]))
    redefined = readers_of(changed, world.definitions) if before[changed] != world.definitions[changed] else set()
    base = base_of([PlanQuery(value, world.since[value]) for value in in_base], before)
    added = (set(feeds) - in_base) | redefined
    removed = readers_of(data.draw(st.sampled_from(feeds)), world.definitions) if data.draw(st.booleans()) else set()
    plan = with_delta(
        base,
        [PlanQuery(value, world.since[value]) for value in added],
        world.definitions,
        redefined & in_base,
        tuple(sorted(removed)),
    )
    pieces = [LoadedPlan.of(piece) for piece in pieces_of(STORAGE, divided(STORAGE, plan, count))]
    whole = [LoadedPlan.of(plan)]
    for batch in world.batches():
        assert matches_and_claims(pieces, batch) == matches_and_claims(whole, batch)


@given(operator_worlds((0, 3)), st.integers(1, 3), st.data())
@settings(max_examples=12, deadline=None, derandomize=True)
def test_operators_decide_partitions_like_the_whole_plan(
    world: OperatorWorld, count: int, data: st.DataObject
) -> None:
    queries = sorted(world.definitions)
    early = data.draw(st.lists(st.sampled_from(queries), unique=True))
    base = base_of([PlanQuery(value) for value in early], world.definitions)
    later = {*(set(queries) - set(early)), *data.draw(st.sets(st.sampled_from(queries)))}
    removed = tuple(sorted(data.draw(st.sets(st.sampled_from(queries), max_size=1))))
    plan = with_delta(base, [PlanQuery(value) for value in sorted(later)], world.definitions, set(), removed)
    whole, _ = decided(plan, world, "static_greedy")
    results = [
        decided(value, world, "static_greedy")[0] for value in pieces_of(STORAGE, divided(STORAGE, plan, count))
    ]
    for row in range(len(world.items)):
        together = sorted(query for result in results for query in result.matches.row(row).tolist())
        assert together == whole.matches.row(row).tolist()
        bound = {query: values for result in results for query, values in result.bindings.get(row, {}).items()}
        assert bound == whole.bindings.get(row, {})
    assert {value for piece in results for value in piece.unknown} == set(whole.unknown)


def graph_item(number: int, year: int) -> Item:
    graph = RdfGraph.of([("<urn:a>", "<urn:year>", f'"{year}"')])
    return Item("One", str(number), {"title": ("rock",), "graph": (graph,)}, sequence=number)


def test_distinct_feed_read_by_a_delta_keeps_its_bindings() -> None:
    asked = Graph((Edge(Variable("p"), "<urn:year>", Variable("y")),))
    definitions: dict[int, Node] = {10: Gated(Filter(Read(1), asked), Distinct((TITLE,), timedelta(days=1)))}
    base = base_of([PlanQuery(10, 3)], definitions)
    definitions[11] = Filter(Read(10), Contains(TITLE, ("rock",)))
    plan = with_delta(base, [PlanQuery(11, 5)], definitions, set())
    items = ItemBatch.of([graph_item(7, 2003), graph_item(8, 2004)], {"One": 1})
    pieces = [LoadedPlan.of(value) for value in pieces_of(STORAGE, divided(STORAGE, plan, 2))]
    whole = LoadedPlan.of(plan)
    assert matches_and_claims(pieces, items) == matches_and_claims([whole], items)
    bound: dict[int, dict[int, Bindings]] = {}
    for piece in pieces:
        for row, of_row in piece.binder.bind(items, piece.matcher.match(items)).items():
            bound.setdefault(row, {}).update(of_row)
    assert bound == whole.binder.bind(items, whole.matcher.match(items))
    assert [sorted(of_row) for of_row in bound.values()] == [[10], [10]]
    # The delta was compiled as if the feed started with the log. The base knows its start, and all parts agree on it.
    _, _, gates = matches_and_claims(pieces, items)
    assert [(gate.feed, gate.since) for gate in gates] == [(10, 3)]


def test_removed_query_no_longer_matches_in_its_partition_or_delta() -> None:
    definitions: dict[int, Node] = {10 + n: Filter(Read(1), Compare(TITLE, "=", "rock")) for n in range(6)}
    base = base_of([PlanQuery(number) for number in (10, 11, 12, 13)], definitions)
    plan = with_delta(base, [PlanQuery(number) for number in (13, 14, 15)], definitions, {12}, (10, 14))
    items = ItemBatch.of([Item("One", "1", {"title": ("rock",)})], {"One": 1})
    version = divided(STORAGE, plan, 2)
    delta, even, odd = (LoadedPlan.of(piece) for piece in pieces_of(STORAGE, version))
    assert [entry.matcher.match(items).queries.tolist() for entry in (delta, even, odd)] == [[13, 15], [], [11]]
    assert even.plan.version.base != odd.plan.version.base, "caches by version would mix up the partitions"
    assert even.plan.tombstones.tolist() == [10, 12, 13, 14, 15]
    # The ID of a partition in the router may equal that of a query. Removing the query must not close the partition.
    router = load_router(STORAGE, replace(version, removed=(1, 2)), router_folder(version))
    assert not router.removed(router.base).any()


def router_folder(version: PlanVersion) -> str:
    assert version.distribution is not None
    return read_partitioning(STORAGE, version.distribution).router


def test_folder_that_is_no_partition_is_rejected() -> None:
    definitions: dict[int, Node] = {10: Read(1), 11: Read(2)}
    base = base_of([PlanQuery(10)], definitions)
    plan = with_delta(base, [PlanQuery(11)], definitions, set())
    version = divided(STORAGE, plan, 1)
    assert version.delta is not None
    for load_it in (load_partition, load_router):
        with pytest.raises(CorruptDataError, match="is neither a partition nor a router"):
            load_it(STORAGE, version, version.delta)
        with pytest.raises(CorruptDataError, match="cannot be read"):
            load_it(STORAGE, version, "nowhere")
    router = load_router(STORAGE, version, router_folder(version))
    other = replace(version, base="another")
    with pytest.raises(CorruptDataError, match="is not a delta of another"):
        delta_plan(STORAGE, other, router)
    with pytest.raises(CorruptDataError, match="is not a delta of another"):
        load_partition(STORAGE, other, router.version.base)
    assert delta_plan(STORAGE, replace(version, delta=None), router) is None
