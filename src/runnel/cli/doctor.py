"""The checks of `runnel doctor`: find problems of the machine and the workspace, with a hint for each."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from runnel.catalog.declared import operators, stylesheets
from runnel.catalog.learned import operator_cache
from runnel.catalog.logs import (
    item_segments,
    match_segments,
    plan_versions,
    quarantine,
    table_files,
    undecided,
    windows,
)
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

_MIN_FREE_BYTES = 1 << 30
_MAX_SEQUENCE = 1 << 62


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    A finding that is well but has a hint is a warning. It does not make the command fail.
    """

    check: str
    is_well: bool
    detail: str
    hint: str | None = None

    @property
    def mark(self) -> str:
        """The colored symbol that precedes the finding on a terminal."""
        if not self.is_well:
            return "[red]✗[/red]"
        return "[yellow]![/yellow]" if self.hint else "[green]✓[/green]"


def examine(folder: Path, *, deep: bool = False, repair: bool = False) -> Iterator[Finding]:
    """Run all checks, the most basic first. `deep` reads every file, `repair` repairs permissions and windows."""
    yield Finding("Python", sys.version_info >= (3, 11), sys.version.split()[0])
    yield _checked("Java", _java)
    yield _checked("Spark", lambda: f"pyspark {version('pyspark')}")
    if not (folder / FILE).exists():
        yield Finding(
            "workspace", True, f"{folder.absolute()} is not a workspace", "`runnel init FOLDER` creates a workspace"
        )
        return
    free = shutil.disk_usage(folder).free
    has_space = free > _MIN_FREE_BYTES
    yield Finding("disk", has_space, f"{free / 1e9:.1f} GB free", None if has_space else "free disk space")
    try:
        workspace = open_workspace(folder)
    except RunnelError as error:
        yield Finding("catalog", False, error.message, error.hint)
        return
    yield Finding("catalog", True, f"version {workspace.catalog.version()}, {workspace.catalog.shown}")
    yield _permissions(workspace, repair)
    yield _history(workspace)
    if deep:
        yield _checked("database", lambda: _database(workspace))
    yield _checked("files", lambda: _files(workspace, deep))
    yield _checked("plan", lambda: _plan(workspace))
    yield from _windows(workspace, deep, repair)
    yield from _operators(workspace, deep)
    workspace.close()


def _checked(check: str, describe: Callable[[], str]) -> Finding:
    try:
        return Finding(check, True, describe())
    except RunnelError as error:
        return Finding(check, False, error.message, error.hint)


def _java() -> str:
    from runnel.streaming.java import java_version

    return f"version {java_version()}"


def _permissions(workspace: Workspace, repair: bool) -> Finding:
    """Check that only the user of the workspace can read its files, except for `out` if `shared_output` is set."""
    wrong, failed, repaired = [], [], 0
    for mode in wrong_modes(workspace):
        wrong.append(mode)
        if repair:
            try:
                mode.repair()
                repaired += 1
            except OSError:
                failed.append(mode)
    if not wrong:
        return Finding("privacy", True, "other users cannot read the workspace" + _output_exception(workspace))
    if repair and not failed:
        return Finding("privacy", True, f"repaired the permissions of {repaired:,} files and folders")
    if repair:
        detail = (
            f"the permissions of {len(failed):,} files and folders cannot be changed, for example {failed[0].path}"
        )
        return Finding("privacy", False, detail, "run the command as the user who owns them")
    readable = [mode for mode in wrong if mode.is_open]
    if readable:
        detail = f"other users can read {len(readable):,} files and folders, for example {readable[0].path}"
        hint = "`runnel doctor --repair` makes them private" + (
            "" if workspace.settings.shared_output else "; if a web server reads `out`, set shared_output first"
        )
        return Finding("privacy", True, detail, hint)
    detail = f"shared_output is set, but other users cannot read {wrong[0].path}"
    return Finding("privacy", True, detail, "`runnel doctor --repair` applies the setting")


def _output_exception(workspace: Workspace) -> str:
    return ", except for `out`" if workspace.settings.shared_output else ""


def _history(workspace: Workspace) -> Finding:
    """Check that the catalog belongs to the files and is not older than they are. Otherwise orphans are kept."""
    try:
        reason = unknown_history(workspace.catalog, workspace.storage)
    except RunnelError as error:
        return Finding("history", False, error.message, error.hint)
    if reason is None:
        return Finding("history", True, "the catalog and the files belong together")
    hint = "restore the workspace from a backup, or accept the catalog as it is with `runnel adopt`"
    return Finding("history", False, reason, hint)


def _database(workspace: Workspace) -> str:
    """Run SQLite's integrity check on the catalog; PostgreSQL checks its own files."""
    with workspace.catalog.read() as connection:
        if connection.dialect.name != "sqlite":
            return "checked by its server"
        result = str(connection.exec_driver_sql("pragma integrity_check(1)").scalar())
    if result != "ok":
        raise CorruptDataError(f"the catalog is damaged: {result}", hint="restore the workspace from a backup")
    return "intact"


def _files(workspace: Workspace, deep: bool) -> str:
    """Check that every file in the catalog exists and has the right size; with `deep`, verify its checksum."""
    with workspace.catalog.read() as connection:
        segments = item_segments.segments_between(connection, 0, _MAX_SEQUENCE)
        parts = match_segments.match_parts(connection, 0, _MAX_SEQUENCE)
        sizes = {segment.path: segment.bytes for segment in segments if segment.tier != Tier.LOST}
        sizes |= {part.path: part.bytes for part in parts}
        sizes |= {file.path: file.bytes for file in table_files.live_files(connection)}
        paths = [*sizes, *(part.by_query for part in parts if part.by_query is not None)]
        paths += sorted(quarantine.quarantined_paths(connection) - quarantine.damaged_paths(connection))
        paths += sorted(stylesheets.stylesheets_in_use(connection))
    problems = [
        problem for path in paths if (problem := _problem(workspace, path, sizes.get(path), deep)) is not None
    ]
    if problems:
        raise CorruptDataError(
            f"{len(problems)} of {len(paths)} files are damaged or missing, for example: {problems[0]}", hint=HINT
        )
    if not deep:
        return f"{len(paths)} files exist and have the right size"
    return f"{len(paths)} files are intact"


def _problem(workspace: Workspace, path: str, size: int | None, deep: bool) -> str | None:
    """Describe the problem of a file, or return None if the file is intact."""
    try:
        check_size(workspace.storage, path)
        if size is not None and workspace.storage.local(path).stat().st_size != size:
            return f"{path} is damaged: it should have {size:,} bytes"
        if deep:
            _read(workspace, path)
    except CorruptDataError as error:
        return error.message
    return None


def _read(workspace: Workspace, path: str) -> None:
    check_file(workspace.storage, path)
    if stylesheets.is_kept(path) and stylesheets.kept_path(workspace.storage.read(path)) != path:
        raise CorruptDataError(f"{path} is damaged: its digest differs")


def _plan(workspace: Workspace) -> str:
    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    if current is None:
        return "none yet"
    try:
        load(workspace.storage, PlanVersion.of(current))
    except CorruptDataError as error:
        raise CorruptDataError(error.message, hint="no action needed: the runner compiles the plan again") from error
    for folder in filter(None, (current.base, current.delta)):
        verify(workspace.storage, folder)
    port = plan_port(current.distribution)
    port.verify(workspace.storage, current)
    return f"version {current.version} with {current.queries} queries{port.describe(current)} can be loaded"


def _windows(workspace: Workspace, deep: bool, repair: bool) -> Iterator[Finding]:
    """Check the files with the items of windows, which can be filled again from the item log."""
    with workspace.catalog.read() as connection:
        segments = windows.live_segments(connection)
    if not segments:
        return
    problems = [_problem(workspace, each.path, each.bytes, deep) for each in segments]
    damaged = [problem for problem in problems if problem is not None]
    if not damaged:
        yield Finding("windows", True, f"{len(segments)} files with the items of windows exist")
    elif repair:
        with workspace.catalog.write() as connection:
            windows.empty_windows(connection)
        detail = f"dropped {len(segments)} files, of which {len(damaged)} were damaged or missing"
        yield Finding("windows", True, f"{detail}; joins fill their windows again")
    else:
        detail = f"{len(damaged)} of {len(segments)} files are damaged or missing, for example: {damaged[0]}"
        yield Finding("windows", True, detail, "no action needed: the runner fills the windows of joins again")


def _operators(workspace: Workspace, deep: bool) -> Iterator[Finding]:
    """Check the sources of operators, the files of their cache, and the items that wait for a retry."""
    with workspace.catalog.read() as connection:
        declared, used = operators.live_operators(connection), operators.use_counts(connection)
        cache_files = [segment.path for segment in operator_cache.live_segments(connection)]
    if declared:
        yield _operator_sources(declared, used, workspace.settings.operator_modules)
    if declared or cache_files:
        yield _operator_cache(workspace, cache_files, deep)
    retries = _retries(workspace)
    if declared or not retries.is_well or retries.hint:
        yield retries


def _operator_sources(
    declared: Mapping[str, OperatorDeclaration], used: Mapping[str, int], modules: Collection[str]
) -> Finding:
    """Check, without importing anything, that the operators that queries use are installed on this machine."""
    missing: dict[str, str] = {}
    for name in sorted(declared.keys() & used.keys()):
        try:
            check_source(declared[name].source, modules)
        except OperatorRefusedError as error:
            missing[name] = error.message
    if not missing:
        return Finding("operators", True, f"{len(declared)} registered; those in use are installed")
    name, reason = next(iter(missing.items()))
    queries = sum(used[operator] for operator in missing)
    detail = (
        f"{len(missing)} in use cannot be loaded, for example {name} ({declared[name].source}): {reason}; "
        f"{queries} {'query stays' if queries == 1 else 'queries stay'} undecided"
    )
    hint = "install the package, add the module to the setting operator_modules, or register the operator again"
    return Finding("operators", True, detail, hint)


def _operator_cache(workspace: Workspace, paths: Sequence[str], deep: bool) -> Finding:
    missing = [path for path in paths if _problem(workspace, path, None, deep) is not None]
    if missing:
        detail = (
            f"{len(missing)} of {len(paths)} files of the operator cache are missing or damaged, for example "
            f"{missing[0]}"
        )
        return Finding("answers", True, detail, "no action needed: operators are called again")
    return Finding("answers", True, f"{len(paths)} files of the operator cache exist")


def _retries(workspace: Workspace) -> Finding:
    """Check that the items that wait for a retry of their operators are in the item log."""
    with workspace.catalog.read() as connection:
        last, kept_after = last_sequence(connection), item_segments.retained_upto(connection)
        waiting = undecided.undecided_count(connection)
        beyond = len(undecided.supplements_between(connection, last, _MAX_SEQUENCE))
        unknown = undecided.stray_undecided(connection, 0, last)
        deleted = undecided.stray_undecided(connection, kept_after, last) - unknown
    if beyond or unknown:
        detail = (
            f"{beyond + unknown} items that wait for a retry have sequences after {last}, the last of the item log"
        )
        return Finding("retries", False, detail, "the catalog is damaged: restore the workspace from a backup")
    if deleted:
        detail = f"{deleted} of {waiting} items that wait for a retry were deleted from the item log"
        hint = "no action needed: they stay undecided; the setting keep_items_days determines how long items are kept"
        return Finding("retries", True, detail, hint)
    return Finding("retries", True, f"{waiting} items wait for a retry")
