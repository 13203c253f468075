"""Creating a partitioning: each query in one partition, a router that misses nothing, and reused folders."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.partitioned_matcher import PartitionedMatcher
from tests.unit.matching.gates.gated_worlds import GatedWorld, gated_worlds
from tests.unit.matching.operators.decide.operator_worlds import OperatorWorld, operator_worlds

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Contains, Not
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.errors import CorruptDataError, RunnelError
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compile_delta
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.matching.filters.streams.stream_matcher import StreamMatcher
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.papers.roses.tree_matcher import TreeMatcher
from runnel.plan.gates import query_of
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load, load_part, verify
from runnel.scaleout.divide.make_partitioning import make_partitioning
from runnel.scaleout.partitioning import (
    ASSIGNMENT,
    STRATEGIES,
    Partitioning,
    Strategy,
    read_assignment,
    read_partitioning,
)
from runnel.scaleout.route.loaded_partition import load_partition, load_router
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-make-")
STORAGE = FileStorage(Path(_root.name).as_uri())
TITLE = Attribute("title")
CASES = settings(max_examples=8, deadline=None, derandomize=True)


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def base_of(queries: list[PlanQuery], definitions: dict[int, Node]) -> Plan:
    folder = f"base-{next(_folders)}"
    compile_base(STORAGE, folder, queries, definitions)
    return load(STORAGE, PlanVersion(1, folder))


def made(plan: Plan, count: int, **rest: Any) -> Partitioning:
    return make_partitioning(
        STORAGE,
        plan.base.logical,
        stored_atoms(plan.base),
        base=plan.version.base,
        count=count,
        new_folder=lambda: f"piece-{next(_folders)}",
        **rest,
    )


def words_plan(count: int) -> Plan:
    words = [Contains(TITLE, (f"word{n // 2}",)) for n in range(count)]
    definitions: dict[int, Node] = {
        10 + n: Filter(Read(1), And((word, Contains(TITLE, (f"more{n}",)))) if n % 2 else word)
        for n, word in enumerate(words)
    }
    return base_of([PlanQuery(feed) for feed in definitions], definitions)


def rows(matches: Matches) -> list[list[int]]:
    return [matches.row(row).tolist() for row in range(len(matches))]


def matched(plan: Plan, partitioning: Partitioning, items: ItemBatch) -> list[list[int]]:
    return rows(PartitionedMatcher(STORAGE, replace(plan.version, distribution=partitioning.folder)).match(items))


@CASES
@given(gated_worlds(), st.integers(1, 3), st.data())
def test_disjuncts_with_gates_are_routed(world: GatedWorld, count: int, data: st.DataObject) -> None:
    """Compare disjuncts before gates are resolved. The delta reads feeds of the base."""
    feeds = sorted(world.definitions)
    early = feeds[: data.draw(st.integers(1, len(feeds)))]
    base = base_of([PlanQuery(value, world.since[value]) for value in early], world.definitions)
    folder = f"delta-{next(_folders)}"
    later = [PlanQuery(feed, world.since[feed]) for feed in feeds[len(early) :]]
    compile_delta(STORAGE, folder, later, world.definitions, [], base.version.base)
    plan = load(STORAGE, replace(base.version, delta=folder))
    for strategy in STRATEGIES:
        results = made(base, count, strategy=strategy)
        assert load_part(STORAGE, results.router).queries.gates.gates() == base.gates.gates()
        for batch in world.batches():
            assert matched(base, results, batch) == rows(build_matcher(base).match(batch))
            assert matched(plan, results, batch) == rows(build_matcher(plan).match(batch))


@CASES
@given(operator_worlds(), st.integers(1, 3))
def test_disjuncts_with_operators_are_routed(world: OperatorWorld, count: int) -> None:
    plan = base_of([PlanQuery(definition) for definition in world.definitions], world.definitions)
    costs = {"flag": 0.0, "count": 3.0, "pair": 900.0}
    results = made(plan, count, operator_milliseconds=costs)
    assert matched(plan, results, world.batch) == rows(build_matcher(plan).match(world.batch))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_query_is_in_its_assigned_partition(strategy: str) -> None:
    plan = words_plan(30)
    results = made(plan, 4, strategy=strategy)
    assert read_partitioning(STORAGE, results.folder) == results
    assignment = read_assignment(STORAGE, results.folder)
    assert assignment.query_ids.tolist() == plan.base.queries.query_ids.tolist()
    for number, partition in enumerate(results.partitions):
        verify(STORAGE, partition.folder)
        part = load_part(STORAGE, partition.folder)
        assert part.queries.query_ids.tolist() == assignment.query_ids[assignment.partitions == number].tolist()
        assert (partition.queries, partition.bytes) == (len(part.queries.query_ids), part.manifest.size)
        assert 0 <= partition.share <= 1
        assert partition.microseconds >= 0
    assert results.strategy == strategy
    assert {entry.strategy for entry in results.weighed} == set(STRATEGIES)
    assert results.counters["queries"] == 30
    # Of two queries for a word, one has another condition and is subsumed by the other.
    assert results.counters["roots"] == results.counters["conditions"] == 15
    assert results.counters["mergers"] == results.counters["reused"] == 0
    assert made(plan, 4, strategy=strategy, most_conditions=5).counters["above_most"] <= 10


def test_unchanged_partitions_keep_their_folders() -> None:
    plan = words_plan(12)
    first = made(plan, 4, partitions=np.arange(12) % 4)
    moved = np.arange(12) % 4
    moved[0] = 1
    second = made(plan, 4, partitions=moved, before=first)
    assert [partition.folder for partition in second.partitions[2:]] == [
        partition.folder for partition in first.partitions[2:]
    ]
    assert not {partition.folder for partition in second.partitions[:2]} & set(first.pieces)
    assert second.router not in first.pieces
    assert (second.counters["reused"], second.strategy) == (2, first.strategy)
    assert [partition.queries for partition in second.partitions] == [2, 4, 3, 3]
    # A partition may get another number, and an empty partition is reused only once.
    gone = made(plan, 6, partitions=np.array([4, 5, 3, 2] * 3), before=first)
    assert [partition.queries for partition in gone.partitions] == [0, 0, 3, 3, 3, 3]
    assert gone.counters["reused"] == 4
    assert len(set(gone.pieces)) == 7
    other = made(words_plan(12), 4, partitions=np.arange(12) % 4, before=first)
    assert other.counters["reused"] == 0
    items = ItemBatch.of([], {})
    assert matched(plan, gone, items) == []
    STORAGE.replace(f"{first.folder}/{ASSIGNMENT}", b"damaged")
    with pytest.raises(CorruptDataError, match=f"{first.folder}/{ASSIGNMENT} is damaged"):
        made(plan, 4, before=first)


def test_there_may_be_fewer_queries_than_partitions() -> None:
    few = made(words_plan(2), 5)
    assert sum(partition.queries for partition in few.partitions) == 2
    assert len(few.partitions) == 5
    nothing = base_of([], {})
    assert [partition.queries for partition in made(nothing, 3).partitions] == [0, 0, 0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_unsatisfiable_queries_can_be_partitioned(strategy: Strategy) -> None:
    rock = Contains(Attribute("title"), ("rock",))
    never: dict[int, Node] = {number: Filter(Read(1), And((rock, Not(rock)))) for number in (10, 11, 12)}
    results = made(base_of([PlanQuery(value) for value in never], never), 2, strategy=strategy)
    assert sum(partition.queries for partition in results.partitions) == 3
    assert all(partition.share == 0.0 for partition in results.partitions)


def test_invalid_assignment_is_rejected() -> None:
    plan = words_plan(3)
    with pytest.raises(RunnelError, match="cannot be divided into 0 partitions"):
        made(plan, 0)
    with pytest.raises(RunnelError, match="the assignment has 2 queries, the plan has 3"):
        made(plan, 2, partitions=np.zeros(2, dtype=np.int64))
    for wrong in (-1, 2):
        with pytest.raises(RunnelError, match="refers to a partition outside of 0 to 1"):
            made(plan, 2, partitions=np.array([0, 1, wrong]))


def test_partitions_use_the_matcher_of_the_settings() -> None:
    plan = words_plan(4)
    results = made(plan, 2, matcher="tree")
    pieces = [load_partition(STORAGE, plan.version, partition.folder) for partition in results.partitions]
    assert all(isinstance(build_matcher(piece), TreeMatcher) for piece in pieces)
    assert isinstance(build_matcher(load_router(STORAGE, plan.version, results.router)), StreamMatcher)
    assert np.unique(query_of(np.concatenate([piece.base.queries.query_ids for piece in pieces]))).tolist() == [
        10,
        11,
        12,
        13,
    ]


def test_manifest_is_written_last(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = words_plan(4)
    write, written = FileStorage.write, []

    def fails_in_the_end(self: FileStorage, path: str, data: bytes | memoryview, *, last: bool = True) -> None:
        if path.endswith(ASSIGNMENT):
            raise OSError("the machine went down")
        written.append(path)
        write(self, path, data, last=last)

    with monkeypatch.context() as patch:
        patch.setattr(FileStorage, "write", fails_in_the_end)
        with pytest.raises(OSError, match="went down"):
            made(plan, 2)
    assert sum(path.endswith("manifest.json") for path in written) == 3
    assert not [path for path in written if path.endswith("partitioning.json")]
