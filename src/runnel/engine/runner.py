"""The runner: the one process that acquires, matches and delivers for a root.

It holds a lease whose epoch every commit checks. Matching is one Spark query; acquisition and delivery are loops
beside it, so that a slow source or endpoint never holds back matching.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from runnel.catalog import leases, matches
from runnel.catalog.leases import Lease
from runnel.catalog.sequencer import last_sequence
from runnel.engine.expiry import end_expired
from runnel.engine.root import Root
from runnel.errors import CorruptData, Fenced, RunnelError, StorageFull
from runnel.log.archive import archive_matched, collect_garbage
from runnel.sinks.dispatch import Dispatcher
from runnel.sources.acquire import Acquirer
from runnel.streaming.job import Job
from runnel.streaming.query import choose_lineage, drop_old_checkpoints, start_query

logger = logging.getLogger("runnel")

_TICK = 0.05
_DRAIN_SECONDS = 60.0
_RETRIES = 5
_MATCHING = "matching"
_WATCHING = "watching"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a runner has come: counts since it started, and what waits."""

    accepted: int
    matched: int
    lag: int
    delivered: int
    state: str


@dataclass
class _Counts:
    first_matched: int = 0
    accepted: int = 0
    delivered: int = 0
    state: str = "starting"
    failures: int = 0
    last_seen: int = -1
    error: BaseException | None = field(default=None)


class Runner:
    """One run over a root. `run` returns when everything is matched and delivered (`once`), or after `stop`."""

    def __init__(self, root: Root, spark: Callable[[], Any], acquirer: Acquirer, dispatcher: Dispatcher) -> None:
        self._root = root
        self._open_spark = spark
        self._acquirer = acquirer
        self._dispatcher = dispatcher
        self._stop = threading.Event()
        self._counts = _Counts()
        self._lease: Lease | None = None
        self._held_up: dict[str, str] = {}
        self._query: Any = None

    def stop(self) -> None:
        """Ask the run to end: what is accepted is still matched and delivered, within a bound."""
        self._stop.set()

    def progress(self) -> Progress:
        """How far the run has come."""
        with self._root.catalog.read() as connection:
            matched = matches.matched_upto(connection)
            lag = last_sequence(connection) - matched
        counts = self._counts
        return Progress(counts.accepted, matched - counts.first_matched, lag, counts.delivered, self._state())

    def run(self, *, once: bool, report: Callable[[Progress], None] = lambda progress: None) -> Progress:
        """Acquire, match and deliver, under the lease of this root."""
        settings = self._root.settings
        with self._root.catalog.write() as connection:
            self._lease = leases.acquire(connection, settings.lease_seconds)
            self._counts.first_matched = matches.matched_upto(connection)
        finished = threading.Event()
        heart = threading.Thread(target=self._beat, args=(finished,), name="runnel-lease", daemon=True)
        heart.start()
        try:
            if once:
                self._run_once(report)
            else:
                self._run_on(report)
            if self._counts.error is not None:
                raise self._counts.error
            self._counts.state = "stopped"
            report(self.progress())
            return self.progress()
        finally:
            finished.set()
            heart.join()
            self._release()

    def _release(self) -> None:
        try:
            with self._root.catalog.write() as connection:
                leases.release(connection, self._held())
        except StorageFull as error:
            logger.warning("the lease could not be given back; it ends with this process: %s", error)

    # --- bounded run ---------------------------------------------------------------------------------------------

    def _run_once(self, report: Callable[[Progress], None]) -> None:
        self._expire()
        self._acquire()
        self._say("starting Spark", report)
        spark = self._open_spark()
        while True:
            self._say("matching", report)
            self._match_once(spark)
            self._deliver_all(report)
            self._expire()
            self._acquire()
            if self.progress().lag == 0 or self._stop.is_set():
                break
        self._tidy(at_least=1)

    def _match_once(self, spark: Any) -> None:
        force: str | None = None
        while self.progress().lag and not self._stop.is_set():
            query = self._start(spark, once=True, force=force)
            try:
                while not query.awaitTermination(_TICK):
                    if self._stop.is_set():
                        query.stop()
                force = None
                self._notice_progress()
            except Exception as error:
                force = self._after_failure(error)

    # --- unbounded run -------------------------------------------------------------------------------------------

    def _run_on(self, report: Callable[[Progress], None]) -> None:
        self._say("starting Spark", report)
        spark = self._open_spark()
        loops = [
            threading.Thread(target=self._loop, args=(step, pause), name=name, daemon=True)
            for name, step, pause in (
                ("runnel-acquire", self._acquire_and_expire, self._root.settings.scan_seconds),
                ("runnel-deliver", self._deliver, _TICK),
                ("runnel-tidy", self._tidy, self._root.settings.archive_seconds),
            )
        ]
        self._query = self._start(spark, once=False)
        for loop in loops:
            loop.start()
        try:
            self._watch(spark, report)
        finally:
            # Whatever ended the run, nothing of it may go on working under a lease that is given back.
            self._stop.set()
            for loop in loops:
                loop.join()
            try:
                self._drain(self._query, report)
            except StorageFull as error:
                logger.warning("what is left stays for the next run: %s", error)
            finally:
                if self._query.isActive:
                    self._query.stop()

    def _watch(self, spark: Any, report: Callable[[Progress], None]) -> None:
        """Keep the query going until the run is stopped; a full disk is waited for, here as everywhere."""
        self._counts.state = "running"
        last_report = 0.0
        while not self._stop.wait(_TICK):
            try:
                if not self._query.isActive:
                    self._query = self._restart(spark, self._query)
                if time.monotonic() - last_report >= 1.0:
                    self._notice_progress()
                    report(self.progress())
                    last_report = time.monotonic()
                self._has_room(_WATCHING)
            except StorageFull as error:
                self._pause_for_room(_WATCHING, error)

    def _restart(self, spark: Any, query: Any) -> Any:
        error = query.exception()
        force = None
        if error is not None:
            try:
                force = self._after_failure(error)
            except Exception as final:
                self._counts.error = final
                self._stop.set()
                return query
        return self._start(spark, once=False, force=force)

    def _notice_progress(self) -> None:
        """Matching that was held up and has got somewhere is held up no more."""
        matched = self._matched()
        if matched > self._counts.last_seen:
            self._counts.last_seen = matched
            self._counts.failures = 0
            self._has_room(_MATCHING)

    def _drain(self, query: Any, report: Callable[[Progress], None]) -> None:
        """What was accepted before the stop is matched and delivered; then the query ends."""
        self._say("draining", report)
        with self._root.catalog.read() as connection:
            goal = last_sequence(connection)
        deadline = time.monotonic() + (_DRAIN_SECONDS if self._counts.error is None else 0.0)
        while query.isActive and self._matched() < goal and time.monotonic() < deadline:
            time.sleep(_TICK)
        query.stop()
        if self._counts.error is None:
            self._deliver_all(report)
            self._tidy()

    def _loop(self, step: Callable[[], None], pause: float) -> None:
        name = threading.current_thread().name
        while not self._stop.is_set():
            try:
                step()
                self._has_room(name)
            except StorageFull as error:
                self._pause_for_room(name, error)
            except Fenced as error:
                self._counts.error = error
                self._stop.set()
            except Exception:
                # A loop never dies of one bad turn; the reason is in the log and the next turn tries again.
                logger.exception("%s failed", name)
                self._stop.wait(1.0)
            self._stop.wait(pause)

    # --- steps ---------------------------------------------------------------------------------------------------

    def _start(self, spark: Any, *, once: bool, force: str | None = None) -> Any:
        root, lease = self._root, self._held()
        lineage = choose_lineage(root.catalog, root.storage, epoch=lease.epoch, force_new=force)
        drop_old_checkpoints(root.storage, lineage.id)
        settings = root.settings
        job = Job(
            catalog=root.catalog.url,
            catalog_max_bytes=settings.catalog_max_bytes,
            storage=root.storage.url,
            lineage=lineage.id,
            after_sequence=lineage.after_sequence,
            epoch=lease.epoch,
            max_batch_items=settings.max_batch_items,
            max_batch_bytes=settings.max_batch_bytes,
            slice_items=settings.slice_items,
            parallelism=spark.sparkContext.defaultParallelism,
        )
        return start_query(spark, job, once=once)

    def _after_failure(self, error: Exception) -> str | None:
        """What to do after the query failed: gives the reason for a new lineage, or raises what cannot be mended."""
        text = str(error)
        if "runnel.errors.Fenced" in text or "Fenced:" in text:
            raise Fenced("another runner took this root over", hint="stop one of them")
        if any(sign in text for sign in ("StorageFull", "No space left on device", "disk is full")):
            self._pause_for_room(_MATCHING, StorageFull("no room left in the root"))
            return None
        self._notice_progress()
        self._counts.failures += 1
        reason = _reason(text)
        if "LineageConflict" in text and self._counts.failures < _RETRIES:
            logger.warning("the checkpoint does not continue the match log; a new lineage starts: %s", reason)
            self._stop.wait(self._counts.failures - 1.0)
            return "the checkpoint does not continue the match log"
        if "CorruptData" in text and "LineageConflict" not in text:
            raise CorruptData(
                reason, hint="restore the file from a backup; `runnel doctor` checks the rest"
            ) from error
        logger.error("matching failed: %s", reason)
        if self._counts.failures >= _RETRIES:
            raise RunnelError(
                f"matching failed {_RETRIES} times without progress: {reason}",
                hint="logs/spark.log in the root has the whole story",
            ) from error
        self._stop.wait(min(2.0**self._counts.failures, 30.0))
        return None

    def _pause_for_room(self, part: str, error: StorageFull) -> None:
        """Say that there is no room, wait a little, and let the caller try again."""
        if part not in self._held_up:
            logger.warning("%s", error)
        self._held_up[part] = error.message
        self._renew()
        self._stop.wait(1.0)

    def _has_room(self, part: str) -> None:
        """A part that was held up and got on is held up no more; say so at once."""
        if self._held_up.pop(part, None) is not None:
            self._renew()

    def _state(self) -> str:
        held_up = next(iter(dict(self._held_up).values()), None)
        return f"paused: {held_up}" if held_up else self._counts.state

    def _acquire_and_expire(self) -> None:
        self._expire()
        self._acquire()

    def _expire(self) -> None:
        end_expired(self._root)

    def _acquire(self) -> None:
        self._counts.accepted += self._acquirer.acquire_all().accepted

    def _deliver(self) -> None:
        self._counts.delivered += self._dispatcher.deliver(self._held().epoch)

    def _deliver_all(self, report: Callable[[Progress], None]) -> None:
        self._say("delivering", report)
        self._counts.delivered += self._dispatcher.deliver(self._held().epoch)
        report(self.progress())

    def _tidy(self, at_least: int | None = None) -> None:
        root, epoch = self._root, self._held().epoch
        wanted = root.settings.archive_segments if at_least is None else at_least
        archive_matched(root.catalog, root.storage, epoch=epoch, at_least=wanted)
        collect_garbage(root.catalog, root.storage, older_than=root.settings.orphan_seconds)

    def _beat(self, finished: threading.Event) -> None:
        """Renew the lease while the run lives; losing it ends the run."""
        while not finished.wait(self._root.settings.lease_seconds / 4):
            self._renew()

    def _renew(self) -> None:
        try:
            with self._root.catalog.write() as connection:
                leases.renew(connection, self._held(), self._root.settings.lease_seconds, self._state())
        except Fenced as error:
            self._counts.error = error
            self._stop.set()
        except StorageFull:
            pass  # whoever has no room says so, and the lease is tried again
        except Exception as error:
            logger.warning("the lease could not be renewed: %s", error)

    def _say(self, state: str, report: Callable[[Progress], None]) -> None:
        self._counts.state = state
        self._renew()
        report(self.progress())

    def _matched(self) -> int:
        with self._root.catalog.read() as connection:
            return matches.matched_upto(connection)

    def _held(self) -> Lease:
        if self._lease is None:
            raise Fenced("no lease is held")
        return self._lease


def _reason(text: str) -> str:
    """What went wrong, from the long story that Spark tells: our own error if one is in it, else its first line.

    >>> _reason("x\\n  runnel.errors.CorruptData: plans/1 cannot be read\\n  at y")
    'plans/1 cannot be read'
    """
    ours = re.findall(r"runnel\.errors\.\w+: (.+)", text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (ours or lines or ["no reason given"])[0][:300]
