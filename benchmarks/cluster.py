"""Queries of every family on a real standalone cluster, whole and in partitions, measured. JSON lines.

    python -m benchmarks.cluster [--queries 50000] [--workers 1,2,4] [--partitions 1,4,8] [--items 24576]
        [--batch 6144] [--strategies grouped,spread] [--keep FOLDER] [--quarter]

Every worker is a process group with one core. With one partition, each worker has all queries. All runs match the
same items and must find the same matches. CPU time is measured per worker, separately for Python and Java, and
without the first few batches. The bytes that go from stage to stage come from Spark's status store. The mapped plan
files are sampled from the processes' maps four times per second. With `--quarter` the run fails if the processes of a
worker together ever map more than a quarter of the plan. The budget in the settings applies to one process. A worker
has one process per core that matches partitions, and other processes that route. With several batch sizes, the cost
per batch and the additional cost per item are reported. Items per second apply to this machine, whose cores all
workers share. They do not predict those of a cluster.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
from benchmarks.cluster_runs import (
    NAME,
    Configuration,
    Place,
    Run,
    Sizes,
    Stream,
    kept_division,
    prepare,
    publish,
    run,
    worker_seconds,
)
from benchmarks.cluster_watch import DRIVER
from benchmarks.cluster_workload import Mix
from benchmarks.measuring import say
from tests.services import PostgreSQL, SparkCluster

from runnel.engine import connect
from runnel.scaleout.partitioning import Partitioning, Strategy
from runnel.scaleout.planning import partition_loads


def main() -> None:
    """Measure and print."""
    options = _options()
    mix = Mix(options.queries, seed=options.seed)
    sizes = Sizes(options.items, options.warm, options.seed)
    server = PostgreSQL()
    try:
        with tempfile.TemporaryDirectory(prefix="runnel-bench-", ignore_cleanup_errors=True) as folder:
            equal = measure(Path(folder), server, mix, sizes, options)
    finally:
        server.close()
    sys.exit(0 if equal else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=50_000, help="of all families together")
    parser.add_argument("--workers", default="2,4", help="sizes of clusters, of one core a worker")
    parser.add_argument("--partitions", default="1,4", help="into how many partitions; 1: every worker has all")
    parser.add_argument("--strategies", default="grouped,spread", help="how queries are divided")
    parser.add_argument("--items", type=int, default=24_576, help="items of a run")
    parser.add_argument("--batch", default="6144", help="items in a batch, one size or several")
    parser.add_argument("--warm", type=int, default=6_144, help="items that only warm up")
    parser.add_argument("--keep", type=Path, help="folder where the plan is kept between runs")
    parser.add_argument("--quarter", action="store_true", help="no worker maps more than a quarter of the plan")
    parser.add_argument(
        "--budget", type=float, default=25.0, help="per cent of the plan for a process, with --quarter"
    )
    parser.add_argument("--seed", type=int, default=7, help="of queries and items")
    return parser.parse_args()


def configurations(options: argparse.Namespace, plan_bytes: int) -> Iterator[Configuration]:
    """Return the configurations of all runs, grouped by partitioning."""
    workers, counts, batches = (
        [int(part) for part in value.split(",")] for value in (options.workers, options.partitions, options.batch)
    )
    strategies = cast(list[Strategy], options.strategies.split(","))
    budget = max(1, int(options.budget / 100 * plan_bytes) >> 20) if options.quarter else 4_096
    for partitions in counts:
        for strategy in strategies if partitions > 1 else [None]:
            for count, batch in product(workers, batches):
                yield Configuration(count, partitions, strategy, budget, batch)


def measure(folder: Path, server: PostgreSQL, mix: Mix, sizes: Sizes, options: argparse.Namespace) -> bool:
    """Run every configuration. Return whether all found the same matches, and stayed within a quarter if required."""
    catalog = server.database()
    digests: set[str] = set()
    fits: dict[Configuration, list[Cost]] = {}
    fitting = True
    with connect(folder / "root", catalog=catalog) as engine:
        plan_bytes = prepare(engine, mix, options.keep).size
        stream = Stream(mix, sizes)
        made: dict[tuple[int, Strategy | None], Partitioning | None] = {}
        for number, configuration in enumerate(configurations(options, plan_bytes)):
            key = configuration.partitions, configuration.strategy
            if key not in made:
                whole = configuration.partitions == 1
                made[key] = (
                    None if whole else kept_division(engine.workspace.storage, mix, configuration, options.keep)
                )
            publish(engine, mix, made[key])
            sequences = stream.accept(engine)
            place = folder / f"cluster-{number}"
            place.mkdir()
            cluster = SparkCluster(place, workers=configuration.workers)
            try:
                done = run(Place(engine, cluster, place, catalog), configuration, sequences)
            finally:
                cluster.close()
            digests.add(done.digest)
            cost = report(done, sizes)
            fits.setdefault(replace(configuration, batch=0), []).append(cost)
            report_mapped(done, made[key], plan_bytes)
            with engine.workspace.catalog.read() as connection:
                report_balance(done, made[key], connection, sizes)
            largest = max((seen.peak_bytes for seen in done.watch.seen.values()), default=0)
            fitting &= not options.quarter or largest <= plan_bytes / 4
    for configuration, costs in fits.items():
        report_fit(configuration, costs)
    say(NAME, "checks", equal=len(digests) == 1, within_a_quarter=fitting if options.quarter else None)
    return len(digests) == 1 and fitting


@dataclass(frozen=True)
class Cost:
    """The total cost of a number of batches, and their items."""

    items: int
    batches: int
    seconds: dict[str, float]


def report_fit(configuration: Configuration, costs: Sequence[Cost]) -> None:
    """Report the costs per batch and per additional item, by the runs with the smallest and largest batches."""
    few, many = (chosen(costs, key=lambda entry: entry.items / entry.batches) for chosen in (min, max))
    if len(costs) < 2 or few.items / few.batches == many.items / many.batches:
        return
    batches = np.array([[entry.batches, entry.items] for entry in (few, many)], dtype=np.float64)
    for kind in few.seconds:
        each, per_item = np.linalg.solve(batches, [few.seconds[kind], many.seconds[kind]]).tolist()
        about = {name: value for name, value in configuration.about.items() if name != "batch"}
        say(NAME, "fit", **about, kind=kind, milliseconds_per_batch=1e3 * each, microseconds_per_item=1e6 * per_item)


def report(done: Run, sizes: Sizes) -> Cost:
    """Report CPU time and the bytes that went from stage to stage."""
    warm = done.warm(sizes.warm)
    items = sum(segment.items for segment in warm)
    start, stop = done.span(sizes.warm)
    seconds = worker_seconds(done, sizes.warm)
    workers = {owner: kinds for owner, kinds in seconds.items() if owner != DRIVER}
    sums = {kind: sum(kinds.get(kind, 0.0) for kinds in workers.values()) for kind in ("python", "java")}
    per_item = 1e6 / max(1, items)
    say(
        NAME,
        "cpu",
        **done.configuration.about,
        items=items,
        batches=len(warm),
        matches_per_item=sum(segment.matches for segment in warm) / items,
        python_microseconds_per_item=sums["python"] * per_item,
        java_microseconds_per_item=sums["java"] * per_item,
        driver_microseconds_per_item=sum(seconds.get(DRIVER, {}).values()) * per_item,
        by_worker={owner: _rounded(kinds, per_item) for owner, kinds in workers.items()},
        longest_worker_over_mean=_uneven([sum(kinds.values()) for kinds in workers.values()]),
        items_per_second_on_this_machine=items / (stop - start) if stop > start else None,
        digest=done.digest,
    )
    every = sum(segment.items for segment in done.segments)
    counted = done.counted(warm)
    copies = counted["copies"]
    say(
        NAME,
        "routing",
        **done.configuration.about,
        copies_per_item=copies / items,
        unmatched_copies_per_item=counted["unmatched_copies"] / items,
        unmatched_percent=100 * counted["unmatched_copies"] / copies if copies else None,
        shuffle_bytes_per_item=done.shuffle["shuffle_bytes"] / every,
        remote_bytes_per_item=done.shuffle["remote_bytes"] / every,
        candidates_per_item=counted["candidates"] / items,
    )
    return Cost(items, len(warm), sums | {"driver": sum(seconds.get(DRIVER, {}).values())})


def _rounded(kinds: dict[str, float], factor: float) -> dict[str, float]:
    return {kind: round(seconds * factor, 2) for kind, seconds in kinds.items()}


def _uneven(values: Sequence[float]) -> float | None:
    """The largest over the mean.

    >>> _uneven([3.0, 1.0]), _uneven([0.0])
    (1.5, None)
    """
    return max(values) * len(values) / sum(values) if sum(values) else None


def report_mapped(done: Run, made: Partitioning | None, plan_bytes: int) -> None:
    """Report the plan files that workers had mapped, and on how many workers each partition ever was."""
    seen = done.watch.seen
    counted = done.counted(done.segments)
    places: dict[str, Any] = {}
    if made is not None:
        holders = [
            sum(
                any(path.parent.name == partition.folder.rpartition("/")[2] for path in own.files)
                for own in seen.values()
            )
            for partition in made.partitions
        ]
        places = {"workers_of_partition": holders, "most_workers_of_a_partition": max(holders)}
    say(
        NAME,
        "mapped",
        **done.configuration.about,
        plan_bytes=plan_bytes,
        peak_bytes_of_worker={owner: own.peak_bytes for owner, own in sorted(seen.items())},
        largest_part_of_plan=max((own.peak_bytes for own in seen.values()), default=0) / plan_bytes,
        largest_process_part_of_plan=max((own.peak_process_bytes for own in seen.values()), default=0) / plan_bytes,
        processes={owner: len(own.processes) for owner, own in sorted(seen.items())},
        plan_loads=counted["plan_loads"],
        plan_reloads=counted["plan_reloads"],
        samples=len(done.watch.moments),
        **places,
    )


def report_balance(done: Run, made: Partitioning | None, connection: Any, sizes: Sizes) -> None:
    """Report how evenly the partitions were loaded, next to the expected loads."""
    if made is None:
        return
    loads = {load.partition: load for load in partition_loads.known_loads(connection, made.folder)}
    taken = [loads[number].microseconds if number in loads else 0 for number in range(len(made.partitions))]
    items = sum(segment.items for segment in done.segments)
    say(
        NAME,
        "balance",
        **done.configuration.about,
        longest_partition_over_mean=_uneven(taken),
        microseconds_per_item=[round(value / items, 2) for value in taken],
        expected_microseconds=[round(partition.microseconds, 2) for partition in made.partitions],
        shares=[
            round(loads[number].items / items, 4) if number in loads else 0.0
            for number in range(len(made.partitions))
        ],
        expected_shares=[round(partition.share, 4) for partition in made.partitions],
    )


if __name__ == "__main__":
    main()
