"""The checks of `runnel doctor`: what this machine or a workspace lacks, and what to do about it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from runnel.catalog.declared import operators
from runnel.catalog.learned import operator_cache
from runnel.catalog.logs import item_segments, match_segments, plan_versions, undecided
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.workspace import Workspace, open_workspace
from runnel.errors import CorruptDataError, OperatorRefusedError, RunnelError
from runnel.logs.garbage import unknown_history
from runnel.matching.operators.plugins.registry import check_source
from runnel.model.operator import OperatorDeclaration
from runnel.plan.store import PlanVersion, load, verify
from runnel.scaleout.partitioning import ANEW, verify_partitioning
from runnel.settings import FILE

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


def examine(folder: Path) -> Iterator[Finding]:
    """All checks, in the order in which they matter."""
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
    yield _history(root)
    yield _checked("files", lambda: _files(root))
    yield _checked("plan", lambda: _plan(root))
    yield from _operators(root)
    root.close()


def _checked(check: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(check, True, look())
    except RunnelError as error:
        return Finding(check, False, error.message, error.hint)


def _java() -> str:
    from runnel.streaming.java import java_version

    return f"version {java_version()}"


def _history(root: Workspace) -> Finding:
    """The catalog must know everything that happened to the files; otherwise orphans are not removed."""
    try:
        reason = unknown_history(root.catalog, root.storage)
    except RunnelError as error:
        return Finding("history", False, error.message, error.hint)
    if reason is None:
        return Finding("history", True, "the catalog and the files belong together")
    hint = "restore the workspace from a backup; or accept the catalog as it is: `runnel adopt`"
    return Finding("history", False, reason, hint)


def _files(root: Workspace) -> str:
    """Every file that a manifest names must be there."""
    with root.catalog.read() as connection:
        segments = item_segments.segments_between(connection, 0, _FOR_EVER)
        parts = match_segments.match_parts(connection, 0, _FOR_EVER)
    paths = [segment.path for segment in segments]
    paths += [path for part in parts for path in (part.path, part.by_query) if path is not None]
    missing = [path for path in paths if not root.storage.local(path).exists()]
    if missing:
        raise CorruptDataError(
            f"{len(missing)} files are missing, {missing[0]} first", hint="restore them from a backup"
        )
    return f"{len(paths)} log files, all there"


def _plan(root: Workspace) -> str:
    with root.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    if current is None:
        return "none yet"
    load(root.storage, PlanVersion.of(current))
    for folder in filter(None, (current.base, current.delta)):
        verify(root.storage, folder)
    divided = "" if current.partitioning is None else _divided(root, current)
    return f"version {current.version} with {current.queries} queries loads{divided}"


def _divided(root: Workspace, current: plan_versions.PlanRow) -> str:
    """How the plan is divided; its pieces must be those that the catalog names."""
    made = verify_partitioning(root.storage, current.partitioning or "")
    if made.base != current.base or set(made.pieces) != set(current.pieces):
        raise CorruptDataError(
            f"{made.folder} does not name the pieces that the catalog names",
            hint=ANEW,
        )
    try:
        for folder in made.pieces:
            verify(root.storage, folder)
    except CorruptDataError as error:
        raise CorruptDataError(error.message, hint=ANEW) from error
    return f", in {len(made.partitions)} partitions"


def _operators(root: Workspace) -> Iterator[Finding]:
    """What concerns operators, where there are any: their sources, items that wait, and files with known answers."""
    with root.catalog.read() as connection:
        declared, used = operators.live_operators(connection), operators.use_counts(connection)
        named = [one.path for one in operator_cache.live_segments(connection)]
    if declared:
        yield _sources(declared, used, root.settings.operator_modules)
    if declared or named:
        yield _answers(root, named)
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


def _answers(root: Workspace, named: Sequence[str]) -> Finding:
    missing = [path for path in named if not root.storage.local(path).exists()]
    if missing:
        detail = f"{len(missing)} of {len(named)} files with known answers are missing, {missing[0]} first"
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
