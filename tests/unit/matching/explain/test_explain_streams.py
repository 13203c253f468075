"""`explain` shows what matches: the streams that a predicate stands in, its groups, and what is checked for it."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from tests.unit.optimizer.generated_worlds import NAMES, GeneratedWorld, worlds

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Compare, Contains, Expression, Or
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.algebra.nodes.render import render
from runnel.matching.compile.compile_plan import compile_base, compile_delta
from runnel.matching.compile.expected_work import EACH_ENTRY, EACH_ITEM, EACH_NUMBER, expect_streams, part_anchors
from runnel.matching.explain.explain_query import draw_query, explain_query
from runnel.matching.explain.explain_streams import (
    MOST_SOURCES,
    MOST_STREAMS,
    IndexExplanation,
    SharedClause,
    StreamExplanation,
)
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.matching.filters.streams.stream_layout import StreamLayout
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-explain-streams-")
STORAGE = FileStorage(Path(_root.name).as_uri())
CHEAP: Expression = Compare(Attribute("price"), "<", 3.0)


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    """Plans that live for a moment need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def word(text: str, attribute: str = "title") -> Expression:
    return Contains(Attribute(attribute), (text,))


def base_plan(
    definitions: Mapping[int, Node], frequencies: Mapping[str, float] | None = None, matcher: str = "streams"
) -> Plan:
    folder, queries = f"base-{next(_folders)}", [PlanQuery(one) for one in definitions]
    compile_base(STORAGE, folder, queries, definitions, frequencies=frequencies, matcher=matcher)
    return load(STORAGE, PlanVersion(1, folder))


def explained(plan: Plan, query: int) -> list[StreamExplanation]:
    found = [one for branch in explain_query(query, plan, NAMES).branches for one in branch.matched]
    assert all(isinstance(one, StreamExplanation) for one in found)
    return [one for one in found if isinstance(one, StreamExplanation)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(worlds())
def test_every_predicate_is_found_in_its_streams_with_all_its_clauses(world: GeneratedWorld) -> None:
    plan = base_plan(world.definitions)
    for query in world.definitions:
        explanation = explain_query(query, plan, NAMES)
        json.dumps(explanation.to_json())
        assert all(len(line) <= 80 or " " not in line.strip() for line in explanation.lines())
        for branch in explanation.branches:
            clauses = sorted(one.text for one in branch.clauses)
            assert branch.matched
            for one in branch.matched:
                assert isinstance(one, StreamExplanation)
                for stream in one.streams:
                    shown = [*(group.condition for group in stream.groups), *stream.checks]
                    # A key that proves its clause leaves the clause out; a key that is only a part of it does not.
                    assert sorted(shown) in (clauses, sorted({*clauses} - {one.anchor}))
                    assert stream.predicates >= 1
                    assert all(2 <= group.predicates <= stream.predicates for group in stream.groups)


def test_a_query_in_a_group_shows_what_is_checked_once_for_all_of_it() -> None:
    members = {10 + n: Filter(Read(1), And((word("hot"), word("live"), word(f"w{n}", "text")))) for n in range(40)}
    others = {100 + n: Filter(Read(1), And((word("hot"), word(f"v{n}", "text")))) for n in range(8)}
    rates = {"hot": 0.001, "live": 0.002}
    plan = base_plan({**members, **others}, rates)
    (found,) = explained(plan, 10)
    (stream,) = found.streams
    assert (found.own, found.anchor, stream.key) == (False, "title contains 'hot'", "title contains 'hot'")
    assert stream.predicates == 48
    assert stream.groups == (SharedClause("title contains 'live'", 40),)
    assert stream.checks == ("text contains 'w0'",)
    assert explained(plan, 100)[0].streams[0].groups == ()
    told = "\n".join(explain_query(10, plan, NAMES).lines())
    assert "stream of title contains 'hot': 48 predicates" in told
    assert "checked once for 40 of them: title contains 'live'" in told
    assert "then checked: text contains 'w0'" in told
    assert "tree" not in told


def test_a_disjunction_stands_in_the_stream_of_each_word_and_many_are_counted() -> None:
    few = Or(tuple(word(f"w{n}") for n in range(MOST_STREAMS)))
    many = Or(tuple(word(f"w{n}") for n in range(MOST_STREAMS + 1)))
    plan = base_plan({10: Filter(Read(1), few), 11: Filter(Read(1), many), 12: Filter(Read(1), word("w0"))})
    for query, hidden in ((10, 0), (11, 1)):
        (found,) = explained(plan, query)
        assert (len(found.streams), found.hidden_streams) == (MOST_STREAMS, hidden)
    first = {stream.key: stream.predicates for stream in explained(plan, 10)[0].streams}
    assert first["title contains 'w0'"] == 3
    assert first["title contains 'w1'"] == 2
    assert "and 1 more stream" in "\n".join(explain_query(11, plan, NAMES).lines())


def test_what_few_sources_ask_for_stands_in_their_own_streams() -> None:
    every = tuple(range(1, 21))
    plan = base_plan(
        {
            30: Filter(Union(tuple(Read(one) for one in every)), word("rock")),
            31: Filter(Union((Read(2), Read(3))), word("live")),
            32: Filter(Read(2), And((word("live"), CHEAP))),
        }
    )
    (common,) = explained(plan, 30)
    assert not common.own
    assert len(common.sources) == 20
    assert sum(len(one.sources) for one in common.expected) == MOST_SOURCES
    two, three = explained(plan, 31)
    assert (two.own, two.sources, two.streams[0].predicates) == (True, ("Two",), 2)
    assert (three.own, three.sources, three.streams[0].predicates) == (True, ("Three",), 1)
    assert [one.queries for one in (*two.expected, *three.expected)] == [3, 2]


def test_queries_that_are_gone_are_not_counted() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), word("rock")), 11: Filter(Read(1), word("live"))}
    base = base_plan(definitions).version.base
    compile_delta(STORAGE, "gone", [PlanQuery(12)], {12: Filter(Read(1), word("rock"))}, {11}, base)
    plan = load(STORAGE, PlanVersion(2, base, "gone"))
    assert [explained(plan, query)[0].expected[0].queries for query in (10, 12)] == [1, 1]


def test_what_no_key_leads_to_is_an_entry_for_every_item() -> None:
    ranges = {10 + n: Filter(Read(1), Compare(Attribute("price"), ">", float(n))) for n in range(5)}
    plan = base_plan(ranges)
    part = plan.base
    assert np.all(part_anchors(part).clauses < 0)
    work = expect_streams(StreamLayout.stored(part.layout), stored_atoms(part))
    # Five entries are walked for a block of 256 items, and each compares the number of every item.
    assert work.entries.tolist() == [5 / 256]
    assert work.numbers.tolist() == [5.0]
    (found,) = explained(plan, 12)
    assert (found.anchor, found.streams[0].key, found.streams[0].checks) == (None, None, ("price > 2",))
    (expected,) = found.expected
    assert expected.microseconds == pytest.approx(EACH_ITEM + EACH_ENTRY * 5 / 256 + EACH_NUMBER * 5)
    told = "\n".join(explain_query(12, plan, NAMES).lines())
    assert "found by: no key, so it is checked for every item" in told
    assert "stream of every item: 5 predicates" in told


def test_a_phrase_is_found_by_a_part_of_it_and_then_checked() -> None:
    phrase = Contains(Attribute("title"), ("red", "rock"))
    (found,) = explained(base_plan({10: Filter(Read(1), phrase)}), 10)
    (stream,) = found.streams
    assert stream.key == f"a part of {render(phrase)}"
    assert stream.checks == (render(phrase),)


def test_the_index_is_explained_where_it_runs_and_neither_has_a_picture() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), And((word("rock"), CHEAP)))}
    plan = base_plan(definitions, matcher="index")
    ((found,),) = (branch.matched for branch in explain_query(10, plan, NAMES).branches)
    assert found == IndexExplanation(("One",), "title contains 'rock'", ("price < 3",))
    assert "matched by the anchor index" in "\n".join(explain_query(10, plan, NAMES).lines())
    assert draw_query(10, plan, NAMES) == draw_query(10, base_plan(definitions), NAMES) == {}
