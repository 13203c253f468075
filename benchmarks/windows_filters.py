"""A batch without joins: matched and committed in a workspace with join queries on other feeds, and in one without.

The reader, the matching step and the commit run in this process, as Spark's workers and driver run them. The two
workspaces take turns, so that other work on the machine affects both.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import Any

import numpy as np
from benchmarks.windows_goals import Figures
from benchmarks.windows_workload import Numbers, make_join_queries
from benchmarks.zipf import draw, vocabulary, word_probabilities
from tests.integration.in_process import InProcess

from runnel.engine import Engine, connect

_FILTERS = 1_000
_JOINS = 1_000
_WINDOWS = 50
_TURNS = 5
"""Rounds per round of other figures: a batch takes little time, and a ratio of two has to be exact."""

_PHOTOS = 100_000
"""The length of the longest window. The windows are empty, because no items are published to their feeds."""


def measure_filters(figures: Figures, options: argparse.Namespace) -> None:
    """Match the same items in both workspaces."""
    filters, joins, rounds = _filters(), list(_joins(options.seed)), _TURNS * options.rounds
    with ExitStack() as stack:
        runs = [stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-bench-")) for _ in ("without", "with")]
        engines = [stack.enter_context(connect(folder)) for folder in runs]
        for engine, more in zip(engines, ([], joins), strict=True):
            engine.execute("\n".join(["register feed Wire; register feed Photos; register feed News;", *filters]))
            if more:
                engine.execute("\n".join(more))
        generator = np.random.default_rng(options.seed)
        seconds = _take_turns(engines, [_items(generator, options.items, turn) for turn in range(rounds + 1)])
        without, with_joins = (_matches(engine) for engine in engines)
    ratios = [second / first for first, second in seconds]
    figures.at_most(
        "batch of filters with join queries, of one without",
        median(ratios),
        1.05,
        filters=len(filters),
        joins=len(joins),
        items=options.items,
        rounds=rounds,
        ratios=[round(ratio, 3) for ratio in ratios],
        without_microseconds_per_item=1e6 * median(first for first, _ in seconds) / options.items,
        with_microseconds_per_item=1e6 * median(second for _, second in seconds) / options.items,
        matches=len(without),
        **figures.compare("filters with join queries", with_joins, without),
    )


def _filters() -> list[str]:
    return [
        f"create feed F{number} from Wire where text contains '{word}'; subscribe to F{number} output log;"
        for number, word in enumerate(vocabulary()[:_FILTERS])
    ]


def _joins(seed: int) -> Iterator[str]:
    queries = make_join_queries(_JOINS, _WINDOWS, _PHOTOS, seed)
    rows = zip(queries.topics.tolist(), queries.windows.tolist(), queries.extents.tolist(), strict=True)
    for number, (topic, window, extent) in enumerate(rows):
        low, high = queries.lows[window], queries.highs[window]
        yield (
            f"create feed J{number} from News as $n join last {extent} items on Photos as $p "
            "with $n[title similar window.title] "
            f"where $n[topic = {topic}] and $p[price between {low:f} and {high:f}];"
            f" subscribe to J{number} output log;"
        )


def _items(generator: np.random.Generator, count: int, turn: int) -> list[dict[str, Any]]:
    words = draw(generator, word_probabilities(), 30 * count).reshape(count, 30)
    known = vocabulary()
    return [
        {"id": f"{turn} {row}", "text": " ".join(known[word] for word in chosen)}
        for row, chosen in enumerate(words.tolist())
    ]


def _take_turns(engines: list[Engine], batches: list[list[dict[str, Any]]]) -> list[tuple[float, float]]:
    """Publish and match every batch in both workspaces. The first, which loads plans, does not count."""
    runs = [InProcess(engine, slice_items=4_096) for engine in engines]
    seconds: list[tuple[float, float]] = []
    for turn, batch in enumerate(batches):
        used = [0.0, 0.0]
        for number in (0, 1) if turn % 2 else (1, 0):
            engines[number].publish("Wire", batch)
            started = time.process_time()
            runs[number].match()
            used[number] = time.process_time() - started
        seconds.append((used[0], used[1]))
    for run in runs:
        run.close()
    return seconds[1:]


def _matches(engine: Engine) -> Numbers:
    """Return all matches as (sequence, query). The feeds of the filters have the same ids in both workspaces."""
    found = list(engine.workspace.matches.read(0, engine.workspace.items.last_sequence()))
    sequences = [np.repeat(rows.sequences, np.diff(rows.offsets)) for rows in found]
    pairs = np.stack([np.concatenate(sequences), np.concatenate([rows.queries for rows in found])], axis=1)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
