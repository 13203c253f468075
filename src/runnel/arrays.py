"""Flat arrays for sets of numbers and for strings, of which plans consist.

`Rows` are sets in CSR form (offsets and values). `Texts` are strings in one array of bytes. Both can be views of
memory-mapped files, so that a million rows need no Python objects.
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
"""The type of dense ids inside a plan, and of its offsets if they fit. Catalog ids have 64 bits."""


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
        """The number of values in each row."""
        return np.diff(self.offsets)

    def row(self, index: int) -> Array:
        """Return the values of one row."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def lists(self) -> Iterator[list[int]]:
        """Yield the rows as lists, in order."""
        values, offsets = self.values.tolist(), self.offsets.tolist()
        for start, stop in pairwise(offsets):
            yield values[start:stop]

    def expand(self, rows: Array) -> tuple[Array, Array]:
        """Return two arrays: the position in `rows` of each value, and the concatenated values of the chosen rows."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        before = np.cumsum(lengths) - lengths
        owners = np.repeat(np.arange(len(rows)), lengths)
        return owners, self.values[np.arange(len(owners)) + np.repeat(starts - before, lengths)]

    def arrays(self, name: str) -> dict[str, Array]:
        """Return the arrays to store under a name."""
        return {f"{name}.offsets": self.offsets, f"{name}.values": self.values}

    @staticmethod
    def of(rows: Iterable[Sequence[int]], dtype: npt.DTypeLike = IDENTIFIER) -> Rows:
        """Build rows from lists."""
        lists = [list(row) for row in rows]
        offsets = row_offsets([len(row) for row in lists])
        values = np.fromiter((value for row in lists for value in row), dtype=dtype, count=int(offsets[-1]))
        return Rows(offsets, values)

    @staticmethod
    def grouped(groups: Array, values: Array, count: int) -> Rows:
        """Build rows from (group, value) pairs. The values of a group keep their order.

        >>> Rows.grouped(np.array([1, 0, 1]), np.array([5, 6, 7]), 3).row(1).tolist()
        [5, 7]
        """
        order = np.argsort(groups, kind="stable")
        return Rows(row_offsets(np.bincount(groups, minlength=count)), values[order])

    @staticmethod
    def stored(arrays: Arrays, name: str) -> Rows:
        """Return the rows that are stored under a name."""
        return Rows(arrays[f"{name}.offsets"], arrays[f"{name}.values"])


@dataclass(frozen=True)
class Texts:
    """Strings, numbered from 0, as UTF-8 in one array of bytes.

    >>> texts = Texts.of(["rock", "東京"])
    >>> len(texts), texts.text(1)
    (2, '東京')
    """

    offsets: Array
    data: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def raw(self, index: int) -> bytes:
        """Return the bytes of one string."""
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def text(self, index: int) -> str:
        """Return one string."""
        return decode_text(self.raw(index))

    def texts(self) -> Iterator[str]:
        """Yield all strings, in order."""
        whole = self.data.tobytes()
        return (decode_text(whole[start:stop]) for start, stop in pairwise(self.offsets.tolist()))

    def arrays(self, name: str) -> dict[str, Array]:
        """Return the arrays to store under a name."""
        return {f"{name}.offsets": self.offsets, f"{name}.data": self.data}

    @staticmethod
    def of(texts: Iterable[str | bytes]) -> Texts:
        """Build texts from strings, or from bytes in UTF-8."""
        encoded = [text if isinstance(text, bytes) else encode_text(text) for text in texts]
        return Texts(row_offsets([len(data) for data in encoded]), np.frombuffer(b"".join(encoded), dtype=np.uint8))

    @staticmethod
    def stored(arrays: Arrays, name: str) -> Texts:
        """Return the texts that are stored under a name."""
        return Texts(arrays[f"{name}.offsets"], arrays[f"{name}.data"])


def read_only(array: Array) -> Array:
    """Return a read-only view, which has the type of a mapped array, so that a kernel is compiled only once."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def encode_text(text: str) -> bytes:
    """Encode a string as UTF-8. Lone surrogates, which a hostile item may contain, are preserved."""
    return text.encode("utf-8", "surrogatepass")


def decode_text(data: bytes) -> str:
    """Decode bytes that were encoded by `encode_text`."""
    return data.decode("utf-8", "surrogatepass")


def offsets_of(lengths: npt.ArrayLike) -> Array:
    """Return the offsets of rows with these lengths.

    >>> offsets_of([2, 0, 1]).tolist()
    [0, 2, 2, 3]
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def row_offsets(lengths: npt.ArrayLike) -> Array:
    """Return the offsets of rows with these lengths, with 32 bits if there are fewer than 2**31 values.

    >>> row_offsets([2, 0, 1]).dtype, row_offsets([2**31]).dtype
    (dtype('int32'), dtype('int64'))
    """
    return narrow_offsets(offsets_of(lengths))


def narrow_offsets(offsets: Array) -> Array:
    """Convert offsets to 32 bits if they fit."""
    fits = len(offsets) > 0 and offsets[-1] <= np.iinfo(IDENTIFIER).max
    return offsets.astype(IDENTIFIER, copy=False) if fits else offsets
