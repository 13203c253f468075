"""A selection of a plan's queries has the same matches as the whole plan, restrict to the selected queries."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.optimizer.generated_worlds import SOURCES, GeneratedWorld, worlds

from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compile_delta
from runnel.matching.compile.select_queries import compiling_pays, select_queries
from runnel.matching.contract import Matcher
from runnel.matching.filters.index.index_matcher import IndexMatcher
from runnel.matching.filters.streams.stream_matcher import StreamMatcher
from runnel.model.match import Matches
from runnel.papers.roses.tree_matcher import TreeMatcher
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_folder = tempfile.TemporaryDirectory(prefix="runnel-subset-")
STORAGE = FileStorage(Path(_folder.name).as_uri())


@pytest.fixture(scope="module", autouse=True)
def without_fsync() -> object:
    """Skip fsync, because the plans of these tests need not survive a power failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def plan_of(world: GeneratedWorld, queries: list[PlanQuery], later: set[int]) -> Plan:
    """Compile the queries into a base and, if `later` is not empty, the queries in `later` into a delta."""
    base, delta = f"base-{next(_folders)}", f"delta-{next(_folders)}"
    compile_base(STORAGE, base, queries, world.definitions)
    if not later:
        return load(STORAGE, PlanVersion(1, base))
    delta_queries = [query for query in queries if query.id in later]
    compile_delta(STORAGE, delta, delta_queries, world.definitions, later, base)
    return load(STORAGE, PlanVersion(2, base, delta))


def restrict(matches: Matches, queries: set[int]) -> list[list[int]]:
    rows = (matches.row(row).tolist() for row in range(len(matches)))
    return [[query for query in row if query in queries] for row in rows]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(worlds(), st.data())
def test_selection_matches_like_the_whole_plan(world: GeneratedWorld, data: st.DataObject) -> None:
    ids = [*world.definitions, *SOURCES[:2]]
    queries = [PlanQuery(query, data.draw(st.integers(0, 3))) for query in sorted(ids)]
    chosen = data.draw(st.sets(st.sampled_from(ids)))
    later = data.draw(st.sets(st.sampled_from(sorted(world.definitions)))) if world.definitions else set()
    plan = plan_of(world, queries, later)
    expected = restrict(build_matcher(plan).match(world.batch), chosen)
    selected = select_queries(plan, {*chosen, 999})
    matchers: list[Matcher] = [StreamMatcher(selected), IndexMatcher(selected), TreeMatcher(selected)]
    for matcher in matchers:
        matches = matcher.match(world.batch)
        assert restrict(matches, set(ids)) == expected, type(matcher).__name__
        assert matcher.statistics.matches == sum(map(len, expected))
    alone = plan_of(world, [query for query in queries if query.id in chosen], set())
    assert restrict(build_matcher(alone).match(world.batch), set(ids)) == expected, "compiled alone"
    without_starts = plan_of(world, [PlanQuery(query) for query in sorted(chosen)], set())
    from_start = build_matcher(select_queries(plan, chosen, from_start=True)).match(world.batch)
    assert restrict(from_start, set(ids)) == restrict(build_matcher(without_starts).match(world.batch), set(ids))


def test_compiling_pays_for_few_queries_or_many_items() -> None:
    assert compiling_pays(0, 0, 0)
    assert compiling_pays(10, 1_000_000, 1)
    assert not compiling_pays(10_000, 100_000, 1_000)
    assert compiling_pays(10_000, 100_000, 10_000_000)
