"""Start the streaming query, and choose the lineage, and thus the checkpoint, that it continues."""

from __future__ import annotations

import logging
import shutil
from typing import Any

from pyspark.sql import SparkSession

from runnel.catalog.logs.match_segments import Lineage, current_lineage, last_batch, matched_upto, start_lineage
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog, is_shared
from runnel.storage.file_storage import Storage
from runnel.streaming import item_source, match_sink
from runnel.streaming.checkpoint import reason_not_to_resume
from runnel.streaming.cluster_checks import check_cluster
from runnel.streaming.job import FORM, Job
from runnel.streaming.ports import StreamPort
from runnel.streaming.session import make_active

logger = logging.getLogger("runnel")

_SHARED_CATALOG_POLLING_DELAY = "50ms"


def choose_lineage(
    catalog: Catalog, storage: Storage, *, epoch: int, form: str = FORM, force_new: str | None = None
) -> Lineage:
    """Return the current lineage, or start a new one if a run cannot resume from the current checkpoint.

    `force_new` is a reason to start a new lineage in any case.
    """
    with catalog.write() as connection:
        leases.check(connection, epoch)
        lineage = current_lineage(connection)
        committed = None if lineage is None else last_batch(connection, lineage.id)
        reason = force_new or _reason_for_new_lineage(storage, lineage, form, committed, matched_upto(connection))
        if lineage is not None and reason is None:
            logger.info("matching continues lineage %d after batch %s", lineage.id, committed)
            return lineage
        lineage = start_lineage(connection, form, reason=reason or "first run")
        logger.info("matching starts lineage %d after item %d: %s", lineage.id, lineage.after_sequence, reason)
        return lineage


def _reason_for_new_lineage(
    storage: Storage, lineage: Lineage | None, form: str, committed: int | None, matched: int
) -> str | None:
    """Return why a lineage cannot be continued, or None if it can."""
    if lineage is None:
        return "first run"
    if lineage.job != form:
        return f"the checkpoint has the format {lineage.job}, this run needs {form}"
    return reason_not_to_resume(storage.local(checkpoint_path(lineage.id)), committed, matched)


def checkpoint_path(lineage: int) -> str:
    """Return the path of a lineage's checkpoint in the workspace."""
    return f"checkpoints/{lineage}"


def drop_old_checkpoints(storage: Storage, keep: int) -> None:
    """Delete the checkpoints of all lineages except `keep`."""
    folder = storage.local("checkpoints")
    for old in folder.glob("*"):
        if old.name != str(keep):
            shutil.rmtree(old, ignore_errors=True)


def start_query(spark: SparkSession, job: Job, port: StreamPort, *, once: bool) -> Any:
    """Start the streaming query with the stages of a port. With `once`, it ends after the items that exist now."""
    check_cluster(spark, job.catalog, job.storage)
    make_active(spark)
    spark.dataSource.register(item_source.ItemSource)
    spark.dataSource.register(match_sink.MatchSink)
    storage = job.open_storage()
    checkpoint = storage.local(checkpoint_path(job.lineage)).as_uri()
    if is_shared(job.catalog):
        # By default Spark polls for new items every 10 ms, which loads a catalog server unnecessarily.
        spark.conf.set("spark.sql.streaming.pollingDelay", _SHARED_CATALOG_POLLING_DELAY)
    option = job.dump()
    slices = spark.readStream.format(item_source.FORMAT).option("job", option).load()
    stream = (
        port.match_stream(spark, slices, job)
        .writeStream.format(match_sink.FORMAT)
        .option("job", option)
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .queryName("runnel")
    )
    trigger = {"availableNow": True} if once else {"processingTime": "0 seconds"}
    return stream.trigger(**trigger).start()
