"""Pairs of items that satisfy the condition of a join: found by the indexes of windows, and checked exactly.

In: items to be joined, and parts of window items. Out: pairs. A pair depends on the condition, not on the query or
the window. So the pairs of an item are found once for all queries with the same condition, and each query then
selects those in its own window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from runnel.algebra.nodes.expressions import And, Expression, Not, Or
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.evaluate import holds
from runnel.algebra.semantics.joins import NO_INDEX, index_of
from runnel.algebra.semantics.window_conditions import condition_given
from runnel.arrays import offsets_of
from runnel.matching.joins.index_lookups import LookUp, TermLookUp, WordLookUp
from runnel.matching.joins.item_values import decode_values
from runnel.matching.joins.prepare_items import column_name
from runnel.matching.joins.window_items import WindowItems
from runnel.matching.joins.window_terms import EXACT
from runnel.matching.joins.word_index import PREFIXES
from runnel.model.item import Attributes

Numbers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

MAX_CANDIDATES = 100_000
"""The number of window items that may be checked for one item and condition."""

TOO_MANY = f"the condition of its join has more than {MAX_CANDIDATES:,} candidates for this item"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FEW = 8
"""If an index lists at most this many items, it is used rather than an index of words, whose number is unknown."""


@dataclass(frozen=True)
class JoinItems:
    """Items to be joined, by ascending sequence. Their data are rows of a table that workers prepare."""

    sequences: Numbers
    accepted: Numbers
    table: Any
    rows: Numbers
    decoded: dict[int, Attributes] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.sequences)

    def attributes(self, number: int) -> Attributes:
        """Return the attributes of an item that conditions read. They are decoded once."""
        if number not in self.decoded:
            stored = self.table.column("values")[int(self.rows[number])].as_py()
            self.decoded[number] = decode_values(stored or b"")
        return self.decoded[number]

    def accepted_at(self, number: int) -> datetime:
        """Return when an item was accepted."""
        return _EPOCH + timedelta(microseconds=int(self.accepted[number]))


@dataclass(frozen=True)
class Pairs:
    """Pairs by ascending items and descending sequences of window items.

    `items` are positions among the items to be joined, and `rows` rows of all parts, counted from the first part.
    `candidates` has the number of candidates of each item, and `failed` the items with too many, which have no pairs.
    """

    items: Numbers
    rows: Numbers
    candidates: Numbers
    failed: Booleans

    def __len__(self) -> int:
        return len(self.items)


class PairFinder:
    """Finds pairs in consecutive parts of window items."""

    def __init__(self, parts: Sequence[WindowItems]) -> None:
        self.parts = parts
        self.starts = offsets_of([len(part) for part in parts])
        self.checked = 0
        """The number of window items that were compared with an item."""

    def find(
        self,
        condition: Expression,
        items: JoinItems,
        members: Sequence[Numbers] | None = None,
        last: int | None = None,
    ) -> Pairs:
        """Return the earlier window items that satisfy a condition together with each item.

        Indexes find the candidates in all windows. With the members of a window in each part, an item is compared
        with all of them, or only with the last ones. A condition without an index needs them.
        """
        return _Search(self, condition, items).find(members, last)

    def split(self, rows: Numbers) -> list[tuple[int, Numbers, Numbers]]:
        """Return for each part that has some of the rows: its number, their positions, and the rows in the part."""
        numbers = np.searchsorted(self.starts, rows, side="right") - 1
        order = np.argsort(numbers, kind="stable")
        present, first = np.unique(numbers[order], return_index=True)
        return [
            (part, positions, rows[positions] - self.starts[part])
            for part, positions in zip(present.tolist(), np.split(order, first[1:]), strict=False)
        ]

    def sequences_of(self, rows: Numbers) -> Numbers:
        """Return the sequences of rows."""
        sequences = np.empty(len(rows), dtype=np.int64)
        for part, positions, own in self.split(rows):
            sequences[positions] = self.parts[part].sequences[own]
        return sequences


def has_index(condition: Expression) -> bool:
    """Return whether indexes find all window items that may satisfy a condition."""
    match condition:
        case And(parts):
            return any(map(has_index, parts))
        case Or(parts):
            return all(map(has_index, parts))
        case WindowAtom():
            return index_of(condition) != NO_INDEX
        case _:
            return False


@dataclass(frozen=True)
class _Source:
    """A source of candidates: their number per item, and a function that returns the candidates of some items."""

    sizes: Numbers
    find: Callable[[Booleans], tuple[Numbers, Numbers]]


class _Search:
    """The search for the pairs of some items with one condition."""

    def __init__(self, finder: PairFinder, condition: Expression, items: JoinItems) -> None:
        self._finder = finder
        self._condition = condition
        self._items = items
        self._counts = np.zeros(len(items), dtype=np.int64)
        self._bounds = [np.searchsorted(part.sequences, items.sequences) for part in finder.parts]
        self._look_ups: dict[WindowAtom, LookUp] = {}

    def find(self, members: Sequence[Numbers] | None, last: int | None) -> Pairs:
        everything = np.ones(len(self._items), dtype=np.bool_)
        if members is None:
            items, rows = self._source(self._condition).find(everything)
        else:
            items, rows = self._members(members, last)
        self._finder.checked += int(np.minimum(self._counts, MAX_CANDIDATES).sum())
        failed = self._counts > MAX_CANDIDATES
        if failed.any():
            kept = ~failed[items]
            items, rows = items[kept], rows[kept]
        if members is not None or not self._is_decided(self._condition):
            satisfied = self._evaluate(self._condition, items, rows)
            items, rows = items[satisfied], rows[satisfied]
        order = np.lexsort((-self._finder.sequences_of(rows), items))
        return Pairs(items[order], rows[order], np.minimum(self._counts, MAX_CANDIDATES), failed)

    def _is_decided(self, condition: Expression) -> bool:
        """Return whether all candidates satisfy the condition."""
        return isinstance(condition, WindowAtom) and index_of(condition) in EXACT

    def _look_up(self, atom: WindowAtom) -> LookUp:
        if atom not in self._look_ups:
            kind = index_of(atom)
            own = WordLookUp if kind in PREFIXES else TermLookUp
            column = self._items.table.column(column_name(atom.attribute, kind))
            indexes = [part.indexes.get((atom.window.name, kind)) for part in self._finder.parts]
            self._look_ups[atom] = own(atom, indexes, column, self._items.rows, self._bounds)
        return self._look_ups[atom]

    def _source(self, condition: Expression) -> _Source:
        """Return the source of candidates for a condition with an index."""
        match condition:
            case And(parts):
                return self._least([self._source(part) for part in parts if has_index(part)])
            case Or(parts):
                return self._united([self._source(part) for part in parts])
            case WindowAtom():
                look_up = self._look_up(condition)
                sizes = look_up.sizes()
                return _Source(
                    np.full(len(self._items), _FEW) if sizes is None else sizes,
                    lambda chosen: self._candidates(look_up, chosen),
                )
        raise ValueError(f"the condition {condition} has no index")

    def _candidates(self, look_up: LookUp, chosen: Booleans) -> tuple[Numbers, Numbers]:
        """Return the candidates of some items in all parts, each pair once, and count them."""
        found = look_up.candidates(chosen, self._counts, MAX_CANDIDATES)
        items = np.concatenate([items for items, _ in found])
        rows = np.concatenate([rows + start for (_, rows), start in zip(found, self._finder.starts, strict=False)])
        return self._distinct(items, rows)

    def _distinct(self, items: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
        """Return distinct pairs."""
        count = max(1, int(self._finder.starts[-1]))
        codes = np.unique(items * count + rows)
        return codes // count, codes % count

    def _least(self, sources: Sequence[_Source]) -> _Source:
        """Return a source that uses for each item the source with the fewest candidates."""
        if len(sources) == 1:
            return sources[0]
        sizes = np.stack([source.sizes for source in sources])
        least = np.argmin(sizes, axis=0)

        def find(chosen: Booleans) -> tuple[Numbers, Numbers]:
            found = [source.find(chosen & (least == number)) for number, source in enumerate(sources)]
            return np.concatenate([items for items, _ in found]), np.concatenate([rows for _, rows in found])

        return _Source(sizes.min(axis=0), find)

    def _united(self, sources: Sequence[_Source]) -> _Source:
        """Return a source with the candidates of all sources."""

        def find(chosen: Booleans) -> tuple[Numbers, Numbers]:
            found = [source.find(chosen) for source in sources]
            return self._distinct(
                np.concatenate([items for items, _ in found]), np.concatenate([rows for _, rows in found])
            )

        return _Source(np.stack([source.sizes for source in sources]).sum(axis=0), find)

    def _members(self, members: Sequence[Numbers], last: int | None) -> tuple[Numbers, Numbers]:
        """Return all earlier items of a window as candidates, or only the last ones."""
        sequences = [part.sequences[own] for part, own in zip(self._finder.parts, members, strict=True)]
        first = self._first_sequences(sequences, last)
        items: list[Numbers] = [np.empty(0, dtype=np.int64)]
        rows: list[Numbers] = [np.empty(0, dtype=np.int64)]
        for own, own_sequences, start in zip(members, sequences, self._finder.starts, strict=False):
            lows = np.searchsorted(own_sequences, first)
            sizes = np.maximum(np.searchsorted(own_sequences, self._items.sequences) - lows, 0)
            self._counts += sizes
            sizes[self._counts > MAX_CANDIDATES] = 0
            items.append(np.repeat(np.arange(len(sizes)), sizes))
            shifts = np.repeat(lows - (np.cumsum(sizes) - sizes), sizes)
            rows.append(own[np.arange(len(shifts)) + shifts] + start)
        return np.concatenate(items), np.concatenate(rows)

    def _first_sequences(self, sequences: Sequence[Numbers], last: int | None) -> Numbers:
        """Return for each item the sequence of the oldest of the last window items before it."""
        if last is None or not sequences:
            return np.zeros(len(self._items), dtype=np.int64)
        distinct = np.unique(np.concatenate(sequences))
        positions = np.searchsorted(distinct, self._items.sequences) - last
        padded = np.append(distinct, 0)
        return np.where(positions <= 0, 0, padded[np.maximum(positions, 0)])

    def _evaluate(self, condition: Expression, items: Numbers, rows: Numbers) -> Booleans:
        """Return which pairs satisfy a condition. For each part of it, only undecided pairs are checked."""
        match condition:
            case And(parts) | Or(parts):
                is_and = isinstance(condition, And)
                result = np.full(len(items), is_and, dtype=np.bool_)
                for part in sorted(parts, key=_cost):
                    open_ = np.flatnonzero(result == is_and)
                    result[open_] = self._evaluate(part, items[open_], rows[open_])
                return result
            case Not(part):
                return ~self._evaluate(part, items, rows)
            case WindowAtom() if index_of(condition) in EXACT:
                return self._check(self._look_up(condition), items, rows)
            case WindowAtom():
                return self._compare(condition, items, rows)
            case _:
                return self._hold(condition, items)

    def _check(self, look_up: LookUp, items: Numbers, rows: Numbers) -> Booleans:
        mask = np.zeros(len(items), dtype=np.bool_)
        for part, positions, own in self._finder.split(rows):
            mask[positions] = look_up.check(part, items[positions], own)
        return mask

    def _compare(self, atom: WindowAtom, items: Numbers, rows: Numbers) -> Booleans:
        """Evaluate an atom by its definition."""
        mask = np.zeros(len(items), dtype=np.bool_)
        for number, positions, own in self._finder.split(rows):
            part = self._finder.parts[number]
            for position, item, row in zip(positions.tolist(), items[positions].tolist(), own.tolist(), strict=True):
                given = condition_given(cast(Expression, atom), part.attributes(row))
                mask[position] = holds(given, self._items.attributes(item), self._items.accepted_at(item))
        return mask

    def _hold(self, condition: Expression, items: Numbers) -> Booleans:
        """Evaluate a condition on the items to be joined alone, once per item."""
        distinct, positions = np.unique(items, return_inverse=True)
        answers = [
            holds(condition, self._items.attributes(item), self._items.accepted_at(item))
            for item in distinct.tolist()
        ]
        return np.array(answers, dtype=np.bool_)[positions.reshape(-1)]


def _cost(condition: Expression) -> int:
    """Return a number by which conditions are ordered: the ones that are cheap to evaluate come first."""
    match condition:
        case And(parts) | Or(parts):
            return max(map(_cost, parts))
        case Not(part):
            return _cost(part)
        case WindowAtom():
            return 1 if index_of(condition) in EXACT else 2
        case _:
            return 0
