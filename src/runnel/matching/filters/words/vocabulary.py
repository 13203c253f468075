"""The distinct words of a plan as a hash table that can be stored and mapped into memory.

In: words, numbered in their order. Out: arrays in which a kernel finds the number of a word; see `word_table`.

The hash is keyed, and its keys are derived from a digest of all words, so adding a word that is chosen to collide
also changes the keys. If a probe sequence is long nevertheless, other keys are tried.
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

_MAX_PROBES = 64
"""If a lookup probes more slots, other keys are tried. Random words at this load need about a third."""

_MAX_ATTEMPTS = 64
"""Maximum number of keys that are tried. A long probe sequence costs only time."""


@dataclass(frozen=True)
class Vocabulary:
    """Numbered words.

    >>> vocabulary = Vocabulary.of(["rock", "concert", "metropolitan"])
    >>> vocabulary.find("concert"), vocabulary.find("metropolitan"), vocabulary.find("jazz"), len(vocabulary)
    (1, 2, -1, 3)
    """

    keys: Array
    """The two keys of the hash, and the number of bits by which a hash is shifted to get its slot."""
    slots: Array
    chunk_offsets: Array
    chunks: Array

    def __len__(self) -> int:
        return len(self.chunk_offsets) - 1

    @cached_property
    def table(self) -> WordTable:
        """The arrays for kernels. All are read-only, so kernels are compiled only once, also for mapped arrays."""
        first_key, second_key, shift = (np.uint64(key) for key in self.keys.tolist())
        arrays = (read_only(array) for array in (self.slots, self.chunk_offsets, self.chunks))
        return WordTable(first_key, second_key, shift, *arrays)

    @cached_property
    def prefixes(self) -> Prefixes:
        """The table for finding the words of this vocabulary as prefixes of other words."""
        return prefixes_of(self.table)

    def find(self, word: str) -> int:
        """Return the number of a word, or -1 if it is not in the vocabulary."""
        return int(self.find_all(Texts.of([word]))[0])

    def find_all(self, words: Texts) -> Array:
        """Return the numbers of words, with -1 for words that are not in the vocabulary."""
        numbers, sizes = np.empty(len(words), dtype=np.int32), np.diff(words.offsets)
        look_up(pack_words(words)[1], 0, sizes, 0, len(words), self.table, numbers, 0)
        return numbers

    def arrays(self, name: str = "vocabulary") -> dict[str, Array]:
        """Return the arrays to store, with names that begin with `name`."""
        return {f"{name}.{field}": getattr(self, field) for field in _FIELDS}

    @staticmethod
    def stored(arrays: Arrays, name: str = "vocabulary") -> Vocabulary:
        """Load a stored vocabulary. Raise ValueError if its arrays do not fit each other."""
        vocabulary = Vocabulary(*(arrays[f"{name}.{field}"] for field in _FIELDS))
        _check(name, vocabulary)
        return vocabulary

    @staticmethod
    def of(words: Texts | Iterable[str]) -> Vocabulary:
        """Build a vocabulary. Of equal words, the first number is found; an empty word is never found."""
        texts = words if isinstance(words, Texts) else Texts.of(words)
        chunk_offsets, chunks = pack_words(texts)
        # At most half of the slots are used.
        bits = max(3, (2 * len(texts) - 1).bit_length())
        for attempt in range(_MAX_ATTEMPTS):
            slots = np.full(2 << bits, EMPTY, dtype=np.uint64)
            vocabulary = Vocabulary(_derive_keys(texts, bits, attempt), slots, chunk_offsets, chunks)
            if fill(np.diff(texts.offsets), vocabulary.table, slots) <= _MAX_PROBES:
                break
        return vocabulary


def pack_words(words: Texts) -> tuple[Array, Array]:
    """Pack words into chunks; return the offsets of their chunks, and the chunks.

    One more chunk is appended, so that the offset of an empty last word is valid.
    """
    sizes = np.diff(words.offsets)
    offsets = offsets_of((sizes + 7) // 8)
    chunks = np.zeros(int(offsets[-1]) + 1, dtype=np.uint64)
    pack_all(read_only(words.data), sizes, chunks)
    return offsets, chunks


_FIELDS = ("keys", "slots", "chunk_offsets", "chunks")


def _derive_keys(words: Texts, bits: int, attempt: int) -> Array:
    digest = hashlib.blake2b(np.diff(words.offsets).tobytes(), digest_size=16, salt=attempt.to_bytes(16))
    digest.update(words.data.tobytes())
    first, second = np.frombuffer(digest.digest(), dtype="<u8").tolist()
    return np.array([first, second | 1, 64 - bits], dtype=np.uint64)


def _check(name: str, vocabulary: Vocabulary) -> None:
    """Raise ValueError if an array would lead a kernel out of another array or into an endless search."""
    keys, slots, offsets, chunks = vocabulary.keys, vocabulary.slots, vocabulary.chunk_offsets, vocabulary.chunks
    for field, array in (("keys", keys), ("slots", slots), ("chunks", chunks)):
        if array.dtype != np.uint64:
            raise ValueError(f"{name}.{field} must contain unsigned integers of 64 bits")
    if offsets.dtype != np.int64:
        raise ValueError(f"{name}.chunk_offsets must contain integers of 64 bits")
    if len(keys) != 3:
        raise ValueError(f"{name}.keys must contain exactly 3 integers")
    shift = int(keys[2])
    if not 32 < shift < 64 or len(slots) != 2 << (64 - shift):
        raise ValueError(f"{name}.slots does not have the length that {name}.keys requires")
    used = slots[1::2][slots[1::2] != EMPTY]
    fits = len(offsets) > 0 and offsets[0] == 0 and offsets[-1] + 1 == len(chunks)
    if not fits or np.any(offsets[1:] < offsets[:-1]):
        raise ValueError(f"{name}.chunk_offsets must contain ascending integers from 0 to {len(chunks) - 1}")
    if 2 * len(used) > len(slots) // 2:
        raise ValueError(f"{name}.slots uses more than half of its slots")
    numbers = (used & NUMBER).astype(np.int64)
    sizes = (used >> SIZE_SHIFT).astype(np.int64)
    if np.any(numbers >= len(vocabulary)):
        raise ValueError(f"{name}.slots contains a word number that is out of range")
    if np.any((sizes + 7) // 8 != offsets[numbers + 1] - offsets[numbers]):
        raise ValueError(f"{name}.slots contains a word size that does not fit {name}.chunk_offsets")
