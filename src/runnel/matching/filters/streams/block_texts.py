"""The texts of a batch as words, and the prefixes that they begin with, for the parts of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from runnel.arrays import Array, offsets_of
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.streams.walk import BlockTexts
from runnel.matching.filters.words.tokenize import tokenize
from runnel.matching.filters.words.vocabulary import Vocabulary
from runnel.model.item_batch import TEXT


class Prefixed(NamedTuple):
    """The prefixes that words begin with: the row and slot of the text that has the word, rows ascending."""

    rows: Array
    slots: Array
    prefixes: Array


def cut_texts(
    columns: ItemColumns, vocabulary: Vocabulary, prefixes: Vocabulary, slots: Mapping[str, int], *, whole: bool
) -> tuple[BlockTexts, Prefixed]:
    """The words of the texts that a plan part looks at: of the attributes that have a slot, or of all (`whole`).

    A text of another attribute is in no slot, -1.
    """
    found = np.full(len(columns.value_rows), -1, dtype=np.int32)
    chosen = np.full(len(found), whole)
    for name, positions in columns.names.items():
        if name in slots:
            found[positions] = slots[name]
            chosen[positions] = True
    positions = np.flatnonzero(chosen & (columns.kinds == TEXT))
    tokens = tokenize(columns.text_array, positions, vocabulary, prefixes)
    rows, text_slots = columns.value_rows[positions], found[positions]
    row_values = offsets_of(np.bincount(rows, minlength=len(columns)))
    beginnings = Prefixed(rows[tokens.prefix_values], text_slots[tokens.prefix_values], tokens.prefixes)
    return BlockTexts(row_values, text_slots, tokens.offsets, tokens.words), beginnings
