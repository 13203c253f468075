"""A runner in this process, without Spark: it uses the real reader, matching step, writer and dispatcher.

A micro-batch does what Spark does with the same parts: an offset is chosen, partitions are matched and written, and
the driver commits. A replay commits the same range again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from runnel.catalog.declared import feeds
from runnel.catalog.logs import match_segments, plan_versions
from runnel.catalog.store import leases
from runnel.engine import Engine
from runnel.engine.declare.end_expired import end_expired
from runnel.sources.acquire import Acquisition
from runnel.sources.registry import installed_sources
from runnel.streaming.item_source import ItemReader, Offset
from runnel.streaming.job import FORM, Job
from runnel.streaming.match_sink import MatchWriter, PartsWritten
from runnel.streaming.ports import stream_port
from runnel.streaming.worker.match_buffer import PART_SCHEMA
from runnel.streaming.worker.match_job import match_slices


def read_files(engine: Engine) -> Acquisition:
    """Read the files and drop folders of an engine once."""
    return installed_sources()["files"].open(engine._acquirer).read()


class _State:
    """Spark's state of a key, in this process. It is always empty at first."""

    exists = False
    get = (0,)

    def update(self, value: tuple[int]) -> None:
        """Store a value."""
        assert type(value[0]) is int, "Spark takes nothing else for a long"


class InProcess:
    """A run of an engine's workspace, step by step. `limits` are fields of the Job, such as max_batch_items.

    A partitioned plan is matched in two stages if `in_two_stages` is set, otherwise in one stage.
    """

    in_two_stages = True

    def __init__(self, engine: Engine, **limits: int) -> None:
        self.engine = engine
        root = engine.workspace
        with root.catalog.write() as connection:
            self.lease = leases.acquire(connection, 3600.0)
            lineage = match_segments.start_lineage(connection, FORM, reason="in process")
        bounds = {
            "max_batch_items": 10_000,
            "max_batch_bytes": 1 << 26,
            "slice_items": 100,
            "parallelism": 2,
        } | limits
        self.job = Job(
            catalog=root.catalog.url,
            catalog_max_bytes=0,
            storage=root.storage.url,
            lineage=lineage.id,
            after_sequence=lineage.after_sequence,
            epoch=self.lease.epoch,
            **bounds,
        )
        self.reader = ItemReader(self.job)
        self.writer = MatchWriter(self.job)
        self.offset: Offset = self.reader.initialOffset()
        self.batches = 0
        self.dispatcher = engine._dispatcher()

    @property
    def epoch(self) -> int:
        """The epoch of this run's lease."""
        return self.lease.epoch

    def match(self) -> int:
        """Match all waiting items. Return the number of batches."""
        before = self.batches
        while self.step():
            pass
        return self.batches - before

    def step(self) -> bool:
        """Match one batch. Return False if no items waited."""
        end = self.reader.latestOffset(self.offset, None)
        if end == self.offset:
            return False
        self.commit(self.offset, end, self.batches)
        self.offset = end
        self.batches += 1
        return True

    def commit(self, start: Offset, end: Offset, batch: int) -> None:
        """Match a range with the plan of its offset, and commit it as a batch."""
        slices = [self.reader.read(partition) for partition in self.reader.partitions(start, end)]
        with self.engine.workspace.catalog.read() as connection:
            plan = plan_versions.plan_by_version(connection, end["plan"])
        if plan is not None and plan.distribution is not None and self.in_two_stages:
            written = self._in_two_stages(slices, stream_port(plan.distribution).slots(plan, self.job.parallelism))
        else:
            step = match_slices(self.job.storage, self.job.lineage)
            written = [self.writer.write(step(item_slice)) for item_slice in slices]
        self.writer.commit(written, batch)

    def _in_two_stages(self, slices: Sequence[Iterator[Any]], shards: int) -> list[PartsWritten]:
        """Match as Spark does with a partitioned plan: tasks of the first stage, rows by key, a task per shard."""
        from runnel.scaleout.stages.two_stages import match_shard, route_slices

        storage, lineage, budget = self.job.storage, self.job.lineage, self.job.plan_bytes
        routed = [
            frame.to_pandas()
            for item_slice in slices
            for frame in route_slices(storage, lineage, shards, budget)(item_slice)
        ]
        rows = pd.concat(routed)
        step = match_shard(storage, lineage, budget)
        shares = [step((int(key),), [share], _State()) for key, share in rows.groupby("key")]
        return [
            self.writer.write(pa.RecordBatch.from_pandas(frame, schema=PART_SCHEMA) for frame in share)
            for share in shares
        ]

    def deliver(self) -> int:
        """Record due messages and send open ones. Return the number of delivered messages."""
        return self.dispatcher.deliver(self.epoch, wait=True)

    def restart_delivery(self) -> None:
        """Replace the dispatcher, as a restart does."""
        self.close()
        self.dispatcher = self.engine._dispatcher()

    def close(self) -> None:
        """Close threads and connections. The next delivery opens them again."""
        self.dispatcher.close()

    def run(self) -> int:
        """Expire subscriptions, match and deliver, as a bounded run does. Return the number of delivered messages."""
        end_expired(self.engine.workspace)
        self.match()
        sent = self.deliver()
        end_expired(self.engine.workspace)
        return sent


def live_names(engine: Engine) -> set[str]:
    """Return the names of the feeds that are currently matched."""
    with engine.workspace.catalog.read() as connection:
        names = feeds.feed_names(connection)
        return {names[value] for value in feeds.since_of(connection)}


def matched_ids(engine: Engine, name: str) -> list[str]:
    """Return the ids of the items that the match log contains for a feed, in order."""
    return [match.item.id for match in engine.matches(name)]
