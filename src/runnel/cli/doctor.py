"""`runnel doctor`: what is missing on this machine or wrong with a root, and what to do about it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from runnel.catalog import items, matches, plans
from runnel.cli.output import console, print_json
from runnel.engine.root import Root, open_root
from runnel.errors import CorruptData, RunnelError
from runnel.plan.store import PlanVersion, load, verify
from runnel.settings import FILE

_LITTLE_ROOM = 1 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was looked at, whether it is well, and what to do if not."""

    check: str
    is_well: bool
    detail: str
    hint: str | None = None


def doctor(
    root: Annotated[
        Path, typer.Option("--root", "-r", envvar="RUNNEL_ROOT", help="The root: the folder of one installation.")
    ] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line each, instead of text.")] = False,
) -> None:
    """Check this machine and, if there is one, the root: Python, Java, Spark, room, catalog, files.

    Example: `runnel doctor`
    """
    findings = list(examine(root))
    for finding in findings:
        if as_json:
            print_json(
                {
                    "check": finding.check,
                    "well": finding.is_well,
                    "detail": finding.detail,
                    "hint": finding.hint,
                }
            )
            continue
        mark = "[green]✓[/green]" if finding.is_well else "[red]✗[/red]"
        console.print(f"{mark} {finding.check:<9} {escape(finding.detail)}", soft_wrap=True)
        if finding.hint:
            console.print(f"  hint: {escape(finding.hint)}", soft_wrap=True)
    if not all(finding.is_well for finding in findings):
        raise typer.Exit(5)


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
        root = open_root(folder)
    except RunnelError as error:
        yield Finding("catalog", False, error.message, error.hint)
        return
    yield Finding("catalog", True, f"version {root.catalog.version()}, {root.catalog.shown}")
    yield _checked("files", lambda: _files(root))
    yield _checked("plan", lambda: _plan(root))
    root.close()


def _checked(check: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(check, True, look())
    except RunnelError as error:
        return Finding(check, False, error.message, error.hint)


def _java() -> str:
    from runnel.streaming.java import java_version

    return f"version {java_version()}"


def _files(root: Root) -> str:
    """Every file that a manifest names must be there."""
    with root.catalog.read() as connection:
        segments = items.segments_between(connection, 0, 1 << 62)
        parts = matches.match_parts(connection, 0, 1 << 62)
    paths = [segment.path for segment in segments]
    paths += [path for part in parts for path in (part.path, part.by_query) if path is not None]
    missing = [path for path in paths if not root.storage.local(path).exists()]
    if missing:
        raise CorruptData(f"{len(missing)} files are missing, {missing[0]} first", hint="restore them from a backup")
    return f"{len(paths)} log files, all there"


def _plan(root: Root) -> str:
    with root.catalog.read() as connection:
        current = plans.current_plan(connection)
    if current is None:
        return "none yet"
    load(root.storage, PlanVersion.of(current))
    for folder in filter(None, (current.base, current.delta)):
        verify(root.storage, folder)
    return f"version {current.version} with {current.queries} queries loads"
