"""What a command prints, and how it ends."""

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
    0: "done",
    1: "something failed that should not have",
    2: "the command was not understood (usage)",
    3: "a statement or an input was refused, or is not allowed",
    4: "the root cannot be used so: there is none, a runner is active, or too many items wait",
    5: "the machine lacks something: Java, or room on the disk",
    6: "what was asked for is not there",
    7: "Spark's JVM was killed or ran out of memory, and starting it again did not help",
}
"""Exit codes and what they mean; the reference is made from this."""

console = Console(highlight=False)
problems = Console(stderr=True, highlight=False)


@contextmanager
def reporting_errors(as_json: bool) -> Iterator[None]:
    """Turns Runnel's errors into a message and an exit code."""
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
    """The exit code of an error.

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
    """Show an error: as a line of JSON, or with its place and hint."""
    if as_json:
        span = getattr(error, "span", None)
        place = {"line": span.line, "column": span.column} if span else getattr(error, "place", None)
        told_error = {"kind": type(error).__name__, "message": error.message, "hint": error.hint, "place": place}
        print(json.dumps({"error": told_error}, ensure_ascii=False), file=sys.stderr)
        return
    if isinstance(error, StatementError):
        problems.print(f"[red]error[/red] {escape(error.render())}", soft_wrap=True)
        return
    place = getattr(error, "place", None)
    message = f"{place}: {error.message}" if place else error.message
    problems.print(f"[red]error[/red] {escaped(message)}", soft_wrap=True)
    if error.hint:
        problems.print(f"hint: {escaped(error.hint)}", soft_wrap=True)


def print_note(text: str) -> None:
    """Tell something while work goes on, where it does not mix with answers."""
    problems.print(escaped(text), markup=False)


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


def write_pictures(place: Path, pictures: Mapping[str, str]) -> dict[str, str]:
    """Write pictures into a file, the second and later ones beside it; gives what each file shows."""
    written = {}
    for number, (title, picture) in enumerate(pictures.items(), start=1):
        path = place if number == 1 else place.with_stem(f"{place.stem}-{number}")
        try:
            path.write_text(picture, "utf-8")
        except (OSError, ValueError) as error:
            raise InputError(f"cannot be written: {error}", place=str(path)) from error
        written[str(path)] = title
    return written


def escaped(text: str) -> str:
    r"""A text from outside, fit for a terminal: nothing in it is markup, and nothing moves the cursor.

    >>> escaped("[red]a" + chr(27))
    '\\[red]a�'
    """
    return escape("".join(map(visible, text)))


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "item"), counted(2000, "item")
    ('1 item', '2,000 items')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def print_json(value: Any) -> None:
    """One line of JSON on standard output."""
    print(json.dumps(value, ensure_ascii=False, default=str), flush=True)
