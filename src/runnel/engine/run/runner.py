"""The runner: the one process that acquires, matches and delivers for a workspace.

It holds a lease whose epoch every commit checks. Matching is one Spark query; looking at files, polling, delivery and
tidying are loops beside it, so that a slow source or endpoint never holds back matching.
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
from runnel.engine.run.query_keeper import QueryKeeper
from runnel.engine.run.run_log import RunLog
from runnel.engine.run.run_state import RunState
from runnel.engine.upkeep.contain_damage import contain_damage
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
_PASSING = (StorageFullError, CatalogUnavailableError, ReadOnlyError)
"""What passes by itself: it is waited for, wherever it shows."""


class _StoppedError(Exception):
    """The run is to end: what is under way is given up."""


def _rest(failures: int) -> float:
    """Return the seconds to wait after `failures` failed attempts to distribute a plan, which takes minutes.

    >>> _rest(1), _rest(20)
    (2.0, 600.0)
    """
    return min(2.0**failures, 600.0)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a runner has come: counts since it started, and what waits."""

    accepted: int
    matched: int
    lag: int
    delivered: int
    state: str


@dataclass(frozen=True)
class RunnerParts:
    """What a run is made of, besides Spark."""

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
        self.pulse = RunState(stall_seconds=workspace.settings.stall_seconds)
        self._lease: Lease | None = None
        self._keeper: QueryKeeper | None = None
        self._log = RunLog(workspace, self.pulse)
        self._first_matched = 0
        self._error: BaseException | None = None

    def stop(self) -> None:
        """Ask the run to end: what is accepted is still matched and delivered, within a bound."""
        self._stop.set()

    def progress(self) -> Progress:
        """How far the run has come."""
        with self._workspace.catalog.read() as connection:
            matched = match_segments.matched_upto(connection)
            lag = last_sequence(connection) - matched
        pulse = self.pulse
        return Progress(
            pulse.counted("items accepted"),
            matched - self._first_matched,
            lag,
            pulse.counted("messages delivered"),
            pulse.told_state(),
        )

    def health(self) -> Health:
        """How the run is, for those who watch it."""
        try:
            lag: int | None = self._parts.acquirer.lag()
        except RunnelError:
            lag = None
        matching = self._keeper is not None and self._keeper.is_active
        return self.pulse.health(matching=matching, lag=lag, lag_limit=self._workspace.settings.lag_limit)

    def run(self, *, once: bool, report: Callable[[Progress], None] = lambda progress: None) -> Progress:
        """Acquire, match and deliver, under the lease of this workspace."""
        with self._workspace.catalog.write() as connection:
            self._lease = leases.acquire(connection, self._workspace.settings.lease_seconds)
            self._first_matched = match_segments.matched_upto(connection)
        self._keeper = QueryKeeper(self._workspace, self._lease, self.pulse, self._stop)
        self._keeper.on_hold_up = lambda error: self._pause("matching", error)
        self._log.note_start(self._lease, self._first_matched)
        finished = threading.Event()
        heart = threading.Thread(target=self._beat, args=(finished,), name="runnel-lease", daemon=True)
        heart.start()
        started: list[Companion] = []
        try:
            record_history(self._workspace.catalog, self._workspace.storage)
            remove_abandoned(self._workspace.spark_folder)
            for companion in self._parts.companions:
                companion.start(self)
                started.append(companion)
            if once:
                self._run_once(self._keeper, report)
            else:
                self._run_on(self._keeper, report)
            if self._error is not None:
                raise self._error
            self._note_progress()
            self.pulse.state = "stopped"
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
            heart.join()
            self._release()

    def _note_progress(self) -> None:
        """Log what happened since the last call; a log that cannot be written now holds nothing up."""
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
                leases.release(connection, self._held())
        except _PASSING as error:
            logger.warning("the lease could not be given back; it ends with this process: %s", error)

    # --- bounded run ---------------------------------------------------------------------------------------------

    def _run_once(self, keeper: QueryKeeper, report: Callable[[Progress], None]) -> None:
        end_expired(self._workspace)
        self._read_once()
        self._past_damage(self._log_again)
        self._read_once(has_period=True, report=report)
        self._recompile_unusable()
        self._distribute_first()
        if self._stop.is_set() or not self._start_spark(keeper, report):
            return
        while True:
            self._say("matching", report)
            keeper.match_all(lambda: self.progress().lag, self._note_progress)
            self._past_damage(lambda: self._deliver_all(report))
            while self._contain():  # what delivery could not read
                self._past_damage(lambda: self._deliver_all(report))
            end_expired(self._workspace)
            self._read_once()
            if self.progress().lag == 0 or self._stop.is_set():
                break
        self._past_damage(lambda: self._tidy(at_least=1))

    def _start_spark(self, keeper: QueryKeeper, report: Callable[[Progress], None]) -> bool:
        """Open Spark; False where the run was stopped meanwhile, and must not start to match."""
        self._say("starting Spark", report)
        keeper.open(self._open_abortably)
        return not self._stop.is_set()

    def _open_abortably(self) -> Any:
        """Open Spark, for the first time or again; SparkLostError if the run is stopped meanwhile."""
        is_open = threading.Event()
        aborting = threading.Thread(target=self._abort_start_when_stopped, args=(is_open,), daemon=True)
        aborting.start()
        try:
            return self._open_spark()
        finally:
            is_open.set()
            aborting.join()

    def _abort_start_when_stopped(self, is_open: threading.Event) -> None:
        """Nobody waits for the many seconds that Spark takes to start once the run is to end."""
        while not is_open.wait(_TICK):
            if self._stop.is_set():
                abort_start()

    # --- unbounded run -------------------------------------------------------------------------------------------

    def _run_on(self, keeper: QueryKeeper, report: Callable[[Progress], None]) -> None:
        self._recompile_unusable()
        self._distribute_first()
        if self._stop.is_set() or not self._start_spark(keeper, report):
            return
        settings = self._workspace.settings
        loops = [
            threading.Thread(target=self._loop, args=(step, pause), name=f"runnel-{name}", daemon=True)
            for name, step, pause in (
                ("expire", lambda: end_expired(self._workspace), settings.scan_seconds),
                *((one.name, partial(self._read, one), one.pause) for one in self._parts.readers),
                ("deliver", self._deliver, _TICK),
                ("tidy", self._tidy, settings.archive_seconds),
                ("again", self._log_again, _AGAIN_TICK),
                ("reoptimise", self._reoptimise, settings.reoptimize_seconds),
                ("distribute", self._distribute, _DISTRIBUTE_TICK),
                ("rebalance", self._rebalance, settings.rebalance_seconds),
            )
        ]
        keeper.keep_going()
        for loop in loops:
            loop.start()
        try:
            self._watch(keeper, report)
        finally:
            # Whatever ended the run, nothing of it may go on working under a lease that is given back.
            self._stop.set()
            for loop in loops:
                loop.join()
            try:
                self._drain(keeper, report)
            except _PASSING as error:
                logger.warning("what is left stays for the next run: %s", error)
            finally:
                keeper.end()

    def _watch(self, keeper: QueryKeeper, report: Callable[[Progress], None]) -> None:
        """Keep the query going until the run is stopped; what passes by itself is waited for."""
        self.pulse.state = "running"
        last_report = 0.0
        while not self._stop.wait(_TICK):
            try:
                keeper.keep_going()
                if time.monotonic() - last_report >= 1.0:
                    keeper.notice_progress()
                    self._note_progress()
                    report(self.progress())
                    last_report = time.monotonic()
                self._goes_on(_WATCHING)
            except _PASSING as error:
                self._pause(_WATCHING, error)
            except RunnelError as final:
                self._fail(final)

    def _drain(self, keeper: QueryKeeper, report: Callable[[Progress], None]) -> None:
        """What was accepted before the stop is matched and delivered; then the query ends."""
        self._say("draining", report)
        with self._workspace.catalog.read() as connection:
            goal = last_sequence(connection)
        keeper.drain(goal, _DRAIN_SECONDS if self._error is None else 0.0)
        if self._error is None:
            self._deliver_all(report, _DRAIN_SECONDS)
            self._tidy()

    def _contain(self) -> int:
        """Take files out of the workspace that were found damaged in this process; gives how many."""
        contained = 0
        for path in take_damaged(self._workspace.storage):
            if contain_damage(self._workspace, self._held().epoch, path) is not None:
                contained += 1
                self.pulse.count("files contained")
        return contained

    def _past_damage(self, step: Callable[[], None]) -> None:
        """Repeat a step for as long as damaged files that it meets can be contained."""
        while True:
            try:
                return step()
            except CorruptDataError:
                if not self._contain():
                    raise

    def _log_again(self) -> None:
        """Log items once more that operators could not decide, when their time has come."""
        self._contain()
        workspace = self._workspace
        self.pulse.count("tried again", log_again(workspace.catalog, workspace.storage, epoch=self._held().epoch))

    def _reoptimise(self) -> None:
        done = reoptimize(self._workspace, self._held().epoch, proceed=self._proceed)
        if done is not None and done.version is not None:
            logger.info(
                "compiled the plan again as version %d: %.0f entries expected for an item instead of %.0f",
                done.version,
                done.then,
                done.now,
            )

    def _recompile_unusable(self) -> None:
        """Replace a plan that is damaged or has an older format, before anything is matched with it."""
        try:
            version = recompile_unusable(self._workspace, self._held().epoch, proceed=self._proceed)
        except _StoppedError:
            return
        if version is not None:
            logger.info(
                "compiled all queries again as plan version %d: the plan was damaged or had an older format",
                version,
            )

    def _distribute_first(self) -> None:
        """Distribute the plan as the settings want, before workers load it. It can be matched without that too."""
        try:
            self._distribute()
        except FencedError:
            raise
        except _StoppedError:
            return
        except Exception:
            logger.exception("the plan could not be distributed over workers")
            self.pulse.count("turns failed")

    def _distribute(self) -> None:
        published = ensure_distribution(self._workspace, self._held().epoch, proceed=self._proceed)
        if published is not None:
            logger.info("%s", published)

    def _rebalance(self) -> None:
        published = rebalance_plan(self._workspace, self._held().epoch, proceed=self._proceed)
        if published is not None:
            logger.info("%s", published)

    def _proceed(self) -> None:
        """Called between the steps of what takes minutes: the run can be stopped there."""
        if self._stop.is_set():
            raise _StoppedError
        self._progressed()

    def _progressed(self) -> None:
        """Called between the steps of a turn that may take long: its loop is not taken for stuck."""
        self.pulse.progressed(threading.current_thread().name)

    def _loop(self, step: Callable[[], None], pause: float) -> None:
        name = threading.current_thread().name
        failures = 0
        while not self._stop.is_set():
            self.pulse.turned(name, period=pause)
            try:
                step()
                self._goes_on(name)
                failures = 0
            except _StoppedError:
                break
            except _PASSING as error:
                self._pause(name, error)
            except FencedError as error:
                self._fail(error)
            except Exception:
                # A loop never ends because of one bad turn: the reason is logged and the next turn tries again.
                self._note_failed_turn(name)
                failures += 1
                rest = _rest(failures) if step == self._distribute else 1.0
                self.pulse.turned(name, period=pause, rests=rest)
                self._stop.wait(rest)
            self.pulse.turned(name, period=pause, rests=pause)
            self._stop.wait(pause)
        self.pulse.ended(name)

    def _note_failed_turn(self, name: str) -> None:
        logger.exception("%s failed", name)
        self.pulse.count("turns failed")

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._stop.set()

    # --- steps ---------------------------------------------------------------------------------------------------

    def _pause(self, part: str, error: RunnelError) -> None:
        """Say what holds a part up, wait a little, and let the caller try again."""
        if self.pulse.hold_up(part, error.message):
            logger.warning("%s", error)
        self._renew()
        self._stop.wait(1.0)

    def _goes_on(self, part: str) -> None:
        """A part that was held up and got on is held up no more; say so at once."""
        if self.pulse.release(part):
            self._renew()

    def _read_once(
        self, *, has_period: bool = False, report: Callable[[Progress], None] = lambda progress: None
    ) -> None:
        """Read all feeds that have periods of their own, or all others."""
        if has_period and self._has_periods():
            self._say("polling", report)
        for reader in self._parts.readers:
            if reader.has_period is not has_period:
                continue
            try:
                self._read(reader, once=True)
            except (*_PASSING, FencedError):
                raise
            except Exception:  # as in a loop: the reader of a plug-in may raise anything, and the others still read
                self._note_failed_turn(reader.name)

    def _has_periods(self) -> bool:
        with self._workspace.catalog.read() as connection:
            return any(has_period(feed.address) for feed in feeds.live_feeds(connection) if feed.address)

    def _read(self, reader: SourceReader, *, once: bool = False) -> None:
        taken = reader.read(once=once, progressed=self._progressed)
        self.pulse.count("items accepted", taken.accepted)
        self.pulse.count("items unchanged", taken.unchanged)
        self.pulse.count("things put aside", taken.quarantined)

    def _deliver(self) -> None:
        self.pulse.count("messages delivered", self._parts.dispatcher.deliver(self._held().epoch))

    def _deliver_all(self, report: Callable[[Progress], None], seconds: float | None = None) -> None:
        self._say("delivering", report)
        delivered = self._parts.dispatcher.deliver(self._held().epoch, wait=True, seconds=seconds)
        self.pulse.count("messages delivered", delivered)
        self._note_progress()
        report(self.progress())

    def _tidy(self, at_least: int | None = None) -> None:
        run_maintenance(self._workspace, self._held().epoch, at_least=at_least)

    def _beat(self, finished: threading.Event) -> None:
        """Renew the lease while the run lives; losing it ends the run."""
        while not finished.wait(self._workspace.settings.lease_seconds / 4):
            self._renew()

    def _renew(self) -> None:
        try:
            with self._workspace.catalog.write() as connection:
                leases.renew(
                    connection, self._held(), self._workspace.settings.lease_seconds, self.pulse.told_state()
                )
        except FencedError as error:
            self._fail(error)
        except _PASSING as error:
            logger.debug("the lease waits: %s", error)
        except Exception as error:
            logger.warning("the lease could not be renewed: %s", error)

    def _say(self, state: str, report: Callable[[Progress], None]) -> None:
        self.pulse.state = state
        self._renew()
        report(self.progress())

    def _held(self) -> Lease:
        if self._lease is None:
            raise FencedError("no lease is held")
        return self._lease
