"""Supervision of the Spark streaming query: start it, detect failures, and decide whether to restart it.

In: a workspace, its lease and a function that opens Spark. Out: a running query, or an error that no restart fixes.
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
from runnel.streaming.worker.progress_mark import place_mark, read_mark, read_reports

logger = logging.getLogger("runnel")

MATCHING = "matching"
SPARK = "Spark"
_TICK = 0.05
_PLAN_CHECK_SECONDS = 2.0
_MAX_FAILURES = 5
"""Failures without progress after which the run ends with an error."""
_FAILURES_BEFORE_NEW_LINEAGE = 3
"""Failures without progress after which the checkpoint is abandoned."""

_BUSY_SECONDS = 1800.0
"""How long matching is retried on a machine that is too busy to start Python processes in time."""
_BUSY_PAUSE = 5.0
_MAX_RESTARTS = 5
"""Restarts of Spark in a row after which the run ends with an error."""
_RESTART_SECONDS = 2.0
"""The wait before the first restart of Spark. It doubles each time."""
_STEADY_SECONDS = 600.0
"""Time without a loss of the JVM after which losses are counted from zero again."""


class StreamingQuerySupervisor:
    """Runs and restarts the streaming query of one run.

    `on_transient_error` is called for failures that end without intervention, such as a full disk or an unavailable
    catalog. They do not count towards `_MAX_FAILURES`.
    """

    def __init__(self, workspace: Workspace, lease: Lease, run_state: RunState, stop: threading.Event) -> None:
        self._workspace = workspace
        self._lease = lease
        self._run_state = run_state
        self._stop = stop
        self._open_spark: Callable[[], Any] = lambda: None
        self._spark: Any = None
        self._query: Any = None
        self._losses = 0
        self._lost_after = 0.0
        self._slow_starts = 0
        self._slow_since = 0.0
        self._failures = 0
        self._last_matched = -1
        self._reported = 0
        self._port: StreamPort = stream_port(None)
        self._next_plan_check = 0.0
        self.on_transient_error: Callable[[RunnelError], None] = lambda error: None

    def open(self, open_spark: Callable[[], Any]) -> None:
        """Open the Spark session, which takes several seconds. `open_spark` is called again if the JVM is lost."""
        self._open_spark = open_spark
        try:
            self._spark = open_spark()
        except SparkLostError as error:
            self._reopen(error)

    def _reopen(self, error: SparkLostError) -> None:
        """Start Spark again after its JVM ended. Raise the error after too many restarts in a row.

        No data is lost with the JVM: an interrupted batch is run again from the checkpoint. A run that is being
        stopped does not restart Spark, because service managers often end the JVM together with the runner.
        """
        while True:
            if self._stop.is_set():
                self._continue_without_spark(error)
                return
            self._count_loss(error)
            self._run_state.pause_part(SPARK, error.message)
            wait = _RESTART_SECONDS * 2.0 ** (self._losses - 1)
            logger.error("%s; starting Spark again in %.0f seconds", error.message, wait)
            if self._stop.wait(wait):
                self._continue_without_spark(error)
                return
            self._query = None
            try:
                self._spark = self._open_spark()
            except SparkLostError as next_error:
                error = next_error
                continue
            logger.info("Spark was started again")
            self._run_state.count("Spark restarts")
            self._run_state.resume_part(SPARK)
            return

    def _continue_without_spark(self, error: SparkLostError) -> None:
        logger.info("%s; the run is being stopped, so Spark is not started again", error.message)
        self._query = None
        self._run_state.resume_part(SPARK)

    def _count_loss(self, error: SparkLostError) -> None:
        """Count a loss of the JVM. Raise the error after too many in a row."""
        self.notice_progress()
        if time.monotonic() > self._lost_after + _STEADY_SECONDS:
            self._losses = 0
        self._lost_after = time.monotonic()
        self._losses += 1
        if self._losses > _MAX_RESTARTS:
            raise error

    @property
    def is_active(self) -> bool:
        """Whether the query is running."""
        with suppress(*UNANSWERED):
            return self._query is not None and bool(self._query.isActive)
        return False

    def start(self, *, once: bool = False, new_lineage_reason: str | None = None) -> None:
        """Start the query. With `once`, it ends when all current items are matched.

        If `new_lineage_reason` is given, abandon the current checkpoint and record the reason in the catalog.
        """
        workspace, lease = self._workspace, self._lease
        parallelism = int(self._spark.sparkContext.defaultParallelism)
        self._port, slots = self._current_port(parallelism)
        form = form_of(slots)
        lineage = choose_lineage(
            workspace.catalog, workspace.storage, epoch=lease.epoch, form=form, force_new=new_lineage_reason
        )
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
        self._run_state.start_matching()

    def match_all(self, lag: Callable[[], int], note_progress: Callable[[], None] = lambda: None) -> None:
        """Run bounded queries until `lag` returns 0 or the run is stopped.

        `note_progress` is called about once per second.
        """
        new_lineage_reason: str | None = None
        while lag() and not self._stop.is_set():
            try:
                with noticing_loss():
                    self._match_bounded(new_lineage_reason, note_progress)
                new_lineage_reason = None
                self.notice_progress()
            except SparkLostError as error:
                self._reopen(error)
                new_lineage_reason = None
            except RunnelError:
                raise
            except Exception as error:
                new_lineage_reason = self._handle_failure(error)
            finally:
                self.end()

    def _match_bounded(self, new_lineage_reason: str | None, note_progress: Callable[[], None]) -> None:
        """Run one bounded query to its end, or until the run is stopped."""
        self.start(once=True, new_lineage_reason=new_lineage_reason)
        last_note = time.monotonic()
        while not self._query.awaitTermination(_TICK):
            if self._stop.is_set():
                self._query.stop()
            if time.monotonic() - last_note >= 1.0:
                last_note = time.monotonic()
                with suppress(CatalogUnavailableError):  # if the query needs the catalog, it fails itself
                    self.notice_progress()
                note_progress()

    def ensure_running(self) -> None:
        """Restart the query if it has ended, and Spark if its JVM has ended. Raise errors that no restart fixes."""
        try:
            with noticing_loss():
                self._ensure_query_running()
        except SparkLostError as error:
            self._reopen(error)

    def _ensure_query_running(self) -> None:
        if self._query is None:  # Spark was started again
            self.start()
        elif not self.is_active:
            error = self._query.exception()
            self.start(new_lineage_reason=None if error is None else self._handle_failure(error))
        elif self._is_plan_check_due() and self._current_port(1)[0] is not self._port:
            # The stages of either port can match either plan, but those of the other port are slower.
            logger.info("the distribution of the plan changed; restarting the streaming query")
            self.end()
            self.start()

    def _is_plan_check_due(self) -> bool:
        """Return whether to read the plan again, at most once per `_PLAN_CHECK_SECONDS`, and note the check."""
        if time.monotonic() < self._next_plan_check:
            return False
        self._next_plan_check = time.monotonic() + _PLAN_CHECK_SECONDS
        return True

    def _current_port(self, parallelism: int) -> tuple[StreamPort, int]:
        """Return the port of the current plan, and the number of slots in which it is matched."""
        with self._workspace.catalog.read() as connection:
            current = plan_versions.current_plan(connection)
        if current is None:
            return stream_port(None), 0
        port = stream_port(current.distribution)
        return port, port.slots(current, parallelism)

    def notice_progress(self) -> None:
        """Record the progress of matching. Progress ends a pause of matching and resets the failure counts."""
        with self._workspace.catalog.read() as connection:
            matched = match_segments.matched_upto(connection)
            waiting = last_sequence(connection) - matched
        reports, self._reported = read_reports(self._workspace.storage, self._reported)
        for level, text in reports:
            logger.log(level, "%s", text)
        if matched > self._last_matched:
            self._last_matched = matched
            self._failures = self._slow_starts = 0
            self._losses = 0
            self._run_state.resume_part(MATCHING)
        if self._run_state.note_matching((matched, read_mark(self._workspace.storage)), waiting):
            logger.error(
                "%s; find the cause in logs/spark.log, and restart the runner", self._run_state.describe_state()
            )

    def drain(self, goal: int, seconds: float) -> None:
        """Wait until the query has matched up to the sequence `goal`, at most for `seconds`, and end it."""
        deadline = time.monotonic() + seconds
        while self.is_active and self._matched() < goal and time.monotonic() < deadline:
            time.sleep(_TICK)
        self.end()

    def end(self) -> None:
        """End the query if it is running."""
        if self.is_active:
            with suppress(*UNANSWERED):
                self._query.stop()

    def _matched(self) -> int:
        with self._workspace.catalog.read() as connection:
            return match_segments.matched_upto(connection)

    def _handle_failure(self, error: Exception) -> str | None:
        """Decide how to continue after the query failed.

        Return None to restart from the checkpoint, or a reason for a new lineage. Raise errors that no restart fixes.
        """
        failure = read_failure(error)
        cause = RunnelError(first_line(str(error))) if failure is None else failure.error()
        match cause:
            case FencedError():
                raise FencedError(
                    "another runner has taken over this workspace", hint="run only one runner per workspace"
                ) from error
            case StorageFullError() | ReadOnlyError() | CatalogUnavailableError():
                self.on_transient_error(cause)
                return None
            case _ if failure is None and is_disk_full(error):
                self.on_transient_error(StorageFullError("no disk space left for Spark's files"))
                return None
        self.notice_progress()
        if is_slow_start(error) and self._wait_for_slow_start():
            return None
        self._failures += 1
        reason = cause.message[:300]
        if isinstance(cause, LineageConflictError):
            if self._failures < _MAX_FAILURES:
                logger.warning("the checkpoint does not continue the match log; a new lineage starts: %s", reason)
                self._stop.wait(self._failures - 1.0)
                return "the checkpoint does not continue the match log"
        elif isinstance(cause, CorruptDataError):
            return self._handle_damage(error, reason, () if failure is None else failure.damaged)
        logger.error("matching failed: %s", reason)
        if self._failures >= _MAX_FAILURES:
            raise RunnelError(
                f"matching failed {_MAX_FAILURES} times without progress: {reason}",
                hint="logs/spark.log in the workspace contains the full error",
            ) from error
        self._stop.wait(min(2.0**self._failures, 30.0))
        # A checkpoint that Spark cannot read fails every time. The match log records the position without it.
        if self._failures == _FAILURES_BEFORE_NEW_LINEAGE:
            return f"matching failed {_FAILURES_BEFORE_NEW_LINEAGE} times with this checkpoint"
        return None

    def _handle_damage(self, error: Exception, reason: str, paths: Sequence[str]) -> str | None:
        """Repair or remove damaged files. Return None to restart from the checkpoint, or a reason for a new lineage.

        Raise CorruptDataError if the damage cannot be contained.
        """
        epoch = self._lease.epoch
        if self._failures < _MAX_FAILURES and repair_distributions(self._workspace, epoch):
            logger.warning("the distribution of a plan is damaged; starting a new lineage: %s", reason)
            return "the distribution of a plan was damaged"
        contained = {contain_damage(self._workspace, epoch, path) for path in paths} - {None}
        if not contained:
            raise CorruptDataError(
                reason, hint="restore the file from a backup; `runnel doctor` checks the rest"
            ) from error
        self._failures = 0  # each time there is one damaged file less, which counts as progress
        self._run_state.count("files contained")
        return "a plan was damaged" if Containment.PLAN in contained else None

    def _wait_for_slow_start(self) -> bool:
        """Wait for a machine that is too busy to start processes. Return False after `_BUSY_SECONDS` in total."""
        if self._slow_starts == 0:
            self._slow_since = time.monotonic()
        self._slow_starts += 1
        waited = time.monotonic() - self._slow_since
        if waited > _BUSY_SECONDS:
            return False
        reason = "the machine is too busy: a Python process of Spark did not start within 10 seconds"
        self._run_state.pause_part(MATCHING, reason)
        logger.warning(
            "%s (%d times in %.0f seconds); matching is retried for up to %.0f minutes",
            reason,
            self._slow_starts,
            waited,
            _BUSY_SECONDS / 60,
        )
        self._stop.wait(_BUSY_PAUSE)
        return True


def first_line(text: str) -> str:
    """Return the first non-empty line of a Spark error.

    >>> first_line("\\n  [STREAM_FAILED] it failed\\n  at x")
    '[STREAM_FAILED] it failed'
    """
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
