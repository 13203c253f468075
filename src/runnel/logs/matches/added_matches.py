"""Add matches to a part of the match log. Parts are immutable, so a new part replaces the old one.

In: a part, and pairs of sequence and query. Out: a new part of the same items under a unique name, with one row per
item.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.logs.matches.match_files import MatchRows, read_part, splice_details, write_rows
from runnel.model.segment import MatchPart
from runnel.storage.file_storage import Storage

Numbers = npt.NDArray[np.int64]


def add_matches(
    storage: Storage,
    lineage: int,
    part: MatchPart,
    sequences: Numbers,
    queries: Numbers,
    details: Mapping[int, str] = MappingProxyType({}),
) -> tuple[MatchPart, int]:
    """Return a part with these additional matches, and the number of matches that are new.

    Sequences are ascending; those of other parts are ignored. `details` are those of the additional matches, by
    sequence. If there is nothing to add, return the part itself.
    """
    low, high = np.searchsorted(sequences, [part.first_sequence, part.last_sequence + 1])
    if low == high:
        return part, 0
    before = read_part(storage, part.path)
    rows = with_matches(before, sequences[low:high], queries[low:high], details)
    path = f"matches/{lineage}/{part.first_sequence:020d}-{uuid.uuid4().hex}.arrow"
    written = write_rows(storage, path, rows, (part.first_sequence, part.last_sequence))
    return written, len(rows.queries) - len(before.queries)


def with_matches(
    rows: MatchRows, sequences: Numbers, queries: Numbers, details: Mapping[int, str] = MappingProxyType({})
) -> MatchRows:
    """Add matches to rows: one row per item, in order, with ascending queries and the item's details.

    >>> one = MatchRows(np.array([4, 6]), np.array([0, 2, 3]), np.array([1, 9, 1]))
    >>> both = with_matches(one, np.array([4, 5]), np.array([3, 7]))
    >>> both.sequences.tolist(), both.offsets.tolist(), both.queries.tolist()
    ([4, 5, 6], [0, 3, 4, 5], [1, 3, 9, 7, 1])
    """
    row_sequences = np.repeat(rows.sequences, np.diff(rows.offsets))
    pairs = np.stack([np.concatenate([row_sequences, sequences]), np.concatenate([rows.queries, queries])])
    pairs = pairs[:, np.lexsort((pairs[1], pairs[0]))]
    is_first = np.ones(pairs.shape[1], dtype=bool)
    is_first[1:] = np.any(pairs[:, 1:] != pairs[:, :-1], axis=0)
    pairs = pairs[:, is_first]
    items, counts = np.unique(pairs[0], return_counts=True)
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    return MatchRows(items, offsets, pairs[1], _details_of(rows, items, details))


def _details_of(rows: MatchRows, sequences: Numbers, added: Mapping[int, str]) -> Any:
    """Return the details of the rows for these items, with the added ones. Not all of the items have rows."""
    kept = None
    if rows.details is not None:
        indexes = np.searchsorted(rows.sequences, sequences)
        inside = indexes < len(rows.sequences)
        inside[inside] = rows.sequences[indexes[inside]] == sequences[inside]
        kept = rows.details.take(pa.array(indexes, mask=~inside))
    if not added:
        return kept
    before = [None] * len(sequences) if kept is None else kept.to_pylist()
    texts = [
        splice_details(filter(None, (text, added.get(sequence)))) if text or sequence in added else None
        for sequence, text in zip(sequences.tolist(), before, strict=True)
    ]
    return pa.array(texts, pa.large_string())
