"""CPU time of the driver after matching, next to that of matching itself. Prints one JSON line per figure.

    python -m benchmarks.recording [--queries 100000] [--items 30000] [--subscriptions 0 10 1000]

The matching step and the commit of a batch run in this process, as Spark's workers and driver run them. Then messages
are recorded for the given number of immediate subscriptions, each to a query of its own; they are not sent.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

from benchmarks.filters_spark import accept_items, benchmark_items, publish_plan
from benchmarks.measuring import say
from benchmarks.workloads import FIRST_QUERY, KINDS
from sqlalchemy import insert

from runnel.catalog.logs import match_segments
from runnel.catalog.store import leases, schema
from runnel.catalog.store.connection import now
from runnel.engine import Engine, connect
from runnel.streaming.item_source import ItemReader
from runnel.streaming.job import FORM, Job
from runnel.streaming.match_sink import MatchWriter
from runnel.streaming.worker.match_job import match_slices

NAME = "recording"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=KINDS, default="M")
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=30_000)
    parser.add_argument("--batch", type=int, default=10_000, help="items in a batch")
    parser.add_argument("--subscriptions", type=int, nargs="+", default=[0, 10, 1_000])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder, connect(folder) as engine:
        publish_plan(engine, NAME, options.workload, options.queries)
        accept_items(engine, NAME, benchmark_items(options.items), options.items)
        with engine.workspace.catalog.write() as connection:
            epoch = leases.acquire(connection, 1e6).epoch
        matching = _match(engine, epoch, options.batch)
        for count in options.subscriptions:
            _record(engine, epoch, count, options, matching)


def _match(engine: Engine, epoch: int, batch_items: int) -> float:
    """Match and commit everything; gives the CPU seconds of the matching step, without loading the plan."""
    root = engine.workspace
    with root.catalog.write() as connection:
        lineage = match_segments.start_lineage(connection, FORM, reason="measuring")
    job = Job(
        catalog=root.catalog.url,
        catalog_max_bytes=0,
        storage=root.storage.url,
        lineage=lineage.id,
        after_sequence=lineage.after_sequence,
        epoch=epoch,
        max_batch_items=batch_items,
        max_batch_bytes=1 << 30,
        slice_items=batch_items,
        parallelism=1,
    )
    reader, writer = ItemReader(job), MatchWriter(job)
    start, batch, seconds = reader.initialOffset(), 0, 0.0
    end = reader.latestOffset(start, None)
    _matched(reader, job, start, end)  # loads the plan and compiles the kernels; not committed
    while end != start:
        began = time.thread_time()
        written = _matched(reader, job, start, end)
        seconds += time.thread_time() - began
        writer.commit([writer.write(iter(part)) for part in written], batch)
        start, batch = end, batch + 1
        end = reader.latestOffset(start, None)
    return seconds


def _matched(reader: ItemReader, job: Job, start: Any, end: Any) -> list[list[Any]]:
    step = match_slices(job.storage, job.lineage)
    return [list(step(reader.read(partition))) for partition in reader.partitions(start, end)]


def _record(engine: Engine, epoch: int, count: int, options: argparse.Namespace, matching: float) -> None:
    """Record the messages of all batches for some subscriptions."""
    _subscribe(engine, count, options.queries)
    dispatcher = engine._dispatcher()
    began = time.thread_time()
    while dispatcher.recorder.record(epoch):
        pass
    seconds = time.thread_time() - began
    dispatcher.close()
    with engine.workspace.catalog.read() as connection:
        matches = match_segments.match_count(connection)
    say(
        NAME,
        "recording",
        workload=options.workload,
        queries=options.queries,
        items=options.items,
        matches_per_item=matches / options.items,
        subscriptions=count,
        messages=dispatcher.recorder.recorded,
        matching_cpu_seconds=matching,
        recording_cpu_seconds=seconds,
    )


def _subscribe(engine: Engine, count: int, queries: int) -> None:
    """Begin again at the start of the log, with this number of subscriptions."""
    with engine.workspace.catalog.write() as connection:
        for table in (schema.subscriptions, schema.cursors, schema.messages):
            connection.execute(table.delete())
        moment = now(connection)
        rows = [
            {
                "feed": FIRST_QUERY + number * queries // count,
                "kind": "jsonl",
                "target": f"{number}.jsonl",
                "since": 0,
                "paused": 0,
                "created": moment,
                "owner": 1,
            }
            for number in range(count)
        ]
        if rows:
            connection.execute(insert(schema.subscriptions), rows)


if __name__ == "__main__":
    main()
