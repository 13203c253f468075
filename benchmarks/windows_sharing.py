"""Very many join queries over shared windows next to one join query: what they cost per item, and what they find."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from benchmarks.windows_contenders import PrefixPostings
from benchmarks.windows_duckdb import DuckDb
from benchmarks.windows_goals import Figures
from benchmarks.windows_ours import OurPlan, Resolved
from benchmarks.windows_workload import (
    FIRST_QUERY,
    SIMILAR,
    JoinQueries,
    Numbers,
    Workload,
    make_join_queries,
    make_workload,
    one_join,
    topics_of,
)

_BATCH = 1_000
_MAX_SHARED_PHOTOS = 100_000
"""A photo is in fifty windows, so larger windows take more memory than a small machine has."""


def measure_sharing(figures: Figures, options: argparse.Namespace) -> None:
    """Resolve the same items with all queries and with one."""
    photos = min(_MAX_SHARED_PHOTOS, max(options.windows))
    workload = make_workload(photos, options.items, topics_of(options.queries), options.seed)
    queries = make_join_queries(options.queries, options.shared_windows, photos, options.seed)
    pairs = PrefixPostings(workload.photos).look_up(workload.news, range(options.items)).pairs
    alone = _resolve(OurPlan(one_join(SIMILAR, photos)), workload, options.rounds)
    shared = _resolve(OurPlan(queries.definitions()), workload, options.rounds)
    of_one = np.unique(pairs[:, 0]) + photos + 1
    compared = figures.compare(
        "one join query", _rows(alone), np.stack([of_one, np.full_like(of_one, FIRST_QUERY)], 1)
    )
    _say(figures, "one join query", 1, 1, alone, compared, photos)
    expected, notes = expected_matches(workload, queries, pairs)
    compared = figures.compare("shared windows", _rows(shared), expected)
    compared |= {"annotations": figures.compare("annotations of shared windows", _notes(shared), notes)["equal"]}
    _say(figures, "shared windows", len(queries), len(queries.lows), shared, compared, photos)
    if "duckdb" in options.peers.split(","):
        _say_duckdb(figures, workload, queries, expected, options.rounds)
    verified = [sum(each.verified for each in several) for several in (alone, shared)]
    figures.exactly("pairs verified with shared windows, of those with one", verified[1] / verified[0], 1.0)
    figures.at_most(
        "cost of all queries, of one", _seconds(shared) / _seconds(alone), 4.0, queries=len(queries), window=photos
    )


def _say_duckdb(figures: Figures, workload: Workload, queries: JoinQueries, expected: Numbers, rounds: int) -> None:
    """Find the same matches by SQL, with the queries as rows."""
    database = DuckDb(workload, queries)
    answers = min(
        ([database.matches(first, last) for first, last in _batches(workload)] for _ in range(rounds)),
        key=lambda answers: sum(answer.seconds for answer in answers),
    )
    database.close()
    items = len(workload.news)
    rows = np.concatenate([answer.rows for answer in answers])
    figures.say(
        "shared windows, duckdb with queries as rows",
        queries=len(queries),
        windows=len(queries.lows),
        window=len(workload.photos),
        items=items,
        mean_microseconds=1e6 * sum(answer.seconds for answer in answers) / items,
        **figures.compare("duckdb, queries as rows", rows, expected),
    )


def _batches(workload: Workload) -> list[tuple[int, int]]:
    count = len(workload.news)
    return [(first, min(first + _BATCH, count)) for first in range(0, count, _BATCH)]


def _resolve(plan: OurPlan, workload: Workload, rounds: int) -> list[Resolved]:
    """Resolve all news in batches. Of several rounds, the one with the least time counts."""
    plan.fill(workload.photo_batches(2_000))
    plan.resolve(workload.news_batch(0, min(20, len(workload.news))))  # kernels and files are warm after it
    batches = [workload.news_batch(first, last) for first, last in _batches(workload)]
    return min(([plan.resolve(batch) for batch in batches] for _ in range(rounds)), key=_seconds)


def _say(
    figures: Figures,
    figure: str,
    queries: int,
    windows: int,
    resolved: list[Resolved],
    compared: dict[str, object],
    photos: int,
) -> None:
    items = sum(each.items for each in resolved)
    figures.say(
        figure,
        queries=queries,
        windows=windows,
        window=photos,
        items=items,
        matching_microseconds=1e6 * sum(each.matching_seconds for each in resolved) / items,
        claiming_microseconds=1e6 * sum(each.claiming_seconds for each in resolved) / items,
        resolving_microseconds=1e6 * _seconds(resolved) / items,
        claims_per_item=sum(each.claims for each in resolved) / items,
        verified_per_item=sum(each.verified for each in resolved) / items,
        matches_per_item=sum(len(each.matches) for each in resolved) / items,
        **compared,
    )


def _seconds(resolved: list[Resolved]) -> float:
    return sum(each.resolving_seconds for each in resolved)


def _rows(resolved: list[Resolved]) -> Numbers:
    return np.concatenate([each.matches for each in resolved])


def _notes(resolved: list[Resolved]) -> Numbers:
    """Return (sequence, query, joined item) in ascending order."""
    rows = [
        (sequence, query, joined)
        for each in resolved
        for (query, sequence), annotations in each.annotations.items()
        for annotation in annotations
        for joined in annotation.newest
    ]
    return np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)


def expected_matches(workload: Workload, queries: JoinQueries, pairs: Numbers) -> tuple[Numbers, Numbers]:
    """Return the matches as (sequence, query), and the annotations as (sequence, query, joined item).

    A query counts the photos of its window, so it asks how many of them are newer than a photo.
    """
    photos = len(workload.photos)
    members = [
        np.flatnonzero((workload.prices >= low) & (workload.prices < high))
        for low, high in zip(queries.lows.tolist(), queries.highs.tolist(), strict=True)
    ]
    by_topic = [np.flatnonzero(queries.topics == topic) for topic in range(int(queries.topics.max()) + 1)]

    def rows() -> Iterator[Numbers]:
        for item, photo in pairs.tolist():
            price = workload.prices[photo]
            newer = np.full(len(members), photos, dtype=np.int64)
            for window in np.flatnonzero((queries.lows <= price) & (price < queries.highs)).tolist():
                newer[window] = len(members[window]) - 1 - np.searchsorted(members[window], photo)
            interested = by_topic[int(workload.topics[item])]
            found = interested[newer[queries.windows[interested]] < queries.extents[interested]]
            yield np.stack(
                [np.full(len(found), photos + item + 1), queries.ids[found], np.full(len(found), photo + 1)], axis=1
            )

    notes = np.unique(np.concatenate([np.empty((0, 3), dtype=np.int64), *rows()]), axis=0)
    return np.unique(notes[:, :2], axis=0), notes
