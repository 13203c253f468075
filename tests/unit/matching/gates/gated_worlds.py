"""Small generated worlds with gated feeds: views over them, in any depth, items that repeat, and batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import strategies as st

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Compare, Contains, Expression, Or
from runnel.algebra.nodes.gate_rules import GateRule, LoggedItem
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, Union, reads
from runnel.algebra.semantics.distinct import ID, Distinct
from runnel.algebra.semantics.evaluate_log import evaluate_log
from runnel.model.item import Item, Value
from runnel.model.item_batch import ItemBatch

SOURCES = {1: "One", 2: "Two"}
FIRST = 10
START = datetime(2026, 11, 1, tzinfo=UTC)
TITLE, PRICE = Attribute("title"), Attribute("price")
_CONDITIONS: tuple[Expression, ...] = (
    Compare(PRICE, "<", 3.0),
    Contains(TITLE, ("a",)),
    Or((Contains(TITLE, ("b",)), Compare(PRICE, "=", 2.0))),
)
DISTINCT_RULES: st.SearchStrategy[GateRule] = st.builds(
    Distinct,
    st.sampled_from(((TITLE,), (PRICE,), (TITLE, PRICE), (ID,))),
    st.integers(1, 3).map(lambda days: timedelta(days=days)),
)


@dataclass(frozen=True)
class GatedWorld:
    """Feeds that read only those before them, each live since a sequence, and items in order."""

    definitions: dict[int, Node]
    since: dict[int, int]
    items: tuple[LoggedItem, ...]
    cuts: tuple[int, ...]

    def expected(self) -> dict[int, set[int]]:
        """The feeds that each item is in, by sequence."""
        found = evaluate_log(self.items, self.definitions, self.since)
        return {one.item.sequence: set(one.feeds) for one in found}

    def batches(self) -> list[ItemBatch]:
        """The items in batches, cut anywhere."""
        bounds = [0, *self.cuts, len(self.items)]
        return [batch_of(self.items[low:high]) for low, high in pairwise(bounds) if low < high]


def batch_of(items: Sequence[LoggedItem]) -> ItemBatch:
    """Items of a log in columns."""
    ids = {name: feed for feed, name in SOURCES.items()}
    made = [
        Item(SOURCES[one.feed], one.id, one.attributes, sequence=one.sequence, time=one.accepted) for one in items
    ]
    return ItemBatch.of(made, ids)


def readers_of(feed: int, definitions: Mapping[int, Node]) -> set[int]:
    """A feed and all that read it; feeds read only those with smaller ids."""
    found = {feed}
    for one in sorted(definitions):
        if found & set(reads(definitions[one])):
            found.add(one)
    return found


@st.composite
def nodes(
    draw: st.DrawFn,
    readable: Iterable[int],
    *,
    gated: bool | None = None,
    rules: st.SearchStrategy[GateRule] = DISTINCT_RULES,
) -> Node:
    """A query over some feeds, with a gate or without."""
    terms: list[Node] = []
    for feed in draw(st.lists(st.sampled_from(sorted(readable)), min_size=1, max_size=3)):
        term: Node = Read(feed)
        terms.append(Filter(term, draw(st.sampled_from(_CONDITIONS))) if draw(st.booleans()) else term)
    whole = terms[0] if len(terms) == 1 else Union(tuple(terms))
    if draw(st.booleans()):
        whole = Filter(whole, draw(st.sampled_from(_CONDITIONS)))
    if draw(st.booleans()) if gated is None else gated:
        return Gated(whole, draw(rules))
    return whole


@st.composite
def logged(draw: st.DrawFn) -> tuple[LoggedItem, ...]:
    """Items that often repeat one another, in the order of a log."""
    items: list[LoggedItem] = []
    accepted = START
    for sequence in range(1, draw(st.integers(1, 14)) + 1):
        accepted += timedelta(days=draw(st.sampled_from((0, 0, 0.5, 1, 2))))
        attributes: dict[str, tuple[Value, ...]] = {"price": (float(draw(st.integers(1, 4))),)}
        title = draw(st.sampled_from(("a", "A ", "b", "a b", "")))
        if title:
            attributes["title"] = (title,)
        item = draw(st.sampled_from(("x", "y", f"{sequence}")))
        items.append(LoggedItem(sequence, accepted, draw(st.sampled_from(sorted(SOURCES))), item, attributes))
    return tuple(items)


@st.composite
def gated_worlds(draw: st.DrawFn, rules: st.SearchStrategy[GateRule] = DISTINCT_RULES) -> GatedWorld:
    """A world with at least one gated feed."""
    definitions: dict[int, Node] = {}
    for feed in range(FIRST, FIRST + draw(st.integers(1, 6))):
        definitions[feed] = draw(nodes([*SOURCES, *definitions], gated=True if feed == FIRST else None, rules=rules))
    items = draw(logged())
    since = {feed: draw(st.sampled_from((0, 0, 0, 2, 5))) for feed in definitions}
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(items) - 1)), max_size=4)))
    return GatedWorld(definitions, since, items, tuple(one for one in cuts if one < len(items)))
