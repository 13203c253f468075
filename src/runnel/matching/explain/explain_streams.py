"""How streams, and the anchor index, find a predicate: what `explain` shows where one of them matches.

In: a part of a plan, a predicate and its sources. Out: the streams that the predicate stands in, with the groups
around it and the clauses that are checked for it alone, read from the plan's own arrays; and the work that streams
are expected to do for an item of each source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from runnel.algebra.nodes.render import render
from runnel.arrays import Array
from runnel.matching.compile.expected_work import StreamWork, expect_streams, part_anchors
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.matching.filters.streams.entries import sources_of
from runnel.matching.filters.streams.stream_layout import StreamLayout
from runnel.matching.filters.streams.write_streams import ENTRY, GROUPED, HEAD
from runnel.optimizer.describe import counted, shortened, stored_atom, stored_clause
from runnel.plan.store import PlanPart

MOST_SOURCES = 8
"""Sources of a query that are explained one by one."""

_NO_KEY = "no key, so it is checked for every item"

MOST_STREAMS = 8
"""Streams of a predicate that are shown; a disjunction of many words stands in many."""


@dataclass(frozen=True, slots=True)
class SharedClause:
    """A clause that is checked once for several predicates; if no item of a block satisfies it, all are skipped."""

    condition: str
    predicates: int


@dataclass(frozen=True, slots=True)
class PredicateStream:
    """A stream that contains a predicate: its key, the number of its predicates, and the groups around the predicate.

    `checks` are the clauses that are left for the predicate itself. Without a `key` every item leads to the stream.
    """

    key: str | None
    predicates: int
    groups: tuple[SharedClause, ...]
    checks: tuple[str, ...]

    def lines(self) -> list[str]:
        """The stream as text."""
        name = "stream of every item" if self.key is None else f"stream of {self.key}"
        shown = [f"{name}: {counted(self.predicates, 'predicate')}"]
        shown += [f"  checked once for {one.predicates:,} of them: {one.condition}" for one in self.groups]
        return [*shown, *(f"  then checked: {one}" for one in self.checks)]


@dataclass(frozen=True, slots=True)
class ExpectedSource:
    """What streams are expected to do for an item of some sources, for all `queries` that read them."""

    sources: tuple[str, ...]
    queries: int
    entries: float
    numbers: float
    microseconds: float

    def line(self) -> str:
        """The estimate as text."""
        done = f"{_amount(self.entries)} entries walked"
        if self.numbers:
            done += f", {_amount(self.numbers)} numbers compared"
        told = f"{done}, about {self.microseconds:,.0f} µs for {counted(self.queries, 'query')}"
        return f"expected for an item of {shortened(self.sources)}: {told}"


@dataclass(frozen=True, slots=True)
class StreamExplanation:
    """A predicate in streams: those of all sources, or the `own` streams of the few sources that ask for it."""

    sources: tuple[str, ...]
    own: bool
    anchor: str | None
    streams: tuple[PredicateStream, ...]
    hidden_streams: int
    expected: tuple[ExpectedSource, ...]

    def to_json(self) -> dict[str, Any]:
        """The explanation as a JSON value."""
        return {"matcher": "streams", **asdict(self)}

    def lines(self) -> list[str]:
        """The explanation as text."""
        whose = f"own streams of {shortened(self.sources)}" if self.own else "streams of all sources"
        shown = [f"matched by {whose}", f"found by: {self.anchor or _NO_KEY}"]
        shown += [f"  {line}" for one in self.streams for line in one.lines()]
        shown += [f"  and {counted(self.hidden_streams, 'more stream')}"] if self.hidden_streams else []
        return [*shown, *(one.line() for one in self.expected)]


@dataclass(frozen=True, slots=True)
class IndexExplanation:
    """A predicate in the anchor index: the clause that finds it, and the clauses that are checked then."""

    sources: tuple[str, ...]
    anchor: str | None
    checks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The explanation as a JSON value."""
        return {"matcher": "index", **asdict(self)}

    def lines(self) -> list[str]:
        """The explanation as text."""
        found = f"found by: {self.anchor or _NO_KEY}"
        return ["matched by the anchor index", found, *(f"  then checked: {one}" for one in self.checks)]


class _AnchorExplainer:
    """What the two matchers with anchors have in common: which clause finds a predicate, and which are left."""

    def __init__(self, part: PlanPart, removed: Array) -> None:
        self._part = part
        self._logical = part.logical
        self._removed = removed
        self._anchors = part_anchors(part)

    def pictures(self, sources: Mapping[int, str]) -> dict[str, str]:
        """No pictures: nothing here is a tree of filters."""
        return {}

    def _anchor(self, predicate: int) -> str | None:
        clause = int(self._anchors.clauses[predicate])
        return None if clause < 0 else self._text(clause)

    def _checks(self, predicate: int) -> list[int]:
        checks: list[int] = self._anchors.checks.row(predicate).tolist()
        return checks

    def _text(self, clause: int) -> str:
        return render(stored_clause(self._logical, clause))


class IndexExplainer(_AnchorExplainer):
    """Explains how the anchor index matches a part of a plan."""

    def explain(self, predicate: int, sources: Mapping[int, str]) -> tuple[IndexExplanation, ...]:
        """How the index finds a predicate, which is the same for all its sources."""
        checks = tuple(self._text(clause) for clause in self._checks(predicate))
        return (IndexExplanation(tuple(sources.values()), self._anchor(predicate), checks),)


class StreamExplainer(_AnchorExplainer):
    """Explains how streams match a part of a plan."""

    def __init__(self, part: PlanPart, removed: Array) -> None:
        super().__init__(part, removed)
        self._atoms = stored_atoms(part)
        self._layout = StreamLayout.stored(part.layout)
        self._sources = sources_of(part.queries)

    def explain(self, predicate: int, sources: Mapping[int, str]) -> tuple[StreamExplanation, ...]:
        """How streams find a predicate. A predicate that few sources ask for stands in streams of each of them."""
        keys = self._anchors.keys.row(predicate).tolist() or [len(self._atoms.key_tokens)]
        if _find(self._stream(keys[0]), predicate) is not None:
            return (self._explained(predicate, sources, [(key, key) for key in keys], own=False),)
        chosen = dict(list(sources.items())[:MOST_SOURCES])
        return tuple(
            self._explained(predicate, {source: name}, self._own_streams(source, keys), own=True)
            for source, name in chosen.items()
        )

    def _own_streams(self, source: int, keys: list[int]) -> list[tuple[int, int]]:
        """The keys of a source's own streams among some keys, and the number of each stream."""
        offsets, values = self._layout.own_keys.offsets, self._layout.own_keys.values
        dense = int(np.searchsorted(self._sources, source))
        own = values[offsets[dense] : offsets[dense + 1]]
        first = len(self._atoms.key_tokens) + 1 + int(offsets[dense])
        return [(key, first + int(np.flatnonzero(own == key)[0])) for key in keys]

    def _explained(
        self, predicate: int, sources: Mapping[int, str], streams: list[tuple[int, int]], *, own: bool
    ) -> StreamExplanation:
        return StreamExplanation(
            sources=tuple(sources.values()),
            own=own,
            anchor=self._anchor(predicate),
            streams=tuple(self._described(predicate, key, number) for key, number in streams[:MOST_STREAMS]),
            hidden_streams=max(0, len(streams) - MOST_STREAMS),
            expected=self._expected(sources),
        )

    def _described(self, predicate: int, key: int, number: int) -> PredicateStream:
        found = _find(self._stream(number), predicate)
        if found is None:
            raise ValueError("a predicate is not in its stream")
        checks, nothing = self._checks(predicate), {len(self._atoms.key_tokens) + 1}
        groups = []
        for keys, count in found.groups:
            # A clause of few keys is filled up with the key that no item has.
            clause = next(one for one in checks if self._keys(one) == keys - nothing)
            checks.remove(clause)
            groups.append(SharedClause(self._text(clause), count))
        return PredicateStream(
            self._key_text(predicate, key), found.predicates, tuple(groups), tuple(map(self._text, checks))
        )

    def _stream(self, number: int) -> Array:
        offsets = self._layout.offsets
        return self._layout.stream[int(offsets[number]) : int(offsets[number + 1])].astype(np.int64)

    def _keys(self, clause: int) -> frozenset[int]:
        atoms = self._logical.clauses.row(clause) >> 1
        return frozenset(self._atoms.atom_keys[atoms].tolist())

    def _key_text(self, predicate: int, key: int) -> str | None:
        """The condition of the anchor that a key belongs to; of a phrase or a pattern the key is only a part."""
        anchor = int(self._anchors.clauses[predicate])
        if anchor < 0:
            return None
        atoms = (self._logical.clauses.row(anchor) >> 1).tolist()
        atom = next(one for one in atoms if key in self._atoms.atom_candidates.row(one))
        text = render(stored_atom(self._logical, atom))
        return text if self._atoms.atom_keys[atom] == key else f"a part of {text}"

    @cached_property
    def _work(self) -> StreamWork:
        return expect_streams(self._layout, self._atoms)

    def _expected(self, sources: Mapping[int, str]) -> tuple[ExpectedSource, ...]:
        """The work for an item of each source; sources for which it is the same share a line."""
        groups: dict[tuple[int, float, float, float], list[str]] = {}
        for source, name in list(sources.items())[:MOST_SOURCES]:
            dense = int(np.searchsorted(self._sources, source))
            amounts = (self._work.entries[dense], self._work.numbers[dense], self._work.microseconds[dense])
            entries, numbers, microseconds = (round(float(one), 6) for one in amounts)
            groups.setdefault((self._queries(source), entries, numbers, microseconds), []).append(name)
        return tuple(ExpectedSource(tuple(names), *key) for key, names in groups.items())

    def _queries(self, source: int) -> int:
        """The queries of this part that read a source and are not removed."""
        logical = self._logical
        owners = np.repeat(np.arange(len(logical.scopes)), logical.scopes.lengths)
        scopes = np.unique(owners[logical.scopes.values == source])
        targets = np.flatnonzero(np.isin(logical.target_scopes, scopes))
        queries = np.unique(logical.targets.expand(targets)[1])
        return int(np.count_nonzero(~self._removed[queries]))


@dataclass(frozen=True, slots=True)
class _FoundEntry:
    """A predicate in a stream: how many the stream has, and the keys and predicates of each group above."""

    predicates: int
    groups: tuple[tuple[frozenset[int], int], ...]


def _find(stream: Array, predicate: int) -> _FoundEntry | None:
    """Look for a predicate in a stream (`stream_layout` describes its form)."""
    if not len(stream):
        return None
    direct, joined, spot, inner = int(stream[0]) & ~GROUPED, int(stream[1]), HEAD, 0
    if int(stream[0]) & GROUPED:
        inner, spot = int(stream[HEAD]), HEAD + 1
    return _look_through(stream, spot, direct, joined, spot + direct + joined + inner, predicate)[0]


def _look_through(
    stream: Array, spot: int, direct: int, joined: int, end: int, predicate: int
) -> tuple[_FoundEntry | None, int]:
    """The entries and groups from `spot` to `end`: the predicate, if it is among them, and how many there are."""
    count = direct + joined // ENTRY
    own = np.concatenate([stream[spot : spot + direct], stream[spot + direct : spot + direct + joined : ENTRY]])
    found = _FoundEntry(0, ()) if predicate in own else None
    spot += direct + joined
    while spot < end:
        after = spot + ENTRY + int(stream[spot])
        body = spot + ENTRY + 1, int(stream[spot + 1]), int(stream[spot + ENTRY]), after
        inside, size = _look_through(stream, *body, predicate)
        if inside is not None:
            keys = frozenset(stream[spot + 2 : spot + ENTRY].tolist())
            found = _FoundEntry(0, ((keys, size), *inside.groups))
        count += size
        spot = after
    return (None if found is None else _FoundEntry(count, found.groups)), count


def _amount(amount: float) -> str:
    """A number of entries with two decimal places.

    >>> _amount(0.0213), _amount(5.0), _amount(1234.5)
    ('0.02', '5', '1,234.50')
    """
    return f"{amount:,.0f}" if amount == round(amount) else f"{amount:,.2f}"
