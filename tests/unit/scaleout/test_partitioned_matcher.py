"""Matching in partitions: routing, merging of results, counters, and rejected partitionings."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.partitioned_matcher import PartitionedMatcher, PartitionMatches, united
from tests.unit.scaleout.divided_plans import divided

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Compare, Contains
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.errors import CorruptDataError, RunnelError
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base
from runnel.matching.filters.atoms import truth
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.matching.filters.streams import settle_doubts
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches
from runnel.plan.gates import disjunct_id
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.scaleout.divide.make_partitioning import make_partitioning
from runnel.scaleout.partitioning import Partitioning, read_partitioning
from runnel.scaleout.route.loaded_partition import load_router
from runnel.scaleout.route.router import Router, packed, unpacked
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-partitioned-")
STORAGE = FileStorage(Path(_root.name).as_uri())
TITLE = Attribute("title")


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def words_plan(count: int) -> Plan:
    """Return a plan with one query per word, numbered from 10 on."""
    definitions: dict[int, Node] = {10 + n: Filter(Read(1), Contains(TITLE, (f"word{n}",))) for n in range(count)}
    folder = f"base-{next(_folders)}"
    compile_base(STORAGE, folder, [PlanQuery(feed) for feed in definitions], definitions)
    return load(STORAGE, PlanVersion(1, folder))


def made(plan: Plan, partitions: list[int]) -> tuple[PlanVersion, Partitioning]:
    """Partition a plan with a given assignment of its queries, and return the version."""
    partitioning = make_partitioning(
        STORAGE,
        plan.base.logical,
        stored_atoms(plan.base),
        base=plan.version.base,
        count=max(partitions) + 1,
        partitions=np.array(partitions),
        new_folder=lambda: f"piece-{next(_folders)}",
    )
    return replace(plan.version, distribution=partitioning.folder), partitioning


def titled(*titles: str) -> ItemBatch:
    return ItemBatch.of([Item("One", str(n), {"title": (title,)}) for n, title in enumerate(titles)], {"One": 1})


def rows(matches: Matches) -> list[list[int]]:
    return [matches.row(row).tolist() for row in range(len(matches))]


_ids = st.sampled_from(
    [1, 2, 7, 65_535, 70_000, 70_001, 1 << 33, disjunct_id(3, 0), disjunct_id(3, 1), disjunct_id(9, 5)]
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), _ids), max_size=20))
def test_matches_of_partitions_are_merged(count: int, told: list[tuple[int, int, int]]) -> None:
    """Each query is in one partition. A partition receives some of the items, and some queries fail there."""
    piece_of = {query: piece for _, piece, query in told}
    pairs = {(row, query) for row, _, query in told if row < count}
    failures = sorted((row, query) for row, query in pairs if query in (7, disjunct_id(3, 1)))
    pairs -= set(failures)
    results = []
    for piece in range(3):
        asked = sorted({row for row, query in (*pairs, *failures) if piece_of[query] == piece})
        answers = [
            sorted(query for row, query in pairs if row == value and piece_of[query] == piece) for value in asked
        ]
        failed = [Failure(asked.index(row), query, "odd") for row, query in failures if piece_of[query] == piece]
        results.append(PartitionMatches(np.array(asked, dtype=np.int64), Matches.of(answers, failed)))
    whole = united(count, results)
    assert rows(whole) == [sorted(query for row, query in pairs if row == number) for number in range(count)]
    assert [(failure.row, failure.query) for failure in whole.failures] == failures
    assert whole.total == len(pairs)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.booleans(), max_size=40))
def test_bitmaps_encode_and_decode_choices(chosen: list[bool]) -> None:
    data = packed(np.array(chosen, dtype=np.bool_))
    assert len(data) == (len(chosen) + 7) // 8
    assert unpacked(data, len(chosen)).tolist() == chosen
    with pytest.raises(CorruptDataError, match="a bitmap of"):
        unpacked(data + b"\0", len(chosen))


def test_items_go_only_to_partitions_with_a_query_for_them() -> None:
    plan = words_plan(4)
    version, _ = made(plan, [0, 0, 1, 2])
    matcher = PartitionedMatcher(STORAGE, version)
    items = titled("word0", "word1 word2", "none", "word3 word0")
    routed = matcher.router.route(items)
    assert routed.choices.astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 0, 1]]
    assert [routed.rows(number).tolist() for number in range(3)] == [[0, 1, 3], [1], [3]]
    assert (matcher.router.items, matcher.router.copies, routed.copies) == (4, 5, 5)
    assert rows(matcher.match(items)) == [[10], [11, 12], [], [10, 13]]
    assert matcher.counters["false_copies"] == 0
    everywhere = PartitionedMatcher(STORAGE, divided(STORAGE, plan, 2))
    assert rows(everywhere.match(items)) == [[10], [11, 12], [], [10, 13]]
    assert (everywhere.counters["copies"], everywhere.counters["false_copies"]) == (8, 3)
    assert rows(matcher.match(titled())) == []


def test_partitions_are_loaded_on_demand_within_the_budget() -> None:
    version, partitioning = made(words_plan(6), [0, 1, 2, 0, 1, 2])
    sizes = [partition.bytes for partition in partitioning.partitions]
    matcher = PartitionedMatcher(STORAGE, version, budget_bytes=partitioning.router_bytes + 2 * max(sizes))
    assert rows(matcher.match(titled("word1"))) == [[11]]
    assert (matcher.counters["loads"], matcher.held.is_held(1)) == (1, True)
    for _ in range(3):
        assert rows(matcher.match(titled("word0 word4", "word5"))) == [[10, 14], [15]]
    counters = matcher.counters
    # Partition 1 is cached. Cached partitions come first in each batch, so one is loaded and one evicted.
    assert (counters["loads"], counters["reloads"], counters["evictions"]) == (5, 2, 3)
    assert counters["peak_bytes"] <= 2 * max(sizes)
    whole = PartitionedMatcher(STORAGE, version)
    for _ in range(3):
        whole.match(titled("word0 word4", "word5"))
    assert (whole.counters["loads"], whole.counters["reloads"], whole.counters["evictions"]) == (3, 0, 0)


def test_partition_reports_failures_of_the_router(monkeypatch: pytest.MonkeyPatch) -> None:
    definitions: dict[int, Node] = {
        10: Filter(Read(1), Compare(TITLE, ">=", "red")),  # only the evaluator compares the order of texts
        11: Filter(Read(1), Contains(TITLE, ("word0",))),
    }
    folder = f"base-{next(_folders)}"
    compile_base(STORAGE, folder, [PlanQuery(feed) for feed in definitions], definitions)
    plan = load(STORAGE, PlanVersion(1, folder))

    def breaks(*_: object) -> bool:
        raise ZeroDivisionError("injected")

    monkeypatch.setattr(truth, "evaluate_atom", breaks)
    monkeypatch.setattr(settle_doubts, "evaluate_atom", breaks)
    items = titled("none", "word0", "none")
    matches = PartitionedMatcher(STORAGE, made(plan, [1, 0])[0]).match(items)
    assert rows(matches) == [[], [11], []]
    assert [(failure.row, failure.query, failure.reason) for failure in matches.failures] == [
        (row, 10, "ZeroDivisionError: injected") for row in range(3)
    ]
    assert matches.failures == build_matcher(plan).match(items).failures


def test_invalid_partitioning_is_rejected() -> None:
    plan, other = words_plan(2), words_plan(3)
    version, results = made(plan, [0, 1])
    with pytest.raises(RunnelError, match="version 1 of the plan is not partitioned"):
        PartitionedMatcher(STORAGE, plan.version)
    with pytest.raises(CorruptDataError, match=f"does not divide {other.version.base}"):
        PartitionedMatcher(STORAGE, replace(other.version, distribution=results.folder))
    with pytest.raises(CorruptDataError, match="refers to a partition that does not exist"):
        Router(load_router(STORAGE, version, results.router), 1)
    with pytest.raises(CorruptDataError, match="cannot be read"):
        PartitionedMatcher(STORAGE, replace(version, distribution="nowhere"))
    STORAGE.delete(f"{results.partitions[1].folder}/manifest.json")
    matcher = PartitionedMatcher(STORAGE, version)
    assert rows(matcher.match(titled("word0"))) == [[10]]
    with pytest.raises(CorruptDataError, match="cannot be read"):
        matcher.match(titled("word1"))
    assert read_partitioning(STORAGE, results.folder) == results
