"""Other systems on the work of `benchmarks.windows`, next to Runnel in the same run, with the same answers."""

from __future__ import annotations

import argparse

import numpy as np
from benchmarks.windows_contenders import PrefixPostings
from benchmarks.windows_duckdb import PAIRS, DuckDb
from benchmarks.windows_goals import Figures
from benchmarks.windows_ours import OurPlan
from benchmarks.windows_spark import measure_spark
from benchmarks.windows_workload import SIMILAR, Numbers, Workload, make_workload, one_join

_COMPARED_PAIRS = 10_000_000
"""The number of pairs that statements without a prefix compare."""


def measure_peers(figures: Figures, options: argparse.Namespace) -> None:
    """Measure the chosen peers."""
    for peer in filter(None, options.peers.split(",")):
        PEERS[peer](figures, options)


def measure_duckdb(figures: Figures, options: argparse.Namespace) -> None:
    """Find the pairs of a batch by SQL, and resolve the same batch with one join query."""
    size = min(options.windows)
    workload = make_workload(size, options.items, 1, options.seed)
    expected = PrefixPostings(workload.photos).look_up(workload.news, range(options.items)).pairs
    ours = _resolve(figures, workload, expected, options.rounds)
    database = DuckDb(workload)
    for statement in PAIRS:
        items = options.items if "prefixes" in statement else min(options.items, max(1, _COMPARED_PAIRS // size))
        found = min((database.pairs(statement, items) for _ in range(options.rounds)), key=lambda each: each.seconds)
        compared = figures.compare(statement, found.rows, expected[expected[:, 0] < items])
        ratio = found.seconds / items / ours
        figures.say("peers", contender=statement, window=size, **found.figures(), times_ours=ratio, **compared)
    database.close()


def _resolve(figures: Figures, workload: Workload, expected: Numbers, rounds: int) -> float:
    """Resolve one join of all news with all photos; return the CPU seconds per item, of all steps."""
    plan = OurPlan(one_join(SIMILAR, len(workload.photos)))
    plan.fill(workload.photo_batches())
    items = len(workload.news)
    plan.resolve(workload.news_batch(0, min(20, items)))
    batch = workload.news_batch(0, items)
    resolved = min((plan.resolve(batch) for _ in range(rounds)), key=lambda each: each.seconds)
    first = len(workload.photos) + 1
    pairs = [
        (sequence - first, joined - 1)
        for (_, sequence), annotations in resolved.annotations.items()
        for annotation in annotations
        for joined in annotation.newest
    ]
    compared = figures.compare("ours, resolved", np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2), expected)
    seconds = resolved.seconds / items
    figures.say(
        "peers",
        contender="ours, from items to matches and annotations",
        window=len(workload.photos),
        items=items,
        mean_microseconds=1e6 * seconds,
        **compared,
    )
    return seconds


PEERS = {"duckdb": measure_duckdb, "spark": measure_spark}
