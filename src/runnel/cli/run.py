"""`runnel run`: the runner, in the foreground."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.cli.output import console, counted, print_json, reporting_errors

if TYPE_CHECKING:
    from runnel.engine import Engine
    from runnel.engine.run.health import Companion
    from runnel.engine.run.runner import Progress


def run(
    once: Annotated[bool, typer.Option("--once", help="Match and deliver what is there now, then end.")] = False,
    master: Annotated[str | None, typer.Option(help="Spark master URL instead of the setting's.")] = None,
    root: Annotated[
        Path, typer.Option("--root", "-r", envvar="RUNNEL_ROOT", help="The root: the folder of one installation.")
    ] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line each, instead of text.")] = False,
) -> None:
    """Acquire, match and deliver. One runner per root; Ctrl-C or SIGTERM drains and stops.

    Example: `runnel run --once`
    """
    from runnel.engine import open_engine
    from runnel.engine.run.application_log import configure_logging

    settings: dict[str, Any] = {"master": master} if master else {}
    with reporting_errors(as_json), open_engine(root, create=False, **settings) as engine, stopped_by_signals(engine):
        logging.getLogger("py4j").setLevel(logging.ERROR)
        configure_logging(engine.root.settings, engine.root.folder)
        beside = companions(engine)
        if as_json:
            final = engine.run(once=once, report=lambda progress: print_json(_row(progress)), companions=beside)
            print_json(_row(final))
            return
        with shown_progress() as report:
            final = engine.run(once=once, report=report, companions=beside)
        console.print(
            f"[green]✓[/green] {counted(final.matched, 'item')} matched, "
            f"{counted(final.delivered, 'message')} delivered, {final.lag:,} waiting"
        )


def companions(engine: Engine) -> list[Companion]:
    """What lives beside a run: the HTTP side, where the setting `listen` asks for it."""
    if not engine.root.settings.listen:
        return []
    from runnel.web.server import Server  # a second of imports that most runs do not need

    return [Server(engine.root, engine.hubs())]


def _row(progress: Progress) -> dict[str, int | str]:
    return {
        "state": progress.state,
        "accepted": progress.accepted,
        "matched": progress.matched,
        "lag": progress.lag,
        "delivered": progress.delivered,
    }


@contextmanager
def shown_progress() -> Iterator[Callable[[Progress], None]]:
    """A line that shows how far a run has come; where output is no terminal, a line for every change of state."""
    if not console.is_terminal:
        last = [""]

        def say(progress: Progress) -> None:
            if progress.state != last[0]:
                last[0] = progress.state
                console.print(progress_line(progress), markup=False)

        yield say
        return
    from rich.live import Live
    from rich.text import Text

    with Live(Text("starting Spark …"), console=console, transient=True, refresh_per_second=4) as live:
        yield lambda progress: live.update(Text(progress_line(progress)))


def progress_line(progress: Progress) -> str:
    """Progress as one line of at most 80 columns.

    >>> from runnel.engine.run.runner import Progress
    >>> progress_line(Progress(10, 8, 2, 1, "matching"))
    'matching: 10 read, 8 matched, 2 waiting, 1 delivered'
    """
    return (
        f"{progress.state[:30]}: {progress.accepted} read, {progress.matched} matched, "
        f"{progress.lag} waiting, {progress.delivered} delivered"
    )


@contextmanager
def stopped_by_signals(engine: Engine) -> Iterator[None]:
    """SIGTERM and SIGINT ask the run to drain and end; a second SIGINT ends it at once."""

    def stop(number: int, frame: object) -> None:
        # Not here: a handler interrupts whatever the main thread does, and may find its lock held.
        threading.Thread(target=engine.stop, daemon=True).start()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
