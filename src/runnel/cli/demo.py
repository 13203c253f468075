"""`runnel demo`: match generated news against generated queries with the default settings, and write a report."""

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

_MARKER = ".runnel-demo"


def demo(
    folder: Annotated[
        Path, typer.Argument(help="Folder of the demo's workspace. An earlier demo in it is deleted.")
    ] = Path("demo-workspace"),
    items: Annotated[int, typer.Option(help="Number of items to publish.", min=1)] = 4000,
    queries: Annotated[int, typer.Option(help="Number of standing queries to declare.", min=1)] = 3000,
    seed: Annotated[int, typer.Option(help="Seed of the random generator. The same seed gives the same news.")] = 7,
    token: TokenOption = None,
) -> None:
    """Run Runnel on generated news: declare queries, publish items, match on Spark, write feeds and a report.

    Example: `runnel demo --items 4000 --queries 3000`
    """
    from runnel.engine import connect
    from runnel.streaming.java import java_version
    from runnel.testing.readers import related_news
    from runnel.testing.world import World

    with reporting_errors(False):
        refuse_token(token, "create a workspace")
        java_version()  # fail before the slow steps if Java is missing
        _clear(folder)
        with _step(f"generating {items:,} items and {queries:,} standing queries"):
            world = World.generate(seed=seed, items=items, queries=queries)
        with connect(folder, first_fetch_items=1_000_000) as engine:
            (folder / _MARKER).touch(FILE_MODE)
            with _step(f"declaring {len(world.feeds)} feeds, {len(world.queries):,} queries and their subscriptions"):
                engine.execute(world.script() + related_news(world.feeds))
            _publish(engine, world)
            with _step("writing the report"):
                path = _write_report(engine, folder)
            _print_summary(engine.status(), _count_related(engine), folder, path)


def _publish(engine: Engine, world: World) -> None:
    """Per edition of the news, write the source files, match them on Spark and deliver the matches."""
    for edition in range(1, world.editions + 1):
        files = world.write_edition(edition, engine.workspace.folder)
        label = f"edition {edition} of {world.editions}: {len(files)} documents"
        label += " (Spark starts now)" if edition == 1 else ""
        with _step(label) as status:
            final = engine.run(once=True, report=lambda progress: status.update(progress_line(progress)))
        console.print(f"  {final.accepted:,} items matched, {final.delivered:,} messages delivered")


def _clear(folder: Path) -> None:
    from runnel.settings import FILE

    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / _MARKER).exists():
        is_workspace = (folder / FILE).exists()
        raise WorkspaceError(
            f"{folder} contains {'a workspace' if is_workspace else 'files'} that the demo did not create",
            hint="give another folder",
        )
    shutil.rmtree(folder)


class _Status:
    """The line of a running step, which shows its progress."""

    def __init__(self, label: str, status: object) -> None:
        self._label, self._status = label, status

    def update(self, text: str) -> None:
        """Show progress after the step's label."""
        self._status.update(f"{self._label} … {text}")  # type: ignore[attr-defined]


@contextmanager
def _step(label: str) -> Iterator[_Status]:
    started = time.monotonic()
    with console.status(f"{label} …") as status:
        yield _Status(label, status)
    console.print(f"[green]✓[/green] {label} [dim]({time.monotonic() - started:.1f} s)[/dim]")


def _write_report(engine: Engine, folder: Path) -> Path:
    from runnel.cli.report import write_page
    from runnel.web.collect_report import collect_report
    from runnel.web.report import render_report

    page = collect_report(engine, "A day of invented news", next_steps=_next_steps(folder))
    path = folder / "report.html"
    write_page(path, render_report(page))
    return path


def _next_steps(folder: Path) -> list[tuple[str, str]]:
    # Give the path of the command if its environment is not activated.
    program = "runnel" if shutil.which("runnel") else os.path.relpath(sys.argv[0])
    return [
        (f"{program} status -w {folder}", "the state of the workspace"),
        (f"{program} show subscriptions -w {folder}", "the subscriptions and how many messages each received"),
        (f"ls {folder}/out", "the feed files that were written"),
        (f"{program} --help", "all commands; docs/start/tutorial.md is an introduction"),
    ]


def _count_related(engine: Engine) -> str:
    """Describe the matches of the demo's join."""
    from runnel.testing.readers import RELATED_NEWS

    joined = [annotation.count for match in engine.matches(RELATED_NEWS) for annotation in match.annotations]
    return f"{len(joined):,} items with {sum(joined):,} similar items of the 3 days before (out/related-news.xml)"


def _print_summary(status: Status, related: str, folder: Path, report: Path) -> None:
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    for label, value in (
        ("items matched", f"{status.matched:,}"),
        ("standing queries", f"{status.plan_queries:,} of {status.virtual_feeds:,}; the rest has no subscription"),
        ("matches", f"{status.matches:,}"),
        ("related news", related),
        ("messages", ", ".join(f"{count:,} {state}" for state, count in sorted(status.messages.items()))),
        ("quarantined", f"{status.put_aside:,}" + (" (runnel show quarantine)" if status.put_aside else "")),
        ("report", str(report)),
    ):
        table.add_row(label, value)
    console.print()
    console.print(table)
    console.print("\nnext:")
    for command, purpose in _next_steps(folder):
        console.print(f"  [bold]{command}[/bold]\n      {purpose}", soft_wrap=True)
