"""The one streaming query, and the checkpoint it goes on from."""

from __future__ import annotations

import shutil
from typing import Any

from pyspark.sql import SparkSession

from runnel.catalog import leases
from runnel.catalog.connection import Catalog
from runnel.catalog.matches import Lineage, current_lineage, last_batch, start_lineage
from runnel.log.storage import Storage
from runnel.streaming import reader, writer
from runnel.streaming.job import FORM, Job
from runnel.streaming.match_job import BLOCK_DDL, match_slices
from runnel.streaming.session import make_active


def choose_lineage(catalog: Catalog, storage: Storage, *, epoch: int, force_new: str | None = None) -> Lineage:
    """The lineage to go on with: the current one, or a new one where its checkpoint cannot be continued."""
    with catalog.write() as connection:
        leases.check(connection, epoch)
        lineage = current_lineage(connection)
        committed = None if lineage is None else last_batch(connection, lineage.id)
        reason = force_new or _unfit(storage, lineage, committed)
        if lineage is not None and reason is None:
            return lineage
        return start_lineage(connection, FORM, reason=reason or "first run")


def _unfit(storage: Storage, lineage: Lineage | None, committed: int | None) -> str | None:
    """Why a checkpoint cannot be continued, or None."""
    if lineage is None:
        return "first run"
    if lineage.job != FORM:
        return f"the checkpoint has the form {lineage.job}, this version writes {FORM}"
    folder = storage.local(checkpoint_path(lineage.id))
    planned = _numbers(folder / "offsets")
    finished = _numbers(folder / "commits")
    if committed is None:
        return None if not finished else "the checkpoint knows batches that the match log does not"
    if not planned or max(planned) < committed:
        return "the checkpoint is missing or behind the match log"
    if finished and max(finished) > committed:
        return "the checkpoint knows batches that the match log does not"
    return None


def _numbers(folder: Any) -> list[int]:
    return [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()]


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
    make_active(spark)
    spark.dataSource.register(reader.ItemLogSource)
    spark.dataSource.register(writer.MatchLogSink)
    storage = job.open_storage()
    checkpoint = storage.local(checkpoint_path(job.lineage)).as_uri()
    slices = spark.readStream.format(reader.FORMAT).option("job", job.dump()).load()
    blocks = slices.mapInArrow(match_slices(job.storage), BLOCK_DDL)
    stream = (
        blocks.writeStream.format(writer.FORMAT)
        .option("job", job.dump())
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .queryName("runnel")
    )
    trigger = {"availableNow": True} if once else {"processingTime": "0 seconds"}
    return stream.trigger(**trigger).start()
