"""Measure the cost of the two stages in one process, for queries of every family, as the basis of the scaling model.

    python -m benchmarks.cluster_model [--queries 100000] [--partitions 8] [--strategy grouped] [--keep FOLDER]

A JSON line each for the whole plan, the router and all partitions together: microseconds of CPU for an item of the
stream, and bytes. Matching alone is measured, without Spark, operators and writing; items are read once before.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benchmarks.cluster_runs import BASE, Configuration, base_of, kept_division
from benchmarks.cluster_workload import Mix, items_of
from benchmarks.measuring import say

from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.contract import Matcher
from runnel.model.item_batch import ItemBatch
from runnel.plan.store import Plan, PlanVersion, read_part
from runnel.scaleout.partitioning import Partitioning
from runnel.scaleout.route.router import Router
from runnel.storage.file_storage import FileStorage, Storage

NAME = "cluster_model"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100_000, help="of all families together")
    parser.add_argument("--partitions", type=int, default=8, help="into how many partitions")
    parser.add_argument("--strategy", choices=("grouped", "spread"), default="grouped", help="how they are divided")
    parser.add_argument("--items", type=int, default=3_072, help="items that are matched")
    parser.add_argument("--seed", type=int, default=7, help="of queries and items")
    parser.add_argument("--rounds", type=int, default=2, help="number of rounds; the best is reported")
    parser.add_argument("--keep", type=Path, help="folder where plans are kept between runs")
    options = parser.parse_args()
    mix = Mix(options.queries, seed=options.seed)
    batches = [ItemBatch.of(values, mix.feeds) for _, values in items_of(mix, options.items, options.seed, "")]
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        storage = FileStorage(Path(folder).as_uri())
        size = base_of(storage, mix, options.keep).size
        made = kept_division(storage, mix, Configuration(1, options.partitions, options.strategy), options.keep)
        measure(storage, made, batches, options, size)


def measure(
    storage: Storage, made: Partitioning, batches: list[ItemBatch], options: argparse.Namespace, size: int
) -> None:
    """The whole plan, then both stages."""
    about = {"queries": options.queries, "partitions": options.partitions, "strategy": options.strategy}
    items = sum(map(len, batches))
    whole = _matcher(storage, BASE)
    count = sum(whole.match(batch).total for batch in batches)
    alone = _best(lambda: [whole.match(batch) for batch in batches], options.rounds) / items
    say(NAME, "whole", **about, items=items, microseconds=alone, matches_per_item=count / items, bytes=size)
    router = Router(_plan(storage, made.router), len(made.partitions))
    routed = [router.route(batch) for batch in batches]
    routing = _best(lambda: [router.route(batch) for batch in batches], options.rounds) / items
    copies = sum(entry.copies for entry in routed) / items
    say(NAME, "router", **about, microseconds=routing, copies_per_item=copies, bytes=made.router_bytes)
    times, matched = [], 0
    for number, partition in enumerate(made.partitions):
        matcher = _matcher(storage, partition.folder)
        chosen = [
            ItemBatch(batch.records.take(rows))
            for batch, rows in ((batch, own.rows(number)) for batch, own in zip(batches, routed, strict=True))
            if len(rows)
        ]
        matched += sum(matcher.match(batch).total for batch in chosen)
        times.append(_best(lambda own=chosen, with_=matcher: [with_.match(b) for b in own], options.rounds) / items)  # type: ignore[misc]
    say(
        NAME,
        "partitions",
        **about,
        microseconds=float(np.sum(times)),
        longest=max(times),
        longest_over_mean=max(times) * len(times) / float(np.sum(times)),
        bytes=sum(partition.bytes for partition in made.partitions),
        equal=matched == count,
    )


def _plan(storage: Storage, folder: str) -> Plan:
    return Plan(PlanVersion(1, folder), read_part(storage, folder))


def _matcher(storage: Storage, folder: str) -> Matcher:
    return build_matcher(_plan(storage, folder))


def _best(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return 1e6 * min(times)


if __name__ == "__main__":
    main()
