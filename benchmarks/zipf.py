"""Words as texts have them: a vocabulary, and how often each of its words occurs (Zipf's law)."""

from __future__ import annotations

from functools import cache

import numpy as np

from runnel.arrays import Array

VOCABULARY = 50_000
SHORTEST, LONGEST = 60, 300
"""The lengths of texts, in words."""

_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwxyz", "aeiou"


@cache
def vocabulary() -> tuple[str, ...]:
    """The words, most frequent first: 4 to 9 letters, all different.

    >>> len(vocabulary()), len(set(vocabulary()))
    (50000, 50000)
    """
    generator = np.random.default_rng(2009)
    results: dict[str, None] = {}
    # Some words are drawn twice, so a few more than needed. The last letter is a consonant in half of the words.
    count = VOCABULARY + VOCABULARY // 4
    syllables = generator.integers(2, 5, count).tolist()
    first = generator.integers(0, len(_CONSONANTS), (count, 4)).tolist()
    second = generator.integers(0, len(_VOWELS), (count, 4)).tolist()
    last = generator.integers(0, 2 * len(_CONSONANTS), count).tolist()
    for size, consonants, vowels, final in zip(syllables, first, second, last, strict=True):
        pairs = zip(consonants[:size], vowels[:size], strict=True)
        word = "".join(_CONSONANTS[consonant] + _VOWELS[vowel] for consonant, vowel in pairs)
        results[word + _CONSONANTS[final : final + 1]] = None
    return tuple(results)[:VOCABULARY]


@cache
def word_probabilities() -> Array:
    """The probability of each word at any place of a text: Zipf's law with Mandelbrot's shift."""
    weights = 1.0 / (np.arange(1, VOCABULARY + 1) + 2.7) ** 1.05
    return np.asarray(weights / weights.sum())


@cache
def document_frequencies() -> Array:
    """The part of all items that hold each word."""
    lengths = np.arange(SHORTEST, LONGEST + 1, 20)
    return np.asarray(np.mean([1.0 - (1.0 - word_probabilities()) ** length for length in lengths], axis=0))


def draw(generator: np.random.Generator, weights: Array, count: int) -> Array:
    """Draw the given number of indexes in proportion to their weights."""
    bounds = np.cumsum(weights)
    searchsorted = np.searchsorted(bounds, generator.random(count) * bounds[-1], side="right")
    return np.asarray(np.minimum(searchsorted, len(weights) - 1))
