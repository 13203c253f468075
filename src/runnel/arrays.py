"""Sets and texts as flat arrays: what a plan is made of.

Rows are sets in CSR form (offsets and values); Texts are strings in one run of bytes. Both can be views of files
that are mapped into memory, so a million of them cost no Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

IDENTIFIER = np.int32
"""Dense ids inside a plan, and its offsets where they fit; catalog ids have 64 bits."""


@dataclass(frozen=True)
class Rows:
    """Row i is `values[offsets[i]:offsets[i + 1]]`.

    >>> rows = Rows.of([[4, 7], [], [1]])
    >>> rows.row(0).tolist(), len(rows), [part.tolist() for part in rows.expand(np.array([2, 0]))]
    ([4, 7], 3, [[0, 1, 1], [1, 4, 7]])
    """

    offsets: Array
    values: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Array:
        """How many values each row has."""
        return np.diff(self.offsets)

    def row(self, index: int) -> Array:
        """The values of one row."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def lists(self) -> Iterator[list[int]]:
        """The rows as lists, in order."""
        values, offsets = self.values.tolist(), self.offsets.tolist()
        for start, stop in pairwise(offsets):
            yield values[start:stop]

    def expand(self, rows: Array) -> tuple[Array, Array]:
        """The values of the chosen rows end to end, and for each the position in `rows` that it belongs to."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        before = np.cumsum(lengths) - lengths
        owners = np.repeat(np.arange(len(rows)), lengths)
        return owners, self.values[np.arange(len(owners)) + np.repeat(starts - before, lengths)]

    def arrays(self, name: str) -> dict[str, Array]:
        """The arrays to store under a name."""
        return {f"{name}.offsets": self.offsets, f"{name}.values": self.values}

    @staticmethod
    def of(rows: Iterable[Sequence[int]], dtype: npt.DTypeLike = IDENTIFIER) -> Rows:
        """Rows from lists."""
        kept = [list(row) for row in rows]
        offsets = row_offsets([len(row) for row in kept])
        values = np.fromiter((value for row in kept for value in row), dtype=dtype, count=int(offsets[-1]))
        return Rows(offsets, values)

    @staticmethod
    def grouped(groups: Array, values: Array, count: int) -> Rows:
        """Rows from (group, value) pairs, the values of a group in their given order.

        >>> Rows.grouped(np.array([1, 0, 1]), np.array([5, 6, 7]), 3).row(1).tolist()
        [5, 7]
        """
        order = np.argsort(groups, kind="stable")
        return Rows(row_offsets(np.bincount(groups, minlength=count)), values[order])

    @staticmethod
    def stored(arrays: Arrays, name: str) -> Rows:
        """Rows that were stored under a name."""
        return Rows(arrays[f"{name}.offsets"], arrays[f"{name}.values"])


@dataclass(frozen=True)
class Texts:
    """Strings, numbered from 0, as UTF-8 in one run of bytes.

    >>> texts = Texts.of(["rock", "東京"])
    >>> len(texts), texts.text(1)
    (2, '東京')
    """

    offsets: Array
    data: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def raw(self, index: int) -> bytes:
        """The bytes of one string."""
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def text(self, index: int) -> str:
        """One string."""
        return decode_text(self.raw(index))

    def texts(self) -> Iterator[str]:
        """All strings, in order."""
        whole = self.data.tobytes()
        return (decode_text(whole[start:stop]) for start, stop in pairwise(self.offsets.tolist()))

    def arrays(self, name: str) -> dict[str, Array]:
        """The arrays to store under a name."""
        return {f"{name}.offsets": self.offsets, f"{name}.data": self.data}

    @staticmethod
    def of(texts: Iterable[str | bytes]) -> Texts:
        """Texts from strings."""
        raw = [text if isinstance(text, bytes) else encode_text(text) for text in texts]
        return Texts(row_offsets([len(one) for one in raw]), np.frombuffer(b"".join(raw), dtype=np.uint8))

    @staticmethod
    def stored(arrays: Arrays, name: str) -> Texts:
        """Texts that were stored under a name."""
        return Texts(arrays[f"{name}.offsets"], arrays[f"{name}.data"])


def read_only(array: Array) -> Array:
    """A view through which nothing can be written, as mapped arrays are: a kernel is compiled for one of both."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def encode_text(text: str) -> bytes:
    """The bytes of a string; a lone surrogate, which a hostile item may carry, is kept as it is."""
    return text.encode("utf-8", "surrogatepass")


def decode_text(data: bytes) -> str:
    """The string of bytes made by `encode_text`."""
    return data.decode("utf-8", "surrogatepass")


def offsets_of(lengths: npt.ArrayLike) -> Array:
    """The offsets of rows with these lengths.

    >>> offsets_of([2, 0, 1]).tolist()
    [0, 2, 2, 3]
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def row_offsets(lengths: npt.ArrayLike) -> Array:
    """The offsets of rows that a plan keeps: half as wide, unless there are more than two thousand million values.

    >>> row_offsets([2, 0, 1]).dtype, row_offsets([2**31]).dtype
    (dtype('int32'), dtype('int64'))
    """
    return narrow_offsets(offsets_of(lengths))


def narrow_offsets(offsets: Array) -> Array:
    """Offsets in half the room, where they fit."""
    fits = len(offsets) > 0 and offsets[-1] <= np.iinfo(IDENTIFIER).max
    return offsets.astype(IDENTIFIER, copy=False) if fits else offsets
