"""Very many filters inside Spark, measured: from the item log to the committed match log. JSON lines.

    python -m benchmarks.filters_spark [--workload M] [--queries 100000] [--items 250000] [--singles 30]

The plan is compiled from the workload's predicates and published in a root's catalog as any other; items are accepted
into its log. One bounded run matches them all in `local[2]`; between its first and last commit nothing starts up any
more. Then micro-batches of 1, 10 and 100 items are published one at a time to a running engine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.measuring import say
from benchmarks.workloads import KINDS, SOURCE, Kind, frequencies, make_items, make_queries

from runnel.catalog.declared import feeds
from runnel.catalog.logs import match_segments, plan_versions
from runnel.engine import Engine, connect
from runnel.matching.compile.compile_plan import compile_logical
from runnel.model.item import Item

NAME = "filters_spark"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=KINDS, default="M")
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=250_000)
    parser.add_argument("--batch", type=int, default=50_000, help="items in a batch")
    parser.add_argument("--singles", type=int, default=30, help="micro-batches of each size; 0 for none")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder,
        connect(folder, master="local[2]", max_batch_items=options.batch, max_batch_bytes=1 << 30) as engine,
    ):
        publish_plan(engine, NAME, options.workload, options.queries)
        items = benchmark_items(options.items + 111 * options.singles)
        accept_items(engine, NAME, items, options.items)
        _bounded(engine, options)
        for size in (1, 10, 100) if options.singles else ():
            _micro(engine, items, size, options)


def publish_plan(engine: Engine, benchmark: str, workload: Kind, count: int) -> None:
    """Register the feed of a workload's queries, and publish their plan."""
    engine.execute("register feed News;")
    with engine.workspace.catalog.read() as connection:
        ids = {feed.name: feed.id for feed in feeds.live_feeds(connection)}
    assert ids["News"] == SOURCE, "the workload's queries read the first feed"
    queries = make_queries(workload, count)
    started = time.process_time()
    folder = "plans/benchmark"
    manifest = compile_logical(engine.workspace.storage, folder, queries.logical(), frequencies=frequencies())
    seconds = time.process_time() - started
    with engine.workspace.catalog.write() as connection:
        plan_versions.publish_plan(connection, folder, None, count)
    say(
        benchmark,
        "plan",
        workload=workload,
        queries=count,
        compile_cpu_seconds=seconds,
        bytes_per_query=manifest.size / count,
    )


def benchmark_items(count: int) -> Iterator[Item]:
    """Items of the workloads."""
    made = make_items(count)
    for number, record in enumerate(made.records()):
        attributes = {name: (value,) for name, value in record.items() if name != "id"}
        yield Item("News", str(number), attributes)


def accept_items(engine: Engine, benchmark: str, items: Iterator[Item], count: int) -> None:
    """Accept the next `count` items into the log."""
    started = time.perf_counter()
    left = count
    while left:
        values = [next(items) for _ in range(min(left, 1_000))]
        engine.workspace.items.accept(SOURCE, values)
        left -= len(values)
    seconds = time.perf_counter() - started
    say(benchmark, "accept", items=count, items_per_second=count / seconds)


def _bounded(engine: Engine, options: argparse.Namespace) -> None:
    started, cpu = time.perf_counter(), time.process_time()
    engine.run(once=True)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    with engine.workspace.catalog.read() as connection:
        segments = match_segments.match_segments(connection)
        size = sum(part.bytes for part in match_segments.small_parts(connection, 100_000))
    count = sum(segment.matches for segment in segments)
    warm = segments[1:]
    span = (segments[-1].committed - segments[0].committed) / 1e6
    warm_items = sum(segment.items for segment in warm)
    say(
        NAME,
        "bounded",
        workload=options.workload,
        queries=options.queries,
        items=sum(segment.items for segment in segments),
        batches=len(segments),
        cold_seconds=seconds,
        driver_cpu_seconds=cpu_seconds,
        warm_items=warm_items,
        warm_seconds=span,
        warm_items_per_second=warm_items / span if span else None,
        matches_per_item=count / max(1, options.items),
        bytes_per_match=size / max(1, count),
        candidates=sum(segment.counters.get("candidates", 0) for segment in segments),
        fallbacks=sum(segment.counters.get("fallbacks", 0) for segment in segments),
    )


def _micro(engine: Engine, items: Iterator[Item], size: int, options: argparse.Namespace) -> None:
    """Micro-batches of one size, each published when the one before is in the match log."""
    runner = threading.Thread(target=engine.run, daemon=True)
    runner.start()
    waits: list[float] = []
    for _ in range(options.singles):
        values = [next(items) for _ in range(size)]
        before = time.perf_counter()
        accepted: Any = engine.workspace.items.accept(SOURCE, values)
        while engine.workspace.matches.matched_upto() < accepted.last_sequence:
            assert runner.is_alive(), "the runner ended"
            time.sleep(0.002)
        waits.append(time.perf_counter() - before)
        time.sleep(0.05)
    engine.stop()
    runner.join()
    warm = warm_waits(waits)
    say(
        NAME,
        "micro_batch",
        queries=options.queries,
        items=size,
        batches=len(warm),
        median_seconds=statistics.median(warm),
        p95_seconds=warm[int(0.95 * (len(warm) - 1))],
    )


def warm_waits(waits: Sequence[float]) -> list[float]:
    """The waits of a warm runner, ascending: without the first five, or without half of them where there are few.

    >>> warm_waits([9.0, 2.0, 1.0]), warm_waits([9.0])
    ([1.0, 2.0], [9.0])
    """
    return sorted(waits[min(5, len(waits) // 2) :])


if __name__ == "__main__":
    main()
