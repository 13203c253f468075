"""Explanations of matching: the streams that contain a predicate, its groups, and the clauses checked for it."""

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
    MAX_SOURCES,
    MAX_STREAMS,
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
_folder = tempfile.TemporaryDirectory(prefix="runnel-explain-streams-")
STORAGE = FileStorage(Path(_folder.name).as_uri())
CHEAP: Expression = Compare(Attribute("price"), "<", 3.0)


@pytest.fixture(scope="module", autouse=True)
def without_fsync() -> Iterator[None]:
    """Skip fsync, because the plans of these tests need not survive a power failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def word(text: str, attribute: str = "title") -> Expression:
    return Contains(Attribute(attribute), (text,))


def base_plan(
    definitions: Mapping[int, Node], frequencies: Mapping[str, float] | None = None, matcher: str = "streams"
) -> Plan:
    folder, queries = f"base-{next(_folders)}", [PlanQuery(query) for query in definitions]
    compile_base(STORAGE, folder, queries, definitions, frequencies=frequencies, matcher=matcher)
    return load(STORAGE, PlanVersion(1, folder))


def explained(plan: Plan, query: int) -> list[StreamExplanation]:
    explanations = [matched for branch in explain_query(query, plan, NAMES).branches for matched in branch.matched]
    assert all(isinstance(matched, StreamExplanation) for matched in explanations)
    return [matched for matched in explanations if isinstance(matched, StreamExplanation)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(worlds())
def test_streams_of_every_predicate_show_all_its_clauses(world: GeneratedWorld) -> None:
    plan = base_plan(world.definitions)
    for query in world.definitions:
        explanation = explain_query(query, plan, NAMES)
        json.dumps(explanation.to_json())
        assert all(len(line) <= 80 or " " not in line.strip() for line in explanation.lines())
        for branch in explanation.branches:
            clauses = sorted(clause.text for clause in branch.clauses)
            assert branch.matched
            for matched in branch.matched:
                assert isinstance(matched, StreamExplanation)
                for stream in matched.streams:
                    shown = [*(group.condition for group in stream.groups), *stream.checks]
                    # The anchor is not checked again if its keys prove it. The key of a phrase does not prove it.
                    assert sorted(shown) in (clauses, sorted({*clauses} - {matched.anchor}))
                    assert stream.predicates >= 1
                    assert all(2 <= group.predicates <= stream.predicates for group in stream.groups)


def test_grouped_query_shows_the_clause_checked_once_for_the_group() -> None:
    members = {10 + n: Filter(Read(1), And((word("hot"), word("live"), word(f"w{n}", "text")))) for n in range(40)}
    others = {100 + n: Filter(Read(1), And((word("hot"), word(f"v{n}", "text")))) for n in range(8)}
    frequencies = {"hot": 0.001, "live": 0.002}
    plan = base_plan({**members, **others}, frequencies)
    (explanation,) = explained(plan, 10)
    (stream,) = explanation.streams
    anchor = "title contains 'hot'"
    assert (explanation.own, explanation.anchor, stream.key) == (False, anchor, anchor)
    assert stream.predicates == 48
    assert stream.groups == (SharedClause("title contains 'live'", 40),)
    assert stream.checks == ("text contains 'w0'",)
    assert explained(plan, 100)[0].streams[0].groups == ()
    text = "\n".join(explain_query(10, plan, NAMES).lines())
    assert "stream of title contains 'hot': 48 predicates" in text
    assert "checked once for 40 of them: title contains 'live'" in text
    assert "then checked: text contains 'w0'" in text
    assert "tree" not in text


def test_disjunction_is_in_the_stream_of_each_word_and_shown_streams_are_limited() -> None:
    few = Or(tuple(word(f"w{n}") for n in range(MAX_STREAMS)))
    many = Or(tuple(word(f"w{n}") for n in range(MAX_STREAMS + 1)))
    plan = base_plan({10: Filter(Read(1), few), 11: Filter(Read(1), many), 12: Filter(Read(1), word("w0"))})
    for query, hidden in ((10, 0), (11, 1)):
        (explanation,) = explained(plan, query)
        assert (len(explanation.streams), explanation.hidden_streams) == (MAX_STREAMS, hidden)
    first = {stream.key: stream.predicates for stream in explained(plan, 10)[0].streams}
    assert first["title contains 'w0'"] == 3
    assert first["title contains 'w1'"] == 2
    assert "and 1 more stream" in "\n".join(explain_query(11, plan, NAMES).lines())


def test_predicate_of_few_sources_is_in_their_own_streams() -> None:
    plan = base_plan(
        {
            30: Filter(Union(tuple(Read(source) for source in range(1, 21))), word("rock")),
            31: Filter(Union((Read(2), Read(3))), word("live")),
            32: Filter(Read(2), And((word("live"), CHEAP))),
        }
    )
    (common,) = explained(plan, 30)
    assert not common.own
    assert len(common.sources) == 20
    assert sum(len(estimate.sources) for estimate in common.expected) == MAX_SOURCES
    second, third = explained(plan, 31)
    assert (second.own, second.sources, second.streams[0].predicates) == (True, ("Two",), 2)
    assert (third.own, third.sources, third.streams[0].predicates) == (True, ("Three",), 1)
    assert [estimate.queries for estimate in (*second.expected, *third.expected)] == [3, 2]


def test_removed_queries_are_not_counted() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), word("rock")), 11: Filter(Read(1), word("live"))}
    base = base_plan(definitions).version.base
    compile_delta(STORAGE, "delta", [PlanQuery(12)], {12: Filter(Read(1), word("rock"))}, {11}, base)
    plan = load(STORAGE, PlanVersion(2, base, "delta"))
    assert [explained(plan, query)[0].expected[0].queries for query in (10, 12)] == [1, 1]


def test_predicate_without_key_is_checked_for_every_item() -> None:
    ranges = {10 + n: Filter(Read(1), Compare(Attribute("price"), ">", float(n))) for n in range(5)}
    plan = base_plan(ranges)
    part = plan.base
    assert np.all(part_anchors(part).clauses < 0)
    work = expect_streams(StreamLayout.stored(part.layout), stored_atoms(part))
    # Five entries are read per block of 256 items, and each entry compares the number of every item.
    assert work.entries.tolist() == [5 / 256]
    assert work.numbers.tolist() == [5.0]
    (explanation,) = explained(plan, 12)
    (stream,) = explanation.streams
    assert (explanation.anchor, stream.key, stream.checks) == (None, None, ("price > 2",))
    (expected,) = explanation.expected
    assert expected.microseconds == pytest.approx(EACH_ITEM + EACH_ENTRY * 5 / 256 + EACH_NUMBER * 5)
    text = "\n".join(explain_query(12, plan, NAMES).lines())
    assert "found by: no key, so it is checked for every item" in text
    assert "stream of every item: 5 predicates" in text


def test_phrase_is_found_by_one_of_its_words_and_then_checked() -> None:
    phrase = Contains(Attribute("title"), ("red", "rock"))
    (explanation,) = explained(base_plan({10: Filter(Read(1), phrase)}), 10)
    (stream,) = explanation.streams
    assert stream.key == f"a part of {render(phrase)}"
    assert stream.checks == (render(phrase),)


def test_anchor_index_is_explained_and_neither_matcher_has_drawings() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), And((word("rock"), CHEAP)))}
    plan = base_plan(definitions, matcher="index")
    ((explanation,),) = (branch.matched for branch in explain_query(10, plan, NAMES).branches)
    assert explanation == IndexExplanation(("One",), "title contains 'rock'", ("price < 3",))
    assert "matched by the anchor index" in "\n".join(explain_query(10, plan, NAMES).lines())
    assert draw_query(10, plan, NAMES) == draw_query(10, base_plan(definitions), NAMES) == {}
