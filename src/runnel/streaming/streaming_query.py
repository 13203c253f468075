"""The one streaming query, and the checkpoint it goes on from."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from runnel.catalog.logs.match_segments import Lineage, current_lineage, last_batch, matched_upto, start_lineage
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog, is_shared
from runnel.storage.file_storage import Storage
from runnel.streaming import item_source, match_sink
from runnel.streaming.checkpoint import reason_not_to_resume
from runnel.streaming.cluster_checks import check_cluster
from runnel.streaming.job import FORM, Job
from runnel.streaming.session import make_active
from runnel.streaming.worker.match_buffer import PART_DDL
from runnel.streaming.worker.match_job import match_slices

logger = logging.getLogger("runnel")

_SHARED_LOOK = "50ms"
_STAGE = "RUNNEL_STAGE"


def choose_lineage(
    catalog: Catalog, storage: Storage, *, epoch: int, form: str = FORM, force_new: str | None = None
) -> Lineage:
    """The lineage to go on with: the current one, or a new one where its checkpoint cannot be continued."""
    with catalog.write() as connection:
        leases.check(connection, epoch)
        lineage = current_lineage(connection)
        committed = None if lineage is None else last_batch(connection, lineage.id)
        reason = force_new or _unfit(storage, lineage, form, committed, matched_upto(connection))
        if lineage is not None and reason is None:
            logger.info("matching continues lineage %d after batch %s", lineage.id, committed)
            return lineage
        lineage = start_lineage(connection, form, reason=reason or "first run")
        logger.info("matching starts lineage %d after item %d: %s", lineage.id, lineage.after_sequence, reason)
        return lineage


def _unfit(storage: Storage, lineage: Lineage | None, form: str, committed: int | None, matched: int) -> str | None:
    """Why a lineage cannot be continued, or None."""
    if lineage is None:
        return "first run"
    if lineage.job != form:
        return f"the checkpoint has the form {lineage.job}, this run writes {form}"
    return reason_not_to_resume(storage.local(checkpoint_path(lineage.id)), committed, matched)


def checkpoint_path(lineage: int) -> str:
    """Where a lineage's checkpoint is, below the root."""
    return f"checkpoints/{lineage}"


def drop_old_checkpoints(storage: Storage, keep: int) -> None:
    """Remove the checkpoints of abandoned lineages."""
    folder = storage.local("checkpoints")
    for old in folder.glob("*"):
        if old.name != str(keep):
            shutil.rmtree(old, ignore_errors=True)


def start_query(spark: SparkSession, job: Job, *, once: bool) -> Any:
    """Start matching: until all items that are there now are matched (`once`), or until stopped."""
    check_cluster(spark, job.catalog, job.storage)
    make_active(spark)
    spark.dataSource.register(item_source.ItemSource)
    spark.dataSource.register(match_sink.MatchSink)
    storage = job.open_storage()
    checkpoint = storage.local(checkpoint_path(job.lineage)).as_uri()
    if is_shared(job.catalog):
        # Spark looks for new items a hundred times a second. Over a network that is a server's load for nothing.
        spark.conf.set("spark.sql.streaming.pollingDelay", _SHARED_LOOK)
    option = job.dump()
    slices = spark.readStream.format(item_source.FORMAT).option("job", option).load()
    parts = _in_two_stages(spark, slices, job) if job.shards else _in_one_stage(slices, job)
    stream = (
        parts.writeStream.format(match_sink.FORMAT)
        .option("job", option)
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .queryName("runnel")
    )
    trigger = {"availableNow": True} if once else {"processingTime": "0 seconds"}
    return stream.trigger(**trigger).start()


def _in_one_stage(slices: Any, job: Job) -> Any:
    """Every worker has all queries."""
    return slices.mapInArrow(match_slices(job.storage, job.lineage, job.plan_bytes), PART_DDL)


def _in_two_stages(spark: SparkSession, slices: Any, job: Job) -> Any:
    """Items are routed, and queries stay where their shard is."""
    from runnel.streaming.partitioned.two_stages import ROUTED_DDL, STATE_DDL, match_shard, route_slices

    spark.conf.set("spark.sql.shuffle.partitions", str(job.shards))
    routed = slices.mapInArrow(route_slices(job.storage, job.lineage, job.shards, job.plan_bytes), ROUTED_DDL)
    step = match_shard(job.storage, job.lineage, job.plan_bytes)
    with _own_processes(spark.sparkContext):
        return routed.groupBy("key").applyInPandasWithState(step, PART_DDL, STATE_DDL, "append", "NoTimeout")


@contextmanager
def _own_processes(context: SparkContext) -> Iterator[None]:
    """Let functions that are made inside run in Python processes that nothing else uses.

    Spark gives a task any process that is idle; several serve a core in turn, and each would come to map every
    partition of the executor. Processes with another environment are kept apart.
    """
    environment = context.environment
    environment[_STAGE] = "partitions"
    try:
        yield
    finally:
        del environment[_STAGE]
