"""The pipeline, measured: from a published item to its row in the match log. Prints one JSON line per figure.

    python benchmarks/pipeline.py [--queries 10000] [--items 20000] [--singles 60] [--seed 7]

The world is generated and seeded, so that counters (matches, candidates, evaluations) are the same everywhere; times
are those of this machine. The naive way (the reference evaluator on every query) and the matcher without Spark are
measured in the same run, on the same items.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tests.scan_matcher import ScanMatcher

from runnel.catalog.declared import feeds
from runnel.catalog.logs import match_segments, plan_versions
from runnel.engine import Engine, connect
from runnel.matching.compile.build_matcher import build_matcher
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import PlanVersion, load
from runnel.testing.world import World

_NAIVE_ITEMS = 20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--singles", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    world = World.generate(seed=options.seed, items=options.items + options.singles, queries=options.queries)
    with (
        tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder,
        connect(folder, master="local[2]", max_batch_items=5_000) as engine,
    ):
        _declare(engine, world)
        items = list(world.model_items())
        bulk, singles = items[: options.items], items[options.items :]
        _publish(engine, bulk)
        _matchers(engine, bulk)
        _bounded(engine)
        _streaming(engine, singles)


def say(figure: str, **values: Any) -> None:
    """Print one figure as a line of JSON."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
    print(json.dumps({"benchmark": "pipeline", "figure": figure, **rounded}), flush=True)


def _declare(engine: Engine, world: World) -> None:
    started = time.perf_counter()
    # The items come by the library here, so the feeds need no address.
    script = re.sub(r"register feed '[^']*' as", "register feed", world.script())
    statements = script.count(";\n")
    engine.execute(script)
    seconds = time.perf_counter() - started
    status = engine.status()
    say(
        "declare",
        statements=statements,
        seconds=seconds,
        statements_per_second=statements / seconds,
        live_queries=status.plan_queries,
    )


def _publish(engine: Engine, items: Sequence[Item]) -> None:
    with engine.workspace.catalog.read() as connection:
        ids = {feed.name: feed.id for feed in feeds.live_feeds(connection)}
    started = time.perf_counter()
    for name, values in _by_feed(items).items():
        engine.workspace.items.accept(ids[name], values)
    seconds = time.perf_counter() - started
    size = sum(file.size for file in engine.workspace.storage.files("items"))
    say(
        "accept",
        items=len(items),
        seconds=seconds,
        items_per_second=len(items) / seconds,
        bytes_per_item=size / len(items),
    )


def _by_feed(items: Iterable[Item]) -> dict[str, list[Item]]:
    itemses: dict[str, list[Item]] = {}
    for item in items:
        itemses.setdefault(item.feed, []).append(item)
    return itemses


def _matchers(engine: Engine, items: Sequence[Item]) -> None:
    """One process, no Spark: every query on every item, and the shared index."""
    root = engine.workspace
    with root.catalog.read() as connection:
        live = feeds.since_of(connection)
        nodes = feeds.definitions(connection)
        ids = {feed.name: feed.id for feed in feeds.live_feeds(connection)}
        row = plan_versions.current_plan(connection)
    assert row is not None
    queries = [PlanQuery(query) for query in sorted(live)]
    sample = ItemBatch.of(items[:: max(1, len(items) // _NAIVE_ITEMS)][:_NAIVE_ITEMS], ids)
    started = time.process_time()
    naive = ScanMatcher(queries, nodes).match(sample)
    naive_seconds = time.process_time() - started
    matcher = build_matcher(load(root.storage, PlanVersion.of(row)))
    assert [matcher.match(sample).row(number).tolist() for number in range(len(sample))] == [
        naive.row(number).tolist() for number in range(len(sample))
    ], "the index and the reference evaluator differ"
    values = items[:5000]
    batches = [ItemBatch.of(values[start : start + 1000], ids) for start in range(0, len(values), 1000)]
    started = time.process_time()
    count = sum(matcher.match(batch).total for batch in batches)
    seconds = time.process_time() - started
    say("naive", items=len(sample), cpu_seconds=naive_seconds, items_per_second=len(sample) / naive_seconds)
    say(
        "index",
        items=len(values),
        cpu_seconds=seconds,
        items_per_second=len(values) / seconds,
        matches_per_item=count / len(values),
        times_faster_than_naive=(len(values) / seconds) / (len(sample) / naive_seconds),
    )


def _bounded(engine: Engine) -> None:
    """`run --once`: Spark's start, the first batch, and all items from the item log to the match log."""
    started = time.perf_counter()
    engine._spark.session()
    say("spark_session", seconds=time.perf_counter() - started)
    peaks = _Memory()
    peaks.start()
    started = time.perf_counter()
    engine.run(once=True)
    seconds = time.perf_counter() - started
    peaks.stop()
    with engine.workspace.catalog.read() as connection:
        segments = match_segments.match_segments(connection)
    items = sum(segment.items for segment in segments)
    count = sum(segment.matches for segment in segments)
    counters: dict[str, int] = {}
    for segment in segments:
        for name, value in segment.counters.items():
            counters[name] = counters.get(name, 0) + value
    say(
        "run_once_cold",
        items=items,
        batches=len(segments),
        seconds=seconds,
        items_per_second=items / seconds,
        matches_per_item=count / max(1, items),
        naive_evaluations=counters.get("naive_evaluations", 0),
        candidates=counters.get("candidates", 0),
        clause_checks=counters.get("clause_checks", 0),
        atom_evaluations=counters.get("atom_evaluations", 0),
    )
    if len(segments) > 2:
        # Between the first and the last commit nothing starts up any more: this is the running pipeline.
        warm = segments[1:]
        span = (segments[-1].committed - segments[0].committed) / 1e6
        warm_items = sum(segment.items for segment in warm)
        say("run_once_warm", items=warm_items, seconds=span, items_per_second=warm_items / span)
    say("memory_megabytes", **peaks.figures())


def _streaming(engine: Engine, singles: Sequence[Item]) -> None:
    """`run`: single items, one at a time, from `publish` to the match log."""
    with engine.workspace.catalog.read() as connection:
        ids = {feed.name: feed.id for feed in feeds.live_feeds(connection)}
    runner = threading.Thread(target=engine.run, daemon=True)
    started = time.perf_counter()
    runner.start()
    waits: list[float] = []
    for number, item in enumerate(singles):
        before = time.perf_counter()
        accepted = engine.workspace.items.accept(ids[item.feed], [item])
        if accepted.last_sequence is None:
            continue
        while engine.workspace.matches.matched_upto() < accepted.last_sequence:
            assert runner.is_alive(), "the runner ended"
            time.sleep(0.002)
        waits.append(time.perf_counter() - before)
        if number == 0:
            say("first_streamed_item", seconds=time.perf_counter() - started)
        time.sleep(0.05)
    engine.stop()
    runner.join()
    warm = sorted(waits[5:] or waits)
    say(
        "single_item_latency",
        items=len(warm),
        median_seconds=statistics.median(warm),
        p95_seconds=warm[int(0.95 * (len(warm) - 1))],
        fastest_seconds=warm[0],
    )


class _Memory(threading.Thread):
    """Samples the resident memory of this process, the JVM and its Python workers."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self._peaks = {"driver_python": 0.0, "jvm": 0.0, "largest_worker": 0.0, "all_workers": 0.0}

    def run(self) -> None:
        while not self._ended.wait(0.25):
            workers: list[float] = []
            for process in _descendants(os.getpid()):
                size, is_jvm = _resident(process)
                if process == os.getpid():
                    self._note("driver_python", size)
                elif is_jvm:
                    self._note("jvm", size)
                else:
                    workers.append(size)
            if workers:
                self._note("largest_worker", max(workers))
                self._note("all_workers", sum(workers))

    def _note(self, name: str, size: float) -> None:
        self._peaks[name] = max(self._peaks[name], size)

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def figures(self) -> dict[str, float]:
        return self._peaks


def _descendants(process: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in islice(Path("/proc").glob("[0-9]*/stat"), 10_000):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    results, waiting = [], [process]
    while waiting:
        value = waiting.pop()
        results.append(value)
        waiting.extend(children.get(value, []))
    return results


def _resident(process: int) -> tuple[float, bool]:
    """Resident megabytes (shared pages counted in full), and whether it is the JVM."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        name = Path(f"/proc/{process}/comm").read_text().strip()
    except (OSError, IndexError):
        return 0.0, False
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, name == "java"


if __name__ == "__main__":
    main()
