"""Tokenize the texts of a batch that a plan part reads: the numbers of their words, and the prefixes of the words."""

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
    """The prefixes of words, each with the row and slot of its text, in ascending order of rows."""

    rows: Array
    slots: Array
    prefixes: Array


def cut_texts(
    columns: ItemColumns, vocabulary: Vocabulary, prefixes: Vocabulary, slots: Mapping[str, int], *, whole: bool
) -> tuple[BlockTexts, Prefixed]:
    """Return the words and prefixes of the texts of attributes with a slot or, with `whole`, of all texts.

    A text of an attribute without a slot has the slot -1.
    """
    value_slots = np.full(len(columns.value_rows), -1, dtype=np.int32)
    is_read = np.full(len(value_slots), whole)
    for name, positions in columns.names.items():
        if name in slots:
            value_slots[positions] = slots[name]
            is_read[positions] = True
    positions = np.flatnonzero(is_read & (columns.kinds == TEXT))
    tokens = tokenize(columns.text_array, positions, vocabulary, prefixes)
    rows, text_slots = columns.value_rows[positions], value_slots[positions]
    row_values = offsets_of(np.bincount(rows, minlength=len(columns)))
    prefixed = Prefixed(rows[tokens.prefix_values], text_slots[tokens.prefix_values], tokens.prefixes)
    return BlockTexts(row_values, text_slots, tokens.offsets, tokens.words), prefixed
