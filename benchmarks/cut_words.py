"""Cutting texts into numbered words, measured. Prints one JSON line per figure.

    python benchmarks/cut_words.py [--texts 5000] [--vocabulary 50000] [--prefixes 2000] [--seed 7]

News-like texts of about 182 words are generated and seeded: words by Zipf's law, capitals, punctuation, apostrophes,
and some letters beyond ASCII. The definition of words with a dictionary, on the same texts, is the naive way; both
must give the same numbers.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from runnel.algebra.values.words import words
from runnel.arrays import Array, Texts
from runnel.matching.filters.words.code_points import code_points
from runnel.matching.filters.words.tokenize import Tokens, tokenize
from runnel.matching.filters.words.vocabulary import Vocabulary

_SYLLABLES = re.findall(
    r"\w+", "an be co da el fi gra ho in jo ka le mo ne or pa qui ra se ti un ver wa ex yo zi con ment ing tion"
)
_ACCENTED = str.maketrans("aeou", "äéöü")
_NAIVE_TEXTS = 500
_RUNS = 7


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=5_000)
    parser.add_argument("--vocabulary", type=int, default=50_000)
    parser.add_argument("--prefixes", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    chance = np.random.default_rng(options.seed)
    known = vocabulary_words(chance, options.vocabulary)
    _build(known)
    _tables()
    plain = news(chance, known, options.texts)
    accented = [text.translate(_ACCENTED) if number % 3 == 0 else text for number, text in enumerate(plain)]
    prefixes = sorted({word[: int(chance.integers(3, 7))] for word in known[: options.prefixes]})
    _compare("ascii", plain, known, None)
    _compare("some beyond ascii", accented, known, None)
    _compare("with prefixes", plain, known, prefixes)
    _compare("decomposed accents", ["e\u0301 " + text for text in plain[:_NAIVE_TEXTS]], known, None)


def say(figure: str, **values: Any) -> None:
    """Print one figure as a line of JSON."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
    print(json.dumps({"benchmark": "cut_words", "figure": figure, **rounded}), flush=True)


def vocabulary_words(chance: np.random.Generator, count: int) -> list[str]:
    """Distinct words of one to five syllables, the short ones first, some with an apostrophe."""
    results: dict[str, None] = {}
    while len(results) < count:
        size = min(5, 1 + int(np.log10(1 + len(results) / 20)))
        word = "".join(
            _SYLLABLES[integer] for integer in chance.integers(0, len(_SYLLABLES), chance.integers(size, size + 2))
        )
        results[word + ("'s" if chance.random() < 0.02 else "")] = None
    return list(results)


def news(chance: np.random.Generator, known: list[str], count: int) -> list[str]:
    """Texts of 60 to 300 words; the frequency of a word goes down with its rank."""
    weights = 1.0 / (np.arange(1, len(known) + 1) + 2.7) ** 1.05
    ladder = np.cumsum(weights / weights.sum())
    texts = []
    for size in chance.integers(60, 305, count).tolist():
        ranks = np.searchsorted(ladder, chance.random(size)).clip(0, len(known) - 1)
        spelled = [known[rank] for rank in ranks.tolist()]
        for stop in range(0, size, 11):
            spelled[stop] = spelled[stop].capitalize()
        for stop in range(10, size, 11):
            spelled[stop] += "." if stop % 2 else ","
        texts.append(" ".join(spelled))
    return texts


def _build(known: list[str]) -> None:
    Vocabulary.of(["warm"])
    million = Texts.of(f"{known[number % len(known)]}{number}" for number in range(1_000_000))
    for figure, values in (("build", Texts.of(known)), ("build a million", million)):
        seconds = _fastest(lambda values=values: Vocabulary.of(values))  # type: ignore[misc]
        built = Vocabulary.of(values)
        size = sum(array.nbytes for array in built.arrays().values())
        say(figure, words=len(built), cpu_seconds=seconds, bytes_per_word=size / len(built))


def _tables() -> None:
    started = time.process_time()
    code_points()
    say("table of code points", cpu_seconds=time.process_time() - started)


def _compare(figure: str, texts: list[str], known: list[str], prefixes: list[str] | None) -> None:
    vocabulary = Vocabulary.of(known)
    sought = None if prefixes is None else Vocabulary.of(prefixes)
    array, positions = pa.array(texts), np.arange(len(texts))
    size = sum(len(text.encode()) for text in texts)
    tokens = tokenize(array, positions, vocabulary, sought)
    seconds = _fastest(lambda: tokenize(array, positions, vocabulary, sought))
    values = texts[:_NAIVE_TEXTS]
    naive_seconds = _fastest(lambda: _naive(values, known), 3)
    _same(tokens, _naive(values, known))
    naive_words = int(tokens.offsets[len(values)])
    say(
        figure,
        texts=len(texts),
        words=len(tokens.words),
        known_words=int(np.count_nonzero(tokens.words >= 0)),
        prefixes_found=len(tokens.prefixes),
        megabytes_per_second=size / seconds / 1e6,
        words_per_second=len(tokens.words) / seconds,
        microseconds_per_text=seconds / len(texts) * 1e6,
        naive_words_per_second=naive_words / naive_seconds,
        times_faster_than_naive=(len(tokens.words) / seconds) / (naive_words / naive_seconds),
    )


def _naive(texts: list[str], known: list[str]) -> list[list[int]]:
    numbers = {word: number for number, word in enumerate(known)}
    return [[numbers.get(word, -1) for word in words(text)] for text in texts]


def _same(tokens: Tokens, naive: list[list[int]]) -> None:
    rows: list[Array] = [tokens.row(value) for value in range(len(naive))]
    assert [row.tolist() for row in rows] == naive, "the tokeniser and the definition of words differ"


def _fastest(work: Callable[[], object], runs: int = _RUNS) -> float:
    """Return the least CPU time of several runs, in seconds."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


if __name__ == "__main__":
    main()
