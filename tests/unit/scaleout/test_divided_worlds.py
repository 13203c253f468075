"""Partitioned plans match like the reference evaluator, on items that match as narrowly as possible."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.partitioned_matcher import PartitionedMatcher
from tests.scan_matcher import ScanMatcher
from tests.unit.optimizer.generated_worlds import SOURCES, GeneratedWorld
from tests.unit.scaleout.anchored_worlds import FREQUENCIES, GeneratedQuery, anchored_worlds, world_of
from tests.unit.scaleout.divided_plans import closed_routes
from tests.unit.scaleout.related_plans import divisions

from runnel.arrays import Array, Rows, offsets_of
from runnel.matching.compile.compile_plan import compile_base
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.model.match import Matches
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import PlanVersion, load
from runnel.scaleout.cover import cover_predicates
from runnel.scaleout.divide.make_partitioning import make_partitioning
from runnel.scaleout.partitioning import STRATEGIES, Strategy
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-divided-worlds-")
STORAGE = FileStorage(Path(_root.name).as_uri())


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    """Skip fsync for temporary plans."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


@dataclass(frozen=True)
class Division:
    """How to partition a plan: by a strategy, or with a given assignment."""

    count: int
    most: int
    strategy: Strategy | None
    partitions: Array | None = None


@st.composite
def _divisions(draw: st.DrawFn, queries: int) -> Division:
    count, most = draw(st.integers(2, 6)), draw(st.integers(1, queries))
    strategy = draw(st.sampled_from([*STRATEGIES, None]))
    return Division(count, most, strategy, None if strategy else draw(divisions(queries, count)))


def found_by(matches: Matches) -> list[list[int]]:
    return [matches.row(row).tolist() for row in range(len(matches))]


def matcher_of(world: GeneratedWorld, queries: list[PlanQuery], division: Division) -> PartitionedMatcher:
    """Return a matcher of the partitioned queries."""
    base = f"base-{next(_folders)}"
    compile_base(STORAGE, base, queries, world.definitions, frequencies=FREQUENCIES)
    plan = load(STORAGE, PlanVersion(1, base))
    made = make_partitioning(
        STORAGE,
        plan.base.logical,
        stored_atoms(plan.base),
        base=base,
        count=division.count,
        strategy=division.strategy,
        most_conditions=division.most,
        frequencies=FREQUENCIES,
        partitions=division.partitions,
        new_folder=lambda: f"piece-{next(_folders)}",
    )
    return PartitionedMatcher(STORAGE, replace(plan.version, distribution=made.folder))


def check(world: GeneratedWorld, data: st.DataObject) -> None:
    """Partition generated queries at random, and compare the matches with the evaluator."""
    sources = SOURCES[:1] if data.draw(st.integers(0, 4)) == 0 else ()
    queries = [PlanQuery(value) for value in (*sources, *world.definitions)]
    wanted = found_by(ScanMatcher(queries, world.definitions).match(world.batch))
    assert set(world.definitions) <= set(itertools.chain(*wanted)), "there is an item for every query"
    division = data.draw(_divisions(len(queries)))
    if data.draw(st.booleans()):
        matcher = matcher_of(world, queries, division)
    else:
        with closed_routes():
            matcher = matcher_of(world, queries, division)
    assert found_by(matcher.match(world.batch)) == wanted


@settings(max_examples=25, deadline=None, derandomize=True)
@given(anchored_worlds, st.data())
def test_partitioned_plan_matches_like_the_evaluator(world: GeneratedWorld, data: st.DataObject) -> None:
    check(world, data)


def _everything(rows: Rows, groups: Array, count: int) -> Rows:
    """Return for every group of rows the union of their values, which is too strict for a merger."""
    width = int(rows.values.max(initial=0)) + 1
    pairs = np.unique(np.repeat(groups.astype(np.int64), rows.lengths) * width + rows.values)
    return Rows(offsets_of(np.bincount(pairs // width, minlength=count)), pairs % width)


def test_too_strict_merger_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cover_predicates, "intersected", _everything)
    generated = settings(max_examples=20, deadline=None, derandomize=True, phases=[Phase.generate])
    with pytest.raises(AssertionError):
        generated(given(anchored_worlds, st.data())(check))()


def test_closed_routes_send_few_items_unnecessarily() -> None:
    asked = [
        GeneratedQuery((1,), (anchor,), (word,)) for anchor in list(FREQUENCIES)[:3] for word in ("red", "big", "old")
    ]
    world = world_of(asked)
    queries = [PlanQuery(definition) for definition in world.definitions]
    with closed_routes():
        matcher = matcher_of(world, queries, Division(3, 9, None, np.repeat(np.arange(3), 3)))
    assert found_by(matcher.match(world.batch)) == [[query.id] for query in queries]
    assert matcher.counters["copies"] == len(world.items)
