"""The distinct words of a plan as a hash table that can be stored and mapped into memory.

In: words, numbered in their order. Out: arrays in which a kernel finds the number of a word. A word is packed into
chunks of eight bytes. The hash of one chunk is a bijection, so for a word of up to eight bytes equal hashes are
equal words; longer ones are compared chunk by chunk. No answer rests on a hash.

The hash is keyed, and the keys come from a digest of all words: who writes a hostile word changes the keys with it.
Should a chain still become long, the next keys are tried.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from runnel.arrays import Array, Arrays, Texts, offsets_of, read_only
from runnel.matching.filters.words.word_prefixes import Prefixes, prefixes_of
from runnel.matching.filters.words.word_table import EMPTY, NUMBER, SIZE_SHIFT, WordTable, fill, look_up, pack_all

_LONGEST_CHAIN = 64
"""Slots that are looked at before other keys are tried; random words at this load need about a third."""

_ATTEMPTS = 64
"""Keys that are tried; a chain that is still long costs time, never an answer."""


@dataclass(frozen=True)
class Vocabulary:
    """Words by number.

    >>> some = Vocabulary.of(["rock", "concert", "metropolitan"])
    >>> some.find("concert"), some.find("metropolitan"), some.find("jazz"), len(some)
    (1, 2, -1, 3)
    """

    keys: Array
    """Two keys of the hash, and the shift that leads from a hash to a slot."""
    slots: Array
    chunk_offsets: Array
    chunks: Array

    def __len__(self) -> int:
        return len(self.chunk_offsets) - 1

    @cached_property
    def table(self) -> WordTable:
        """The arrays for kernels: all read-only, so that a mapped vocabulary needs no second compilation."""
        first_key, second_key, shift = (np.uint64(key) for key in self.keys.tolist())
        arrays = (read_only(one) for one in (self.slots, self.chunk_offsets, self.chunks))
        return WordTable(first_key, second_key, shift, *arrays)

    @cached_property
    def prefixes(self) -> Prefixes:
        """The words as prefixes of others."""
        return prefixes_of(self.table)

    def find(self, word: str) -> int:
        """The number of a word, or -1."""
        return int(self.find_all(Texts.of([word]))[0])

    def find_all(self, words: Texts) -> Array:
        """The numbers of words, -1 for those that are not in the vocabulary."""
        numbers, sizes = np.empty(len(words), dtype=np.int32), np.diff(words.offsets)
        look_up(packed(words)[1], 0, sizes, 0, len(words), self.table, numbers, 0)
        return numbers

    def arrays(self, name: str = "vocabulary") -> dict[str, Array]:
        """The arrays to store under a name."""
        return {f"{name}.{field}": getattr(self, field) for field in _FIELDS}

    @staticmethod
    def stored(arrays: Arrays, name: str = "vocabulary") -> Vocabulary:
        """The vocabulary that was stored under a name; ValueError if its arrays do not fit each other."""
        found = Vocabulary(*(arrays[f"{name}.{field}"] for field in _FIELDS))
        _check(name, found)
        return found

    @staticmethod
    def of(words: Texts | Iterable[str]) -> Vocabulary:
        """The vocabulary of some words; of equal words, the first one's number is found, an empty one's never."""
        texts = words if isinstance(words, Texts) else Texts.of(words)
        chunk_offsets, chunks = packed(texts)
        # At most half of the slots are taken.
        bits = max(3, (2 * len(texts) - 1).bit_length())
        for attempt in range(_ATTEMPTS):
            slots = np.full(2 << bits, EMPTY, dtype=np.uint64)
            found = Vocabulary(_keys(texts, bits, attempt), slots, chunk_offsets, chunks)
            if fill(np.diff(texts.offsets), found.table, slots) <= _LONGEST_CHAIN:
                break
        return found


def packed(words: Texts) -> tuple[Array, Array]:
    """The chunks of words, and where those of each word begin; one more chunk makes place for an empty last word."""
    sizes = np.diff(words.offsets)
    offsets = offsets_of((sizes + 7) // 8)
    chunks = np.zeros(int(offsets[-1]) + 1, dtype=np.uint64)
    pack_all(read_only(words.data), sizes, chunks)
    return offsets, chunks


_FIELDS = ("keys", "slots", "chunk_offsets", "chunks")


def _keys(words: Texts, bits: int, attempt: int) -> Array:
    digest = hashlib.blake2b(np.diff(words.offsets).tobytes(), digest_size=16, salt=attempt.to_bytes(16))
    digest.update(words.data.tobytes())
    first, second = np.frombuffer(digest.digest(), dtype="<u8").tolist()
    return np.array([first, second | 1, 64 - bits], dtype=np.uint64)


def _check(name: str, found: Vocabulary) -> None:
    """A damaged vocabulary must neither answer wrongly by its shape nor lead a kernel out of an array."""
    unsigned = all(one.dtype == np.uint64 for one in (found.keys, found.slots, found.chunks))
    if not unsigned or found.chunk_offsets.dtype != np.int64 or len(found.keys) != 3:
        raise ValueError(f"{name}.keys does not fit its values")
    shift = int(found.keys[2])
    if not 32 < shift < 64 or len(found.slots) != 2 << (64 - shift):
        raise ValueError(f"{name}.slots does not fit its keys")
    offsets, taken = found.chunk_offsets, found.slots[1::2][found.slots[1::2] != EMPTY]
    fits = len(offsets) > 0 and offsets[0] == 0 and offsets[-1] + 1 == len(found.chunks)
    if not fits or np.any(offsets[1:] < offsets[:-1]):
        raise ValueError(f"{name}.chunk_offsets does not fit its values")
    numbers = (taken & NUMBER).astype(np.int64)
    sizes = (taken >> SIZE_SHIFT).astype(np.int64)
    if 2 * len(taken) > len(found.slots) // 2 or np.any(numbers >= len(found)):
        raise ValueError(f"{name}.slots refers to something that is not there")
    if np.any((sizes + 7) // 8 != offsets[numbers + 1] - offsets[numbers]):
        raise ValueError(f"{name}.slots does not fit its chunks")
