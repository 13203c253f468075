"""Everything Runnel raises on purpose, in one tree.

    RunnelError
    ├── StatementError                    a statement was refused; carries its place and a hint
    │   ├── StatementSyntaxError          the text is not a statement
    │   ├── UnknownNameError              a feed, variable or subscription that does not exist
    │   ├── DuplicateNameError            a name that is taken
    │   ├── CyclicFeedsError              a view that would read itself
    │   ├── StillNeededError              a drop that others depend on
    │   └── InvalidConditionError         a condition without a meaning
    ├── InputError                        something from outside was refused; carries its place and a hint
    │   ├── BrokenDocumentError           a file that cannot be decoded
    │   ├── InvalidItemError              an item that cannot be accepted
    │   ├── UnreachableError              an address that did not answer as it should
    │   │   └── RefusedAddressError       an address that must not be reached from here
    │   ├── StylesheetError               a stylesheet that cannot be used, or failed on a document
    │   ├── TooExpensiveError             what would cost more than the settings allow
    │   └── OperatorRefusedError          an operator that cannot be used as it was registered
    ├── WorkspaceError                    the root cannot be used as asked
    │   ├── NotAWorkspaceError            no installation there
    │   ├── WorkspaceExistsError          an installation is there already
    │   ├── NewerWorkspaceError           written by a newer Runnel
    │   ├── ReadOnlyError                 the catalog or the files cannot be written; reading still works
    │   ├── CatalogUnavailableError       the catalog does not answer now; what was not committed can be tried again
    │   ├── RunnerActiveError             another runner holds the lease
    │   └── FencedError                   this runner lost its lease; nothing more may be committed
    ├── NotAllowedError                   an owner may not do this, or a secret is wrong
    │   └── QuotaExceededError            an owner has as much as the quota allows
    ├── NotFoundError                     an item, feed or subscription that was asked for is not there
    ├── BacklogError                      the log is too far ahead of matching to accept more
    ├── StorageFullError                  no room left; work pauses and goes on when there is room
    ├── CorruptDataError                  a file of the root does not hold what its manifest says
    │   └── LineageConflictError          a batch does not continue the match log; a new lineage starts
    ├── DeliveryError                     an endpoint did not take a message
    ├── SparkLostError                    the JVM that Spark runs in has ended
    └── JavaMissingError                  Spark needs Java 17 or newer and none was found

Every error has a `message` (what happened) and may have a `hint` (what to do about it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

DISTRIBUTION: Final = "runnel-pubsub"
"""The name for `pip install`. The name `runnel` belongs to another project on the Python package index."""


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a text: 1-based line and column, and the end column on the same line."""

    line: int
    column: int
    end_column: int


class RunnelError(Exception):
    """The root of the tree: a message for a person and, where there is one, a hint.

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
        # Exceptions cross process borders (Spark workers); the default would lose keyword arguments.
        return (_rebuild, (type(self), self.args, self.__dict__))


def install_hint(extra: str) -> str:
    """The command that installs an extra of this distribution, whose name differs from that of the package.

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
    """A refused statement. `render()` shows the line with a caret under the place."""

    def __init__(
        self, message: str, *, hint: str | None = None, span: Span | None = None, text: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.span = span
        self.text = text

    def located(self, text: str, span: Span | None = None) -> StatementError:
        """The same error, knowing the text it speaks of (and the place, where it had none)."""
        self.text = self.text if self.text is not None else text
        self.span = self.span or span
        return self

    def render(self) -> str:
        """The message, the offending line with a caret, and the hint, for a terminal.

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
    """One column for every character: what a terminal would act on is shown as a mark instead."""
    return " " if character == "\t" else character if character.isprintable() else "�"


def _window(line: str, column: int, width: int, limit: int = 76) -> tuple[str, int]:
    """The part of a long line around a column, and the column within that part."""
    if len(line) <= limit:
        return line, column
    start = max(0, min(column - 1 - limit // 2, len(line) - limit))
    cut = line[start : start + limit]
    prefix = "…" if start else ""
    return prefix + cut, column - start + len(prefix)


class StatementSyntaxError(StatementError):
    """The text is not a statement of the language."""


class UnknownNameError(StatementError):
    """A feed, variable or subscription that does not exist."""


class DuplicateNameError(StatementError):
    """A name that is already taken."""


class CyclicFeedsError(StatementError):
    """A virtual feed that would read itself, directly or through others."""


class StillNeededError(StatementError):
    """A drop refused because other feeds or subscriptions depend on it."""


class InvalidConditionError(StatementError):
    """A condition that cannot have a meaning."""


class InputError(RunnelError):
    """Something from outside was refused; `place` says which file, line or attribute."""

    def __init__(self, message: str, *, place: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.place = place

    def __str__(self) -> str:
        text = super().__str__()
        return f"{self.place}: {text}" if self.place else text


class BrokenDocumentError(InputError):
    """A document that cannot be decoded."""


class InvalidItemError(InputError):
    """An item that cannot be accepted."""


class UnreachableError(InputError):
    """An address that did not answer as it should: no connection, too slow, too much, or not HTTP."""


class RefusedAddressError(UnreachableError):
    """An address that must not be reached from here: private, local, or not allowed by the settings."""


class StylesheetError(InputError):
    """A stylesheet that cannot be used, or that failed on a document (or took too long, or too much memory)."""


class TooExpensiveError(InputError):
    """What was asked for would cost more than the settings allow."""


class OperatorRefusedError(InputError):
    """An operator that cannot be used as it was registered: not found, not allowed, or wrongly configured."""


class WorkspaceError(RunnelError):
    """The root cannot be used as asked."""


class NotAWorkspaceError(WorkspaceError):
    """There is no installation at that place."""


class WorkspaceExistsError(WorkspaceError):
    """There is an installation already."""


class NewerWorkspaceError(WorkspaceError):
    """The root was written by a newer Runnel than this one."""


class ReadOnlyError(WorkspaceError):
    """The catalog or the files of the workspace cannot be written by this process. Commands that only read work."""


class CatalogUnavailableError(WorkspaceError):
    """The catalog does not answer now: its server is away, restarting or busy. Trying again later may help."""


class RunnerActiveError(WorkspaceError):
    """Another runner holds the lease of this root."""


class FencedError(WorkspaceError):
    """This runner lost its lease: a newer epoch exists, so nothing more may be committed."""


class NotAllowedError(RunnelError):
    """An owner may not do this, or a token or ticket is wrong."""


class QuotaExceededError(NotAllowedError):
    """An owner has as much as the quota allows."""


class NotFoundError(RunnelError):
    """An item, feed or subscription that was asked for is not there."""


class BacklogError(RunnelError):
    """The item log is too far ahead of matching to accept more now."""


class StorageFullError(RunnelError):
    """No room is left for a file or in the catalog."""


class CorruptDataError(RunnelError):
    """A file of the root does not hold what its manifest says."""


class LineageConflictError(CorruptDataError):
    """A batch that does not continue the match log: its lineage cannot go on."""


class DeliveryError(RunnelError):
    """An endpoint did not take a message.

    `retry_after` is the wait in seconds that the endpoint asked for; `permanent` says that trying again cannot help
    (the message is dead at once); `gone` that the endpoint wants nothing more (the subscription is disabled).
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
    """Spark needs Java 17 or newer and none was found."""
