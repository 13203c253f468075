"""The definition of joins: windows, conditions on pairs, annotations through feeds, and stored forms."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.algebra.generated_atoms import shares

from runnel.algebra.nodes.attributes import PARTS, WHOLE, Attribute
from runnel.algebra.nodes.encode import decode_expression, decode_node, encode_expression, encode_node
from runnel.algebra.nodes.expressions import (
    Compare,
    Contains,
    Expression,
    Not,
    conjunction,
    disjunction,
    negation,
)
from runnel.algebra.nodes.gate_rules import GateRule, LoggedItem, Pass, Stop, decode_rule, encode_rule
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union, expand_groups, groups_of, hide_gates
from runnel.algebra.nodes.render import render
from runnel.algebra.nodes.window_atoms import WindowAtom, WindowRelation
from runnel.algebra.semantics.distinct import Distinct
from runnel.algebra.semantics.evaluate import holds
from runnel.algebra.semantics.evaluate_log import EvaluatedItem, evaluate_log
from runnel.algebra.semantics.joins import INDEXES, Join, Window, window_of
from runnel.algebra.semantics.window_conditions import condition_given
from runnel.language.grammar.parser import parse
from runnel.language.syntax.statements import CreateFeed
from runnel.model.graph import RdfGraph
from runnel.model.item import Attributes, Value

NEWS, BLOGS, PHOTOS, VIDEOS = 1, 2, 3, 4
TITLE, LINK, PRICE, PUBLISHED = (Attribute(name) for name in ("title", "link", "price", "published"))
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)


def pair(relation: WindowRelation, attribute: Attribute = TITLE, window: Attribute = TITLE) -> Expression:
    least = Fraction(1, 2) if relation == "similar" else None
    return WindowAtom(relation, attribute, window, least)  # type: ignore[return-value]


SAME = pair("=")


def item(
    sequence: int, feed: int, title: str = "x", after: timedelta = timedelta(), name: str = "", price: float = 1.0
) -> LoggedItem:
    return LoggedItem(
        sequence, NOON + after, feed, name or str(sequence), {"title": (title,), "price": (price,)} if title else {}
    )


def joined(extent: timedelta | int, *items: LoggedItem, condition: Expression = SAME) -> Stop | Pass:
    """The answer about the last item, with the others in the feed of the window."""
    return Join(extent, condition, "photos").history().add(items[-1], items[:-1])


def evaluate(items: Sequence[LoggedItem], written: dict[int, Node], **since: int) -> list[EvaluatedItem]:
    """Evaluate feeds whose windows and lower gates become hidden feeds from 100 on."""
    definitions: dict[int, Node] = {}

    def hide(definition: Node) -> int:
        known = [feed for feed, value in definitions.items() if value == definition and feed >= 100]
        feed = known[0] if known else 100 + len([value for value in definitions if value >= 100])
        definitions[feed] = definition
        return feed

    for feed, node in written.items():
        definitions[feed] = hide_gates(node, hide)
    starts = {feed: since.get(f"feed{feed}", 0) for feed in written}
    return list(evaluate_log(items, definitions, starts))


def notes(evaluated: EvaluatedItem, feed: int) -> list[tuple[int, ...]]:
    """The annotations of an item in a feed, whichever gates gave them."""
    return sorted(evaluated.annotations.get(feed, {}).values())


# Windows.


@pytest.mark.parametrize(
    ("age", "is_inside"),
    [
        (timedelta(), True),
        (HOUR - MICROSECOND, True),
        (HOUR, False),
        (HOUR + MICROSECOND, False),
    ],
)
def test_a_time_window_excludes_exactly_its_length(age: timedelta, is_inside: bool) -> None:
    answer = joined(HOUR, item(1, PHOTOS), item(2, NEWS, after=age))
    assert answer == (Pass((1,)) if is_inside else Stop())


def test_a_count_window_has_the_last_items_whether_they_join_or_not() -> None:
    log = [item(1, PHOTOS), item(2, PHOTOS, "y"), item(3, PHOTOS), item(4, PHOTOS, "y"), item(5, NEWS)]
    assert joined(1, *log) == Stop()
    assert joined(2, *log) == Pass((3,))
    assert joined(3, *log) == Pass((3,))
    assert joined(4, *log) == joined(9, *log) == Pass((3, 1))


@pytest.mark.parametrize("extent", [1, HOUR])
def test_an_empty_window_stops_every_item(extent: timedelta | int) -> None:
    assert joined(extent, item(1, NEWS)) == Stop()
    assert joined(extent, item(1, NEWS), condition=Not(SAME)) == Stop()


def test_an_item_is_never_in_its_own_window_and_later_items_are_not_either() -> None:
    log = [item(1, PHOTOS), item(2, PHOTOS), item(3, PHOTOS)]
    assert [value.sequence for value in window_of(log[1], log, HOUR)] == [1]
    assert [value.sequence for value in window_of(log[1], log, 5)] == [1]
    own = evaluate(log, {9: Gated(Read(PHOTOS), Join(HOUR, SAME, "p"), Read(PHOTOS))})
    assert [notes(value, 9) for value in own] == [[], [(1,)], [(2, 1)]]


def test_an_older_version_is_in_the_window_and_the_newest_is_in_the_annotation() -> None:
    versions = [item(1, PHOTOS, name="a"), item(2, PHOTOS, name="b"), item(3, PHOTOS, name="a")]
    assert joined(5, *versions[:2], item(3, PHOTOS, name="a")) == Pass((2, 1))
    assert joined(5, *versions, item(4, NEWS)) == Pass((3, 2))
    # The newest version that joins: the third does not.
    edited = [versions[0], versions[1], item(3, PHOTOS, "y", name="a")]
    assert joined(5, *edited, item(4, NEWS)) == Pass((2, 1))
    # The same id in another feed is another item, and versions are counted one by one.
    assert joined(5, item(1, PHOTOS, name="a"), item(2, VIDEOS, name="a"), item(3, NEWS)) == Pass((2, 1))
    assert joined(2, *versions, item(4, NEWS)) == Pass((3, 2))
    assert joined(1, *versions, item(4, NEWS)) == Pass((3,))


def test_equal_times_are_ordered_by_sequence() -> None:
    log = [item(1, NEWS), item(2, PHOTOS), item(3, NEWS)]
    results = evaluate(log, {9: Gated(Read(NEWS), Join(HOUR, SAME, "p"), Read(PHOTOS))})
    assert [sorted(result.feeds) for result in results] == [[], [], [9]]
    assert results[0].stopped == {9: Stop()}


# Conditions.

GRAPH = RdfGraph.read("<http://a.example/> <http://b.example/> <http://c.example/> .\n")


def test_relations_compare_values_of_one_type() -> None:
    later = NOON + HOUR
    cases: list[tuple[WindowRelation, Value, Value, bool]] = [
        ("=", "Muse", "Muse", True),
        ("=", "Muse", "muse", False),
        ("=", 3.0, 3.0, True),
        ("=", 3.0, "3.0", False),
        ("=", True, True, True),
        ("=", True, 1.0, False),
        ("=", NOON, NOON, True),
        ("=", NOON, later, False),
        ("<", NOON, later, True),
        ("<", later, NOON, False),
        ("<", 1.0, 2.0, True),
        ("<", 2.0, 2.0, False),
        ("<=", 2.0, 2.0, True),
        (">", 3.0, 2.0, True),
        (">=", 2.0, 2.0, True),
        (">", "b", "a", True),
        ("contains", "Muse live in Paris", "LIVE in", True),
        ("contains", "Muse in live", "live in", False),
        ("contains", "Muse", "?!", False),
        ("contains", "3", 3.0, False),
        ("contains", 3.0, "3", False),
        ("similar", "Muse live in Paris", "muse live", True),
        ("similar", "Muse live in Paris", "muse", False),
        ("similar", "", "", False),
        ("similar", "?!", "?!", False),
        ("similar", 3.0, 3.0, False),
        ("shares", "see https://a.example/x", "https://A.example:443/x#top", True),
        ("shares", "see https://a.example/x", "https://a.example/y", False),
        ("shares", "no link", "no link", False),
        ("references", "https://a.example/x", "https://a.example/x", True),
        ("references", "https://a.example/x", "https://a.example/y", False),
        ("references", "https://news.a.example/x", " A.example ", True),
        ("references", "https://b.example/x", "a.example", False),
        ("references", "https://b.example/x", "no host at all", False),
        ("extends", "https://a.example/news/1", "https://a.example/news?page=2", True),
        ("extends", "https://a.example/new", "https://a.example/news", False),
        ("extends", "https://a.example/news", "a.example", False),
        ("=", GRAPH, GRAPH, False),
        ("contains", GRAPH, "http", False),
        ("contains", "http", GRAPH, False),
        ("similar", GRAPH, GRAPH, False),
        ("shares", GRAPH, GRAPH, False),
        ("<", GRAPH, GRAPH, False),
    ]
    for relation, value, window, expected in cases:
        condition = condition_given(pair(relation), {"title": (window,)})
        assert holds(condition, {"title": (value,)}, NOON) is expected, (relation, value, window)
        negated = condition_given(Not(pair(relation)), {"title": (window,)})
        assert holds(negated, {"title": (value,)}, NOON) is not expected, (relation, value, window)


def satisfied(condition: Expression, own: Attributes, window: Attributes) -> bool:
    return holds(condition_given(condition, window), own, NOON)


def test_one_of_several_values_suffices() -> None:
    assert satisfied(SAME, {"title": ("a", "b")}, {"title": ("c", "b")})
    assert not satisfied(SAME, {"title": ("a", "b")}, {"title": ("c", "d")})
    assert satisfied(pair("<", PRICE, PRICE), {"price": (5.0, 1.0)}, {"price": (0.0, 2.0)})
    # One value of each side must fit: words of two values are not put together.
    assert not satisfied(pair("contains"), {"title": ("muse", "live")}, {"title": ("muse live",)})
    assert satisfied(pair("contains"), {"title": ("muse live",)}, {"title": ("paris", "live")})
    assert satisfied(
        pair("shares"), {"title": ("https://a.example",)}, {"title": ("https://b.example https://a.example",)}
    )


def test_a_missing_attribute_joins_nothing() -> None:
    relations: list[WindowRelation] = ["=", "<", ">=", "contains", "similar", "references", "extends", "shares"]
    for relation in relations:
        assert not satisfied(pair(relation), {}, {"title": ("a",)})
        assert not satisfied(pair(relation), {"title": ("a",)}, {})
        assert not satisfied(pair(relation), {}, {})
        assert satisfied(Not(pair(relation)), {"title": ("a",)}, {})


def test_the_whole_item_on_both_sides() -> None:
    window: Attributes = {"title": ("Muse",), "price": (3.0,), "note": ("live",)}
    assert satisfied(pair("contains", WHOLE, TITLE), {"body": ("with Muse",)}, window)
    assert not satisfied(pair("contains", WHOLE, TITLE), {"body": ("with U2",)}, window)
    assert satisfied(pair("contains", TITLE, WHOLE), {"title": ("all live",)}, window)
    assert satisfied(pair("=", WHOLE, WHOLE), {"cost": (3.0,)}, window)
    assert not satisfied(pair("=", WHOLE, WHOLE), {"cost": (4.0,)}, window)


def test_parts_of_dates() -> None:
    year = Attribute("published", "year")
    assert satisfied(pair("=", year, year), {"published": (NOON,)}, {"published": (NOON - 30 * HOUR,)})
    assert not satisfied(pair("=", year, year), {"published": (NOON,)}, {"published": (NOON - 9000 * HOUR,)})
    assert satisfied(pair("=", PRICE, year), {"price": (2026.0,)}, {"published": (NOON,)})
    assert not satisfied(pair("=", year, year), {"published": ("2026",)}, {"published": ("2026",)})


def test_ordinary_atoms_read_the_item_and_not_the_window() -> None:
    both = conjunction([SAME, Contains(LINK, ("muse",))])
    assert satisfied(both, {"title": ("a",), "link": ("muse",)}, {"title": ("a",)})
    assert not satisfied(both, {"title": ("a",)}, {"title": ("a",), "link": ("muse",)})
    either = disjunction([SAME, Compare(PRICE, "=", 1.0)])
    assert satisfied(either, {"price": (1.0,)}, {})


# Annotations through feeds.


def cheap(node: Node) -> Node:
    return Filter(node, Compare(PRICE, "<", 5.0))


def photos_join(node: Node, name: str = "p", extent: timedelta | int = 9, window: Node | None = None) -> Node:
    return Gated(node, Join(extent, SAME, name), window or Read(PHOTOS))


def test_annotations_travel_through_views_filters_and_distinct() -> None:
    written: dict[int, Node] = {
        10: photos_join(Read(NEWS)),
        11: Read(10),
        12: cheap(Read(11)),
        13: Gated(Read(10), Distinct((TITLE,))),
        14: Gated(photos_join(Read(NEWS), "q"), Distinct((TITLE,))),
        15: Filter(Read(10), Compare(PRICE, ">", 5.0)),
    }
    results = evaluate([item(1, PHOTOS), item(2, NEWS), item(3, NEWS)], written)
    assert sorted(results[1].feeds) == [10, 11, 12, 13, 14]
    assert [results[1].annotations[feed] for feed in (10, 11, 12, 13)] == [{10: (1,)}] * 4
    assert notes(results[1], 14) == [(1,)]
    assert sorted(results[2].feeds) == [10, 11, 12]
    assert results[2].stopped[13] == Stop(2)
    assert not results[0].annotations


def test_a_join_over_distinct_and_a_window_over_distinct() -> None:
    unique = Gated(Read(NEWS), Distinct((TITLE,)))
    written: dict[int, Node] = {
        10: photos_join(unique),
        11: photos_join(Read(NEWS), window=Gated(Read(PHOTOS), Distinct((TITLE,)))),
    }
    results = evaluate([item(1, PHOTOS), item(2, PHOTOS), item(3, NEWS), item(4, NEWS)], written)
    assert [sorted(result.feeds) for result in results] == [[], [], [10, 11], [11]]
    assert notes(results[2], 10) == [(2, 1)]
    assert notes(results[2], 11) == notes(results[3], 11) == [(1,)]


def test_joins_over_joins_accumulate_and_all_must_hold() -> None:
    written: dict[int, Node] = {
        10: photos_join(Read(NEWS)),
        11: photos_join(Read(10), "v", window=Read(VIDEOS)),
        12: photos_join(photos_join(Read(NEWS), "a"), "b", window=Read(VIDEOS)),
    }
    results = evaluate([item(1, PHOTOS), item(2, NEWS), item(3, VIDEOS), item(4, NEWS)], written)
    assert [sorted(result.feeds) for result in results] == [[], [10], [], [10, 11, 12]]
    assert results[3].annotations[11] == {10: (1,), 11: (3,)}
    assert notes(results[3], 12) == [(1,), (3,)]


def test_a_window_of_joined_items_has_only_those_that_join() -> None:
    written: dict[int, Node] = {
        10: photos_join(Read(NEWS)),
        11: photos_join(Read(BLOGS), "n", window=Read(10)),
    }
    log = [item(1, NEWS), item(2, PHOTOS), item(3, NEWS), item(4, BLOGS)]
    results = evaluate(log, written)
    # Annotations of window items are not those of the item.
    assert results[3].annotations == {11: {11: (3,)}}
    # A window reaches back before the feeds that it reads were declared, and they still decide about its items.
    assert evaluate(log, written, feed10=3, feed11=3)[3].annotations == results[3].annotations


def test_a_union_has_the_annotations_of_the_branches_that_the_item_reaches() -> None:
    written: dict[int, Node] = {
        10: photos_join(Read(NEWS)),
        11: photos_join(Read(NEWS), "v", window=Read(VIDEOS)),
        12: Union((Read(10), Read(11), Read(NEWS))),
        13: Union((cheap(Read(10)), Filter(Read(11), Compare(PRICE, ">", 5.0)), Read(BLOGS))),
        14: Union((photos_join(Read(NEWS), "only"), Read(BLOGS))),
    }
    log = [item(1, PHOTOS), item(2, VIDEOS), item(3, NEWS), item(4, NEWS, "y"), item(5, BLOGS)]
    results = evaluate(log, written)
    assert results[2].annotations[12] == {10: (1,), 11: (2,)}
    assert results[2].annotations[13] == {10: (1,)}
    assert notes(results[2], 14) == [(1,)]
    assert sorted(results[3].feeds) == [12]
    assert not results[3].annotations
    assert sorted(results[4].feeds) == [13, 14]
    assert not results[4].annotations


def test_a_filter_below_a_count_window_decides_which_items_count() -> None:
    rock = Filter(Read(PHOTOS), Compare(PRICE, "=", 7.0))
    written: dict[int, Node] = {10: photos_join(Read(NEWS), extent=2, window=rock)}
    prices = [7.0, 1.0, 1.0, 7.0, 1.0, 1.0, 7.0, 1.0]
    log = [item(number, PHOTOS, price=price) for number, price in enumerate(prices, 1)]
    results = evaluate([*log, item(9, NEWS)], written)
    assert notes(results[8], 10) == [(7, 4)]


def test_a_count_window_over_a_union_is_not_the_union_of_windows() -> None:
    written: dict[int, Node] = {10: photos_join(Read(NEWS), extent=2, window=Union((Read(PHOTOS), Read(VIDEOS))))}
    feeds = [PHOTOS, VIDEOS, VIDEOS, PHOTOS, PHOTOS, VIDEOS]
    log = [item(number, feed) for number, feed in enumerate(feeds, 1)]
    assert notes(evaluate([*log, item(7, NEWS)], written)[6], 10) == [(6, 5)]


def test_a_feed_starts_after_its_declaration_but_its_window_does_not() -> None:
    written: dict[int, Node] = {10: photos_join(Read(NEWS))}
    log = [item(1, PHOTOS), item(2, NEWS), item(3, NEWS)]
    results = evaluate(log, written, feed10=2)
    assert [sorted(result.feeds) for result in results] == [[], [], [10]]
    assert notes(results[2], 10) == [(1,)]


def test_annotations_through_long_chains_and_shared_views() -> None:
    chain: dict[int, Node] = {1000: photos_join(Read(NEWS))}
    chain |= {feed: Read(feed - 1) for feed in range(1001, 3001)}
    definitions = {**chain, 1000: Gated(Read(NEWS), Join(9, SAME, "p"), Read(PHOTOS))}
    log = [item(1, PHOTOS), item(2, NEWS)]
    assert list(evaluate_log(log, definitions, {3000: 0}))[1].annotations == {3000: {1000: (1,)}}
    shared: dict[int, Node] = {feed: Union((Read(feed - 1), Read(feed - 1))) for feed in range(1001, 1040)}
    shared[1000] = definitions[1000]
    assert list(evaluate_log(log, shared, {1039: 0}))[1].annotations == {1039: {1000: (1,)}}


# Hidden feeds, groups, and stored and printed forms.


def test_windows_and_lower_gates_become_feeds_of_their_own() -> None:
    hidden: list[Node] = []

    def hide(definition: Node) -> int:
        hidden.append(definition)
        return 99 + len(hidden)

    window = Gated(Read(PHOTOS), Distinct((TITLE,)))
    node = photos_join(Union((photos_join(Read(NEWS), "q", window=cheap(Read(VIDEOS))), Read(BLOGS))), window=window)
    hidden_node = hide_gates(node, hide)
    assert isinstance(hidden_node, Gated)
    by_id = dict(enumerate(hidden, 100))
    assert isinstance(hidden_node.window, Read)
    outer = by_id[hidden_node.window.feed]
    assert isinstance(outer, Gated)
    assert outer.rule == Window((("title", "values"),))
    assert isinstance(outer.input, Read)
    assert by_id[outer.input.feed] == window
    assert isinstance(hidden_node.input, Union)
    inner = hidden_node.input.inputs[0]
    assert isinstance(inner, Read)
    lower = by_id[inner.feed]
    assert isinstance(lower, Gated)
    assert lower.rule == Join(9, SAME, "q")
    assert isinstance(lower.window, Read)
    assert by_id[lower.window.feed] == Gated(cheap(Read(VIDEOS)), Window((("title", "values"),)))
    assert hide_gates(hidden_node.input, hide) == hidden_node.input


def test_a_window_stores_and_indexes_the_attributes_that_the_condition_reads() -> None:
    year = Attribute("published", "year")
    condition = conjunction([SAME, Not(pair("=", PRICE, year)), Contains(LINK, ("x",))])
    assert Join(1, condition, "p").window_rule == Window((("published", "none"), ("title", "values")))
    whole = disjunction([SAME, pair("contains", TITLE, WHOLE)])
    assert Join(1, whole, "p").window_rule == Window(((WHOLE.name, "phrases"), ("title", "values")))
    assert Window((("title", "words"),)).history().add(item(1, NEWS), ()) == Pass()


def test_groups_of_windows_are_expanded() -> None:
    node = photos_join(ReadAll(1), window=ReadAll(1, ("art",)))
    assert list(groups_of(node)) == [ReadAll(1), ReadAll(1, ("art",))]
    expanded = expand_groups(node, lambda group: Read(7 if group.tags else 6))
    assert expanded == photos_join(Read(6), window=Read(7))
    assert expand_groups(expanded, lambda group: Read(0)) is expanded


names = st.sampled_from(["title", "dc:title", "item", "a'b"])
textual = names.map(Attribute) | st.just(WHOLE)
located = textual | st.builds(Attribute, names, st.sampled_from(PARTS))
window_atoms = st.one_of(
    st.builds(WindowAtom, st.sampled_from(["=", "<", "<=", ">", ">="]), located, located),
    st.builds(WindowAtom, st.sampled_from(["contains", "references", "extends", "shares"]), textual, textual),
    st.builds(WindowAtom, st.just("similar"), textual, textual, shares),
)
conditions: st.SearchStrategy[Expression] = st.recursive(
    window_atoms | st.builds(Contains, textual, st.just(("rock",))),  # type: ignore[arg-type]
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(conjunction)
        | st.lists(inner, min_size=2, max_size=3).map(disjunction)
        | inner.map(negation)
    ),
    max_leaves=5,
)
extents = st.integers(1, 1_000_000) | st.timedeltas(MICROSECOND, timedelta(days=366))
rules: st.SearchStrategy[GateRule] = st.builds(Join, extents, conditions, names) | st.builds(
    Window,
    st.lists(st.tuples(names, st.sampled_from(sorted(INDEXES))), min_size=1, max_size=3, unique=True).map(tuple),
)


@given(rules)
@settings(deadline=None, max_examples=150, derandomize=True)
def test_joins_and_windows_are_stored_and_read_back(rule: GateRule) -> None:
    assert decode_rule(encode_rule(rule)) == rule
    for node in (Gated(Read(1), rule, Read(2)), Gated(Union((Read(1), cheap(Read(3)))), rule, cheap(Read(2)))):
        assert decode_node(encode_node(node)) == node
    assert decode_node(encode_node(Gated(Read(1), rule))) == Gated(Read(1), rule)


@given(conditions)
@settings(deadline=None, max_examples=100, derandomize=True)
def test_conditions_are_printed_and_read_back(condition: Expression) -> None:
    assert decode_expression(encode_expression(condition)) == condition
    text = f"create feed F from A as $a join last 1 items on B with $a[x = window.x and ({render(condition)})]"
    statement = parse(text)[0].statement
    assert isinstance(statement, CreateFeed)
    x = Attribute("x")
    assert statement.query.joins[0].condition == conjunction([pair("=", x, x), condition])


STORED = encode_expression(SAME)


@pytest.mark.parametrize(
    "values",
    [
        [0, "p", STORED],
        [-5, "p", STORED],
        [True, "p", STORED],
        [2.5, "p", STORED],
        ["5", "p", STORED],
        [None, "p", STORED],
        [1_000_001, "p", STORED],
        [[0], "p", STORED],
        [[-1.0], "p", STORED],
        [["1"], "p", STORED],
        [[], "p", STORED],
        [[float("inf")], "p", STORED],
        [[float("nan")], "p", STORED],
        [[367 * 86_400.0], "p", STORED],
        [3, 7, STORED],
        [3, "p"],
        [3, "p", STORED, 1],
        [3, "p", ["window", "title"]],
        [3, "p", ["window", "title", "~", "title"]],
        [3, "p", ["window", "title", "=", "title", [1, 2]]],
        [3, "p", ["window", "title", "similar", "title"]],
        [3, "p", ["window", "title", "similar", "title", [1, 0]]],
        [3, "p", ["window", "title", "similar", "title", [0, 2]]],
        [3, "p", ["window", "title", "similar", "title", [3, 2]]],
        [3, "p", ["window", "title", "similar", "title", 0.5]],
    ],
)
def test_damaged_joins_are_refused(values: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"a stored join must be|comparison with a window"):
        decode_rule(["join", *values])


@pytest.mark.parametrize(
    "values", [[], [3], [None], ["title"], [["title"]], [["title", "hashes"]], [[3, "words"]], [["a", "words", "b"]]]
)
def test_damaged_windows_are_refused(values: list[Any]) -> None:
    with pytest.raises(ValueError, match="a stored window must be a non-empty list"):
        decode_rule(["window", *values])


def test_joins_are_described() -> None:
    assert Join(HOUR, SAME, "p").describe() == "joins one of the items of the last 1 hour: title = window.title"
    assert Join(5, Not(SAME), "p").render() == "join last 5 items with [not title = window.title]"
    assert Join(5, SAME, "p").lookback > timedelta(days=365 * 50)
    assert Join(HOUR, SAME, "p").lookback == HOUR
    assert render(WindowAtom("similar", TITLE, WHOLE, Fraction(3, 5))) == (  # type: ignore[arg-type]
        "title similar window.item at least 0.6"
    )
