"""Tidying: what a runner does besides its work, so that a year of running does not slow a batch.

In: a root, and the epoch of its runner. Out: fewer and larger files, shorter tables, and less of what is old. All of
it goes in small steps, each a transaction of its own that checks the epoch, so that nobody waits long and a crash
between any two of them leaves a whole root.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from sqlalchemy import Connection

from runnel.catalog.access import signing_keys
from runnel.catalog.declared import stylesheets
from runnel.catalog.delivery import ledger, receipts
from runnel.catalog.learned import stream_statistics
from runnel.catalog.logs import gate_states, item_segments, match_segments, plan_versions, quarantine, undecided
from runnel.catalog.polling import source_files
from runnel.catalog.store import counters, leases
from runnel.catalog.store.connection import now
from runnel.engine.ask.slow_queries import log_slow_queries, sample_costs
from runnel.engine.upkeep.merge_operator_cache import cache_steps
from runnel.engine.workspace import Workspace
from runnel.logs.garbage import delete_retired_files, empty_trash, record_history, remove_orphans
from runnel.logs.items.archive import archive_steps
from runnel.logs.matches.compaction import compaction_steps
from runnel.sinks.registry import silent_kinds

_SECONDS = 30.0
_HOUR = 3_600_000_000
_DAY = 24 * _HOUR
_ROWS = 2_000
_FOUND_IDS = 50_000
_KEPT_ROWS = _HOUR
"""Rows of match segments stay as they are for so long, although only the last of them is ever asked for again."""


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What was tidied: files merged and removed, rows merged, folded and forgotten. `finished`: nothing is left."""

    archived: int = 0
    compacted: int = 0
    merged: int = 0
    retained: int = 0
    folded: int = 0
    asides: int = 0
    forgotten: int = 0
    plans: int = 0
    sheets: int = 0
    keys: int = 0
    removed: int = 0
    finished: bool = True

    def __add__(self, other: MaintenanceReport) -> MaintenanceReport:
        numbers = {
            one.name: getattr(self, one.name) + getattr(other, one.name)
            for one in fields(self)
            if one.name != "finished"
        }
        return MaintenanceReport(**numbers, finished=self.finished and other.finished)


def run_maintenance(
    root: Workspace,
    epoch: int,
    *,
    at_least: int | None = None,
    asked: Collection[int] = (),
    chores: bool | None = None,
) -> MaintenanceReport:
    """Merge small files, and now and then let go of what is old; for some seconds, then the next turn goes on.

    Fresh files of an hour that goes on are merged once there are `at_least` so many (the setting archive_segments).
    Queries in `asked` are indexed besides those that are known to be read by query. Rare `chores` are done when an
    hour has passed since the last time, unless it is said whether they are.
    """
    return _Turn(root, epoch, time.monotonic() + _SECONDS).run(at_least, asked, chores)


class _Turn:
    """One turn of tidying, until a deadline."""

    def __init__(self, root: Workspace, epoch: int, deadline: float) -> None:
        self._root = root
        self._epoch = epoch
        self._deadline = deadline

    def run(self, at_least: int | None, asked: Collection[int], chores: bool | None) -> MaintenanceReport:
        root, settings = self._root, self._root.settings
        enough = settings.archive_segments if at_least is None else at_least
        archived = self._count(
            len(run.files) for run in archive_steps(root.catalog, root.storage, epoch=self._epoch, at_least=enough)
        )
        compacted = self._count(
            len(run.files)
            for run in compaction_steps(
                root.catalog, root.storage, epoch=self._epoch, at_least=enough, asked=asked, silent=silent_kinds()
            )
        )
        most = settings.operator_cache_bytes
        compacted += self._count(cache_steps(root.catalog, root.storage, epoch=self._epoch, most_bytes=most))
        merged = self._repeat(_merge_rows)
        if self._repeat(stream_statistics.learn):
            sample_costs(root, self._epoch)
            log_slow_queries(root, self._epoch)
        done = MaintenanceReport(archived=archived, compacted=compacted, merged=merged, finished=self._has_time())
        if self._has_time() and (self._chores_are_due() if chores is None else chores):
            done += self._chores()
        removed = self._count(delete_retired_files(root.catalog, root.storage, older_than=settings.orphan_seconds))
        return done + MaintenanceReport(removed=removed, finished=self._has_time())

    def _has_time(self) -> bool:
        return time.monotonic() < self._deadline

    def _count(self, steps: Iterator[int]) -> int:
        """Take steps while there is time; gives the sum of what they did."""
        done = 0
        for one in steps:
            done += one
            if not self._has_time():
                break
        return done

    def _repeat(self, step: Callable[[Connection], int]) -> int:
        """Repeat a step, each time in a transaction, until it does nothing; gives the sum of what was done."""

        def steps() -> Iterator[int]:
            while True:
                with self._write() as connection:
                    done = step(connection)
                if not done:
                    return
                yield done

        return self._count(steps())

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with self._root.catalog.write() as connection:
            leases.check(connection, self._epoch)
            yield connection

    # --- rare chores ---------------------------------------------------------------------------------------------

    def _chores_are_due(self) -> bool:
        with self._root.catalog.read() as connection:
            passed = now(connection) - counters.read_counter(connection, counters.CHORES)
            return not 0 <= passed < _HOUR  # a clock that was set back must not put them off

    def _chores(self) -> MaintenanceReport:
        root, settings = self._root, self._root.settings
        done = MaintenanceReport(
            retained=self._retain(),
            folded=self._repeat(lambda c: receipts.fold_messages(c, _ago(c, settings.keep_receipts_days), _ROWS)),
            asides=self._drop_asides(),
            forgotten=self._forget_seen() + self._repeat(lambda c: gate_states.forget_states(c, _ROWS)),
            plans=self._forget_plans(),
            sheets=self._drop_sheets(),
            keys=self._repeat(lambda c: signing_keys.forget_keys(c, _ROWS)),
        )
        self._forget_files()
        with self._write() as connection:
            stream_statistics.forget_dropped(connection)
        if not self._has_time():
            return done  # the next turn goes on; the walk over all files comes last, and once
        removed = remove_orphans(root.catalog, root.storage, older_than=settings.orphan_seconds)
        done += MaintenanceReport(removed=removed + empty_trash(root.storage))
        record_history(root.catalog, root.storage)
        with self._write() as connection:
            counters.set_counter(connection, counters.CHORES, now(connection))
        return done

    def _retain(self) -> int:
        """Let go of items and matches that are older than they are kept and that nobody needs any more."""
        days = self._root.settings.keep_items_days
        if not days:
            return 0
        with self._write() as connection:
            gone = item_segments.retain_items(connection, _ago(connection, days), receipts.needed_after(connection))
            if gone:
                upto = item_segments.retained_upto(connection)
                gone += match_segments.retain_matches(connection, upto)
                gone += undecided.forget_supplements(connection, upto)
                receipts.lift_cursors(connection, upto)
                ledger.bury_unkept(connection, upto)
            return gone

    def _drop_asides(self) -> int:
        """Bound what is kept for inspection: in bytes, and as old as items may be."""
        settings, storage = self._root.settings, self._root.storage
        while self._has_time():
            with self._root.catalog.read() as connection:
                paths = quarantine.unmeasured_quarantined(connection, _ROWS)
            if not paths:
                break
            sizes = {path: _size(storage.local(path)) for path in paths}
            with self._write() as connection:
                quarantine.measure_quarantined(connection, sizes)

        def drop(connection: Connection) -> int:
            surplus = quarantine.quarantined_bytes(connection) - settings.keep_quarantine_bytes
            paths = quarantine.drop_oldest_quarantined(connection, surplus, _ROWS) if surplus > 0 else []
            gone.extend(paths)
            return len(paths)

        def forget(connection: Connection) -> int:
            before = _ago(connection, settings.keep_items_days)
            count = quarantine.quarantined_count(connection)
            gone.extend(quarantine.forget_quarantined(connection, before, _ROWS))
            return count - quarantine.quarantined_count(connection)

        gone: list[str] = []
        done = self._repeat(drop) + (self._repeat(forget) if settings.keep_items_days else 0)
        for path in gone:  # after the rows: a file without a row is an orphan, and goes with those
            storage.delete(path)
        return done

    def _forget_seen(self) -> int:
        """Forget ids that their sources have not shown for as long as items are kept."""
        days = self._root.settings.keep_items_days
        if not days:
            return 0

        def steps() -> Iterator[int]:
            done = 1
            while done:
                # Finding them takes a walk over all ids that are old: meanwhile nobody waits to write.
                with self._root.catalog.read() as connection:
                    day = _ago(connection, days) // _DAY
                    expired = item_segments.expired_seen(connection, day, _FOUND_IDS)
                done = 0
                for first in range(0, len(expired), _ROWS):
                    with self._write() as connection:
                        gone = item_segments.forget_seen(connection, expired[first : first + _ROWS], day)
                    done += gone
                    yield gone

        return self._count(steps())

    def _forget_plans(self) -> int:
        """Drop plan versions that no batch can need, and lineages that nothing speaks of any more."""
        settings, storage = self._root.settings, self._root.storage
        with self._write() as connection:
            old = now(connection) - int(settings.orphan_seconds * 1e6)
            named = plan_versions.plan_folders(connection)
            gone = plan_versions.forget_plans(connection, before=match_segments.last_plan(connection), created=old)
            kept = plan_versions.plan_folders(connection)
            if settings.keep_items_days:
                match_segments.forget_lineages(connection, _ago(connection, settings.keep_items_days))
        for folder in sorted(named - kept):  # after the rows: what a crash leaves here is an orphan
            for file in list(storage.files(folder)):
                storage.delete(file.path)
        return gone

    def _drop_sheets(self) -> int:
        """Remove kept copies of stylesheets that nothing applies any more; people's own files stay.

        A young copy may be about to be used. An old one goes under the catalog's write lock, and whoever declares
        looks there whether it is gone.
        """
        storage = self._root.storage
        limit = time.time() - self._root.settings.orphan_seconds
        old = {
            file.path
            for file in storage.files(stylesheets.FOLDER)
            if file.modified < limit and stylesheets.is_kept(file.path)
        }
        with self._root.catalog.read() as connection:
            unused = old - stylesheets.stylesheets_in_use(connection)
        if not unused:
            return 0
        with self._write() as connection:
            gone = unused - stylesheets.stylesheets_in_use(connection)
            for path in gone:
                storage.delete(path)
        return len(gone)

    def _forget_files(self) -> None:
        """Forget source files that are gone, though not if all of a feed are: its folder may only be away."""
        with self._root.catalog.read() as connection:
            known = source_files.known_files(connection)
        by_feed: dict[int, list[str]] = {}
        for file in known:
            if file.state.digest and Path(file.state.path).is_absolute():
                by_feed.setdefault(file.feed, []).append(file.state.path)
        gone = {feed: [path for path in paths if not Path(path).exists()] for feed, paths in by_feed.items()}
        with self._write() as connection:
            for feed, paths in gone.items():
                if len(paths) < len(by_feed[feed]):
                    source_files.forget_files(connection, feed, paths)
            source_files.forget_files_of_dropped(connection, now(connection))


def _merge_rows(connection: Connection) -> int:
    return match_segments.merge_segments(connection, now(connection) - _KEPT_ROWS, _ROWS)


def _ago(connection: Connection, days: int) -> int:
    return now(connection) - days * _DAY


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
