"""The keys that the items of a batch have, and the numbers that ranges look at.

Words and values become keys by hash, and the key's own bytes are compared, so an answer never rests on a hash. What
was looked up is remembered in bounded tables: most words of an item were in an item before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from runnel.algebra.nodes.attributes import WHOLE
from runnel.arrays import Array
from runnel.families import attribute_of
from runnel.matching.filters.atoms.atom_layout import NOTHING, AtomLayout, hash_key
from runnel.matching.filters.atoms.atom_tests import (
    PREFIX,
    PRESENCE,
    SlotUse,
    Token,
    boolean_token,
    number_token,
    text_token,
    word_token,
)
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.patterns.contract import PatternMatcher, index_of
from runnel.model.item_batch import BOOLEAN, MOMENT, NUMBER, TEXT

_REMEMBERED = 200_000
_LONGEST_REMEMBERED = 64


_Found = TypeVar("_Found")


class _Lookup(dict[Any, _Found]):
    """What is found by value, on first use; nothing is remembered too. Emptied when it grows too large."""

    def __init__(self, find: Callable[[Any], _Found]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, value: Any) -> _Found:
        found = self._find(value)
        if len(self) >= _REMEMBERED:
            self.clear()
        if not isinstance(value, str) or len(value) <= _LONGEST_REMEMBERED:
            self[value] = found
        return found


class _SlotKeys:
    """What one slot of the plan asks of a value."""

    def __init__(
        self, number: int, facet: str, use: int, prefix_sizes: list[int], find: Callable[[int, Token], int]
    ) -> None:
        self.number = number
        self.facet = facet
        self.use = use
        self.words = _Lookup(lambda word: find(number, word_token(word)))
        self.texts = _Lookup(lambda text: find(number, text_token(text)))
        self.numbers = _Lookup(lambda value: find(number, number_token(value)))
        self.booleans = _Lookup(lambda value: find(number, boolean_token(bool(value))))
        self.prefixes = _Lookup(lambda word: self._prefixes_of(word, prefix_sizes, find))
        self.presence = find(number, PRESENCE)

    def _prefixes_of(self, word: str, sizes: list[int], find: Callable[[int, Token], int]) -> tuple[int, ...]:
        """The keys of the prefixes that a word begins with; `sizes` are those that occur, in bytes, ascending."""
        token = word_token(word)
        found = (find(self.number, PREFIX + token[1 : 1 + size]) for size in sizes if size < len(token))
        return tuple(key for key in found if key != NOTHING)


class BatchKeys:
    """The (row, key) pairs of a batch, those of which nobody knows, and its numbers sorted by row and slot."""

    def __init__(self) -> None:
        self._rows: list[Array] = []
        self._keys: list[Array] = []
        self._doubted: list[tuple[Array, Array, str]] = []
        self._number_places: list[Array] = []
        self._numbers: list[Array] = []

    def add(self, rows: Array, keys: list[int]) -> None:
        """The value in each row has this key, or NOTHING."""
        found = np.array(keys, dtype=np.int64)
        known = found != NOTHING
        self._rows.append(rows[known])
        self._keys.append(found[known])

    def add_pairs(self, rows: Array, keys: Array) -> None:
        """These rows have these keys."""
        self._rows.append(rows)
        self._keys.append(keys)

    def add_doubts(self, rows: Array, keys: Array, reason: str) -> None:
        """Whether these rows have these keys could not be decided, and why."""
        if len(rows):
            self._doubted.append((rows, keys, reason))

    def doubts(self) -> tuple[Array, Array]:
        """Rows and keys of which nobody knows; some may be among the pairs all the same, by another value."""
        rows, keys = [one[0] for one in self._doubted], [one[1] for one in self._doubted]
        return _joined(rows, np.int64), _joined(keys, np.int64)

    def candidates(self) -> tuple[Array, Array]:
        """Rows and keys that they have or may have."""
        (rows, keys), (doubted_rows, doubted_keys) = self.pairs(), self.doubts()
        return np.concatenate([rows, doubted_rows]), np.concatenate([keys, doubted_keys])

    def doubt_reasons(self) -> dict[int, str]:
        """Why a key of a row could not be decided, by row."""
        return {row: reason for rows, _, reason in self._doubted for row in rows.tolist()}

    def doubtful_rows(self) -> Array:
        """The rows with a key of which nobody knows, ascending."""
        return np.unique(self.doubts()[0])

    def add_numbers(self, places: Array, numbers: Array) -> None:
        """Numbers at their places (row times slots plus slot)."""
        self._number_places.append(places)
        self._numbers.append(numbers)

    def pairs(self) -> tuple[Array, Array]:
        """Rows and keys, repeated where an item has a key by two of its values."""
        return _joined(self._rows, np.int64), _joined(self._keys, np.int64)

    def numbers(self) -> tuple[Array, Array]:
        """Places, ascending, and the numbers there."""
        places, numbers = _joined(self._number_places, np.int64), _joined(self._numbers, np.float64)
        order = np.argsort(places, kind="stable")
        return places[order], numbers[order]


class KeyFinder:
    """Finds the keys of items for one part of a plan; without `words`, only those of other things.

    `patterns` are the item patterns of the part, by family.
    """

    def __init__(self, layout: AtomLayout, patterns: Mapping[str, PatternMatcher], *, words: bool = True) -> None:
        self._layout = layout
        self._patterns = [(attribute_of(family), index_of(family), found) for family, found in patterns.items()]
        self.slots = len(layout.slots)
        self._by_name: dict[str, list[_SlotKeys]] = {}
        sizes = _prefix_sizes(layout) if words else {}
        for number in range(self.slots):
            name, facet = json.loads(layout.slots.text(number))
            use = int(layout.slot_uses[number])
            use = use if words else use & ~(SlotUse.WORDS | SlotUse.PREFIXES)
            slot = _SlotKeys(number, facet, use, sizes.get(number, []), self._find)
            self._by_name.setdefault(name, []).append(slot)
        self._whole = self._by_name.pop(WHOLE.name, [])

    def keys(self, columns: ItemColumns) -> BatchKeys:
        """The keys and numbers of all items."""
        found = BatchKeys()
        for name, positions in columns.names.items():
            for slot in (*self._by_name.get(name, ()), *self._whole):
                if slot.facet:
                    self._facet_keys(slot, columns, positions, found)
                else:
                    self._value_keys(slot, columns, positions, found)
        for attribute, index, matcher in self._patterns:
            if attribute in columns.names:
                keys = matcher.keys(columns)
                found.add_pairs(keys.rows, keys.keys)
                found.add_doubts(keys.doubted_rows, keys.doubted_keys, index.undecided)
        return found

    def _find(self, slot: int, token: Token) -> int:
        wanted = np.uint64(hash_key(slot, token))
        hashes = self._layout.key_hashes
        place = int(np.searchsorted(hashes, wanted))
        while place < len(hashes) and hashes[place] == wanted:
            key = int(self._layout.key_ids[place])
            if self._layout.key_slots[key] == slot and self._layout.key_tokens.raw(key) == token:
                return key
            place += 1
        return NOTHING

    def _value_keys(self, slot: _SlotKeys, columns: ItemColumns, positions: Array, found: BatchKeys) -> None:
        kinds = columns.kinds[positions]
        rows = columns.value_rows[positions]
        if slot.use & SlotUse.PRESENCE:
            found.add(rows, [slot.presence] * len(rows))
        if slot.use & (SlotUse.WORDS | SlotUse.PREFIXES | SlotUse.TEXTS):
            chosen = kinds == TEXT
            self._text_keys(slot, columns, positions[chosen].tolist(), rows[chosen], found)
        if slot.use & (SlotUse.NUMBERS | SlotUse.RANGES):
            chosen = kinds == NUMBER
            self._number_keys(slot, columns.numbers[positions[chosen]], rows[chosen], found)
        if slot.use & SlotUse.BOOLEANS:
            chosen = kinds == BOOLEAN
            values = columns.numbers[positions[chosen]].tolist()
            found.add(rows[chosen], [slot.booleans[value] for value in values])

    def _text_keys(
        self, slot: _SlotKeys, columns: ItemColumns, positions: list[int], rows: Array, found: BatchKeys
    ) -> None:
        if slot.use & SlotUse.TEXTS:
            found.add(rows, [slot.texts[columns.texts[position]] for position in positions])
        if slot.use & (SlotUse.WORDS | SlotUse.PREFIXES):
            keys: list[int] = []
            ends = [0]
            for position in positions:
                distinct = set(columns.words(position))
                if slot.use & SlotUse.WORDS:
                    keys.extend(map(slot.words.__getitem__, distinct))
                if slot.use & SlotUse.PREFIXES:
                    keys.extend(chain.from_iterable(map(slot.prefixes.__getitem__, distinct)))
                ends.append(len(keys))
            found.add(np.repeat(rows, np.diff(ends)), keys)

    def _facet_keys(self, slot: _SlotKeys, columns: ItemColumns, positions: Array, found: BatchKeys) -> None:
        chosen = positions[columns.kinds[positions] == MOMENT]
        rows = columns.value_rows[chosen]
        if slot.use & SlotUse.PRESENCE:
            found.add(rows, [slot.presence] * len(rows))
        if slot.use & (SlotUse.NUMBERS | SlotUse.RANGES):
            self._number_keys(slot, np.array(columns.facet(slot.facet, chosen), dtype=np.float64), rows, found)

    def _number_keys(self, slot: _SlotKeys, numbers: Array, rows: Array, found: BatchKeys) -> None:
        if slot.use & SlotUse.NUMBERS:
            found.add(rows, [slot.numbers[number] for number in numbers.tolist()])
        if slot.use & SlotUse.RANGES:
            found.add_numbers(rows * self.slots + slot.number, numbers)


def _prefix_sizes(layout: AtomLayout) -> dict[int, list[int]]:
    """How many bytes the prefixes of every slot have, ascending."""
    keys = layout.keys_of(PREFIX)
    pairs = np.stack([layout.key_slots[keys], np.diff(layout.key_tokens.offsets)[keys] - 1], axis=1)
    sizes: dict[int, list[int]] = {}
    for slot, size in np.unique(pairs, axis=0).tolist():
        sizes.setdefault(slot, []).append(size)
    return sizes


def _joined(arrays: list[Array], dtype: type[np.generic]) -> Array:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)
