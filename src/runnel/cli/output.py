"""Output and exit codes of commands."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.console import Console
from rich.markup import escape

from runnel.errors import (
    BacklogError,
    InputError,
    JavaMissingError,
    NotAllowedError,
    NotFoundError,
    ReadOnlyError,
    RunnelError,
    SparkLostError,
    StatementError,
    StorageFullError,
    WorkspaceError,
    visible,
)

if TYPE_CHECKING:
    from runnel.engine.answers import Answer

EXIT_CODES: Final[dict[int, str]] = {
    0: "success",
    1: "unexpected failure",
    2: "wrong usage of the command",
    3: "a statement or an input was refused, or the action is not allowed",
    4: "the workspace cannot be used: it does not exist, a runner is active, or too many items wait for matching",
    5: "the machine lacks Java or disk space, or `runnel doctor` found a problem",
    6: "the requested item, feed or subscription does not exist",
    7: "Spark's JVM was killed or ran out of memory, and restarting it did not help",
}
"""Exit codes and their meanings. The reference is generated from this."""

console = Console(highlight=False)
stderr_console = Console(stderr=True, highlight=False)


@contextmanager
def reporting_errors(as_json: bool) -> Iterator[None]:
    """Print Runnel's errors and convert them into exit codes."""
    try:
        yield
    except RunnelError as error:
        report_error(error, as_json)
        raise typer.Exit(exit_code(error)) from error
    except PermissionError as error:
        refused = ReadOnlyError(
            f"{error.filename or 'a file'}: {error.strerror or 'permission denied'}",
            hint="run the command as the user who owns the workspace, or choose another folder",
        )
        report_error(refused, as_json)
        raise typer.Exit(exit_code(refused)) from error


def exit_code(error: RunnelError) -> int:
    """Return the exit code of an error.

    >>> exit_code(NotFoundError("x"))
    6
    """
    match error:
        case StatementError() | InputError() | NotAllowedError():
            return 3
        case WorkspaceError() | BacklogError():
            return 4
        case JavaMissingError() | StorageFullError():
            return 5
        case NotFoundError():
            return 6
        case SparkLostError():
            return 7
        case _:
            return 1


def report_error(error: RunnelError, as_json: bool) -> None:
    """Print an error to standard error: as a line of JSON, or as text with its location and hint."""
    if as_json:
        span = getattr(error, "span", None)
        location = {"line": span.line, "column": span.column} if span else getattr(error, "place", None)
        fields = {"kind": type(error).__name__, "message": error.message, "hint": error.hint, "place": location}
        print(json.dumps({"error": fields}, ensure_ascii=False), file=sys.stderr)
        return
    if isinstance(error, StatementError):
        stderr_console.print(f"[red]error[/red] {escape(error.render())}", soft_wrap=True)
        return
    location = getattr(error, "place", None)
    message = f"{location}: {error.message}" if location else error.message
    stderr_console.print(f"[red]error[/red] {escaped(message)}", soft_wrap=True)
    if error.hint:
        stderr_console.print(f"hint: {escaped(error.hint)}", soft_wrap=True)


def print_note(text: str) -> None:
    """Print a note to standard error, so that it does not mix with results."""
    stderr_console.print(escaped(text), markup=False)


def print_warning(text: str) -> None:
    """Print a warning to standard error."""
    stderr_console.print(f"[yellow]warning[/yellow] {escaped(text)}", soft_wrap=True)


def print_answers(answers: Iterable[Answer], as_json: bool) -> None:
    """Print answers for a person, or one line of JSON for each."""
    for answer in answers:
        if as_json:
            print_json(answer.to_json())
            continue
        mark = "[yellow]✗[/yellow]" if getattr(answer, "holds", True) is False else "[green]✓[/green]"
        console.print(f"{mark} {escaped(answer.message)}", soft_wrap=True)
        for line in answer.lines:
            console.print(f"  {escaped(line)}", soft_wrap=True)


def write_pictures(first_path: Path, pictures: Mapping[str, str]) -> dict[str, str]:
    """Write pictures, by title, to a file and to numbered files next to it. Return the title of each file."""
    written = {}
    for number, (title, picture) in enumerate(pictures.items(), start=1):
        path = first_path if number == 1 else first_path.with_stem(f"{first_path.stem}-{number}")
        try:
            path.write_text(picture, "utf-8")
        except (OSError, ValueError) as error:
            raise InputError(f"cannot be written: {error}", place=str(path)) from error
        written[str(path)] = title
    return written


def escaped(text: str) -> str:
    r"""Escape markup and replace control characters in a text from outside, so that it can be printed.

    >>> escaped("[red]a" + chr(27))
    '\\[red]a�'
    """
    return escape("".join(map(visible, text)))


def counted(number: int, noun: str) -> str:
    """Format a number with its noun in the singular or plural.

    >>> counted(1, "item"), counted(2000, "item")
    ('1 item', '2,000 items')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    print(json.dumps(value, ensure_ascii=False, default=str), flush=True)
