"""The runner: the single process that acquires, matches and delivers for a workspace.

It holds a lease, and every commit checks the lease's epoch. Matching is one Spark streaming query. Scanning files,
polling, delivery and maintenance are runner loops in threads of their own, so that a slow source or endpoint does not
delay matching.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from runnel.catalog.declared import feeds
from runnel.catalog.logs import match_segments
from runnel.catalog.store import leases
from runnel.catalog.store.leases import Lease
from runnel.catalog.store.sequencer import last_sequence
from runnel.delivery.dispatcher import Dispatcher
from runnel.engine.declare.end_expired import end_expired
from runnel.engine.planning.ports import ensure_distribution, rebalance_plan
from runnel.engine.planning.reoptimize import recompile_unusable, reoptimize
from runnel.engine.run.health import Companion, Health
from runnel.engine.run.query_supervisor import StreamingQuerySupervisor
from runnel.engine.run.run_log import RunLog
from runnel.engine.run.run_state import RunState
from runnel.engine.upkeep.contain_damage import contain_damage
from runnel.engine.upkeep.expire_rows import expire_rows
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.engine.workspace import Workspace
from runnel.errors import (
    CatalogUnavailableError,
    CorruptDataError,
    FencedError,
    ReadOnlyError,
    RunnelError,
    StorageFullError,
)
from runnel.logs.garbage import record_history
from runnel.logs.items.supplements import log_again
from runnel.sources.acquire import Acquirer
from runnel.sources.contract import SourceReader
from runnel.sources.registry import has_period
from runnel.storage.checksums import take_damaged
from runnel.streaming.jvm import abort_start
from runnel.streaming.spark_folder import remove_abandoned

logger = logging.getLogger("runnel")

_TICK = 0.05
_AGAIN_TICK = 2.0
_DISTRIBUTE_TICK = 5.0
_DRAIN_SECONDS = 60.0
_WATCHING = "watching"
_TRANSIENT_ERRORS = (StorageFullError, CatalogUnavailableError, ReadOnlyError)
"""Errors that end without a restart. The runner waits and tries again."""


class _StoppedError(Exception):
    """The run is being stopped, so the current work is aborted."""


def _retry_seconds(failures: int) -> float:
    """Return the seconds to wait after `failures` failed attempts to distribute a plan, which takes minutes.

    >>> _retry_seconds(1), _retry_seconds(20)
    (2.0, 600.0)
    """
    return min(2.0**failures, 600.0)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a runner: counts since it started, the number of waiting items (`lag`), and its state."""

    accepted: int
    matched: int
    lag: int
    delivered: int
    state: str


@dataclass(frozen=True)
class RunnerParts:
    """The components of a run, without Spark."""

    acquirer: Acquirer
    readers: Sequence[SourceReader]
    dispatcher: Dispatcher
    companions: Sequence[Companion] = ()


class Runner:
    """One run over a workspace. `run` returns when everything is matched and delivered (`once`), or after `stop`."""

    def __init__(self, workspace: Workspace, spark: Callable[[], Any], parts: RunnerParts) -> None:
        self._workspace = workspace
        self._open_spark = spark
        self._parts = parts
        self._stop = threading.Event()
        self.run_state = RunState(stall_seconds=workspace.settings.stall_seconds)
        self._lease: Lease | None = None
        self._supervisor: StreamingQuerySupervisor | None = None
        self._log = RunLog(workspace, self.run_state)
        self._first_matched = 0
        self._error: BaseException | None = None

    def stop(self) -> None:
        """Request that the run end. Accepted items are still matched and delivered, for a limited time."""
        self._stop.set()

    def progress(self) -> Progress:
        """Return the progress of the run."""
        with self._workspace.catalog.read() as connection:
            matched = match_segments.matched_upto(connection)
            lag = last_sequence(connection) - matched
        run_state = self.run_state
        return Progress(
            run_state.total("items accepted"),
            matched - self._first_matched,
            lag,
            run_state.total("messages delivered"),
            run_state.describe_state(),
        )

    def health(self) -> Health:
        """Return the health of the run."""
        try:
            lag: int | None = self._parts.acquirer.lag()
        except RunnelError:
            lag = None
        matching = self._supervisor is not None and self._supervisor.is_active
        return self.run_state.health(matching=matching, lag=lag, lag_limit=self._workspace.settings.lag_limit)

    def run(self, *, once: bool, report: Callable[[Progress], None] = lambda progress: None) -> Progress:
        """Acquire, match and deliver, under the lease of this workspace."""
        with self._workspace.catalog.write() as connection:
            self._lease = leases.acquire(connection, self._workspace.settings.lease_seconds)
            self._first_matched = match_segments.matched_upto(connection)
        self._supervisor = StreamingQuerySupervisor(self._workspace, self._lease, self.run_state, self._stop)
        self._supervisor.on_transient_error = lambda error: self._pause("matching", error)
        self._log.note_start(self._lease, self._first_matched)
        finished = threading.Event()
        renewal = threading.Thread(target=self._keep_renewing, args=(finished,), name="runnel-lease", daemon=True)
        renewal.start()
        started: list[Companion] = []
        try:
            record_history(self._workspace.catalog, self._workspace.storage)
            remove_abandoned(self._workspace.spark_folder)
            for companion in self._parts.companions:
                companion.start(self)
                started.append(companion)
            if once:
                self._run_once(self._supervisor, report)
            else:
                self._run_until_stopped(self._supervisor, report)
            if self._error is not None:
                raise self._error
            self._note_progress()
            self.run_state.state = "stopped"
            report(self.progress())
            self._note_end("it was stopped" if self._stop.is_set() else "nothing is left to do")
            return self.progress()
        except BaseException as error:
            self._note_end(error)
            raise
        finally:
            for companion in reversed(started):
                companion.close()
            for reader in self._parts.readers:
                reader.close()
            self._parts.dispatcher.close()
            finished.set()
            renewal.join()
            self._release()

    def _note_progress(self) -> None:
        """Log the progress since the last call. An unavailable catalog must not stop the run here."""
        try:
            self._log.note_progress()
        except RunnelError as error:
            logger.debug("progress could not be read: %s", error)

    def _note_end(self, reason: BaseException | str) -> None:
        try:
            lag: int | None = self._parts.acquirer.lag()
        except RunnelError:
            lag = None
        self._log.note_end(reason, lag)

    def _release(self) -> None:
        try:
            with self._workspace.catalog.write() as connection:
                leases.release(connection, self._current_lease())
        except _TRANSIENT_ERRORS as error:
            logger.warning(
                "the lease could not be released; it stays valid until this process ends or it expires: %s", error
            )

    # --- bounded run ---------------------------------------------------------------------------------------------

    def _run_once(self, supervisor: StreamingQuerySupervisor, report: Callable[[Progress], None]) -> None:
        self._repeat_after_damage(self._expire)
        self._read_once()
        self._repeat_after_damage(self._log_again)
        self._read_once(has_period=True, report=report)
        self._recompile_unusable()
        self._distribute_first()
        if self._stop.is_set() or not self._start_spark(supervisor, report):
            return
        while True:
            self._report_state("matching", report)
            supervisor.match_all(lambda: self.progress().lag, self._note_progress)
            self._repeat_after_damage(lambda: self._deliver_all(report))
            while self._contain_damage():  # files that delivery could not read
                self._repeat_after_damage(lambda: self._deliver_all(report))
            self._repeat_after_damage(self._expire)
            self._read_once()
            if self.progress().lag == 0 or self._stop.is_set():
                break
        self._repeat_after_damage(lambda: self._maintain(at_least=1))

    def _start_spark(self, supervisor: StreamingQuerySupervisor, report: Callable[[Progress], None]) -> bool:
        """Open Spark. Return False if the run was stopped in the meantime."""
        self._report_state("starting Spark", report)
        supervisor.open(self._open_abortably)
        return not self._stop.is_set()

    def _open_abortably(self) -> Any:
        """Open Spark, for the first time or again. Raise SparkLostError if the run is stopped in the meantime."""
        is_open = threading.Event()
        watchdog = threading.Thread(target=self._abort_start_when_stopped, args=(is_open,), daemon=True)
        watchdog.start()
        try:
            return self._open_spark()
        finally:
            is_open.set()
            watchdog.join()

    def _abort_start_when_stopped(self, is_open: threading.Event) -> None:
        """Abort the start of Spark, which takes many seconds, if the run is stopped."""
        while not is_open.wait(_TICK):
            if self._stop.is_set():
                abort_start()

    # --- unbounded run -------------------------------------------------------------------------------------------

    def _run_until_stopped(self, supervisor: StreamingQuerySupervisor, report: Callable[[Progress], None]) -> None:
        self._recompile_unusable()
        self._distribute_first()
        if self._stop.is_set() or not self._start_spark(supervisor, report):
            return
        settings = self._workspace.settings
        loops = [
            threading.Thread(target=self._loop, args=(step, pause), name=f"runnel-{name}", daemon=True)
            for name, step, pause in (
                ("expire", self._expire, settings.scan_seconds),
                *((reader.name, partial(self._read, reader), reader.pause) for reader in self._parts.readers),
                ("deliver", self._deliver, _TICK),
                ("tidy", self._maintain, settings.archive_seconds),
                ("again", self._log_again, _AGAIN_TICK),
                ("reoptimize", self._reoptimize, settings.reoptimize_seconds),
                ("distribute", self._distribute, _DISTRIBUTE_TICK),
                ("rebalance", self._rebalance, settings.rebalance_seconds),
            )
        ]
        supervisor.ensure_running()
        for loop in loops:
            loop.start()
        try:
            self._watch(supervisor, report)
        finally:
            # However the run ended, no loop may continue to work after the lease is released.
            self._stop.set()
            for loop in loops:
                loop.join()
            try:
                self._drain(supervisor, report)
            except _TRANSIENT_ERRORS as error:
                logger.warning("the remaining work is left for the next run: %s", error)
            finally:
                supervisor.end()

    def _watch(self, supervisor: StreamingQuerySupervisor, report: Callable[[Progress], None]) -> None:
        """Keep the query running until the run is stopped. Wait while transient errors last."""
        self.run_state.state = "running"
        last_report = 0.0
        while not self._stop.wait(_TICK):
            try:
                supervisor.ensure_running()
                if time.monotonic() - last_report >= 1.0:
                    supervisor.notice_progress()
                    self._note_progress()
                    report(self.progress())
                    last_report = time.monotonic()
                self._resume(_WATCHING)
            except _TRANSIENT_ERRORS as error:
                self._pause(_WATCHING, error)
            except RunnelError as final:
                self._fail(final)

    def _drain(self, supervisor: StreamingQuerySupervisor, report: Callable[[Progress], None]) -> None:
        """Match and deliver the items that were accepted before the stop, for a limited time, and end the query."""
        self._report_state("draining", report)
        with self._workspace.catalog.read() as connection:
            goal = last_sequence(connection)
        supervisor.drain(goal, _DRAIN_SECONDS if self._error is None else 0.0)
        if self._error is None:
            self._deliver_all(report, _DRAIN_SECONDS)
            self._maintain()

    def _contain_damage(self) -> int:
        """Contain the files that were found damaged in this process, and return their number."""
        contained = 0
        for path in take_damaged(self._workspace.storage):
            if contain_damage(self._workspace, self._current_lease().epoch, path) is not None:
                contained += 1
                self.run_state.count("files contained")
        return contained

    def _repeat_after_damage(self, step: Callable[[], None]) -> None:
        """Run a step, and repeat it as long as the damaged files that it reads can be contained."""
        while True:
            try:
                return step()
            except CorruptDataError:
                if not self._contain_damage():
                    raise

    def _log_again(self) -> None:
        """Log items again that operators could not decide, once their retry is due."""
        self._contain_damage()
        workspace = self._workspace
        self.run_state.count(
            "tried again", log_again(workspace.catalog, workspace.storage, epoch=self._current_lease().epoch)
        )

    def _reoptimize(self) -> None:
        done = reoptimize(self._workspace, self._current_lease().epoch, proceed=self._proceed)
        if done is not None and done.version is not None:
            logger.info(
                "compiled the plan again as version %d: %.0f index entries expected per item instead of %.0f",
                done.version,
                done.then,
                done.now,
            )

    def _recompile_unusable(self) -> None:
        """Replace a plan that is damaged, has an older format or is for another matcher, before it is used."""
        try:
            version = recompile_unusable(self._workspace, self._current_lease().epoch, proceed=self._proceed)
        except _StoppedError:
            return
        if version is not None:
            logger.info(
                "compiled all queries again as plan version %d: the plan was damaged, had an older format or was"
                " for another matcher",
                version,
            )

    def _distribute_first(self) -> None:
        """Distribute the plan as the settings require before workers load it. A failure does not prevent matching."""
        try:
            self._distribute()
        except FencedError:
            raise
        except _StoppedError:
            return
        except Exception:
            logger.exception("the plan could not be distributed over workers")
            self.run_state.count("turns failed")

    def _distribute(self) -> None:
        published = ensure_distribution(self._workspace, self._current_lease().epoch, proceed=self._proceed)
        if published is not None:
            logger.info("%s", published)

    def _rebalance(self) -> None:
        published = rebalance_plan(self._workspace, self._current_lease().epoch, proceed=self._proceed)
        if published is not None:
            logger.info("%s", published)

    def _proceed(self) -> None:
        """Raise _StoppedError if the run is being stopped. Long work calls this between its steps."""
        if self._stop.is_set():
            raise _StoppedError
        self._progressed()

    def _progressed(self) -> None:
        """Record progress within a long turn, so that its loop is not considered stuck."""
        self.run_state.note_progress(threading.current_thread().name)

    def _loop(self, step: Callable[[], None], pause: float) -> None:
        name = threading.current_thread().name
        failures = 0
        while not self._stop.is_set():
            self.run_state.note_turn(name, period=pause)
            try:
                step()
                self._resume(name)
                failures = 0
            except _StoppedError:
                break
            except _TRANSIENT_ERRORS as error:
                self._pause(name, error)
            except FencedError as error:
                self._fail(error)
            except Exception:
                # A failed turn does not end its loop: the error is logged, and the next turn tries again.
                self._note_failed_turn(name)
                failures += 1
                seconds = _retry_seconds(failures) if step == self._distribute else 1.0
                self.run_state.note_turn(name, period=pause, rests=seconds)
                self._stop.wait(seconds)
            self.run_state.note_turn(name, period=pause, rests=pause)
            self._stop.wait(pause)
        self.run_state.end_loop(name)

    def _note_failed_turn(self, name: str) -> None:
        logger.exception("%s failed", name)
        self.run_state.count("turns failed")

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._stop.set()

    # --- steps ---------------------------------------------------------------------------------------------------

    def _pause(self, part: str, error: RunnelError) -> None:
        """Record and log why a part is paused, and wait a second before the caller tries again."""
        if self.run_state.pause_part(part, error.message):
            logger.warning("%s", error)
        self._renew()
        self._stop.wait(1.0)

    def _resume(self, part: str) -> None:
        """Record that a part is no longer paused, and publish the state with the lease."""
        if self.run_state.resume_part(part):
            self._renew()

    def _read_once(
        self, *, has_period: bool = False, report: Callable[[Progress], None] = lambda progress: None
    ) -> None:
        """Read all feeds that have a period of their own, or all others."""
        if has_period and self._has_periods():
            self._report_state("polling", report)
        for reader in self._parts.readers:
            if reader.has_period is not has_period:
                continue
            try:
                self._read(reader, once=True)
            except (*_TRANSIENT_ERRORS, FencedError):
                raise
            except Exception:  # the reader of a plug-in may raise anything; the other readers must still run
                self._note_failed_turn(reader.name)

    def _has_periods(self) -> bool:
        with self._workspace.catalog.read() as connection:
            return any(has_period(feed.address) for feed in feeds.live_feeds(connection) if feed.address)

    def _read(self, reader: SourceReader, *, once: bool = False) -> None:
        acquired = reader.read(once=once, progressed=self._progressed)
        self.run_state.count("items accepted", acquired.accepted)
        self.run_state.count("items unchanged", acquired.unchanged)
        self.run_state.count("things quarantined", acquired.quarantined)

    def _expire(self) -> None:
        end_expired(self._workspace)
        self.run_state.count("rows expired", expire_rows(self._workspace))

    def _deliver(self) -> None:
        self.run_state.count("messages delivered", self._parts.dispatcher.deliver(self._current_lease().epoch))

    def _deliver_all(self, report: Callable[[Progress], None], seconds: float | None = None) -> None:
        self._report_state("delivering", report)
        delivered = self._parts.dispatcher.deliver(self._current_lease().epoch, wait=True, seconds=seconds)
        self.run_state.count("messages delivered", delivered)
        self._note_progress()
        report(self.progress())

    def _maintain(self, at_least: int | None = None) -> None:
        run_maintenance(self._workspace, self._current_lease().epoch, at_least=at_least)

    def _keep_renewing(self, finished: threading.Event) -> None:
        """Renew the lease regularly until the run is finished. Losing the lease ends the run."""
        while not finished.wait(self._workspace.settings.lease_seconds / 4):
            self._renew()

    def _renew(self) -> None:
        try:
            with self._workspace.catalog.write() as connection:
                leases.renew(
                    connection,
                    self._current_lease(),
                    self._workspace.settings.lease_seconds,
                    self.run_state.describe_state(),
                )
        except FencedError as error:
            self._fail(error)
        except _TRANSIENT_ERRORS as error:
            logger.debug("the lease could not be renewed yet: %s", error)
        except Exception as error:
            logger.warning("the lease could not be renewed: %s", error)

    def _report_state(self, state: str, report: Callable[[Progress], None]) -> None:
        self.run_state.state = state
        self._renew()
        report(self.progress())

    def _current_lease(self) -> Lease:
        if self._lease is None:
            raise FencedError("the runner has no lease")
        return self._lease
