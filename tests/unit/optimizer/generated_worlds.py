"""Hypothesis strategies for small worlds: source feeds, views on views, conditions and items.

The vocabulary is small so that conditions match items, and it has edge cases: words that change by case folding,
numbers that equal booleans in Python, times at the end of a day, attributes without a value or with several.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

from hypothesis import strategies as st

from runnel.algebra.nodes.attributes import PARTS, WHOLE, Ago, Attribute, Constant
from runnel.algebra.nodes.expressions import (
    And,
    AtomRelation,
    Between,
    Compare,
    Contains,
    ContainsPattern,
    ContainsStems,
    Exists,
    Expression,
    Extends,
    In,
    InNetwork,
    Not,
    Or,
    References,
    RegularExpression,
    Shares,
    Similar,
    Truth,
)
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.algebra.values.words import words
from runnel.model.item import Item, Value
from runnel.model.item_batch import ItemBatch

SOURCES = (1, 2, 3)
NAMES = {1: "One", 2: "Two", 3: "Three"}
_TEXTS = (
    "rock",
    "Rock concert",
    "concert rock",
    "STRASSE",
    "straße 東京",
    "東 京",
    "it's",
    "",
    "1",
    "true",
    "a b a b",
    "Running shoes, rock concerts",
    "see https://www.muse.example/news/1, or <a href='http://b.example/'>b</a>",
)
_NUMBERS = (-1.0, 0.0, -0.0, 1.0, 2.5, 7.0, 1e300)
_MOMENTS = (
    datetime(2026, 11, 15, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2026, 11, 16, tzinfo=UTC),
    datetime(1969, 12, 31, 1, 1, tzinfo=UTC),
)
_LINKS = ("https://muse.example/news", "HTTPS://Muse.Example:443/news/2#top", "http://b.example", "no link")
_ADDRESSES = ("10.0.0.1", "::ffff:10.2.3.4", "2001:db8::1", "10.0.0.1:80", "192.168.0.1")
_TIMES = (datetime(2026, 11, 16, 12, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC))
_AGO = tuple(Ago(timedelta(hours=hours)) for hours in (0, 1, 13, 24, 24 * 365 * 100))
_OPERATORS: tuple[AtomRelation, ...] = ("=", "<", "<=", ">", ">=")

_PHRASES = tuple(tuple(words(text)) for text in (*_TEXTS, "concert", "b a", "京", "zebra") if words(text))
_DAYS = (date(2026, 11, 15), date(2026, 11, 16), date(1969, 12, 31))

# Most atoms compare an attribute with its usual values, so that they are often true or narrowly false.
_USUAL: dict[str, tuple[tuple[Value, ...], tuple[Constant, ...]]] = {
    "title": (_TEXTS[:7] + _TEXTS[8:], _TEXTS),
    "price": (_NUMBERS, _NUMBERS),
    "flag": ((True, False, 1.0, 0.0, "true"), (True, False, 1.0, 0.0, "true")),
    "published": (_MOMENTS, (*_MOMENTS, *_DAYS, *_AGO)),
    "link": (_LINKS, _LINKS),
    "client": (_ADDRESSES, _ADDRESSES),
}
_ODD_VALUES: tuple[Value, ...] = (*_TEXTS[:2], *_NUMBERS[:4], True, _MOMENTS[0])
_ODD_CONSTANTS: tuple[Constant, ...] = (*_TEXTS[:2], *_NUMBERS[:4], True, _MOMENTS[0], _DAYS[0], _AGO[1])


def _values_of(name: str) -> st.SearchStrategy[Value]:
    usual: st.SearchStrategy[Value] = st.sampled_from(_USUAL[name][0])
    return st.one_of(usual, usual, usual, st.sampled_from(_ODD_VALUES))


@st.composite
def _attributes_and_constants(draw: st.DrawFn) -> tuple[Attribute, st.SearchStrategy[Constant]]:
    name = draw(st.sampled_from((*_USUAL, "missing", WHOLE.name)))
    if name == "published" and draw(st.booleans()):
        part = draw(st.sampled_from(PARTS))
        return Attribute(name, part), st.sampled_from([0.0, 1.0, 7.0, 11.0, 12.0, 15.0, 16.0, 23.0, 59.0, 2026.0])
    if name in ("missing", WHOLE.name) or draw(st.integers(0, 7)) == 0:
        part = draw(st.sampled_from((None, *PARTS)))
        return Attribute(name, part), st.sampled_from(_ODD_CONSTANTS)
    return Attribute(name), st.sampled_from(_USUAL[name][1])


@st.composite
def _comparisons(draw: st.DrawFn) -> Expression:
    attribute, constants = draw(_attributes_and_constants())
    match draw(st.integers(0, 4)):
        case 0 | 1:
            return Compare(attribute, draw(st.sampled_from(_OPERATORS)), draw(constants))
        case 2:
            return Between(attribute, draw(constants), draw(constants))
        case 3:
            return In(attribute, tuple(draw(st.lists(constants, max_size=4))))
        case _:
            return Exists(attribute)


_texts = st.sampled_from([Attribute("title")] * 6 + [WHOLE] * 2 + [Attribute("price"), Attribute("published", "day")])
_words: st.SearchStrategy[Expression] = st.builds(Contains, _texts, st.sampled_from(_PHRASES))
_kinds_of_words: st.SearchStrategy[Expression] = st.one_of(
    st.builds(
        ContainsPattern,
        _texts,
        st.sampled_from([("ro*",), ("r?ck", "con*"), ("*",), ("*k", "concert"), ("東", "?"), ("str*e",), ("a", "*")]),
    ),
    st.builds(
        ContainsStems,
        _texts,
        st.sampled_from(["english", "german"]),
        st.sampled_from([("run", "shoe"), ("concert",), ("concerts",), ("running",), ("rock", "concert")]),
    ),
    st.builds(
        Similar,
        _texts,
        st.sampled_from([("rock",), ("rock", "concert"), ("a", "b", "c"), ("東", "京", "strasse")]),
        st.sampled_from([Fraction(1, 3), Fraction(1, 2), Fraction(3, 5), Fraction(2, 3), Fraction(1)]),
    ),
    st.builds(RegularExpression, _texts, st.sampled_from(["ro", "^Rock", "(?i)ROCK$", "", "[東京]", "a.b$", r"\d"])),
)
_places: st.SearchStrategy[Expression] = st.one_of(
    st.builds(
        InNetwork,
        st.sampled_from([Attribute("client")] * 3 + [Attribute("title"), WHOLE]),
        st.sampled_from([("10.0.0.0/8",), ("10.0.0.1/32", "2001:db8::/32"), ("::/0",)]),
    ),
    st.sampled_from([Attribute("link")] * 3 + [Attribute("title"), WHOLE]).flatmap(
        lambda attribute: st.one_of(
            st.builds(
                References, st.just(attribute), st.sampled_from(["muse.example", "example", "http://b.example/"])
            ),
            st.builds(
                Extends,
                st.just(attribute),
                st.sampled_from(["https://muse.example/news", "https://www.muse.example/"]),
            ),
            st.builds(
                Shares,
                st.just(attribute),
                st.sampled_from(
                    [("http://b.example/",), ("https://muse.example/news", "https://muse.example/news/2")]
                ),
            ),
        )
    ),
)
atoms: st.SearchStrategy[Expression] = st.one_of(
    _words, _comparisons(), _words, _kinds_of_words, _places, st.builds(Truth, st.booleans())
)


def _wider(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=1, max_size=4).map(tuple)
    return st.one_of(st.builds(And, several), st.builds(Or, several), st.builds(Not, inner))


expressions: st.SearchStrategy[Expression] = st.recursive(atoms, _wider, max_leaves=10)


@st.composite
def nodes(draw: st.DrawFn, readable: tuple[int, ...]) -> Node:
    """Generate a query node over existing feeds."""
    inputs = draw(st.lists(st.sampled_from(readable), min_size=1, max_size=3))
    parts: list[Node] = []
    for feed in inputs:
        condition = draw(st.one_of(st.none(), expressions))
        parts.append(Read(feed) if condition is None else Filter(Read(feed), condition))
    joined: Node = parts[0] if len(parts) == 1 else Union(tuple(parts))
    condition = draw(st.one_of(st.none(), expressions))
    return joined if condition is None else Filter(joined, condition)


@dataclass(frozen=True)
class GeneratedWorld:
    """Views by id, and items of the source feeds."""

    definitions: dict[int, Node]
    items: tuple[Item, ...]

    @property
    def batch(self) -> ItemBatch:
        return ItemBatch.of(self.items, {name: feed for feed, name in NAMES.items()})


@st.composite
def _items(draw: st.DrawFn) -> Item:
    names = draw(st.sets(st.sampled_from(sorted(_USUAL)), min_size=1))
    attributes = {name: tuple(draw(st.lists(_values_of(name), min_size=1, max_size=3))) for name in sorted(names)}
    feed, time = draw(st.sampled_from(sorted(NAMES.values()))), draw(st.sampled_from(_TIMES))
    return Item(feed, "item", attributes, time=time)


@st.composite
def worlds(draw: st.DrawFn) -> GeneratedWorld:
    """Generate a world whose views read sources and earlier views, including diamonds of views."""
    definitions: dict[int, Node] = {}
    for feed in range(10, 10 + draw(st.integers(1, 6))):
        definitions[feed] = draw(nodes((*SOURCES, *definitions, *definitions)))
    return GeneratedWorld(definitions, tuple(draw(st.lists(_items(), max_size=12))))
