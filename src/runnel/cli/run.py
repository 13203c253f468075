"""`runnel run`: start the runner in the foreground."""

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
    once: Annotated[
        bool, typer.Option("--once", help="Match the items and deliver the messages that are waiting now, then exit.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="Spark master URL, instead of the setting `master`.")] = None,
    workspace: WorkspaceOption = Path(),
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start the runner: acquire items, match them and deliver messages.

    A workspace has at most one runner. Ctrl-C or SIGTERM stops it after the work in progress is finished.

    Example: `runnel run --once`
    """
    from runnel.engine.run.application_log import configure_logging, is_json_log, log_to_stderr_as_json

    settings: dict[str, Any] = {"master": master} if master else {}
    if os.environ.get("RUNNEL_LOG_FORMAT") == "json":
        log_to_stderr_as_json()
    with (
        reporting_errors(as_json),
        _logging_errors(),
        open_for_command(workspace, token, admin_only="run the workspace", **settings) as engine,
        stopped_by_signals(engine),
    ):
        configure_logging(engine.workspace.settings, engine.workspace.folder)
        servers = open_servers(engine)
        if as_json:
            final = engine.run(once=once, report=lambda progress: print_json(_row(progress)), companions=servers)
            print_json(_row(final))
            return
        if is_json_log():  # the log contains the progress
            engine.run(once=once, companions=servers)
            return
        with showing_progress() as report:
            final = engine.run(once=once, report=report, companions=servers)
        console.print(
            f"[green]✓[/green] {counted(final.matched, 'item')} matched, "
            f"{counted(final.delivered, 'message')} delivered, {final.lag:,} waiting"
        )


@contextmanager
def _logging_errors() -> Iterator[None]:
    """If the log is JSON, log Runnel's errors instead of printing them."""
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


def open_servers(engine: Engine) -> list[Companion]:
    """Return the HTTP server that runs next to the runner, if the setting `listen` is set."""
    if not engine.workspace.settings.listen:
        return []
    from runnel.web.server import Server  # imported here because it takes a second and most runs do not need it

    return [Server(engine.workspace, engine.hubs())]


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
def showing_progress() -> Iterator[Callable[[Progress], None]]:
    """Show progress in one updated line. If the output is not a terminal, print a line per change of state."""
    if not console.is_terminal:
        last = [""]

        def print_change(progress: Progress) -> None:
            if progress.state != last[0]:
                last[0] = progress.state
                console.print(progress_line(progress), markup=False)

        yield print_change
        return
    from rich.live import Live
    from rich.text import Text

    with Live(Text("starting Spark …"), console=console, transient=True, refresh_per_second=4) as live:
        yield lambda progress: live.update(Text(progress_line(progress)))


def progress_line(progress: Progress) -> str:
    """Format progress as one line of at most 80 columns.

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
    """Stop the run on SIGTERM or SIGINT after it finishes the work in progress, or at once on a second SIGINT."""

    def stop(number: int, frame: object) -> None:
        # Stop in a thread: the signal may interrupt the main thread while it holds the lock that `stop` needs.
        threading.Thread(target=engine.stop, daemon=True).start()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
