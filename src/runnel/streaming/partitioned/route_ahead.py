"""Routing ahead: while the partitions work on one batch, the next one is routed (004 §4.5, pipelined filtering).

Spark's micro-batches follow one another, and so do the two stages inside each; cores that have nothing left to do in
the second stage would wait for the others, and all of them for the commit. So a job beside the streaming query routes
what waits behind the batch under way, and a note says where the result lies. The next batch takes exactly those items
if its plan is the same, and its first stage only passes on what was found. The note is a hint, no more: a batch that
is planned while it is wrong, late or gone routes the items itself. A batch that was planned with routes uses these in
every attempt, or fails and is planned anew: two ways of routing the same items must never mix.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from runnel.storage.file_storage import Storage, open_storage
from runnel.streaming.checkpoint import running_batch
from runnel.streaming.job import Job

if TYPE_CHECKING:
    from runnel.streaming.item_source import Offset, SlicePartition

logger = logging.getLogger("runnel")

_FOLDER = "routes"
_NOTE = f"{_FOLDER}/ahead.json"
_PAUSE = 0.1
_REST = 5.0
_PATIENCE = 60.0
"""Seconds that a batch waits for what is being routed for it."""
_ENOUGH = 2_000
"""Items that must wait for it to be worth a job of its own."""
_GROUP = "runnel-ahead"


@dataclass(frozen=True, slots=True)
class RoutedFile:
    """The routes of a run of items: a file in the form that stage one gives."""

    path: str
    first_sequence: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """What was routed ahead, or is being routed: the items in (start, end], with a plan. No files: not yet."""

    lineage: int
    start: int
    end: int
    plan: int
    until: float
    files: tuple[RoutedFile, ...] = ()

    def serves(self, storage: Storage, lineage: int, offsets: tuple[int, int], plan: int) -> bool:
        """Whether it is, and is ready to be, the batch between these offsets with this plan; all routes are there."""
        asked = (lineage, *offsets, plan)
        if not self.files or (self.lineage, self.start, self.end, self.plan) != asked:
            return False
        return all(storage.local(one.path).exists() for one in self.files)

    def upto(self, lineage: int, start: int, last: int, plan: int) -> int | None:
        """Where a batch that begins at a start and may go to the last item ends, if items were routed for it.

        Where they are still being routed that is its start: there is nothing to match yet.
        """
        if (self.lineage, self.start, self.plan) != (lineage, start, plan) or self.end > last:
            return None
        if self.files:
            return self.end
        return self.start if self.until > time.time() else None


def read_ahead(storage: Storage) -> Ahead | None:
    """The note, if there is one that can be read."""
    try:
        told = json.loads(storage.read(_NOTE))
        files = tuple(RoutedFile(**one) for one in told.pop("files"))
        return Ahead(**told, files=files)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_ahead(storage: Storage, ahead: Ahead) -> None:
    """Leave the note."""
    storage.replace(_NOTE, json.dumps(asdict(ahead)).encode())


def forget_ahead(storage: Storage) -> None:
    """Remove the note and all routes: at the start of a run nobody needs those of another."""
    for file in list(storage.files(_FOLDER)):
        storage.delete(file.path)


class RouteAhead(threading.Thread):
    """Routes ahead of one streaming query until it is stopped."""

    def __init__(self, spark: Any, job: Job, checkpoint: str) -> None:
        super().__init__(name="runnel-ahead", daemon=True)
        self._spark = spark
        self._job = job
        self._storage = open_storage(job.storage)
        self._checkpoint = self._storage.local(checkpoint)
        self._ended = threading.Event()
        self._kept: list[tuple[RoutedFile, ...]] = []
        self.batches = 0

    def stop(self) -> None:
        """Route no more."""
        from runnel.streaming.jvm import UNANSWERED  # workers import this module too, and have no JVM

        self._ended.set()
        with suppress(*UNANSWERED):  # a JVM that is gone routes no more
            self._spark.sparkContext.cancelJobGroup(_GROUP)
        if self.is_alive():
            self.join(_REST)

    def run(self) -> None:
        """Look for a batch under way, and for what waits behind it."""
        from runnel.streaming.item_source import ItemReader

        reader = ItemReader(self._job)
        self._spark.sparkContext.setJobGroup(_GROUP, "routing ahead", interruptOnCancel=False)
        while not self._ended.wait(_PAUSE):
            try:
                under_way = running_batch(self._checkpoint)
                if under_way is not None:
                    self._route_behind(reader, under_way)
            except Exception as error:  # nothing depends on it
                if not self._ended.is_set():
                    logger.debug("routing ahead failed: %s", error)
                self._ended.wait(_REST)

    def _route_behind(self, reader: Any, under_way: Offset) -> None:
        start: Offset = {"sequence": under_way["sequence"], "plan": under_way["plan"]}
        there = read_ahead(self._storage)
        if there is not None and there.lineage == self._job.lineage and there.start >= start["sequence"]:
            return
        end = reader.offset_behind(start)
        if end["sequence"] - start["sequence"] < _ENOUGH or not reader.is_divided(end):
            return
        begun = Ahead(self._job.lineage, start["sequence"], end["sequence"], end["plan"], time.time() + _PATIENCE)
        write_ahead(self._storage, begun)
        files: tuple[RoutedFile, ...] = ()
        try:
            files = self._routed(reader.partitions(start, end), reader)
            self.batches += 1
        finally:
            # Whatever happened, nobody waits for it any longer.
            write_ahead(self._storage, Ahead(**{**_fields(begun), "until": 0.0, "files": files}))
        self._keep(files)

    def _routed(self, partitions: list[SlicePartition], reader: Any) -> tuple[RoutedFile, ...]:
        tasks = [[row for batch in reader.read(one) for row in batch.to_pylist()] for one in partitions]
        job = self._job
        step = route_into_file(job.storage, job.lineage, job.shards, job.plan_bytes)
        context = self._spark.sparkContext
        told = context.parallelize(tasks, len(tasks)).map(step).collect()
        return tuple(RoutedFile(*one) for one in told)

    def _keep(self, fresh: tuple[RoutedFile, ...]) -> None:
        """Keep the newest routes and those of the batch under way, which reads them again if it loses an executor."""
        self._kept.append(fresh)
        for gone in self._kept[:-2]:
            for one in gone:
                self._storage.delete(one.path)
        del self._kept[:-2]


def _fields(ahead: Ahead) -> dict[str, Any]:
    return {name: getattr(ahead, name) for name in ("lineage", "start", "end", "plan", "until", "files")}


def route_into_file(
    storage_url: str, lineage: int, shards: int, budget: int
) -> Callable[[list[dict[str, Any]]], tuple[str, int, int]]:
    """Stage one for the rows of a task, into a file; gives its path and the first and last sequence."""

    def run(rows: list[dict[str, Any]]) -> tuple[str, int, int]:
        from runnel.storage.arrow_files import write_arrow
        from runnel.streaming.partitioned.two_stages import ROUTED_SCHEMA, routed_batches

        batches = list(routed_batches(storage_url, lineage, shards, budget, rows))
        name = f"{_FOLDER}/{uuid.uuid4().hex}.arrow"
        path = write_arrow(open_storage(storage_url), name, batches, ROUTED_SCHEMA).path
        return path, rows[0]["first_sequence"], rows[-1]["first_sequence"] + rows[-1]["rows"] - 1

    return run
