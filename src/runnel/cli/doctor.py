"""The checks of `runnel doctor`: what this machine or a workspace lacks, and what to do about it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from runnel.catalog.declared import operators, stylesheets
from runnel.catalog.learned import operator_cache
from runnel.catalog.logs import item_segments, match_segments, plan_versions, quarantine, undecided
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.permissions import wrong_modes
from runnel.engine.planning.ports import plan_port
from runnel.engine.workspace import Workspace, open_workspace
from runnel.errors import CorruptDataError, OperatorRefusedError, RunnelError
from runnel.logs.garbage import unknown_history
from runnel.matching.operators.plugins.registry import check_source
from runnel.model.operator import OperatorDeclaration
from runnel.model.segment import Tier
from runnel.plan.store import PlanVersion, load, verify
from runnel.settings import FILE
from runnel.storage.checksums import HINT, check_file, check_size

_LITTLE_ROOM = 1 << 30
_FOR_EVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was looked at, whether it is well, and what to do if not.

    What is well and has a hint all the same should be looked at; it does not make the command fail.
    """

    check: str
    is_well: bool
    detail: str
    hint: str | None = None

    @property
    def mark(self) -> str:
        """What stands before it on a terminal."""
        if not self.is_well:
            return "[red]✗[/red]"
        return "[yellow]![/yellow]" if self.hint else "[green]✓[/green]"


def examine(folder: Path, *, deep: bool = False, repair: bool = False) -> Iterator[Finding]:
    """All checks, in the order in which they matter. With `deep` every file is read, with `repair` permissions are
    repaired.
    """
    yield Finding("Python", sys.version_info >= (3, 11), sys.version.split()[0])
    yield _checked("Java", _java)
    yield _checked("Spark", lambda: f"pyspark {version('pyspark')}")
    if not (folder / FILE).exists():
        yield Finding("root", True, f"{folder.absolute()} is not a root", "`runnel init FOLDER` makes one")
        return
    free = shutil.disk_usage(folder).free
    yield Finding(
        "room", free > _LITTLE_ROOM, f"{free / 1e9:.1f} GB free", None if free > _LITTLE_ROOM else "free some"
    )
    try:
        root = open_workspace(folder)
    except RunnelError as error:
        yield Finding("catalog", False, error.message, error.hint)
        return
    yield Finding("catalog", True, f"version {root.catalog.version()}, {root.catalog.shown}")
    yield _permissions(root, repair)
    yield _history(root)
    if deep:
        yield _checked("database", lambda: _database(root))
    yield _checked("files", lambda: _files(root, deep))
    yield _checked("plan", lambda: _plan(root))
    yield from _operators(root, deep)
    root.close()


def _checked(check: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(check, True, look())
    except RunnelError as error:
        return Finding(check, False, error.message, error.hint)


def _java() -> str:
    from runnel.streaming.java import java_version

    return f"version {java_version()}"


def _permissions(root: Workspace, repair: bool) -> Finding:
    """Only the user of a workspace may read its files, and others only what `shared_output` shares."""
    wrong, refused, repaired = [], [], 0
    for found in wrong_modes(root):
        wrong.append(found)
        if repair:
            try:
                found.repair()
                repaired += 1
            except OSError:
                refused.append(found)
    if not wrong:
        return Finding("privacy", True, "other users cannot read the workspace" + _but_output(root))
    if repair and not refused:
        return Finding("privacy", True, f"repaired the permissions of {repaired:,} files and folders")
    if repair:
        detail = f"the permissions of {len(refused):,} files and folders cannot be changed, {refused[0].path} first"
        return Finding("privacy", False, detail, "run the command as the user who owns them")
    opened = [found for found in wrong if found.is_open]
    if opened:
        detail = f"{len(opened):,} files and folders are open to other users, {opened[0].path} first"
        hint = "`runnel doctor --repair` closes them" + (
            "" if root.settings.shared_output else "; if a web server reads `out`, set shared_output first"
        )
        return Finding("privacy", True, detail, hint)
    detail = f"shared_output is set, but other users cannot read {wrong[0].path}"
    return Finding("privacy", True, detail, "`runnel doctor --repair` applies the setting")


def _but_output(root: Workspace) -> str:
    return ", except for `out`" if root.settings.shared_output else ""


def _history(root: Workspace) -> Finding:
    """The catalog must know everything that happened to the files; otherwise orphans are not removed."""
    try:
        reason = unknown_history(root.catalog, root.storage)
    except RunnelError as error:
        return Finding("history", False, error.message, error.hint)
    if reason is None:
        return Finding("history", True, "the catalog and the files belong together")
    hint = "restore the workspace from a backup, or accept the catalog as it is with `runnel adopt`"
    return Finding("history", False, reason, hint)


def _database(root: Workspace) -> str:
    """Run SQLite's integrity check on the catalog; PostgreSQL checks its own files."""
    with root.catalog.read() as connection:
        if connection.dialect.name != "sqlite":
            return "checked by its server"
        found = str(connection.exec_driver_sql("pragma integrity_check(1)").scalar())
    if found != "ok":
        raise CorruptDataError(f"the catalog is damaged: {found}", hint="restore the workspace from a backup")
    return "sound"


def _files(root: Workspace, deep: bool) -> str:
    """Every file that the catalog names must be there, with its size; with `deep` checksums are compared."""
    with root.catalog.read() as connection:
        segments = item_segments.segments_between(connection, 0, _FOR_EVER)
        parts = match_segments.match_parts(connection, 0, _FOR_EVER)
        sizes = {segment.path: segment.bytes for segment in segments if segment.tier != Tier.LOST}
        sizes |= {part.path: part.bytes for part in parts}
        paths = [*sizes, *(part.by_query for part in parts if part.by_query is not None)]
        paths += sorted(quarantine.quarantined_paths(connection) - quarantine.damaged_paths(connection))
        paths += sorted(stylesheets.stylesheets_in_use(connection))
    problems = [problem for path in paths if (problem := _problem(root, path, sizes.get(path), deep)) is not None]
    if problems:
        raise CorruptDataError(
            f"{len(problems)} of {len(paths)} files are damaged or missing: {problems[0]}", hint=HINT
        )
    if not deep:
        return f"{len(paths)} files, all there and of the right size"
    return f"{len(paths)} files, all read and sound"


def _problem(root: Workspace, path: str, size: int | None, deep: bool) -> str | None:
    """Describe the problem of a file; None if there is none."""
    try:
        check_size(root.storage, path)
        if size is not None and root.storage.local(path).stat().st_size != size:
            return f"{path} is damaged: it should have {size:,} bytes"
        if deep:
            _read(root, path)
    except CorruptDataError as error:
        return error.message
    return None


def _read(root: Workspace, path: str) -> None:
    check_file(root.storage, path)
    if stylesheets.is_kept(path) and stylesheets.kept_path(root.storage.read(path)) != path:
        raise CorruptDataError(f"{path} is damaged: its digest differs")


def _plan(root: Workspace) -> str:
    with root.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    if current is None:
        return "none yet"
    try:
        load(root.storage, PlanVersion.of(current))
    except CorruptDataError as error:
        raise CorruptDataError(error.message, hint="nothing to do: the runner compiles the plan again") from error
    for folder in filter(None, (current.base, current.delta)):
        verify(root.storage, folder)
    port = plan_port(current.distribution)
    port.verify(root.storage, current)
    return f"version {current.version} with {current.queries} queries{port.describe(current)} loads"


def _operators(root: Workspace, deep: bool) -> Iterator[Finding]:
    """What concerns operators, where there are any: their sources, items that wait, and files with known answers."""
    with root.catalog.read() as connection:
        declared, used = operators.live_operators(connection), operators.use_counts(connection)
        named = [one.path for one in operator_cache.live_segments(connection)]
    if declared:
        yield _sources(declared, used, root.settings.operator_modules)
    if declared or named:
        yield _answers(root, named, deep)
    tried = _tried_again(root)
    if declared or not tried.is_well or tried.hint:
        yield tried


def _sources(
    declared: Mapping[str, OperatorDeclaration], used: Mapping[str, int], modules: Collection[str]
) -> Finding:
    """Operators that queries use must be found on this machine; nothing is imported to know that."""
    lost: dict[str, str] = {}
    for name in sorted(declared.keys() & used.keys()):
        try:
            check_source(declared[name].source, modules)
        except OperatorRefusedError as refused:
            lost[name] = refused.message
    if not lost:
        return Finding("operators", True, f"{len(declared)} registered, those in use are there")
    name, reason = next(iter(lost.items()))
    queries = sum(used[one] for one in lost)
    detail = (
        f"{len(lost)} in use cannot be found, {name} ({declared[name].source}) first: {reason}; "
        f"{queries} {'query stays' if queries == 1 else 'queries stay'} undecided"
    )
    hint = "install its package again or name its module in operator_modules; or register the operator anew"
    return Finding("operators", True, detail, hint)


def _answers(root: Workspace, named: Sequence[str], deep: bool) -> Finding:
    missing = [path for path in named if _problem(root, path, None, deep) is not None]
    if missing:
        detail = f"{len(missing)} of {len(named)} files with known answers are missing or damaged, {missing[0]} first"
        return Finding("answers", True, detail, "nothing to do: operators are asked again")
    return Finding("answers", True, f"{len(named)} files with known answers, all there")


def _tried_again(root: Workspace) -> Finding:
    """Items that wait for another try, and those that are in the log for one, must be items of the log."""
    with root.catalog.read() as connection:
        last, kept_after = last_sequence(connection), item_segments.retained_upto(connection)
        waiting = undecided.undecided_count(connection)
        beyond = len(undecided.supplements_between(connection, last, _FOR_EVER))
        unheard = undecided.stray_undecided(connection, 0, last)
        gone = undecided.stray_undecided(connection, kept_after, last) - unheard
    if beyond or unheard:
        detail = f"{beyond + unheard} items to be tried again have sequences beyond item {last}, the last of the log"
        return Finding("retries", False, detail, "the catalog is damaged: restore the root from a backup")
    if gone:
        detail = f"{gone} of {waiting} items that wait for another try are no longer kept"
        hint = "they stay undecided and are forgotten when their time comes; keep_items_days says how long items stay"
        return Finding("retries", True, detail, hint)
    return Finding("retries", True, f"{waiting} items wait for another try")
