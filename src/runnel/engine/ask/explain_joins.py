"""Explain the joins of a feed: both sides, the window, the index, and the cost model of RoSeS (section 4.2).

In: the definitions of a feed. Out: per join the quantities of the paper's Table 1, R(b), S(w) and sel(p), and the
candidates per item: of a nested loop, estimated for the index, and measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, cast

import pyarrow as pa

from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union
from runnel.algebra.nodes.render import render, render_name
from runnel.algebra.semantics.joins import Join
from runnel.catalog.declared import feeds
from runnel.catalog.declared.subscriptions import moment_of
from runnel.catalog.logs import gate_states
from runnel.catalog.logs.join_work import CountedWork, work_of_joins
from runnel.engine.actors import Actor, names_for
from runnel.engine.trial.stored_windows import StoredWindows, read_stored_windows
from runnel.engine.workspace import Workspace
from runnel.optimizer.describe import counted

_LAST = 1 << 62
_DAY = 86_400 * 1_000_000
_SHORTEST_SPAN = _DAY // 24
"""A rate is computed from a span of at least an hour."""


@dataclass(frozen=True, slots=True)
class ExplainedWindow:
    """A window as it is stored: its items and their bytes, the oldest item, and the queries that share it.

    `items` is None if the window is not filled. `queries` counts only those that the actor may know of.
    """

    source: str
    extent: str
    items: int | None
    bytes: int
    oldest: datetime | None
    queries: int

    def line(self) -> str:
        """Return the window as a line of text."""
        shared = f"shared by {counted(self.queries, 'query')}"
        if self.items is None:
            return f"window: not filled; it is when an item first reaches the join; {shared}"
        since = "" if self.oldest is None else f" since {self.oldest.isoformat(sep=' ', timespec='seconds')}"
        return f"window: {counted(self.items, 'item')}{since}, {self.bytes:,} bytes; {shared}"


@dataclass(frozen=True, slots=True)
class ExplainedJoin:
    """A join: its sides, condition and index, and the quantities of the cost model.

    `reached`, R(b), is the number of items that reached the join, and `per_day` their rate. `selectivity`, sel(p), is
    the share of them that passed. `nested_loop`, S(w), is the number of items in the window. `expected`, `measured`
    and `joined` are numbers of window items per item: estimated candidates, counted candidates, joined items.
    """

    name: str
    feed: str
    primary: str
    window: ExplainedWindow
    condition: str
    index: str | None
    reached: int | None
    per_day: float | None
    selectivity: float | None
    nested_loop: int | None
    expected: float | None
    measured: float | None
    joined: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the join as a JSON value."""
        oldest = None if self.window.oldest is None else self.window.oldest.isoformat()
        return asdict(self) | {"window": asdict(self.window) | {"oldest": oldest}}

    def lines(self) -> Iterator[str]:
        """Yield the join as lines of text."""
        yield f"join {self.name} of {self.feed}: {self.primary} with the {self.window.extent} of {self.window.source}"
        yield f"  pairs: {self.condition}"
        yield f"  candidates are found by: {self.index or 'no index, so every item of the window is one'}"
        yield f"  {self.window.line()}"
        if self.reached:
            rate = "" if self.per_day is None else f", {self.per_day:,.1f} per day"
            yield f"  R(b): {counted(self.reached, 'item')}{rate}; sel(p): {self.selectivity or 0:.1%} of them pass"
        if self.nested_loop is not None:
            total = f", R(b)·S(w): {self.reached * self.nested_loop:,}" if self.reached else ""
            yield f"  S(w): {self.nested_loop:,} comparisons per item in a nested loop{total}"
        if self.expected is not None or self.measured is not None:
            yield f"  comparisons per item with the index: estimated {_amount(self.expected)}, {self._measured()}"

    def _measured(self) -> str:
        joined = "" if self.joined is None else f", of which {_amount(self.joined)} joined"
        return f"measured {_amount(self.measured)}{joined}"


def _amount(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f}"


def explain_joins(
    workspace: Workspace, actor: Actor, definitions: Mapping[int, Node], names: Mapping[int, str], *, is_live: bool
) -> tuple[ExplainedJoin, ...]:
    """Explain the joins among the definitions. The windows of a feed that is not live are shown as not filled."""
    joins = {feed: node for feed, node in definitions.items() if isinstance(node, Gated) and node.window is not None}
    if not joins:
        return ()
    stored = read_stored_windows(workspace) if is_live else StoredWindows()
    with workspace.catalog.read() as connection:
        moment = gate_states.matched_time(connection)
        readable = names_for(connection, actor)
        # Equal hidden joins of several owners are one, so an owner sees only the work of joins with a name.
        work = work_of_joins(connection, [feed for feed in joins if actor.is_admin or feed in readable])
        readers = {
            feed: len(feeds.visible_readers(connection, [cast(Read, node.window).feed]) & readable.keys())
            for feed, node in joins.items()
        }
    sides = _Sides(definitions, names, frozenset(definitions.keys() - readable.keys()))
    return tuple(
        _explain_join(
            workspace, feed, node, sides, stored, moment, work.get(feed) if is_live else None, readers[feed]
        )
        for feed, node in joins.items()
    )


def _explain_join(
    workspace: Workspace,
    feed: int,
    node: Gated,
    sides: _Sides,
    stored: StoredWindows,
    moment: int,
    work: CountedWork | None,
    queries: int,
) -> ExplainedJoin:
    from runnel.matching.explain.explain_candidates import describe_index, expect_candidates
    from runnel.matching.joins.members_before import members_before

    rule, window = cast(Join, node.rule), cast(Read, node.window).feed
    key = stored.keys.get(window)
    last = rule.extent if isinstance(rule.extent, int) else None
    members = None if key is None else members_before(stored.parts, key, _LAST, moment, rule.extent)
    oldest = None if members is None or not len(members) else _accepted(workspace, int(members[0]))
    reached = None if work is None else work.work.items
    return ExplainedJoin(
        rule.name,
        sides.name(feed),
        sides.describe(node.input),
        ExplainedWindow(
            sides.describe(Read(window)),
            rule.extent_text,
            None if members is None else len(members),
            0 if key is None else stored.bytes_of(key),
            None if oldest is None else moment_of(oldest),
            queries,
        ),
        render(rule.condition),
        describe_index(rule.condition),
        reached,
        None if work is None else _rate(workspace, work, moment),
        work.work.passed / reached if work and reached else None,
        None if members is None else len(members),
        None if key is None else expect_candidates(stored.parts, key, rule.condition, last),
        work.work.candidates / reached if work and reached else None,
        work.work.joined / reached if work and reached else None,
    )


def _rate(workspace: Workspace, work: CountedWork, moment: int) -> float | None:
    """Return the items per day that reach a join, or None if they were counted for less than an hour."""
    began = _accepted(workspace, work.began + 1)
    if began is None or moment - began < _SHORTEST_SPAN:
        return None
    return work.work.items * _DAY / (moment - began)


def _accepted(workspace: Workspace, sequence: int) -> int | None:
    """Return when an item was accepted, in microseconds, or None if it was deleted."""
    for batch in workspace.items.get([sequence]):
        return int(batch.records.column("accepted").cast(pa.int64())[0].as_py())
    return None


@dataclass(frozen=True, slots=True)
class _Sides:
    """Describes the sides of joins. Windows and inner gates are described by their definitions."""

    definitions: Mapping[int, Node]
    names: Mapping[int, str]
    hidden: frozenset[int]

    def name(self, feed: int) -> str:
        return self.names[feed] if feed in self.hidden else render_name(self.names.get(feed, f"#{feed}"))

    def describe(self, node: Node) -> str:
        match node:
            case Read(feed):
                definition = self.definitions.get(feed)
                if feed in self.hidden and isinstance(definition, Gated):
                    return self.describe(definition)
                return self.name(feed)
            case Union(inputs):
                return f"({' | '.join(map(self.describe, inputs))})"
            case Filter(inner, condition):
                return f"{self.describe(inner)}[{render(condition)}]"
            case Gated(inner, rule):
                return self.describe(inner) if rule.stores_items else f"{self.describe(inner)} {rule.render()}"
            case ReadAll():
                return "all feeds"
