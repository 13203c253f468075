"""The texts of a batch as words, for the parts of a plan."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from runnel.matching.filters.columns import ItemColumns
from runnel.matching.filters.streams.walk import Texts
from runnel.matching.filters.tokenize import tokenize
from runnel.matching.filters.vocabulary import Vocabulary
from runnel.model.batch import TEXT
from runnel.plan.arrays import offsets_of


def cut_texts(columns: ItemColumns, vocabulary: Vocabulary, slots: Mapping[str, int], *, whole: bool) -> Texts:
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
    tokens = tokenize(columns.text_array, positions, vocabulary)
    row_values = offsets_of(np.bincount(columns.value_rows[positions], minlength=len(columns)))
    return Texts(row_values, found[positions], tokens.offsets, tokens.words)
