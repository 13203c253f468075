"""Find the words of a plan part in items for matchers without streams, directly in Arrow's UTF-8 buffers.

In: a plan part and batches of items. Out: pairs of a row and a key, for the keys that are words or prefixes of words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows, read_only
from runnel.kernel import kernel
from runnel.matching.filters.atoms.atom_layout import NOTHING, AtomLayout
from runnel.matching.filters.atoms.atom_tests import SlotUse
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.item_keys import BatchKeys
from runnel.matching.filters.streams.block_texts import Prefixed, cut_texts
from runnel.matching.filters.streams.stream_layout import StreamLayout
from runnel.matching.filters.streams.walk import BlockTexts
from runnel.matching.filters.words.vocabulary import Vocabulary
from runnel.plan.store import PlanPart

WHOLE = "*"
"""The attribute name of the slot that covers whole items."""


@dataclass(frozen=True)
class PlanWords:
    """The words and prefixes of a plan part, the keys of each, and the slots in which they are searched."""

    vocabulary: Vocabulary
    word_keys: Rows
    prefixes: Vocabulary
    prefix_keys: Rows
    key_slots: Array
    slots: dict[str, int]

    @staticmethod
    def of(part: PlanPart, atoms: AtomLayout) -> PlanWords:
        """Load the words of a plan part, which are stored with its streams."""
        streams = StreamLayout.stored(part.layout)
        return PlanWords(
            streams.vocabulary,
            streams.word_keys,
            streams.prefixes,
            streams.prefix_keys,
            atoms.key_slots,
            word_slots(atoms),
        )

    def add_keys(self, columns: ItemColumns, batch_keys: BatchKeys) -> None:
        """Add the keys of the words of all items to `batch_keys`, each key once per item."""
        slots = dict(self.slots)
        whole = slots.pop(WHOLE, NOTHING)
        texts, prefixed = cut_texts(columns, self.vocabulary, self.prefixes, slots, whole=whole != NOTHING)
        rows, keys = _find_keys(
            texts,
            prefixed,
            whole,
            read_only(self.word_keys.offsets),
            read_only(self.word_keys.values),
            read_only(self.prefix_keys.offsets),
            read_only(self.prefix_keys.values),
            read_only(self.key_slots),
        )
        batch_keys.add_pairs(rows, keys)


def word_slots(atoms: AtomLayout) -> dict[str, int]:
    """Return the slots in which words or prefixes are searched, by attribute."""
    slots = ((slot, *json.loads(atoms.slots.text(slot))) for slot in range(len(atoms.slots)))
    uses = SlotUse.WORDS | SlotUse.PREFIXES
    return {name: slot for slot, name, facet in slots if not facet and atoms.slot_uses[slot] & uses}


@kernel
def _find_keys(
    texts: BlockTexts,
    prefixed: Prefixed,
    whole: int,
    offsets: Array,
    word_keys: Array,
    prefix_offsets: Array,
    prefix_keys: Array,
    key_slots: Array,
) -> tuple[Array, Array]:
    """Return rows and keys. A word counts for the slot of its text and for the slot `whole` of whole items."""
    seen = np.full(len(key_slots), NOTHING, np.int64)
    rows, keys = np.empty(1024, np.int64), np.empty(1024, np.int64)
    count, pair = 0, 0
    for row in range(len(texts.row_values) - 1):
        for value in range(texts.row_values[row], texts.row_values[row + 1]):
            for position in range(texts.offsets[value], texts.offsets[value + 1]):
                word = texts.words[position]
                for index in range(offsets[word], offsets[word + 1]) if word >= 0 else range(0):
                    key = word_keys[index]
                    if seen[key] != row and (key_slots[key] == texts.slots[value] or key_slots[key] == whole):
                        seen[key] = row
                        if count == len(rows):
                            rows, keys = np.append(rows, rows), np.append(keys, keys)
                        rows[count], keys[count] = row, key
                        count += 1
        while pair < len(prefixed.rows) and prefixed.rows[pair] == row:
            prefix = prefixed.prefixes[pair]
            for index in range(prefix_offsets[prefix], prefix_offsets[prefix + 1]):
                key = prefix_keys[index]
                if seen[key] != row and (key_slots[key] == prefixed.slots[pair] or key_slots[key] == whole):
                    seen[key] = row
                    if count == len(rows):
                        rows, keys = np.append(rows, rows), np.append(keys, keys)
                    rows[count], keys[count] = row, key
                    count += 1
            pair += 1
    return rows[:count].copy(), keys[:count].copy()
