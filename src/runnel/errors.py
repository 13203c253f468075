"""All exceptions that Runnel raises, in one hierarchy.

    RunnelError
    ├── StatementError                    a statement was refused; has a span and a hint
    │   ├── StatementSyntaxError          the text is not a valid statement
    │   ├── UnknownNameError              a feed, variable or subscription does not exist
    │   ├── DuplicateNameError            a name is already in use
    │   ├── CyclicFeedsError              a virtual feed would read itself
    │   ├── StillNeededError              a feed cannot be dropped because others depend on it
    │   └── InvalidConditionError         a condition is not valid
    ├── InputError                        an input was refused; has a location and a hint
    │   ├── BrokenDocumentError           a document cannot be decoded
    │   ├── InvalidItemError              an item is not valid
    │   ├── UnreachableError              a request to an address failed
    │   │   └── RefusedAddressError       connections to an address are not allowed
    │   ├── StylesheetError               a stylesheet is not valid, or failed on a document
    │   ├── TooExpensiveError             a request would cost more than the settings allow
    │   └── OperatorRefusedError          an operator cannot be used as registered
    ├── WorkspaceError                    the workspace cannot be used
    │   ├── NotAWorkspaceError            the folder is not a workspace
    │   ├── WorkspaceExistsError          the folder is already a workspace
    │   ├── NewerWorkspaceError           the workspace was written by a newer version
    │   ├── ReadOnlyError                 the catalog or the files cannot be written
    │   ├── CatalogUnavailableError       the catalog is temporarily unavailable
    │   ├── RunnerActiveError             another runner holds the lease
    │   └── FencedError                   this runner lost its lease and must not commit
    ├── NotAllowedError                   the action is not allowed, or a secret is wrong
    │   └── QuotaExceededError            a quota of an owner is used up
    ├── NotFoundError                     an item, feed or subscription does not exist
    ├── BacklogError                      too many items wait for matching
    ├── StorageFullError                  no disk space left; processing pauses until there is space
    ├── CorruptDataError                  a file of the workspace is damaged
    │   └── LineageConflictError          a batch does not continue the match log
    ├── DeliveryError                     an endpoint did not accept a message
    ├── SparkLostError                    Spark's JVM has ended
    └── JavaMissingError                  Java 17 or newer was not found

Every error has a `message`, which states the problem, and may have a `hint`, which gives the next step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

DISTRIBUTION: Final = "runnel-pubsub"
"""The name for `pip install`. The name `runnel` belongs to another project on the Python package index."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range in a text: 1-based line and column, and the end column on the same line."""

    line: int
    column: int
    end_column: int


class RunnelError(Exception):
    """The base class: a message for the user and an optional hint.

    >>> str(RunnelError("no such feed", hint="did you mean News?"))
    'no such feed (did you mean News?)'
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled by Spark workers; the default would lose keyword arguments.
        return (_rebuild, (type(self), self.args, self.__dict__))


def install_hint(extra: str) -> str:
    """Return the command that installs an extra of this distribution, whose name differs from that of the package.

    >>> install_hint("postgresql")
    "pip install 'runnel-pubsub[postgresql]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def _rebuild(kind: type[RunnelError], args: tuple[Any, ...], state: dict[str, Any]) -> RunnelError:
    error = kind.__new__(kind)
    Exception.__init__(error, *args)
    error.__dict__.update(state)
    return error


class StatementError(RunnelError):
    """A statement was refused. `render()` shows the line with a caret under the span."""

    def __init__(
        self, message: str, *, hint: str | None = None, span: Span | None = None, text: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.span = span
        self.text = text

    def located(self, text: str, span: Span | None = None) -> StatementError:
        """Add the text, and the span if it has none. Return the error."""
        self.text = self.text if self.text is not None else text
        self.span = self.span or span
        return self

    def render(self) -> str:
        """Return the message, the line with a caret, and the hint, for a terminal.

        >>> error = StatementSyntaxError("expected a name", span=Span(1, 8, 11), text="create 123")
        >>> print(error.render())
        line 1, column 8: expected a name
          create 123
                 ^^^
        """
        if self.span is None or self.text is None:
            return str(self)
        lines = self.text.split("\n")
        line = "".join(map(visible, lines[min(self.span.line, len(lines)) - 1].removesuffix("\r")))
        width = max(1, min(self.span.end_column, len(line) + 1) - self.span.column)
        shown, column = _window(line, self.span.column, width)
        parts = [
            f"line {self.span.line}, column {self.span.column}: {self.message}",
            f"  {shown}",
            f"  {' ' * (column - 1)}{'^' * min(width, 60)}",
        ]
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)


def visible(character: str) -> str:
    """Return one printable character: replace characters that a terminal would interpret."""
    return " " if character == "\t" else character if character.isprintable() else "�"


def _window(line: str, column: int, width: int, limit: int = 76) -> tuple[str, int]:
    """Return the part of a long line around a column, and the column in that part."""
    if len(line) <= limit:
        return line, column
    start = max(0, min(column - 1 - limit // 2, len(line) - limit))
    cut = line[start : start + limit]
    prefix = "…" if start else ""
    return prefix + cut, column - start + len(prefix)


class StatementSyntaxError(StatementError):
    """The text is not a statement of the language."""


class UnknownNameError(StatementError):
    """A feed, variable or subscription does not exist."""


class DuplicateNameError(StatementError):
    """A name is already in use."""


class CyclicFeedsError(StatementError):
    """A virtual feed would read itself, directly or indirectly."""


class StillNeededError(StatementError):
    """A feed cannot be dropped, because other feeds or subscriptions depend on it."""


class InvalidConditionError(StatementError):
    """A condition is not valid."""


class InputError(RunnelError):
    """An input was refused. `place` is the file, line or attribute."""

    def __init__(self, message: str, *, place: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.place = place

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.place}: {text}" if self.place else text


class BrokenDocumentError(InputError):
    """A document cannot be decoded."""


class InvalidItemError(InputError):
    """An item is not valid."""


class UnreachableError(InputError):
    """A request to an address failed: no connection, a time or size limit, or not valid HTTP."""


class RefusedAddressError(UnreachableError):
    """Connections to an address are not allowed: it is private or local, and not in the settings."""


class StylesheetError(InputError):
    """A stylesheet is not valid, failed on a document, or exceeded its limits of time or memory."""


class TooExpensiveError(InputError):
    """A request would cost more than the settings allow."""


class OperatorRefusedError(InputError):
    """An operator cannot be used as registered: not found, not allowed, or wrongly configured."""


class WorkspaceError(RunnelError):
    """The workspace cannot be used."""


class NotAWorkspaceError(WorkspaceError):
    """The folder is not a workspace."""


class WorkspaceExistsError(WorkspaceError):
    """The folder is already a workspace."""


class NewerWorkspaceError(WorkspaceError):
    """The workspace was written by a newer version of Runnel."""


class ReadOnlyError(WorkspaceError):
    """This process cannot write the catalog or the files of the workspace. Commands that only read still work."""


class CatalogUnavailableError(WorkspaceError):
    """The catalog is temporarily unavailable: its server is down, restarting or busy. Try again later."""


class RunnerActiveError(WorkspaceError):
    """Another runner holds the lease of this workspace."""


class FencedError(WorkspaceError):
    """This runner lost its lease: there is a newer epoch, so this runner must not commit."""


class NotAllowedError(RunnelError):
    """The actor may not perform the action, or a token or ticket is wrong."""


class QuotaExceededError(NotAllowedError):
    """A quota of an owner is used up."""


class NotFoundError(RunnelError):
    """An item, feed or subscription does not exist."""


class BacklogError(RunnelError):
    """Too many items wait for matching, so no more are accepted now."""


class StorageFullError(RunnelError):
    """No disk space is left for a file or the catalog."""


class CorruptDataError(RunnelError):
    """A file of the workspace is damaged: its content differs from its manifest or checksum."""


class LineageConflictError(CorruptDataError):
    """A batch does not continue the match log, so its lineage must end and a new one start."""


class DeliveryError(RunnelError):
    """An endpoint did not accept a message.

    `retry_after` is the delay in seconds that the endpoint requested. `permanent` means that a retry cannot succeed:
    the message becomes a dead letter at once. `gone` means that the endpoint wants no more messages: the subscription
    is disabled.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        retry_after: float | None = None,
        permanent: bool = False,
        gone: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after
        self.permanent = permanent
        self.gone = gone


class SparkLostError(RunnelError):
    """Spark's JVM has ended although Runnel did not stop it: it was killed or ran out of memory."""


class JavaMissingError(RunnelError):
    """Spark needs Java 17 or newer, and none was found."""
