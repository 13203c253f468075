"""Maintenance by the runner, so that batches stay fast after years of running.

In: a workspace, and the epoch of its runner. Out: fewer and larger files, shorter tables, and less old data. The work
consists of small steps, each a transaction that checks the epoch. So other writers do not wait long, and a crash
between two steps leaves a consistent workspace.
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
from runnel.catalog.logs import (
    gate_states,
    item_segments,
    join_work,
    match_segments,
    plan_versions,
    quarantine,
    table_files,
    undecided,
)
from runnel.catalog.polling import source_files
from runnel.catalog.store import counters, leases
from runnel.catalog.store.connection import now
from runnel.engine.ask.slow_queries import log_slow_queries, sample_costs
from runnel.engine.upkeep.merge_operator_cache import cache_steps
from runnel.engine.workspace import Workspace
from runnel.logs.garbage import delete_retired_files, empty_trash, record_history, remove_orphans
from runnel.logs.items.archive import archive_steps
from runnel.logs.matches.compaction import compaction_steps
from runnel.logs.tables.rewrite_tables import RewriteRule, rewrite_steps
from runnel.sinks.registry import silent_kinds
from runnel.streaming.window_store import merge_steps

_SECONDS = 30.0
_HOUR = 3_600_000_000
_DAY = 24 * _HOUR
_ROWS = 2_000
_FOUND_IDS = 50_000
_ATTEMPTS = 10
"""Maximum number of attempts to delete items at a moment when no batch is committed and no message is settled."""
_KEPT_ROWS = _HOUR
"""Age in microseconds before which rows of match segments are not merged."""


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """Counts of files merged and deleted, and rows merged, folded and deleted. `finished` means that
    nothing is left.
    """

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
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
            if field.name != "finished"
        }
        return MaintenanceReport(**numbers, finished=self.finished and other.finished)


def run_maintenance(
    workspace: Workspace,
    epoch: int,
    *,
    at_least: int | None = None,
    asked: Collection[int] = (),
    chores: bool | None = None,
) -> MaintenanceReport:
    """Merge small files and, every hour, delete old data, for some seconds. The next call continues.

    Fresh files of the current hour are merged once there are `at_least` of them (default: the setting
    archive_segments). Queries in `asked` are indexed in addition to those that are known to be read by query.
    `chores` forces or skips the hourly tasks.
    """
    return _Turn(workspace, epoch, time.monotonic() + _SECONDS).run(at_least, asked, chores)


class _Turn:
    """One call of maintenance, until a deadline."""

    def __init__(self, workspace: Workspace, epoch: int, deadline: float) -> None:
        self._workspace = workspace
        self._epoch = epoch
        self._deadline = deadline

    def run(self, at_least: int | None, asked: Collection[int], chores: bool | None) -> MaintenanceReport:
        workspace, settings = self._workspace, self._workspace.settings
        enough = settings.archive_segments if at_least is None else at_least
        archived = self._count(
            len(run.files)
            for run in archive_steps(workspace.catalog, workspace.storage, epoch=self._epoch, at_least=enough)
        )
        compacted = self._count(
            len(run.files)
            for run in compaction_steps(
                workspace.catalog,
                workspace.storage,
                epoch=self._epoch,
                at_least=enough,
                asked=asked,
                silent=silent_kinds(),
            )
        )
        limit = settings.operator_cache_bytes
        compacted += self._count(
            cache_steps(workspace.catalog, workspace.storage, epoch=self._epoch, most_bytes=limit)
        )
        compacted += self._count(merge_steps(workspace.catalog, workspace.storage, epoch=self._epoch))
        compacted += self._count(
            rewrite_steps(workspace.catalog, workspace.storage, workspace.tables, self._rule(), epoch=self._epoch)
        )
        merged = self._repeat(_merge_rows)
        if self._repeat(stream_statistics.learn):
            sample_costs(workspace, self._epoch)
            log_slow_queries(workspace, self._epoch)
        done = MaintenanceReport(archived=archived, compacted=compacted, merged=merged, finished=self._has_time())
        if self._has_time() and (self._chores_are_due() if chores is None else chores):
            done += self._chores()
        removed = self._count(
            delete_retired_files(workspace.catalog, workspace.storage, older_than=settings.orphan_seconds)
        )
        return done + MaintenanceReport(removed=removed, finished=self._has_time())

    def _rule(self) -> RewriteRule:
        """Return when tables are rewritten: bases must not be older than the items that are kept."""
        settings, items = self._workspace.settings, self._workspace.items
        if not settings.keep_items_days:
            return RewriteRule(settings.table_tail_rows)
        with self._workspace.catalog.read() as connection:
            kept_from = _ago(connection, settings.keep_items_days)
        return RewriteRule(settings.table_tail_rows, items.sequence_before(kept_from))

    def _has_time(self) -> bool:
        return time.monotonic() < self._deadline

    def _count(self, steps: Iterator[int]) -> int:
        """Run steps while there is time. Return the sum of their results."""
        done = 0
        for result in steps:
            done += result
            if not self._has_time():
                break
        return done

    def _repeat(self, step: Callable[[Connection], int]) -> int:
        """Repeat a step, each time in a transaction, until it does nothing. Return the sum of its results."""

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
        with self._workspace.catalog.write() as connection:
            leases.check(connection, self._epoch)
            yield connection

    # --- rare chores ---------------------------------------------------------------------------------------------

    def _chores_are_due(self) -> bool:
        with self._workspace.catalog.read() as connection:
            passed = now(connection) - counters.read_counter(connection, counters.CHORES)
            return not 0 <= passed < _HOUR  # a clock that was set back must not delay them

    def _chores(self) -> MaintenanceReport:
        workspace, settings = self._workspace, self._workspace.settings
        done = MaintenanceReport(
            retained=self._retain(),
            folded=self._repeat(lambda c: receipts.fold_messages(c, _ago(c, settings.keep_receipts_days), _ROWS)),
            asides=self._limit_quarantine(),
            forgotten=self._forget_seen() + self._repeat(lambda c: gate_states.forget_states(c, _ROWS)),
            plans=self._forget_plans(),
            sheets=self._delete_stylesheets(),
            keys=self._repeat(lambda c: signing_keys.forget_keys(c, _ROWS)),
        )
        self._forget_files()
        with self._write() as connection:
            stream_statistics.forget_dropped(connection)
            join_work.forget_dropped(connection)
        if not self._has_time():
            return done  # the next call continues; the scan of all files comes last
        removed = remove_orphans(workspace.catalog, workspace.storage, older_than=settings.orphan_seconds)
        done += MaintenanceReport(removed=removed + empty_trash(workspace.storage))
        record_history(workspace.catalog, workspace.storage)
        with self._write() as connection:
            counters.set_counter(connection, counters.CHORES, now(connection))
        return done

    def _retain(self) -> int:
        """Delete items and matches that are older than `keep_items_days` and no longer needed.

        An item is needed, too, if a match that is still to be delivered joined it.
        """
        days = self._workspace.settings.keep_items_days
        if not days:
            return 0
        for _ in range(_ATTEMPTS):
            with self._workspace.catalog.read() as connection:
                basis = match_segments.matched_upto(connection), receipts.needed_after(connection)
            first_joined = self._workspace.matches.first_joined(basis[1])  # reads files, so without the lock
            floor = basis[1] if first_joined is None else min(basis[1], first_joined - 1)
            with self._write() as connection:
                if basis == (match_segments.matched_upto(connection), receipts.needed_after(connection)):
                    needed_after = table_files.needed_after(connection, floor)
                    return self._delete_items(connection, days, needed_after)
        return 0

    def _delete_items(self, connection: Connection, days: int, needed_after: int) -> int:
        """Delete the items and matches that are older than some days and have at most this sequence."""
        deleted = item_segments.retain_items(connection, _ago(connection, days), needed_after)
        if deleted:
            upto = item_segments.retained_upto(connection)
            deleted += table_files.retire_histories(connection, upto)
            deleted += match_segments.retain_matches(connection, upto)
            deleted += undecided.forget_supplements(connection, upto)
            receipts.lift_cursors(connection, upto)
            ledger.bury_unkept(connection, upto)
        return deleted

    def _limit_quarantine(self) -> int:
        """Limit the quarantine in bytes and in age."""
        settings, storage = self._workspace.settings, self._workspace.storage
        while self._has_time():
            with self._workspace.catalog.read() as connection:
                paths = quarantine.unmeasured_quarantined(connection, _ROWS)
            if not paths:
                break
            sizes = {path: _size(storage.local(path)) for path in paths}
            with self._write() as connection:
                quarantine.measure_quarantined(connection, sizes)

        def drop(connection: Connection) -> int:
            surplus = quarantine.quarantined_bytes(connection) - settings.keep_quarantine_bytes
            paths = quarantine.drop_oldest_quarantined(connection, surplus, _ROWS) if surplus > 0 else []
            paths_to_delete.extend(paths)
            return len(paths)

        def forget(connection: Connection) -> int:
            before = _ago(connection, settings.keep_items_days)
            count = quarantine.quarantined_count(connection)
            paths_to_delete.extend(quarantine.forget_quarantined(connection, before, _ROWS))
            return count - quarantine.quarantined_count(connection)

        paths_to_delete: list[str] = []
        done = self._repeat(drop) + (self._repeat(forget) if settings.keep_items_days else 0)
        for path in paths_to_delete:  # after the rows: after a crash in between, the files are orphans
            storage.delete(path)
        return done

    def _forget_seen(self) -> int:
        """Delete ids from the seen-set that their sources have not shown for as long as items are kept."""
        days = self._workspace.settings.keep_items_days
        if not days:
            return 0

        def steps() -> Iterator[int]:
            done = 1
            while done:
                # Find them in a read transaction: scanning all old ids must not block writers.
                with self._workspace.catalog.read() as connection:
                    day = _ago(connection, days) // _DAY
                    expired = item_segments.expired_seen(connection, day, _FOUND_IDS)
                done = 0
                for first in range(0, len(expired), _ROWS):
                    with self._write() as connection:
                        deleted = item_segments.forget_seen(connection, expired[first : first + _ROWS], day)
                    done += deleted
                    yield deleted

        return self._count(steps())

    def _forget_plans(self) -> int:
        """Delete plan versions that no batch can need, and lineages without references."""
        settings, storage = self._workspace.settings, self._workspace.storage
        with self._write() as connection:
            old = now(connection) - int(settings.orphan_seconds * 1e6)
            folders_before = plan_versions.plan_folders(connection)
            deleted = plan_versions.forget_plans(connection, before=match_segments.last_plan(connection), created=old)
            folders_after = plan_versions.plan_folders(connection)
            if settings.keep_items_days:
                match_segments.forget_lineages(connection, _ago(connection, settings.keep_items_days))
        for folder in sorted(
            folders_before - folders_after
        ):  # after the rows: after a crash in between, the folders are orphans
            for file in list(storage.files(folder)):
                storage.delete(file.path)
        return deleted

    def _delete_stylesheets(self) -> int:
        """Delete stored copies of stylesheets that are no longer applied. Users' own files stay.

        A young copy may be about to be used. An old copy is deleted under the catalog's write lock, and every
        declaration checks there that its copy still exists.
        """
        storage = self._workspace.storage
        limit = time.time() - self._workspace.settings.orphan_seconds
        old = {
            file.path
            for file in storage.files(stylesheets.FOLDER)
            if file.modified < limit and stylesheets.is_kept(file.path)
        }
        with self._workspace.catalog.read() as connection:
            unused = old - stylesheets.stylesheets_in_use(connection)
        if not unused:
            return 0
        with self._write() as connection:
            deletable = unused - stylesheets.stylesheets_in_use(connection)
            for path in deletable:
                storage.delete(path)
        return len(deletable)

    def _forget_files(self) -> None:
        """Delete the records of source files that no longer exist, unless all files of a feed are missing: its folder
        may only be unmounted.
        """
        with self._workspace.catalog.read() as connection:
            files = source_files.known_files(connection)
        by_feed: dict[int, list[str]] = {}
        for file in files:
            if file.state.digest and Path(file.state.path).is_absolute():
                by_feed.setdefault(file.feed, []).append(file.state.path)
        missing = {feed: [path for path in paths if not Path(path).exists()] for feed, paths in by_feed.items()}
        with self._write() as connection:
            for feed, paths in missing.items():
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
