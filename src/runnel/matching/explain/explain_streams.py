"""Explain how the stream matcher or the anchor index finds a predicate.

In: a plan part, a predicate and its sources. Out: the streams that contain the predicate, the groups around it and
the clauses that are checked for it alone, all read from the plan's arrays, and the expected work of the streams per
item of each source.
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

MAX_SOURCES = 8
"""Maximum number of a query's sources that are explained one by one."""

_NO_KEY = "no key, so it is checked for every item"

MAX_STREAMS = 8
"""Maximum number of a predicate's streams that are shown. A disjunction of many words is in many streams."""


@dataclass(frozen=True, slots=True)
class SharedClause:
    """A clause that is checked once per group of predicates. If no item of a block satisfies it, all are skipped."""

    condition: str
    predicates: int


@dataclass(frozen=True, slots=True)
class PredicateStream:
    """A stream that contains a predicate: its key, the number of its predicates, and the groups around the predicate.

    `checks` are the clauses that are checked for the predicate alone. Every item leads to a stream without a `key`.
    """

    key: str | None
    predicates: int
    groups: tuple[SharedClause, ...]
    checks: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return the description of the stream as lines of text."""
        name = "stream of every item" if self.key is None else f"stream of {self.key}"
        lines = [f"{name}: {counted(self.predicates, 'predicate')}"]
        lines += [f"  checked once for {group.predicates:,} of them: {group.condition}" for group in self.groups]
        return [*lines, *(f"  then checked: {check}" for check in self.checks)]


@dataclass(frozen=True, slots=True)
class ExpectedSource:
    """The expected work of the streams per item of some sources, for all `queries` that read these sources."""

    sources: tuple[str, ...]
    queries: int
    entries: float
    numbers: float
    microseconds: float

    def line(self) -> str:
        """Return the estimate as a line of text."""
        work = f"{_format_amount(self.entries)} entries walked"
        if self.numbers:
            work += f", {_format_amount(self.numbers)} numbers compared"
        work += f", about {self.microseconds:,.0f} µs for {counted(self.queries, 'query')}"
        return f"expected for an item of {shortened(self.sources)}: {work}"


@dataclass(frozen=True, slots=True)
class StreamExplanation:
    """A predicate in streams: the common streams of all sources or, if `own`, the own streams of few sources."""

    sources: tuple[str, ...]
    own: bool
    anchor: str | None
    streams: tuple[PredicateStream, ...]
    hidden_streams: int
    expected: tuple[ExpectedSource, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as a JSON value."""
        return {"matcher": "streams", **asdict(self)}

    def lines(self) -> list[str]:
        """Return the explanation as lines of text."""
        streams = f"own streams of {shortened(self.sources)}" if self.own else "streams of all sources"
        lines = [f"matched by {streams}", f"found by: {self.anchor or _NO_KEY}"]
        lines += [f"  {line}" for stream in self.streams for line in stream.lines()]
        lines += [f"  and {counted(self.hidden_streams, 'more stream')}"] if self.hidden_streams else []
        return [*lines, *(estimate.line() for estimate in self.expected)]


@dataclass(frozen=True, slots=True)
class IndexExplanation:
    """A predicate in the anchor index: the clause that finds it, and the clauses that are checked afterwards."""

    sources: tuple[str, ...]
    anchor: str | None
    checks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as a JSON value."""
        return {"matcher": "index", **asdict(self)}

    def lines(self) -> list[str]:
        """Return the explanation as lines of text."""
        anchor = f"found by: {self.anchor or _NO_KEY}"
        return ["matched by the anchor index", anchor, *(f"  then checked: {check}" for check in self.checks)]


class _AnchorExplainer:
    """The common base of both explainers: the anchor clause of a predicate, and the clauses left to check."""

    def __init__(self, part: PlanPart, removed: Array) -> None:
        self._part = part
        self._logical = part.logical
        self._removed = removed
        self._anchors = part_anchors(part)

    def pictures(self, sources: Mapping[int, str]) -> dict[str, str]:
        """Return no drawings: only matchers with filter trees have any."""
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
        """Explain how the index finds a predicate, which is the same for all its sources."""
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
        """Explain how streams find a predicate. A predicate of few sources is in own streams of each source."""
        keys = self._anchors.keys.row(predicate).tolist() or [len(self._atoms.key_tokens)]
        if _find(self._stream(keys[0]), predicate) is not None:
            return (self._explain_streams(predicate, sources, [(key, key) for key in keys], own=False),)
        shown_sources = dict(list(sources.items())[:MAX_SOURCES])
        return tuple(
            self._explain_streams(predicate, {source: name}, self._own_streams(source, keys), own=True)
            for source, name in shown_sources.items()
        )

    def _own_streams(self, source: int, keys: list[int]) -> list[tuple[int, int]]:
        """Return each key with the number of the source's own stream for it."""
        offsets, values = self._layout.own_keys.offsets, self._layout.own_keys.values
        dense = int(np.searchsorted(self._sources, source))
        own = values[offsets[dense] : offsets[dense + 1]]
        first = len(self._atoms.key_tokens) + 1 + int(offsets[dense])
        return [(key, first + int(np.flatnonzero(own == key)[0])) for key in keys]

    def _explain_streams(
        self, predicate: int, sources: Mapping[int, str], streams: list[tuple[int, int]], *, own: bool
    ) -> StreamExplanation:
        return StreamExplanation(
            sources=tuple(sources.values()),
            own=own,
            anchor=self._anchor(predicate),
            streams=tuple(self._describe_stream(predicate, key, number) for key, number in streams[:MAX_STREAMS]),
            hidden_streams=max(0, len(streams) - MAX_STREAMS),
            expected=self._expected(sources),
        )

    def _describe_stream(self, predicate: int, key: int, number: int) -> PredicateStream:
        entry = _find(self._stream(number), predicate)
        if entry is None:
            raise ValueError(f"predicate {predicate} is missing in stream {number} of its anchor")
        checks, padding = self._checks(predicate), {len(self._atoms.key_tokens) + 1}
        groups = []
        for keys, count in entry.groups:
            # A clause with few keys is padded with a key that no item has.
            clause = next(check for check in checks if self._keys(check) == keys - padding)
            checks.remove(clause)
            groups.append(SharedClause(self._text(clause), count))
        return PredicateStream(
            self._key_text(predicate, key), entry.predicates, tuple(groups), tuple(map(self._text, checks))
        )

    def _stream(self, number: int) -> Array:
        offsets = self._layout.offsets
        return self._layout.stream[int(offsets[number]) : int(offsets[number + 1])].astype(np.int64)

    def _keys(self, clause: int) -> frozenset[int]:
        atoms = self._logical.clauses.row(clause) >> 1
        return frozenset(self._atoms.atom_keys[atoms].tolist())

    def _key_text(self, predicate: int, key: int) -> str | None:
        """Return the atom of the anchor that a key belongs to, as text, or None if there is no anchor.

        The key of a phrase or a pattern stands only for a part of the atom.
        """
        anchor = int(self._anchors.clauses[predicate])
        if anchor < 0:
            return None
        atoms = (self._logical.clauses.row(anchor) >> 1).tolist()
        atom = next(atom for atom in atoms if key in self._atoms.atom_candidates.row(atom))
        text = render(stored_atom(self._logical, atom))
        return text if self._atoms.atom_keys[atom] == key else f"a part of {text}"

    @cached_property
    def _work(self) -> StreamWork:
        return expect_streams(self._layout, self._atoms)

    def _expected(self, sources: Mapping[int, str]) -> tuple[ExpectedSource, ...]:
        """Return the expected work per item of each source. Sources with equal work are combined."""
        groups: dict[tuple[int, float, float, float], list[str]] = {}
        for source, name in list(sources.items())[:MAX_SOURCES]:
            dense = int(np.searchsorted(self._sources, source))
            amounts = (self._work.entries[dense], self._work.numbers[dense], self._work.microseconds[dense])
            entries, numbers, microseconds = (round(float(amount), 6) for amount in amounts)
            groups.setdefault((self._count_queries(source), entries, numbers, microseconds), []).append(name)
        return tuple(ExpectedSource(tuple(names), *key) for key, names in groups.items())

    def _count_queries(self, source: int) -> int:
        """Return the number of queries of this part that read a source and are not removed."""
        logical = self._logical
        owners = np.repeat(np.arange(len(logical.scopes)), logical.scopes.lengths)
        scopes = np.unique(owners[logical.scopes.values == source])
        targets = np.flatnonzero(np.isin(logical.target_scopes, scopes))
        queries = np.unique(logical.targets.expand(targets)[1])
        return int(np.count_nonzero(~self._removed[queries]))


@dataclass(frozen=True, slots=True)
class _StreamEntry:
    """A predicate in a stream: the number of predicates of the stream, and keys and size of each group around it."""

    predicates: int
    groups: tuple[tuple[frozenset[int], int], ...]


def _find(stream: Array, predicate: int) -> _StreamEntry | None:
    """Search a stream for a predicate; `stream_layout` describes the format. Return None if it is not there."""
    if not len(stream):
        return None
    direct, joined, position, inner = int(stream[0]) & ~GROUPED, int(stream[1]), HEAD, 0
    if int(stream[0]) & GROUPED:
        inner, position = int(stream[HEAD]), HEAD + 1
    return _search_entries(stream, position, direct, joined, position + direct + joined + inner, predicate)[0]


def _search_entries(
    stream: Array, position: int, direct: int, joined: int, end: int, predicate: int
) -> tuple[_StreamEntry | None, int]:
    """Search the entries and groups from `position` to `end` for a predicate.

    Return the entry, or None if it is not among them, and the number of predicates.
    """
    count = direct + joined // ENTRY
    own = np.concatenate(
        [stream[position : position + direct], stream[position + direct : position + direct + joined : ENTRY]]
    )
    entry = _StreamEntry(0, ()) if predicate in own else None
    position += direct + joined
    while position < end:
        after = position + ENTRY + int(stream[position])
        body = position + ENTRY + 1, int(stream[position + 1]), int(stream[position + ENTRY]), after
        inside, size = _search_entries(stream, *body, predicate)
        if inside is not None:
            keys = frozenset(stream[position + 2 : position + ENTRY].tolist())
            entry = _StreamEntry(0, ((keys, size), *inside.groups))
        count += size
        position = after
    return (None if entry is None else _StreamEntry(count, entry.groups)), count


def _format_amount(amount: float) -> str:
    """Format a number with two decimal places, or without any if it is an integer.

    >>> _format_amount(0.0213), _format_amount(5.0), _format_amount(1234.5)
    ('0.02', '5', '1,234.50')
    """
    return f"{amount:,.0f}" if amount == round(amount) else f"{amount:,.2f}"
