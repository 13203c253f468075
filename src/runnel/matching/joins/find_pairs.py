"""Pairs of items that satisfy the condition of a join: found by the indexes of windows, checked by the definition.

A pair depends on the condition, not on the query or the window. So the pairs of an item are found once for all
queries with the same condition, and each query then selects those in its own window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from runnel.algebra.nodes.expressions import And, Expression, Or
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.evaluate import holds
from runnel.algebra.semantics.joins import NO_INDEX, index_of
from runnel.algebra.semantics.window_conditions import condition_given
from runnel.matching.joins.window_items import Entry, Numbers, WindowItems
from runnel.matching.joins.window_terms import wanted_terms
from runnel.model.item import Attributes

MAX_CANDIDATES = 100_000
"""The number of window items that may be checked for one item and condition."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TooManyCandidatesError(Exception):
    """An item would have to be compared with too many items of its window."""


@dataclass(frozen=True, slots=True)
class JoinItem:
    """An item to be joined."""

    sequence: int
    accepted: int
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Pair:
    """A window item that satisfies the condition together with an item."""

    part: int
    row: int
    sequence: int
    accepted: int


class PairFinder:
    """Finds pairs in consecutive parts of window items. The answers are kept for other queries."""

    def __init__(self, parts: Sequence[WindowItems]) -> None:
        self.parts = parts
        self.checked = 0
        """The number of window items that were compared with an item."""
        self._pairs: dict[tuple[Expression, int], list[Pair]] = {}

    def pairs(self, condition: Expression, item: JoinItem) -> list[Pair]:
        """Return the earlier window items that satisfy a condition together with an item."""
        key = condition, item.sequence
        if key not in self._pairs:
            self._pairs[key] = list(self._find(condition, item))
        return self._pairs[key]

    def entry(self, pair: Pair) -> Entry:
        """Return the entry of a pair's window item."""
        return self.parts[pair.part].entry(pair.row)

    def _find(self, condition: Expression, item: JoinItem) -> list[Pair]:
        accepted = _EPOCH + timedelta(microseconds=item.accepted)
        found: list[Pair] = []
        candidates = self._candidates(condition, item.attributes)
        if sum(map(len, candidates)) > MAX_CANDIDATES:
            raise TooManyCandidatesError(
                f"the condition of its join has more than {MAX_CANDIDATES:,} candidates for this item"
            )
        for number, rows in enumerate(candidates):
            part = self.parts[number]
            for row in rows[part.sequences[rows] < item.sequence].tolist():
                self.checked += 1
                if holds(condition_given(condition, part.entry(row).attributes), item.attributes, accepted):
                    found.append(Pair(number, row, int(part.sequences[row]), int(part.accepted[row])))
        return found

    def _candidates(self, condition: Expression, attributes: Attributes) -> list[Numbers]:
        """Return for each part the rows that may satisfy the condition."""
        rows = self._indexed(condition, attributes)
        return [np.arange(len(part)) for part in self.parts] if rows is None else rows

    def _indexed(self, condition: Expression, attributes: Attributes) -> list[Numbers] | None:
        """Return the rows that an index gives for a condition, or None if all rows may satisfy it."""
        match condition:
            case And(parts):
                answers = [rows for part in parts if (rows := self._indexed(part, attributes)) is not None]
                return min(answers, key=_size, default=None)
            case Or(parts):
                branches = [self._indexed(part, attributes) for part in parts]
                known = [rows for rows in branches if rows is not None]
                return (
                    [_unite(several) for several in zip(*known, strict=True)] if len(known) == len(branches) else None
                )
            case WindowAtom() if index_of(condition) != NO_INDEX:
                return self._listed(condition, attributes)
            case _:
                return None

    def _listed(self, atom: WindowAtom, attributes: Attributes) -> list[Numbers]:
        """Return the rows that are listed under the terms of an item, the rarest terms of each group."""
        chosen: list[list[Numbers]] = [[] for _ in self.parts]
        for terms, enough in wanted_terms(atom, attributes):
            listed = [[part.posting(term) for part in self.parts] for term in terms]
            for rows in sorted(listed, key=_size)[:enough]:
                for number, own in enumerate(rows):
                    chosen[number].append(own)
        return [_unite(several) for several in chosen]


class WindowMembers:
    """The members of windows in all parts, by window."""

    def __init__(self, parts: Sequence[WindowItems]) -> None:
        self._parts = parts
        self._rows: dict[int, list[Numbers]] = {}
        self._sequences: dict[int, Numbers] = {}

    def set_rows(self, window: int, part: int, rows: Numbers) -> None:
        """Replace the rows of a window in one part, which are known only after other gates were resolved."""
        self._of(window)[part] = rows
        self._sequences.pop(window, None)

    def has(self, window: int, pair: Pair) -> bool:
        """Return whether the window item of a pair is in a window."""
        rows = self._of(window)[pair.part]
        position = int(np.searchsorted(rows, pair.row))
        return position < len(rows) and int(rows[position]) == pair.row

    def count_between(self, window: int, after: int, before: int) -> int:
        """Return the number of items of a window between two sequences, both excluded."""
        if window not in self._sequences:
            rows = self._of(window)
            own = [part.sequences[of_part] for part, of_part in zip(self._parts, rows, strict=True)]
            self._sequences[window] = np.unique(np.concatenate(own)) if own else np.empty(0, dtype=np.int64)
        low, high = np.searchsorted(self._sequences[window], [after + 1, before])
        return int(high - low)

    def _of(self, window: int) -> list[Numbers]:
        if window not in self._rows:
            self._rows[window] = [part.members_of(window) for part in self._parts]
        return self._rows[window]


def _size(rows: Sequence[Numbers]) -> int:
    return sum(map(len, rows))


def _unite(several: Sequence[Numbers]) -> Numbers:
    return np.unique(np.concatenate(several)) if several else np.empty(0, dtype=np.int64)
