"""Very many graph patterns inside Spark, measured: from the item log to the committed match log. JSON lines.

    python -m benchmarks.graphs_spark [--subscriptions 100000] [--items 8000] [--batch 2000] [--singles 20]
        [--without-bindings]

Every subscription is a query with one graph pattern (see `graph_workload`), all compiled into one plan and published
in a root's catalog as any other; items with graphs are accepted into its log. One bounded run matches them all in
`local[2]`; between its first and last commit nothing starts up any more. Then items are published one at a time to a
running engine. What the variables are bound to is part of every match, unless bindings are left out: then the plan
names no variables.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator

from benchmarks.graph_workload import Workload, make_patterns, publications_of
from benchmarks.measuring import say

from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.catalog.declared import feeds
from runnel.catalog.logs import match_segments, plan_versions
from runnel.engine import Engine, connect
from runnel.matching.compile.compile_plan import compile_logical
from runnel.model.graph import GRAPH
from runnel.model.item import Item
from runnel.optimizer.optimize import optimize
from runnel.plan.logical_plan import PlanQuery

NAME = "graphs_spark"
_FIRST_QUERY = 1_000
_WARM = 3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=8_000)
    parser.add_argument("--batch", type=int, default=2_000, help="items in a batch")
    parser.add_argument("--singles", type=int, default=20, help="items that are published one at a time")
    parser.add_argument("--without-bindings", action="store_true", help="let matches bind no variables")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder,
        connect(folder, master="local[2]", max_batch_items=options.batch, max_batch_bytes=1 << 30) as engine,
    ):
        workload = Workload(options.subscriptions, options.items + options.singles, seed=options.seed)
        source = _publish_plan(engine, workload, bindings=not options.without_bindings)
        items = _items(workload)
        _accept(engine, source, items, options.items)
        _bounded(engine, options)
        _one_at_a_time(engine, source, items, options)


def _publish_plan(engine: Engine, workload: Workload, *, bindings: bool) -> int:
    engine.execute("register feed Pages;")
    with engine.workspace.catalog.read() as connection:
        source = next(feed.id for feed in feeds.live_feeds(connection) if feed.name == "Pages")
    definitions: dict[int, Node] = {
        _FIRST_QUERY + number: Filter(Read(source), pattern.as_written() if bindings else pattern)
        for number, pattern in enumerate(make_patterns(workload))
    }
    started = time.process_time()
    logical = optimize([PlanQuery(query) for query in definitions], definitions)
    optimized = time.process_time()
    folder = "plans/benchmark"
    manifest = compile_logical(engine.workspace.storage, folder, logical)
    compiled = time.process_time()
    with engine.workspace.catalog.write() as connection:
        plan_versions.publish_plan(connection, folder, None, len(definitions))
    say(
        NAME,
        "plan",
        subscriptions=len(definitions),
        bindings=bindings,
        atoms=len(logical.atoms),
        optimize_cpu_seconds=optimized - started,
        compile_cpu_seconds=compiled - optimized,
        bytes_per_subscription=manifest.size / len(definitions),
    )
    return source


def _items(workload: Workload) -> Iterator[Item]:
    for number, graph in enumerate(publications_of(workload)):
        yield Item("Pages", str(number), {GRAPH: (graph,)})


def _accept(engine: Engine, source: int, items: Iterator[Item], count: int) -> None:
    started = time.perf_counter()
    left = count
    while left:
        values = [next(items) for _ in range(min(left, 500))]
        engine.workspace.items.accept(source, values)
        left -= len(values)
    say(NAME, "accept", items=count, items_per_second=count / (time.perf_counter() - started))


def _bounded(engine: Engine, options: argparse.Namespace) -> None:
    started = time.perf_counter()
    engine.run(once=True)
    seconds = time.perf_counter() - started
    with engine.workspace.catalog.read() as connection:
        segments = match_segments.match_segments(connection)
        size = sum(part.bytes for part in match_segments.small_parts(connection, 100_000))
    count = sum(segment.matches for segment in segments)
    warm = sum(segment.items for segment in segments[1:])
    span = (segments[-1].committed - segments[0].committed) / 1e6
    say(
        NAME,
        "bounded",
        subscriptions=options.subscriptions,
        items=sum(segment.items for segment in segments),
        batches=len(segments),
        cold_seconds=seconds,
        warm_items=warm,
        warm_seconds=span,
        warm_publications_per_second=warm / span if span else None,
        matches_per_item=count / max(1, options.items),
        bytes_per_match=size / max(1, count),
    )


def _one_at_a_time(engine: Engine, source: int, items: Iterator[Item], options: argparse.Namespace) -> None:
    """Each item is published when the one before is in the match log."""
    runner = threading.Thread(target=engine.run, daemon=True)
    runner.start()
    waits: list[float] = []
    for _ in range(options.singles):
        before = time.perf_counter()
        accepted = engine.workspace.items.accept(source, [next(items)])
        assert accepted.last_sequence is not None
        while engine.workspace.matches.matched_upto() < accepted.last_sequence:
            assert runner.is_alive(), "the runner ended"
            time.sleep(0.002)
        waits.append(time.perf_counter() - before)
        time.sleep(0.05)
    engine.stop()
    runner.join()
    warm = waits[_WARM:]
    if warm:
        say(
            NAME,
            "one at a time",
            subscriptions=options.subscriptions,
            items=len(warm),
            median_seconds=statistics.median(warm),
        )


if __name__ == "__main__":
    main()
