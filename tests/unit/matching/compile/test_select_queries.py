"""A selection of a plan's queries matches what the whole plan matches, restricted to it."""

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
_root = tempfile.TemporaryDirectory(prefix="runnel-subset-")
STORAGE = FileStorage(Path(_root.name).as_uri())


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> object:
    """Plans that live for a moment need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def plan_of(world: GeneratedWorld, queries: list[PlanQuery], later: set[int]) -> Plan:
    """The queries as a base and, where some come later, a delta."""
    base, delta = f"base-{next(_folders)}", f"delta-{next(_folders)}"
    compile_base(STORAGE, base, queries, world.definitions)
    if not later:
        return load(STORAGE, PlanVersion(1, base))
    again = [query for query in queries if query.id in later]
    compile_delta(STORAGE, delta, again, world.definitions, later, base)
    return load(STORAGE, PlanVersion(2, base, delta))


def restricted(matches: Matches, chosen: set[int]) -> list[list[int]]:
    rows = (matches.row(row).tolist() for row in range(len(matches)))
    return [[query for query in row if query in chosen] for row in rows]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(worlds(), st.data())
def test_a_selection_gives_all_matches_restricted_to_it(world: GeneratedWorld, data: st.DataObject) -> None:
    ids = [*world.definitions, *SOURCES[:2]]
    queries = [PlanQuery(one, data.draw(st.integers(0, 3))) for one in sorted(ids)]
    chosen = data.draw(st.sets(st.sampled_from(ids)))
    later = data.draw(st.sets(st.sampled_from(sorted(world.definitions)))) if world.definitions else set()
    plan = plan_of(world, queries, later)
    wanted = restricted(build_matcher(plan).match(world.batch), chosen)
    selected = select_queries(plan, {*chosen, 999})
    matchers: list[Matcher] = [StreamMatcher(selected), IndexMatcher(selected), TreeMatcher(selected)]
    for matcher in matchers:
        found = matcher.match(world.batch)
        assert restricted(found, set(ids)) == wanted, type(matcher).__name__
        assert matcher.statistics.matches == sum(map(len, wanted))
    alone = plan_of(world, [query for query in queries if query.id in chosen], set())
    assert restricted(build_matcher(alone).match(world.batch), set(ids)) == wanted, "compiled alone"
    every = plan_of(world, [PlanQuery(query) for query in sorted(chosen)], set())
    from_start = build_matcher(select_queries(plan, chosen, from_start=True)).match(world.batch)
    assert restricted(from_start, set(ids)) == restricted(build_matcher(every).match(world.batch), set(ids))


def test_few_queries_for_many_items_are_compiled_and_many_for_few_are_not() -> None:
    assert compiling_pays(0, 0, 0)
    assert compiling_pays(10, 1_000_000, 1)
    assert not compiling_pays(10_000, 100_000, 1_000)
    assert compiling_pays(10_000, 100_000, 10_000_000)
