"""Find the keys of the items of a batch, and the numbers that ranges are compared with.

Words and values are looked up by hash, and then the bytes of the key are compared, so hash collisions are harmless.
Bounded caches keep the results, because most words of an item occurred in earlier items.
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

_MAX_CACHED = 200_000
_MAX_CACHED_CHARACTERS = 64


_Result = TypeVar("_Result")


class _LookupCache(dict[Any, _Result]):
    """A cache of lookups by value, including failed ones. It is emptied when it becomes too large."""

    def __init__(self, find: Callable[[Any], _Result]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, value: Any) -> _Result:
        result = self._find(value)
        if len(self) >= _MAX_CACHED:
            self.clear()
        if not isinstance(value, str) or len(value) <= _MAX_CACHED_CHARACTERS:
            self[value] = result
        return result


class _SlotKeys:
    """The lookups of one slot of the plan: they find the keys of a value."""

    def __init__(
        self, number: int, facet: str, use: int, prefix_sizes: list[int], find: Callable[[int, Token], int]
    ) -> None:
        self.number = number
        self.facet = facet
        self.use = use
        self.words = _LookupCache(lambda word: find(number, word_token(word)))
        self.texts = _LookupCache(lambda text: find(number, text_token(text)))
        self.numbers = _LookupCache(lambda value: find(number, number_token(value)))
        self.booleans = _LookupCache(lambda value: find(number, boolean_token(bool(value))))
        self.prefixes = _LookupCache(lambda word: self._prefixes_of(word, prefix_sizes, find))
        self.presence = find(number, PRESENCE)

    def _prefixes_of(self, word: str, sizes: list[int], find: Callable[[int, Token], int]) -> tuple[int, ...]:
        """Return the keys of the prefixes of a word. `sizes` are the sizes to try, in bytes and ascending."""
        token = word_token(word)
        keys = (find(self.number, PREFIX + token[1 : 1 + size]) for size in sizes if size < len(token))
        return tuple(key for key in keys if key != NOTHING)


class BatchKeys:
    """The (row, key) pairs of a batch, the pairs that could not be decided, and the numbers by row and slot."""

    def __init__(self) -> None:
        self._rows: list[Array] = []
        self._keys: list[Array] = []
        self._doubted: list[tuple[Array, Array, str]] = []
        self._number_cells: list[Array] = []
        self._numbers: list[Array] = []

    def add(self, rows: Array, keys: list[int]) -> None:
        """Add a key per row. NOTHING is skipped."""
        key_array = np.array(keys, dtype=np.int64)
        is_key = key_array != NOTHING
        self._rows.append(rows[is_key])
        self._keys.append(key_array[is_key])

    def add_pairs(self, rows: Array, keys: Array) -> None:
        """Add pairs of rows and keys."""
        self._rows.append(rows)
        self._keys.append(keys)

    def add_doubts(self, rows: Array, keys: Array, reason: str) -> None:
        """Add pairs of rows and keys that could not be decided, with the reason."""
        if len(rows):
            self._doubted.append((rows, keys, reason))

    def doubts(self) -> tuple[Array, Array]:
        """Return the undecided pairs, as rows and keys. A pair may also be decided by another value of the item."""
        rows, keys = [doubt[0] for doubt in self._doubted], [doubt[1] for doubt in self._doubted]
        return _concatenate(rows, np.int64), _concatenate(keys, np.int64)

    def candidates(self) -> tuple[Array, Array]:
        """Return the decided and the undecided pairs, as rows and keys."""
        (rows, keys), (doubted_rows, doubted_keys) = self.pairs(), self.doubts()
        return np.concatenate([rows, doubted_rows]), np.concatenate([keys, doubted_keys])

    def doubt_reasons(self) -> dict[int, str]:
        """Return by row the reason why a key could not be decided."""
        return {row: reason for rows, _, reason in self._doubted for row in rows.tolist()}

    def doubtful_rows(self) -> Array:
        """Return the rows with an undecided key, in ascending order."""
        return np.unique(self.doubts()[0])

    def add_numbers(self, cells: Array, numbers: Array) -> None:
        """Add numbers with their cells; the cell of a row and a slot is `row * slots + slot`."""
        self._number_cells.append(cells)
        self._numbers.append(numbers)

    def pairs(self) -> tuple[Array, Array]:
        """Return the decided pairs, as rows and keys. A pair occurs twice if two values of the item have the key."""
        return _concatenate(self._rows, np.int64), _concatenate(self._keys, np.int64)

    def numbers(self) -> tuple[Array, Array]:
        """Return the cells in ascending order, and their numbers."""
        cells, numbers = _concatenate(self._number_cells, np.int64), _concatenate(self._numbers, np.float64)
        order = np.argsort(cells, kind="stable")
        return cells[order], numbers[order]


class KeyFinder:
    """Finds the keys of items for one plan part. With `words=False`, keys of words and prefixes are left out.

    `patterns` are the pattern matchers of the part, by family.
    """

    def __init__(self, layout: AtomLayout, patterns: Mapping[str, PatternMatcher], *, words: bool = True) -> None:
        self._layout = layout
        self._patterns = [(attribute_of(family), index_of(family), matcher) for family, matcher in patterns.items()]
        self.slots = len(layout.slots)
        self._by_name: dict[str, list[_SlotKeys]] = {}
        sizes = _prefix_sizes(layout) if words else {}
        for number in range(self.slots):
            name, facet = json.loads(layout.slots.text(number))
            use = int(layout.slot_uses[number])
            use = use if words else use & ~(SlotUse.WORDS | SlotUse.PREFIXES)
            slot = _SlotKeys(number, facet, use, sizes.get(number, []), self._find)
            self._by_name.setdefault(name, []).append(slot)
        self._whole_item = self._by_name.pop(WHOLE.name, [])

    def keys(self, columns: ItemColumns) -> BatchKeys:
        """Find the keys and numbers of all items of a batch."""
        result = BatchKeys()
        for name, positions in columns.names.items():
            for slot in (*self._by_name.get(name, ()), *self._whole_item):
                if slot.facet:
                    self._add_facet_keys(slot, columns, positions, result)
                else:
                    self._add_value_keys(slot, columns, positions, result)
        for attribute, index, matcher in self._patterns:
            if attribute in columns.names:
                keys = matcher.keys(columns)
                result.add_pairs(keys.rows, keys.keys)
                result.add_doubts(keys.doubted_rows, keys.doubted_keys, index.undecided)
        return result

    def _find(self, slot: int, token: Token) -> int:
        """Return the key of a token in a slot, or NOTHING."""
        wanted = np.uint64(hash_key(slot, token))
        hashes = self._layout.key_hashes
        index = int(np.searchsorted(hashes, wanted))
        while index < len(hashes) and hashes[index] == wanted:
            key = int(self._layout.key_ids[index])
            if self._layout.key_slots[key] == slot and self._layout.key_tokens.raw(key) == token:
                return key
            index += 1
        return NOTHING

    def _add_value_keys(self, slot: _SlotKeys, columns: ItemColumns, positions: Array, result: BatchKeys) -> None:
        kinds = columns.kinds[positions]
        rows = columns.value_rows[positions]
        if slot.use & SlotUse.PRESENCE:
            result.add(rows, [slot.presence] * len(rows))
        if slot.use & (SlotUse.WORDS | SlotUse.PREFIXES | SlotUse.TEXTS):
            is_text = kinds == TEXT
            self._add_text_keys(slot, columns, positions[is_text].tolist(), rows[is_text], result)
        if slot.use & (SlotUse.NUMBERS | SlotUse.RANGES):
            is_number = kinds == NUMBER
            self._add_number_keys(slot, columns.numbers[positions[is_number]], rows[is_number], result)
        if slot.use & SlotUse.BOOLEANS:
            is_boolean = kinds == BOOLEAN
            values = columns.numbers[positions[is_boolean]].tolist()
            result.add(rows[is_boolean], [slot.booleans[value] for value in values])

    def _add_text_keys(
        self, slot: _SlotKeys, columns: ItemColumns, positions: list[int], rows: Array, result: BatchKeys
    ) -> None:
        if slot.use & SlotUse.TEXTS:
            result.add(rows, [slot.texts[columns.texts[position]] for position in positions])
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
            result.add(np.repeat(rows, np.diff(ends)), keys)

    def _add_facet_keys(self, slot: _SlotKeys, columns: ItemColumns, positions: Array, result: BatchKeys) -> None:
        moments = positions[columns.kinds[positions] == MOMENT]
        rows = columns.value_rows[moments]
        if slot.use & SlotUse.PRESENCE:
            result.add(rows, [slot.presence] * len(rows))
        if slot.use & (SlotUse.NUMBERS | SlotUse.RANGES):
            numbers = np.array(columns.facet(slot.facet, moments), dtype=np.float64)
            self._add_number_keys(slot, numbers, rows, result)

    def _add_number_keys(self, slot: _SlotKeys, numbers: Array, rows: Array, result: BatchKeys) -> None:
        if slot.use & SlotUse.NUMBERS:
            result.add(rows, [slot.numbers[number] for number in numbers.tolist()])
        if slot.use & SlotUse.RANGES:
            result.add_numbers(rows * self.slots + slot.number, numbers)


def _prefix_sizes(layout: AtomLayout) -> dict[int, list[int]]:
    """Return the distinct sizes of the prefixes of each slot in bytes, in ascending order."""
    keys = layout.keys_of(PREFIX)
    pairs = np.stack([layout.key_slots[keys], np.diff(layout.key_tokens.offsets)[keys] - 1], axis=1)
    sizes: dict[int, list[int]] = {}
    for slot, size in np.unique(pairs, axis=0).tolist():
        sizes.setdefault(slot, []).append(size)
    return sizes


def _concatenate(arrays: list[Array], dtype: type[np.generic]) -> Array:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)
