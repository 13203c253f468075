"""`runnel run`: the runner, in the foreground."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runnel.cli.options import JsonOption, TokenOption, WorkspaceOption, open_for_command
from runnel.cli.output import console, counted, exit_code, print_json, reporting_errors
from runnel.errors import RunnelError

if TYPE_CHECKING:
    from runnel.engine import Engine
    from runnel.engine.run.health import Companion
    from runnel.engine.run.runner import Progress


def run(
    once: Annotated[bool, typer.Option("--once", help="Match and deliver what is there now, then end.")] = False,
    master: Annotated[str | None, typer.Option(help="Spark master URL instead of the setting's.")] = None,
    root: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Acquire, match and deliver. One runner per root; Ctrl-C or SIGTERM drains and stops.

    Example: `runnel run --once`
    """
    from runnel.engine.run.application_log import configure_logging, is_json_log, log_to_stderr_as_json

    settings: dict[str, Any] = {"master": master} if master else {}
    if os.environ.get("RUNNEL_LOG_FORMAT") == "json":
        log_to_stderr_as_json()
    with (
        reporting_errors(as_json),
        _logging_errors(),
        open_for_command(root, token, admin_only="run the workspace", **settings) as engine,
        stopped_by_signals(engine),
    ):
        configure_logging(engine.root.settings, engine.root.folder)
        beside = companions(engine)
        if as_json:
            final = engine.run(once=once, report=lambda progress: print_json(_row(progress)), companions=beside)
            print_json(_row(final))
            return
        if is_json_log():  # it has all that a person would be shown
            engine.run(once=once, companions=beside)
            return
        with shown_progress() as report:
            final = engine.run(once=once, report=report, companions=beside)
        console.print(
            f"[green]✓[/green] {counted(final.matched, 'item')} matched, "
            f"{counted(final.delivered, 'message')} delivered, {final.lag:,} waiting"
        )


@contextmanager
def _logging_errors() -> Iterator[None]:
    """Where the log is JSON, errors are lines of it, and nothing else is printed."""
    from runnel.engine.run.application_log import is_json_log, stop_logging

    try:
        yield
    except RunnelError as error:
        if not is_json_log():
            raise
        fields = {"kind": type(error).__name__, "hint": error.hint}
        logging.getLogger("runnel").error("%s", error.message, extra=fields)
        raise typer.Exit(exit_code(error)) from error
    finally:
        stop_logging()


def companions(engine: Engine) -> list[Companion]:
    """What lives beside a run: the HTTP side, where the setting `listen` asks for it."""
    if not engine.root.settings.listen:
        return []
    from runnel.web.server import Server  # a second of imports that most runs do not need

    return [Server(engine.root, engine.hubs())]


def _row(progress: Progress) -> dict[str, int | str]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "level": "info",
        "event": "progress",
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
