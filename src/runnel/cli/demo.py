"""`runnel demo`: the main job on embedded defaults, from a generated world of news to feeds and a report."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli.options import TokenOption, refuse_token
from runnel.cli.output import console, reporting_errors
from runnel.cli.run import progress_line
from runnel.errors import WorkspaceError
from runnel.private_files import FILE_MODE

if TYPE_CHECKING:
    from runnel.engine import Engine
    from runnel.engine.ask.status import Status
    from runnel.testing.world import World

_MARK = ".runnel-demo"


def demo(
    folder: Annotated[Path, typer.Argument(help="Where the demo's root shall be; made anew each time.")] = Path(
        "demo-root"
    ),
    items: Annotated[int, typer.Option(help="How many items are published.", min=1)] = 4000,
    queries: Annotated[int, typer.Option(help="How many standing queries are declared.", min=1)] = 3000,
    seed: Annotated[int, typer.Option(help="The seed of the world; the same seed makes the same news.")] = 7,
    token: TokenOption = None,
) -> None:
    """Show it all on generated news: declare, publish, match on Spark, write feeds and a report.

    Example: `runnel demo --items 4000 --queries 3000`
    """
    from runnel.engine import connect
    from runnel.streaming.java import java_version
    from runnel.testing.world import World

    with reporting_errors(False):
        refuse_token(token, "make a workspace")
        java_version()  # before anything else: without Java there is nothing to show
        _clear(folder)
        with _step(f"making a world of {items:,} items and {queries:,} standing queries"):
            world = World.generate(seed=seed, items=items, queries=queries)
        with connect(folder, first_fetch_items=1_000_000) as engine:
            (folder / _MARK).touch(FILE_MODE)
            with _step(f"declaring {len(world.feeds)} feeds, {len(world.queries):,} queries and their subscriptions"):
                engine.execute(world.script())
            _publish(engine, world)
            with _step("writing the report"):
                place = _report(engine, folder)
            _end(engine.status(), folder, place)


def _publish(engine: Engine, world: World) -> None:
    """Edition by edition, as news come: drop the files, match them on Spark, write the feeds."""
    for edition in range(1, world.editions + 1):
        files = world.write_edition(edition, engine.root.folder)
        label = f"edition {edition} of {world.editions}: {len(files)} documents"
        label += " (Spark starts now)" if edition == 1 else ""
        with _step(label) as status:
            final = engine.run(once=True, report=lambda progress: status.update(progress_line(progress)))
        console.print(f"  {final.accepted:,} items matched, {final.delivered:,} messages delivered")


def _clear(folder: Path) -> None:
    from runnel.settings import FILE

    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / _MARK).exists():
        is_root = (folder / FILE).exists()
        raise WorkspaceError(
            f"{folder} is not empty{' and is a root' if is_root else ''}", hint="name another folder for the demo"
        )
    shutil.rmtree(folder)


class _Status:
    """A line under a step that shows how far it is."""

    def __init__(self, label: str, status: object) -> None:
        self._label, self._status = label, status

    def update(self, text: str) -> None:
        """Show progress beside the step's label."""
        self._status.update(f"{self._label} … {text}")  # type: ignore[attr-defined]


@contextmanager
def _step(label: str) -> Iterator[_Status]:
    started = time.monotonic()
    with console.status(f"{label} …") as status:
        yield _Status(label, status)
    console.print(f"[green]✓[/green] {label} [dim]({time.monotonic() - started:.1f} s)[/dim]")


def _report(engine: Engine, folder: Path) -> Path:
    from runnel.cli.report import write_page
    from runnel.web.collect_report import collect_report
    from runnel.web.report import render_report

    page = collect_report(engine, "A day of invented news", next_steps=_next_steps(folder))
    place = folder / "report.html"
    write_page(place, render_report(page))
    return place


def _next_steps(folder: Path) -> list[tuple[str, str]]:
    # Before its environment is activated the command is found only by its path.
    program = "runnel" if shutil.which("runnel") else os.path.relpath(sys.argv[0])
    return [
        (f"{program} status -r {folder}", "how the root is"),
        (f"{program} show subscriptions -r {folder}", "who gets what, and how many messages were sent"),
        (f"ls {folder}/out", "the feeds that were written"),
        (f"{program} --help", "all commands; docs/start/tutorial.md is the tutorial"),
    ]


def _end(status: Status, folder: Path, report: Path) -> None:
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    for label, value in (
        ("items matched", f"{status.matched:,}"),
        ("standing queries", f"{status.plan_queries:,} of {status.virtual_feeds:,}; nobody subscribes to the rest"),
        ("matches", f"{status.matches:,}"),
        ("messages", ", ".join(f"{count:,} {state}" for state, count in sorted(status.messages.items()))),
        ("put aside", f"{status.put_aside:,}" + (" (runnel show quarantine)" if status.put_aside else "")),
        ("report", str(report)),
    ):
        table.add_row(label, value)
    console.print()
    console.print(table)
    console.print("\nnext:")
    for command, purpose in _next_steps(folder):
        console.print(f"  [bold]{command}[/bold]\n      {purpose}", soft_wrap=True)
