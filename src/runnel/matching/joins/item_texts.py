"""Distinct texts in ascending order of their bytes, in which binary search finds a text exactly.

In: texts as Arrow arrays of bytes. Out: the distinct texts, and for each text its position among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runnel.arrays import decode_text, offsets_of, read_only
from runnel.matching.joins.join_kernels import find_texts

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SortedTexts:
    """Distinct texts, encoded as bytes, in ascending order.

    >>> texts, positions = sort_texts(pa.array([b"rock", b"pop", b"rock"], pa.large_binary()))
    >>> positions.tolist(), texts.find(sort_texts(pa.array([b"ro"], pa.large_binary()))[0])
    ([1, 0, 1], array([-1], dtype=int32))
    """

    offsets: Array
    data: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def find(self, sought: SortedTexts) -> Array:
        """Return the positions of texts, or -1."""
        positions: Array = find_texts(sought.offsets, sought.data, self.offsets, self.data)
        return positions

    def text(self, position: int) -> str:
        """Return one text."""
        return decode_text(self.data[self.offsets[position] : self.offsets[position + 1]].tobytes())

    def to_arrow(self) -> Any:
        """Return the texts as an Arrow array."""
        buffers = [None, pa.py_buffer(self.offsets.astype(np.int64)), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)

    def used(self, positions: Array) -> tuple[SortedTexts, Array]:
        """Return only the texts at these positions, and the new positions."""
        is_used = np.zeros(len(self), dtype=np.bool_)
        is_used[positions] = True
        if is_used.all():
            return self, positions
        kept = self.to_arrow().filter(pa.array(is_used))
        return texts_of(kept), (np.cumsum(is_used) - 1)[positions]

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to store."""
        return {"offsets": self.offsets, "data": self.data}

    @staticmethod
    def stored(arrays: Mapping[str, Array]) -> SortedTexts:
        """Return the texts of arrays that `arrays` returned."""
        return SortedTexts(read_only(arrays["offsets"]), read_only(arrays["data"]))


def texts_of(sorted_array: Any) -> SortedTexts:
    """Return the texts of an Arrow array that is in order."""
    lengths = pc.binary_length(sorted_array).to_numpy(zero_copy_only=False)
    offsets = offsets_of(lengths).astype(np.uint32)
    buffer = sorted_array.buffers()[2]
    data = np.frombuffer(buffer, dtype=np.uint8) if buffer is not None else np.empty(0, dtype=np.uint8)
    start = _first_byte(sorted_array)
    return SortedTexts(read_only(offsets), read_only(data[start : start + int(offsets[-1])]))


def _first_byte(array: Any) -> int:
    """Return where the texts of an array of type large_binary start in its buffer."""
    offsets = array.buffers()[1]
    if offsets is None or not len(array):
        return 0
    return int(np.frombuffer(offsets, dtype=np.int64)[array.offset])


def sort_texts(texts: Any) -> tuple[SortedTexts, Numbers]:
    """Return the distinct texts of an Arrow array, and the position of each text among them."""
    encoded = texts.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    positions = np.empty(len(order), dtype=np.int64)
    positions[order.to_numpy()] = np.arange(len(order))
    return texts_of(encoded.dictionary.take(order)), positions[encoded.indices.to_numpy(zero_copy_only=False)]


def merge_texts(several: Sequence[SortedTexts]) -> tuple[SortedTexts, list[Numbers]]:
    """Return the texts of several, and for each of them the new positions of its texts."""
    merged, positions = sort_texts(pa.concat_arrays([texts.to_arrow() for texts in several]))
    ends = np.cumsum([len(texts) for texts in several])[:-1]
    return merged, np.split(positions, ends)
