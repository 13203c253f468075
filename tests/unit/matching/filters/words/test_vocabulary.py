"""A vocabulary finds exactly its own words, before and after it is stored."""

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
def test_repeated_words_have_their_first_number(words: list[str], others: list[str]) -> None:
    vocabulary = Vocabulary.of(words)
    assert len(vocabulary) == len(words)
    for word in (*words, *others):
        assert vocabulary.find(word) == (words.index(word) if word in words else -1)
    from_texts = Vocabulary.of(Texts.of(words))
    assert all(np.array_equal(from_texts.arrays()[name], array) for name, array in vocabulary.arrays().items())


def test_empty_word_is_never_found() -> None:
    assert Vocabulary.of(["", "a", ""]).find_all(Texts.of(["", "a", ""])).tolist() == [-1, 1, -1]
    assert Vocabulary.of([]).find("") == -1


def test_stored_and_mapped_vocabulary_finds_the_same_words(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(5_000)]
    for name, array in Vocabulary.of(words).arrays("known").items():
        np.save(tmp_path / name, array)
    files = tmp_path.glob("*.npy")
    mapped = {file.stem: np.asarray(np.load(file, mmap_mode="r")) for file in files}
    vocabulary = Vocabulary.stored(mapped, "known")
    assert vocabulary.find_all(Texts.of(words)).tolist() == list(range(5_000))
    assert vocabulary.find("word5000") == -1


def _replace_array(name: str, array: Array) -> dict[str, Array]:
    return {**Vocabulary.of(["alpha", "beta", "a word of many bytes"]).arrays(), f"vocabulary.{name}": array}


def test_damaged_arrays_are_rejected() -> None:
    """None of them may lead a kernel out of an array, or into an endless search."""
    vocabulary = Vocabulary.of(["alpha", "beta", "a word of many bytes"])
    large_numbers = vocabulary.slots.copy()
    large_numbers[1::2][large_numbers[1::2] != EMPTY] |= np.uint64(7)
    large_sizes = vocabulary.slots.copy()
    large_sizes[1::2][large_sizes[1::2] != EMPTY] += np.uint64(1000) << SIZE_SHIFT
    full = vocabulary.slots.copy()
    full[1::2] = 0
    large_shift = vocabulary.keys.copy()
    large_shift[2] = 64
    changes = [
        ("slots", large_numbers),
        ("slots", large_sizes),
        ("slots", full),
        ("slots", vocabulary.slots[:-2]),
        ("slots", vocabulary.slots.astype(np.int64)),
        ("keys", large_shift),
        ("keys", vocabulary.keys[:2]),
        ("chunk_offsets", vocabulary.chunk_offsets[::-1].copy()),
        ("chunk_offsets", vocabulary.chunk_offsets[:-1]),
        ("chunks", vocabulary.chunks[:-1]),
    ]
    for name, array in changes:
        with pytest.raises(ValueError, match="vocabulary"):
            Vocabulary.stored(_replace_array(name, array))


def test_long_probe_sequence_leads_to_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"w{number}" for number in range(300)]
    unlimited = Vocabulary.of(words)
    monkeypatch.setattr(module, "_MAX_PROBES", 1)
    limited = Vocabulary.of(words)
    assert not np.array_equal(unlimited.keys, limited.keys), "a word needs more than one probe"
    assert limited.find_all(Texts.of(words)).tolist() == list(range(300))


def test_keys_depend_on_all_words() -> None:
    keys = {tuple(Vocabulary.of(words).keys.tolist()) for words in (["a", "b"], ["ab"], ["b", "a"], ["a", "b", "c"])}
    assert len(keys) == 4


def test_at_most_half_of_the_slots_are_used() -> None:
    for count in (0, 1, 4, 5, 64, 65, 1000):
        vocabulary = Vocabulary.of(f"w{number}" for number in range(count))
        assert np.count_nonzero(vocabulary.slots[1::2] != EMPTY) == count
        assert 2 * count <= len(vocabulary.slots) // 2
