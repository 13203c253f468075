"""Generators of small worlds with gated feeds: nested views over them, items with repeated values, and batches."""

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
    """Feeds that read only feeds with smaller ids, the sequence after which each starts, and items in log order."""

    definitions: dict[int, Node]
    since: dict[int, int]
    items: tuple[LoggedItem, ...]
    cuts: tuple[int, ...]

    def expected(self) -> dict[int, set[int]]:
        """Return the feeds that each item belongs to, by sequence, according to the reference evaluator."""
        evaluated = evaluate_log(self.items, self.definitions, self.since)
        return {entry.item.sequence: set(entry.feeds) for entry in evaluated}

    def batches(self) -> list[ItemBatch]:
        """Return the items in batches, divided at `cuts`."""
        bounds = [0, *self.cuts, len(self.items)]
        return [batch_of(self.items[low:high]) for low, high in pairwise(bounds) if low < high]


def batch_of(items: Sequence[LoggedItem]) -> ItemBatch:
    """Build a batch from items of a log."""
    ids = {name: feed for feed, name in SOURCES.items()}
    return ItemBatch.of(
        [
            Item(SOURCES[item.feed], item.id, item.attributes, sequence=item.sequence, time=item.accepted)
            for item in items
        ],
        ids,
    )


def readers_of(feed: int, definitions: Mapping[int, Node]) -> set[int]:
    """Return a feed and all its direct and indirect readers. Feeds read only feeds with smaller ids."""
    readers = {feed}
    for candidate in sorted(definitions):
        if readers & set(reads(definitions[candidate])):
            readers.add(candidate)
    return readers


@st.composite
def nodes(
    draw: st.DrawFn,
    readable: Iterable[int],
    *,
    gated: bool | None = None,
    rules: st.SearchStrategy[GateRule] = DISTINCT_RULES,
) -> Node:
    """Generate a query over these feeds, with or without a gate."""
    inputs: list[Node] = []
    for feed in draw(st.lists(st.sampled_from(sorted(readable)), min_size=1, max_size=3)):
        read: Node = Read(feed)
        inputs.append(Filter(read, draw(st.sampled_from(_CONDITIONS))) if draw(st.booleans()) else read)
    query = inputs[0] if len(inputs) == 1 else Union(tuple(inputs))
    if draw(st.booleans()):
        query = Filter(query, draw(st.sampled_from(_CONDITIONS)))
    if draw(st.booleans()) if gated is None else gated:
        return Gated(query, draw(rules))
    return query


@st.composite
def logged(draw: st.DrawFn) -> tuple[LoggedItem, ...]:
    """Generate items in log order whose ids and attributes often repeat."""
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
    """Generate a world with at least one gated feed."""
    definitions: dict[int, Node] = {}
    for feed in range(FIRST, FIRST + draw(st.integers(1, 6))):
        definitions[feed] = draw(nodes([*SOURCES, *definitions], gated=True if feed == FIRST else None, rules=rules))
    items = draw(logged())
    since = {feed: draw(st.sampled_from((0, 0, 0, 2, 5))) for feed in definitions}
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(items) - 1)), max_size=4)))
    return GatedWorld(definitions, since, items, tuple(cut for cut in cuts if cut < len(items)))
