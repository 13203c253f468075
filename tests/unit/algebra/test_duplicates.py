"""The reference semantics of `distinct`: keys, windows, and feeds that read each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.encode import decode_node, encode_node
from runnel.algebra.nodes.expressions import Compare
from runnel.algebra.nodes.gate_rules import LoggedItem, Stop
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, Union, reads
from runnel.algebra.semantics.distinct import ID, Distinct, encode_key, key_digest, key_of
from runnel.algebra.semantics.evaluate import accepts
from runnel.algebra.semantics.evaluate_log import evaluate_log
from runnel.algebra.semantics.trace import trace_node
from runnel.model.item import Value

TITLE, LINK, PRICE = Attribute("title"), Attribute("link"), Attribute("price")
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAYS = timedelta(days=2)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("Muse on tour", " MUSE\ton  Tour\n", True),
        ("Straße", "STRASSE", True),
        ("Caf\u00e9", "Cafe\u0301", True),
        ("Muse on tour", "Muse on tour!", False),
        ("résumé", "resume", False),
        # Links are compared in canonical form: hosts ignore case, paths do not.
        ("HTTPS://Muse.example:443/a#top", "https://muse.example/a", True),
        ("https://video.example/AbC", "https://video.example/aBc", False),
        (3.0, 3.0, True),
        (0.0, -0.0, True),
        (1.0, True, False),
        (3.0, "3.0", False),
        (NOON, NOON.astimezone(tz=None), True),
        (NOON, NOON + timedelta(microseconds=1), False),
    ],
)
def test_keys_ignore_case_whitespace_and_link_spelling(left: Value, right: Value, same: bool) -> None:
    keys = [key_of((TITLE,), "1", {"title": (value,)}) for value in (left, right)]
    assert (keys[0] == keys[1]) is same
    digests = [key_digest(encode_key(key), b"h") for key in keys if key is not None]
    assert (digests[0] == digests[1]) is same


def test_key_has_all_values_of_all_attributes_in_order() -> None:
    def key(**attributes: tuple[Value, ...]) -> object:
        return key_of((TITLE, LINK), "1", attributes)

    assert key(title=("a", "b")) != key(title=("b", "a"))
    assert key(title=("a", "b")) != key(title=("a",), link=("b",))
    assert key(title=("a",)) != key(link=("a",))
    assert key(title=("a",), price=(1.0,)) == key(title=("A",), price=(2.0,))
    assert key(title=("",)) is key(title=(" \t",)) is key(price=(1.0,)) is None
    assert key_of((Attribute("published", "year"),), "1", {"published": (NOON,)}) is not None
    assert key_of((Attribute("title", "year"),), "1", {"title": ("2026",)}) is None


def test_ids_are_compared_exactly() -> None:
    assert key_of((ID,), "a", {}) != key_of((ID,), "A", {})
    assert key_of((ID,), "a", {"id": ("x",)}) == key_of((ID,), "a", {"id": ("y",)})


def log(*rows: tuple[float, int, str, int]) -> list[LoggedItem]:
    """Return items from their day of acceptance, source feed, title (omitted if empty) and price."""
    return [
        LoggedItem(
            number,
            NOON + timedelta(days=day),
            feed,
            str(number),
            {"price": (float(price),)} | ({"title": (title,)} if title else {}),
        )
        for number, (day, feed, title, price) in enumerate(rows, 1)
    ]


def shown(definitions: dict[int, Node], items: list[LoggedItem], since: dict[int, int]) -> list[list[int]]:
    return [sorted(entry.feeds) for entry in evaluate_log(items, definitions, since)]


def cheap(node: Node) -> Node:
    return Filter(node, Compare(PRICE, "<", 5.0))


def test_item_is_stopped_if_an_equal_item_came_within_the_window() -> None:
    news: dict[int, Node] = {9: Gated(Union((Read(1), Read(2))), Distinct((TITLE,), DAYS))}
    items = log((0, 1, "a", 1), (1, 2, "A", 1), (1.5, 1, "b", 1), (2.9, 1, "a", 1), (4.9, 1, "a", 1), (5, 3, "a", 1))
    # The fourth is 1.9 days after the second, which was stopped; the fifth is exactly two days after the fourth.
    assert shown(news, items, {9: 0}) == [[9], [], [9], [], [9], []]
    assert [entry.stopped.get(9) for entry in evaluate_log(items, news, {9: 0})] == [
        None,
        Stop(1),
        None,
        Stop(2),
        None,
        None,
    ]


def test_only_items_that_the_query_accepts_count_as_earlier() -> None:
    news: dict[int, Node] = {9: Gated(cheap(Read(1)), Distinct((TITLE,), DAYS))}
    assert shown(news, log((0, 1, "a", 9), (0, 1, "a", 1), (0, 1, "a", 1)), {9: 0}) == [[], [9], []]


def test_item_without_a_key_is_never_a_duplicate() -> None:
    news: dict[int, Node] = {9: Gated(Read(1), Distinct((TITLE,), DAYS))}
    assert shown(news, log((0, 1, "", 1), (0, 1, "", 1)), {9: 0}) == [[9], [9]]


def test_items_before_the_start_of_the_query_have_no_effect() -> None:
    news: dict[int, Node] = {9: Gated(Read(1), Distinct((TITLE,), DAYS)), 10: Read(9)}
    items = log((0, 1, "a", 1), (0, 1, "a", 1), (0, 1, "a", 1))
    assert shown(news, items, {9: 1}) == [[], [9], []]
    assert shown(news, items, {9: 1, 10: 0}) == [[10], [9, 10], []]


def test_distinct_feeds_over_views_unions_and_distinct_feeds() -> None:
    definitions: dict[int, Node] = {
        9: Gated(Read(1), Distinct((TITLE,), DAYS)),
        10: cheap(Read(9)),
        11: Union((Read(9), cheap(Read(1)))),
        12: Gated(Union((Read(9), Read(2))), Distinct((PRICE,), DAYS)),
        13: Read(12),
    }
    items = log((0, 1, "a", 1), (0, 1, "a", 1), (0, 1, "b", 9), (0, 2, "c", 9), (0, 2, "d", 7), (0, 1, "b", 7))
    # The second reaches 11 through its other input; the fourth has the price of the third; 9 (b) stops the last.
    assert shown(definitions, items, dict.fromkeys(definitions, 0)) == [
        [9, 10, 11, 12, 13],
        [11],
        [9, 11, 12, 13],
        [],
        [12, 13],
        [],
    ]


def test_clause_is_printed_in_its_shortest_form() -> None:
    assert Distinct((ID,), timedelta(days=30)).render() == "distinct"
    assert Distinct((ID,), timedelta(hours=30)).render() == "distinct within 30 hours"
    assert Distinct((TITLE, Attribute("dc:title"))).render() == 'distinct by title, "dc:title"'


def test_stored_distinct_node_is_decoded_to_the_same_node() -> None:
    node = Gated(
        cheap(Union((Read(1), Read(2)))), Distinct((TITLE, Attribute("published", "day")), timedelta(minutes=90))
    )
    assert decode_node(encode_node(node)) == node
    assert list(reads(node)) == [1, 2]


def test_trace_names_the_earlier_item() -> None:
    definitions: dict[int, Node] = {9: Gated(cheap(Read(1)), Distinct((TITLE,), DAYS)), 10: Read(9)}
    item: dict[str, tuple[Value, ...]] = {"title": ("a",), "price": (1.0,)}
    assert accepts(Read(10), 1, item, definitions)
    assert not accepts(Read(10), 1, item, definitions, stopped={9})
    names = {1: "Wire", 9: "News", 10: "Top"}
    messages = trace_node(Read(10), 1, item, definitions, names, stopped={9: "Wire item 7"})
    assert not messages.holds
    assert messages.lines()[:3] == ["✗ is in Top", "  ✗ is in News", "    ✓ both"]
    assert messages.lines()[-1] == "    ✗ no earlier item with the same title within 2 days: Wire item 7"
    outside = trace_node(Read(10), 1, {"title": ("a",), "price": (9.0,)}, definitions, names)
    assert "earlier" not in "\n".join(outside.lines())
