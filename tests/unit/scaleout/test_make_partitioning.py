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
        10 + n: Filter(Read(1), And((one, Contains(TITLE, (f"more{n}",)))) if n % 2 else one)
        for n, one in enumerate(words)
    }
    return base_of([PlanQuery(feed) for feed in definitions], definitions)


def rows(matches: Matches) -> list[list[int]]:
    return [matches.row(row).tolist() for row in range(len(matches))]


def matched(plan: Plan, found: Partitioning, items: ItemBatch) -> list[list[int]]:
    return rows(PartitionedMatcher(STORAGE, replace(plan.version, distribution=found.folder)).match(items))


@CASES
@given(gated_worlds(), st.integers(1, 3), st.data())
def test_disjuncts_with_gates_are_routed(world: GatedWorld, count: int, data: st.DataObject) -> None:
    """Compare disjuncts before gates are resolved. The delta reads feeds of the base."""
    feeds = sorted(world.definitions)
    early = feeds[: data.draw(st.integers(1, len(feeds)))]
    base = base_of([PlanQuery(one, world.since[one]) for one in early], world.definitions)
    folder = f"delta-{next(_folders)}"
    later = [PlanQuery(one, world.since[one]) for one in feeds[len(early) :]]
    compile_delta(STORAGE, folder, later, world.definitions, [], base.version.base)
    plan = load(STORAGE, replace(base.version, delta=folder))
    for strategy in STRATEGIES:
        found = made(base, count, strategy=strategy)
        assert load_part(STORAGE, found.router).queries.gates.gates() == base.gates.gates()
        for batch in world.batches():
            assert matched(base, found, batch) == rows(build_matcher(base).match(batch))
            assert matched(plan, found, batch) == rows(build_matcher(plan).match(batch))


@CASES
@given(operator_worlds(), st.integers(1, 3))
def test_disjuncts_with_operators_are_routed(world: OperatorWorld, count: int) -> None:
    plan = base_of([PlanQuery(one) for one in world.definitions], world.definitions)
    costs = {"flag": 0.0, "count": 3.0, "pair": 900.0}
    found = made(plan, count, operator_milliseconds=costs)
    assert matched(plan, found, world.batch) == rows(build_matcher(plan).match(world.batch))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_query_is_in_its_assigned_partition(strategy: str) -> None:
    plan = words_plan(30)
    found = made(plan, 4, strategy=strategy)
    assert read_partitioning(STORAGE, found.folder) == found
    assignment = read_assignment(STORAGE, found.folder)
    assert assignment.query_ids.tolist() == plan.base.queries.query_ids.tolist()
    for number, one in enumerate(found.partitions):
        verify(STORAGE, one.folder)
        part = load_part(STORAGE, one.folder)
        assert part.queries.query_ids.tolist() == assignment.query_ids[assignment.partitions == number].tolist()
        assert (one.queries, one.bytes) == (len(part.queries.query_ids), part.manifest.size)
        assert 0 <= one.share <= 1
        assert one.microseconds >= 0
    assert found.strategy == strategy
    assert {one.strategy for one in found.weighed} == set(STRATEGIES)
    assert found.counters["queries"] == 30
    # Of two queries for a word, one has another condition and is subsumed by the other.
    assert found.counters["roots"] == found.counters["conditions"] == 15
    assert found.counters["mergers"] == found.counters["reused"] == 0
    assert made(plan, 4, strategy=strategy, most_conditions=5).counters["above_most"] <= 10


def test_unchanged_partitions_keep_their_folders() -> None:
    plan = words_plan(12)
    first = made(plan, 4, partitions=np.arange(12) % 4)
    moved = np.arange(12) % 4
    moved[0] = 1
    second = made(plan, 4, partitions=moved, before=first)
    assert [one.folder for one in second.partitions[2:]] == [one.folder for one in first.partitions[2:]]
    assert not {one.folder for one in second.partitions[:2]} & set(first.pieces)
    assert second.router not in first.pieces
    assert (second.counters["reused"], second.strategy) == (2, first.strategy)
    assert [one.queries for one in second.partitions] == [2, 4, 3, 3]
    # A partition may get another number, and an empty partition is reused only once.
    gone = made(plan, 6, partitions=np.array([4, 5, 3, 2] * 3), before=first)
    assert [one.queries for one in gone.partitions] == [0, 0, 3, 3, 3, 3]
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
    assert sum(one.queries for one in few.partitions) == 2
    assert len(few.partitions) == 5
    nothing = base_of([], {})
    assert [one.queries for one in made(nothing, 3).partitions] == [0, 0, 0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_unsatisfiable_queries_can_be_partitioned(strategy: Strategy) -> None:
    rock = Contains(Attribute("title"), ("rock",))
    never: dict[int, Node] = {number: Filter(Read(1), And((rock, Not(rock)))) for number in (10, 11, 12)}
    found = made(base_of([PlanQuery(one) for one in never], never), 2, strategy=strategy)
    assert sum(one.queries for one in found.partitions) == 3
    assert all(one.share == 0.0 for one in found.partitions)


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
    found = made(plan, 2, matcher="tree")
    pieces = [load_partition(STORAGE, plan.version, one.folder) for one in found.partitions]
    assert all(isinstance(build_matcher(one), TreeMatcher) for one in pieces)
    assert isinstance(build_matcher(load_router(STORAGE, plan.version, found.router)), StreamMatcher)
    assert np.unique(query_of(np.concatenate([one.base.queries.query_ids for one in pieces]))).tolist() == [
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
