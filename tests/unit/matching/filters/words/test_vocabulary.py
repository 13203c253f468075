"""A vocabulary finds every word it was made of, and no other, also after it was stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.arrays import Array, Texts
from runnel.matching.filters.words import vocabulary as module
from runnel.matching.filters.words.vocabulary import Vocabulary
from runnel.matching.filters.words.word_table import EMPTY, SIZE_SHIFT

some_words = st.one_of(st.text(min_size=1, max_size=30), st.text("ab\x00", min_size=1, max_size=20))


@settings(deadline=None, max_examples=200)
@given(st.lists(some_words, max_size=40), st.lists(some_words, max_size=20))
def test_words_are_found_by_their_first_number(words: list[str], others: list[str]) -> None:
    found = Vocabulary.of(words)
    assert len(found) == len(words)
    for word in (*words, *others):
        assert found.find(word) == (words.index(word) if word in words else -1)
    again = Vocabulary.of(Texts.of(words))
    assert all(np.array_equal(again.arrays()[name], array) for name, array in found.arrays().items())


def test_an_empty_word_is_never_found() -> None:
    assert Vocabulary.of(["", "a", ""]).find_all(Texts.of(["", "a", ""])).tolist() == [-1, 1, -1]
    assert Vocabulary.of([]).find("") == -1


def test_a_stored_vocabulary_is_the_same(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(5_000)]
    for name, array in Vocabulary.of(words).arrays("known").items():
        np.save(tmp_path / name, array)
    files = tmp_path.glob("*.npy")
    mapped = {file.stem: np.asarray(np.load(file, mmap_mode="r")) for file in files}
    found = Vocabulary.stored(mapped, "known")
    assert found.find_all(Texts.of(words)).tolist() == list(range(5_000))
    assert found.find("word5000") == -1


def _broken(name: str, change: Array) -> dict[str, Array]:
    return {**Vocabulary.of(["alpha", "beta", "a word of many bytes"]).arrays(), f"vocabulary.{name}": change}


def test_damaged_arrays_are_refused() -> None:
    """None of them may lead a kernel out of an array, or into a search without end."""
    good = Vocabulary.of(["alpha", "beta", "a word of many bytes"])
    far = good.slots.copy()
    far[1::2][far[1::2] != EMPTY] |= np.uint64(7)
    long = good.slots.copy()
    long[1::2][long[1::2] != EMPTY] += np.uint64(1000) << SIZE_SHIFT
    full = good.slots.copy()
    full[1::2] = 0
    short = good.keys.copy()
    short[2] = 64
    changes = [
        ("slots", far),
        ("slots", long),
        ("slots", full),
        ("slots", good.slots[:-2]),
        ("slots", good.slots.astype(np.int64)),
        ("keys", short),
        ("keys", good.keys[:2]),
        ("chunk_offsets", good.chunk_offsets[::-1].copy()),
        ("chunk_offsets", good.chunk_offsets[:-1]),
        ("chunks", good.chunks[:-1]),
    ]
    for name, change in changes:
        with pytest.raises(ValueError, match="vocabulary"):
            Vocabulary.stored(_broken(name, change))


def test_a_long_chain_leads_to_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"w{number}" for number in range(300)]
    usual = Vocabulary.of(words)
    monkeypatch.setattr(module, "_LONGEST_CHAIN", 1)
    other = Vocabulary.of(words)
    assert not np.array_equal(usual.keys, other.keys), "some chain is longer than one"
    assert other.find_all(Texts.of(words)).tolist() == list(range(300))


def test_the_keys_depend_on_all_words() -> None:
    keys = {tuple(Vocabulary.of(words).keys.tolist()) for words in (["a", "b"], ["ab"], ["b", "a"], ["a", "b", "c"])}
    assert len(keys) == 4


def test_at_most_half_of_the_slots_are_taken() -> None:
    for count in (0, 1, 4, 5, 64, 65, 1000):
        found = Vocabulary.of(f"w{number}" for number in range(count))
        assert np.count_nonzero(found.slots[1::2] != EMPTY) == count
        assert 2 * count <= len(found.slots) // 2
