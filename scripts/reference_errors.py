"""Generate the page of the errors, from the exception tree and its docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from scripts.reference_markdown import code, page, table

from runnel import errors
from runnel.cli.output import exit_code
from runnel.errors import RunnelError


def error_classes() -> list[type[RunnelError]]:
    """Return all classes of the tree, parents before their children."""
    return list(_below(RunnelError))


def _below(kind: type[RunnelError]) -> Iterator[type[RunnelError]]:
    if kind.__module__ == errors.__name__:
        yield kind
        for child in kind.__subclasses__():
            yield from _below(child)


def errors_page() -> str:
    """Return the page: every class with its parent, its meaning and the exit code of a command that raises it."""
    first, _, *rest = inspect.cleandoc(errors.__doc__ or "").split("\n\n")
    rows = []
    for kind in error_classes():
        meaning = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
        parent = "" if kind is RunnelError else code(kind.__bases__[0].__name__)
        rows.append((code(kind.__name__), parent, meaning, str(exit_code(kind("")))))
    return page(
        "# Errors",
        first,
        *rest,
        "`str(error)` has the message and the hint. A `StatementError` also has a `span` (line and column) and the "
        "`text` of the script; `render()` shows the line with carets under the span. An `InputError` has a `place`: "
        "a file, a line, an attribute. With `--json` a command writes the error to standard error as one line of "
        "JSON with `kind`, `message`, `hint` and `place`.",
        table(["error", "is a", "meaning", "exit code"], rows),
        "[Commands](commands.md#exit-codes) lists the exit codes.",
    )
