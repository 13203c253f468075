"""Keeping the one Spark query going: starting it, noticing that it failed, deciding what that means.

In: a workspace, its lease and a way to open Spark. Out: a query that matches; or an error that cannot be mended here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from runnel.catalog.logs import match_segments, plan_versions
from runnel.catalog.store.leases import Lease
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.planning.ports import repair_distributions
from runnel.engine.run.run_state import RunState
from runnel.engine.upkeep.contain_damage import Containment, contain_damage
from runnel.engine.workspace import Workspace
from runnel.errors import (
    CatalogUnavailableError,
    CorruptDataError,
    FencedError,
    LineageConflictError,
    ReadOnlyError,
    RunnelError,
    SparkLostError,
    StorageFullError,
)
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.private_files import make_private_folder
from runnel.streaming.job import Job, form_of
from runnel.streaming.jvm import UNANSWERED, is_disk_full, is_slow_start, noticing_loss
from runnel.streaming.ports import StreamPort, stream_port
from runnel.streaming.streaming_query import checkpoint_path, choose_lineage, drop_old_checkpoints, start_query
from runnel.streaming.worker.failures import read_failure
from runnel.streaming.worker.progress_mark import place_mark, read_mark

logger = logging.getLogger("runnel")

MATCHING = "matching"
SPARK = "Spark"
_TICK = 0.05
_RETRIES = 5
_LOOK_SECONDS = 2.0
_FRESH_START = 3
"""Failures without progress after which the checkpoint is not trusted any more."""


_BUSY_SECONDS = 1800.0
"""How long matching is tried again on a machine that is too busy to start Python processes in time."""
_BUSY_PAUSE = 5.0
_RESTARTS = 5
_RESTART_SECONDS = 2.0
"""The first wait before Spark is started again; it doubles each time."""
_STEADY_SECONDS = 600.0
"""After this long without a loss, losses are counted from zero again."""


class QueryKeeper:
    """The streaming query of one run."""

    def __init__(self, workspace: Workspace, lease: Lease, pulse: RunState, stop: threading.Event) -> None:
        self._workspace = workspace
        self._lease = lease
        self._pulse = pulse
        self._stop = stop
        self._open_spark: Callable[[], Any] = lambda: None
        self._spark: Any = None
        self._query: Any = None
        self._losses = 0
        self._lost_after = 0.0
        self._slow_starts = 0
        self._slow_since = 0.0
        self._failures = 0
        self._last_seen = -1
        self._port: StreamPort = stream_port(None)
        self._look_after = 0.0
        self.on_hold_up: Callable[[RunnelError], None] = lambda error: None

    def open(self, spark: Callable[[], Any]) -> None:
        """Open Spark, which takes seconds; `spark` is called again where its JVM is lost."""
        self._open_spark = spark
        try:
            self._spark = spark()
        except SparkLostError as error:
            self._reopen(error)

    def _reopen(self, error: SparkLostError) -> None:
        """Start Spark again after its JVM ended; raises the error after too many restarts in a row.

        Nothing is lost with the JVM: a batch that was under way is run again, from the checkpoint. A run that is to
        end does without Spark: a supervisor that stops it often ends the JVM at the same time.
        """
        while True:
            if self._stop.is_set():
                self._do_without(error)
                return
            self._count_loss(error)
            self._pulse.hold_up(SPARK, error.message)
            wait = _RESTART_SECONDS * 2.0 ** (self._losses - 1)
            logger.error("%s; starting Spark again in %.0f seconds", error.message, wait)
            if self._stop.wait(wait):
                self._do_without(error)
                return
            self._query = None
            try:
                self._spark = self._open_spark()
            except SparkLostError as again:
                error = again
                continue
            logger.info("Spark was started again")
            self._pulse.count("Spark restarts")
            self._pulse.release(SPARK)
            return

    def _do_without(self, error: SparkLostError) -> None:
        logger.info("%s; the run is being stopped, so Spark is not started again", error.message)
        self._query = None
        self._pulse.release(SPARK)

    def _count_loss(self, error: SparkLostError) -> None:
        """Count a loss; raises the error after too many in a row."""
        self.notice_progress()
        if time.monotonic() > self._lost_after + _STEADY_SECONDS:
            self._losses = 0
        self._lost_after = time.monotonic()
        self._losses += 1
        if self._losses > _RESTARTS:
            raise error

    @property
    def is_active(self) -> bool:
        """Whether a query is under way."""
        with suppress(*UNANSWERED):
            return self._query is not None and bool(self._query.isActive)
        return False

    def start(self, *, once: bool = False, force: str | None = None) -> None:
        """Start the query; `force` is a reason to begin a new lineage."""
        workspace, lease = self._workspace, self._lease
        parallelism = int(self._spark.sparkContext.defaultParallelism)
        self._port, slots = self._current_port(parallelism)
        form = form_of(slots)
        lineage = choose_lineage(workspace.catalog, workspace.storage, epoch=lease.epoch, form=form, force_new=force)
        make_private_folder(workspace.storage.local(checkpoint_path(lineage.id)).parent)
        drop_old_checkpoints(workspace.storage, lineage.id)
        settings = workspace.settings
        OperatorEnvironment.of(settings).keep(workspace.storage)
        place_mark(workspace.storage)
        job = Job(
            catalog=workspace.catalog.url,
            catalog_max_bytes=settings.catalog_max_bytes,
            storage=workspace.storage.url,
            lineage=lineage.id,
            after_sequence=lineage.after_sequence,
            epoch=lease.epoch,
            max_batch_items=settings.max_batch_items,
            max_batch_bytes=settings.max_batch_bytes,
            slice_items=settings.slice_items,
            parallelism=parallelism,
            slots=slots,
            plan_bytes=settings.plan_megabytes << 20,
        )
        self._query = start_query(self._spark, job, self._port, once=once)
        self._pulse.start_matching()

    def match_all(self, lag: Callable[[], int], note_progress: Callable[[], None] = lambda: None) -> None:
        """Match what there is, in bounded queries, until nothing waits or the run is stopped.

        `note_progress` is called every second meanwhile.
        """
        force: str | None = None
        while lag() and not self._stop.is_set():
            try:
                with noticing_loss():
                    self._match_bounded(force, note_progress)
                force = None
                self.notice_progress()
            except SparkLostError as error:
                self._reopen(error)
                force = None
            except RunnelError:
                raise
            except Exception as error:
                force = self._after_failure(error)
            finally:
                self.end()

    def _match_bounded(self, force: str | None, note_progress: Callable[[], None]) -> None:
        """Run one bounded query to its end, or until the run is stopped."""
        self.start(once=True, force=force)
        noted = time.monotonic()
        while not self._query.awaitTermination(_TICK):
            if self._stop.is_set():
                self._query.stop()
            if time.monotonic() - noted >= 1.0:
                noted = time.monotonic()
                with suppress(CatalogUnavailableError):  # a query that cannot do without it fails by itself
                    self.notice_progress()
                note_progress()

    def keep_going(self) -> None:
        """Start the query again if it has ended, and Spark if its JVM has; raises what cannot be fixed here."""
        try:
            with noticing_loss():
                self._keep_query_going()
        except SparkLostError as error:
            self._reopen(error)

    def _keep_query_going(self) -> None:
        if self._query is None:  # Spark was started again
            self.start()
        elif not self.is_active:
            error = self._query.exception()
            force = None if error is None else self._after_failure(error)
            self.start(force=force)
        elif self._is_time_to_look() and self._current_port(1)[0] is not self._port:
            # The stages of either port can match either plan, so there is no hurry; but only one is good at it.
            logger.info("the plan is distributed in another way: matching starts again in the stages that suit it")
            self.end()
            self.start()

    def _is_time_to_look(self) -> bool:
        """Whether it is time to ask the catalog for the plan again: seldom enough not to burden it."""
        if time.monotonic() < self._look_after:
            return False
        self._look_after = time.monotonic() + _LOOK_SECONDS
        return True

    def _current_port(self, parallelism: int) -> tuple[StreamPort, int]:
        """The port of the current plan, and the slots that it is best matched in."""
        with self._workspace.catalog.read() as connection:
            current = plan_versions.current_plan(connection)
        if current is None:
            return stream_port(None), 0
        port = stream_port(current.distribution)
        return port, port.slots(current, parallelism)

    def notice_progress(self) -> None:
        """Note how far matching has come. If it was held up and has made progress, it is not held up any more."""
        with self._workspace.catalog.read() as connection:
            matched = match_segments.matched_upto(connection)
            waiting = last_sequence(connection) - matched
        if matched > self._last_seen:
            self._last_seen = matched
            self._failures = self._slow_starts = 0
            self._losses = 0
            self._pulse.release(MATCHING)
        if self._pulse.note_matching((matched, read_mark(self._workspace.storage)), waiting):
            logger.error("%s; look for the cause in logs/spark.log, and restart the runner", self._pulse.told_state())

    def drain(self, goal: int, seconds: float) -> None:
        """Let the query reach a sequence, within a bound, and end it."""
        deadline = time.monotonic() + seconds
        while self.is_active and self._matched() < goal and time.monotonic() < deadline:
            time.sleep(_TICK)
        self.end()

    def end(self) -> None:
        """End the query if it is under way."""
        if self.is_active:
            with suppress(*UNANSWERED):
                self._query.stop()

    def _matched(self) -> int:
        with self._workspace.catalog.read() as connection:
            return match_segments.matched_upto(connection)

    def _after_failure(self, error: Exception) -> str | None:
        """What to do after the query failed: gives the reason for a new lineage, or raises what cannot be mended."""
        failure = read_failure(error)
        cause = RunnelError(first_line(str(error))) if failure is None else failure.error()
        match cause:
            case FencedError():
                raise FencedError("another runner took this workspace over", hint="stop one of them") from error
            case StorageFullError() | ReadOnlyError() | CatalogUnavailableError():
                self.on_hold_up(cause)
                return None
            case _ if failure is None and is_disk_full(error):
                self.on_hold_up(StorageFullError("no room left for Spark's files"))
                return None
        self.notice_progress()
        if is_slow_start(error) and self._has_patience():
            return None
        self._failures += 1
        reason = cause.message[:300]
        if isinstance(cause, LineageConflictError):
            if self._failures < _RETRIES:
                logger.warning("the checkpoint does not continue the match log; a new lineage starts: %s", reason)
                self._stop.wait(self._failures - 1.0)
                return "the checkpoint does not continue the match log"
        elif isinstance(cause, CorruptDataError):
            return self._after_damage(error, reason, () if failure is None else failure.damaged)
        logger.error("matching failed: %s", reason)
        if self._failures >= _RETRIES:
            raise RunnelError(
                f"matching failed {_RETRIES} times without progress: {reason}",
                hint="logs/spark.log in the workspace has the whole story",
            ) from error
        self._stop.wait(min(2.0**self._failures, 30.0))
        # A checkpoint that only Spark finds unreadable fails every time; the match log knows how far it has come.
        return "matching failed three times with this checkpoint" if self._failures == _FRESH_START else None

    def _after_damage(self, error: Exception, reason: str, paths: Sequence[str]) -> str | None:
        """Contain the damage of files; gives the reason for a new lineage, or raises what cannot be contained."""
        epoch = self._lease.epoch
        if self._failures < _RETRIES and repair_distributions(self._workspace, epoch):
            logger.warning("a part of the plan is damaged, and not needed: a new lineage starts: %s", reason)
            return "a part of the plan was damaged"
        contained = {contain_damage(self._workspace, epoch, path) for path in paths} - {None}
        if not contained:
            raise CorruptDataError(
                reason, hint="restore the file from a backup; `runnel doctor` checks the rest"
            ) from error
        self._failures = 0  # each time a file less: that is progress
        self._pulse.count("files contained")
        return "a plan was damaged" if Containment.PLAN in contained else None

    def _has_patience(self) -> bool:
        """Wait a little for a machine that is too busy to start processes; False if it has been so for too long."""
        if self._slow_starts == 0:
            self._slow_since = time.monotonic()
        self._slow_starts += 1
        waited = time.monotonic() - self._slow_since
        if waited > _BUSY_SECONDS:
            return False
        reason = "the machine is too busy: a Python process of Spark did not start within 10 seconds"
        self._pulse.hold_up(MATCHING, reason)
        logger.warning(
            "%s (%d times in %.0f seconds); matching is tried again for up to %.0f minutes",
            reason,
            self._slow_starts,
            waited,
            _BUSY_SECONDS / 60,
        )
        self._stop.wait(_BUSY_PAUSE)
        return True


def first_line(text: str) -> str:
    """The first line of an error of Spark's.

    >>> first_line("\\n  [STREAM_FAILED] it failed\\n  at x")
    '[STREAM_FAILED] it failed'
    """
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
