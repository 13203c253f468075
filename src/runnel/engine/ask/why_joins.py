"""The joins in an answer of `why`: the window as of the item, the items that it joins, or the nearest ones.

In: an item, and the joins that it reached. Out: steps of the trace, and JSON. Items of feeds that the actor may not
read are counted, not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, cast

from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.query import Gated, Node, Read
from runnel.algebra.nodes.render import render
from runnel.algebra.semantics.joins import Join
from runnel.algebra.semantics.near_misses import PairOfItems
from runnel.algebra.semantics.trace import Trace, trace_expression, trace_node
from runnel.algebra.semantics.window_conditions import condition_given
from runnel.engine.trial.find_stops import ReachedJoin
from runnel.engine.workspace import Workspace
from runnel.model.item import Item

_SHOWN = 3
"""The number of joined or nearest items that the text shows. The JSON has all joined items."""

_LOADED = 100
"""The number of items that are in memory at a time."""

_COMPARED = 10_000
"""The nearest items are chosen among at most this number of newest items of the window."""

_TITLE_CHARACTERS = 30


@dataclass(frozen=True, slots=True)
class ComparedItem:
    """An item of the window: its similarity to the item, what it lacks, and why it is in the window."""

    item: Item
    similarity: float | None
    lacks: tuple[str, ...]
    pair: Trace
    window: Trace

    def to_json(self) -> dict[str, Any]:
        """Return the item as a JSON value."""
        return {
            "feed": self.item.feed,
            "item": self.item.id,
            "version": self.item.version,
            "sequence": self.item.sequence,
            "title": self.item.first("title"),
            "similarity": self.similarity,
            "lacks": list(self.lacks),
            "trace": [*self.pair.lines(), *self.window.lines()],
        }

    def trace(self) -> Trace:
        """Return the item as a step of a trace."""
        if self.lacks:
            return Trace(f"{self._name()}: {'; '.join(self.lacks)}", False)
        similarity = "" if self.similarity is None else f" (similarity {self.similarity:.2f})"
        return Trace(f"{self._name()}{similarity}", True, parts=(self.pair, self.window))

    def title(self) -> str:
        """Return the title, shortened, or the id if the item has none."""
        title = str(self.item.first("title") or self.item.id)
        return title if len(title) <= _TITLE_CHARACTERS else f"{title[: _TITLE_CHARACTERS - 1]}…"

    def _name(self) -> str:
        return f"{self.item.feed} item {self.item.id}, {self.title()}"


@dataclass(frozen=True, slots=True)
class ExplainedJoin:
    """A join that an item reached: the number of items in its window, and the items that it joins.

    `count` is the number of joined items, including those that are not in `joined`: only the newest are recorded, and
    those of feeds that the actor may not read are not shown. `nearest` are the items that come closest if it joins
    none. They were chosen among the newest `compared` items.
    """

    gate: int
    name: str
    condition: str
    extent: str
    members: int
    count: int
    joined: tuple[ComparedItem, ...]
    nearest: tuple[ComparedItem, ...]
    compared: int

    def to_json(self) -> dict[str, Any]:
        """Return the join as a JSON value."""
        return {
            "join": self.name,
            "condition": self.condition,
            "window": {"extent": self.extent, "items": self.members},
            "count": self.count,
            "joined": [item.to_json() for item in self.joined],
            "nearest": [item.to_json() for item in self.nearest],
            "compared": self.compared,
        }

    def steps(self) -> tuple[Trace, ...]:
        """Return the join as steps of a trace."""
        items = "1 item" if self.members == 1 else f"{self.members:,} items"
        if self.count:
            shown = self.joined[:_SHOWN]
            more = self.count - len(shown)
            hidden = (Trace(f"and {more:,} more", True),) if more else ()
            label = f"{self.name}: joins {self.count:,} of {items} in the window"
            return (Trace(label, True, parts=(*(item.trace() for item in shown), *hidden)),)
        if not self.members:
            return (Trace(f"{self.name}: no item is in the window", False),)
        limited = f" among the newest {self.compared:,}" if self.compared < self.members else ""
        nearest = f"; nearest{limited}: {self.nearest[0].title()}" if self.nearest else ""
        label = f"no {singular(self.name)} in the window is {self._failure()}{nearest}"
        return (
            Trace(f"{self.name}: {items} in the window", True),
            Trace(label, False, parts=tuple(item.trace() for item in self.nearest)),
        )

    def _failure(self) -> str:
        by_similarity = self.nearest and all(": similarity " in lack for lack in self.nearest[0].lacks)
        return "similar enough" if by_similarity else "related to the item"


def singular(name: str) -> str:
    """Return the word for one item of an annotation with this name, or `item` if its name is not a plural.

    >>> singular("photos"), singular("stories"), singular("news"), singular("join1")
    ('photo', 'story', 'item', 'item')
    """
    if name.endswith("ies") and len(name) > 4:
        return f"{name[:-3]}y"
    is_plural = name.endswith("s") and name[-2:] not in ("ss", "us", "is") and name != "news" and len(name) > 3
    return name[:-1] if is_plural else "item"


def explain_joins(
    workspace: Workspace,
    item: Item,
    joins: Mapping[int, ReachedJoin],
    definitions: Mapping[int, Node],
    names: dict[int, str],
    readable: Mapping[int, str],
) -> list[ExplainedJoin]:
    """Explain the joins that an item reached. `names` has names of all feeds, `readable` those of readable feeds."""
    return [
        _WindowComparison(workspace, item, cast(Gated, definitions[gate]), definitions, names, readable).explain(
            gate, join
        )
        for gate, join in joins.items()
    ]


@dataclass(frozen=True, slots=True)
class _WindowComparison:
    """Compares an item with the items of a join's window."""

    workspace: Workspace
    item: Item
    node: Gated
    definitions: Mapping[int, Node]
    names: dict[int, str]
    readable: Mapping[int, str]

    def explain(self, gate: int, join: ReachedJoin) -> ExplainedJoin:
        rule = cast(Join, self.node.rule)
        joined: list[tuple[int, Item]] = []
        nearest: list[tuple[int, Item]] = []
        compared = join.members[-_COMPARED:].tolist()
        if join.joined is not None:
            joined = list(self._load(join.joined.newest))
        else:
            # Of equally close items, the newest comes first.
            nearest = nlargest(
                _SHOWN,
                self._load(compared),
                key=lambda entry: (self._pair(entry[1]).closeness(rule.condition), entry[1].sequence or 0),
            )
        return ExplainedJoin(
            gate,
            rule.name,
            render(rule.condition),
            rule.extent_text,
            len(join.members),
            0 if join.joined is None else join.joined.count,
            tuple(self._compared(feed, item, rule.condition) for feed, item in reversed(joined)),
            tuple(self._compared(feed, item, rule.condition) for feed, item in nearest),
            len(compared) if join.joined is None else 0,
        )

    def _load(self, sequences: Sequence[int]) -> Iterator[tuple[int, Item]]:
        """Yield the readable items with these sequences, in ascending order, each with the id of its feed."""
        ordered = sorted(sequences)
        for first in range(0, len(ordered), _LOADED):
            for batch in self.workspace.items.get(ordered[first : first + _LOADED]):
                for feed, item in zip(batch.feeds.tolist(), batch.items(self.names), strict=True):
                    if feed in self.readable:
                        yield feed, item

    def _pair(self, window: Item) -> PairOfItems:
        return PairOfItems(self.item.attributes, window.attributes, self.item.time)

    def _compared(self, feed: int, window: Item, condition: Expression) -> ComparedItem:
        pair = self._pair(window)
        given = trace_expression(condition_given(condition, window.attributes), self.item.attributes, self.item.time)
        source = cast(Gated, self.definitions[cast(Read, self.node.window).feed]).input
        below = trace_node(source, feed, window.attributes, self.definitions, self.names, window.time)
        return ComparedItem(
            window, pair.similarity(condition), tuple(pair.lacks(condition)) if not given.holds else (), given, below
        )
