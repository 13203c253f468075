"""Errors of Spark's Python processes, reported to the runner as one line of JSON.

Spark passes on the text of a traceback, not the exception. `reporting_failures` therefore raises an error whose text
is a record of the original error, and `read_failure` finds that record in the traceback. The text of the original
error precedes the record, and only the last record counts, so the text of an item or a query cannot forge a record.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from runnel.errors import (
    CatalogUnavailableError,
    CorruptDataError,
    FencedError,
    LineageConflictError,
    ReadOnlyError,
    RunnelError,
    StorageFullError,
)
from runnel.storage.checksums import take_damaged
from runnel.storage.file_storage import open_storage

_MARK = "runnel-failure "
_MAX_MESSAGE = 1_000
_KINDS: dict[str, type[RunnelError]] = {
    kind.__name__: kind
    for kind in (
        *(CatalogUnavailableError, CorruptDataError, FencedError, LineageConflictError, ReadOnlyError),
        *(RunnelError, StorageFullError),
    )
}
"""The errors that the runner handles differently; all others are reported as RunnelError."""


class ReportedError(Exception):
    """An error whose text is the record of another error, in a form that survives Spark."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The record of an error: its kind, its message, and the files that were found damaged before it."""

    kind: str
    message: str
    damaged: tuple[str, ...] = ()

    @staticmethod
    def of(error: Exception, damaged: tuple[str, ...] = ()) -> Failure:
        """Create the record of an error.

        >>> Failure.of(OSError(28, "No space left on device")).kind, Failure.of(KeyError("a")).message
        ('StorageFullError', "KeyError: 'a'")
        """
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return Failure(StorageFullError.__name__, str(error)[:_MAX_MESSAGE], damaged)
        if not isinstance(error, RunnelError):
            return Failure(RunnelError.__name__, f"{type(error).__name__}: {error}"[:_MAX_MESSAGE], damaged)
        kind = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS)
        return Failure(kind, error.message[:_MAX_MESSAGE], damaged)

    def line(self) -> str:
        """Return the record as one line of text."""
        return _MARK + json.dumps(asdict(self)).replace(_MARK, _MARK.replace("-", "\\u002d"))

    def error(self) -> RunnelError:
        """Return an error of the recorded kind with the recorded message."""
        return _KINDS[self.kind](self.message)


@contextmanager
def reporting_failures(storage_url: str) -> Iterator[None]:
    """Replace an error raised inside the block by a ReportedError, which `read_failure` can read."""
    try:
        yield
    except Exception as error:
        raise ReportedError(Failure.of(error, tuple(take_damaged(open_storage(storage_url)))).line()) from error


def read_failure(error: BaseException) -> Failure | None:
    """Return the record in the text of a Spark error, or None if it has none.

    >>> read_failure(Exception("Traceback …\\n" + Failure("CorruptDataError", "a", ("items/1",)).line() + "\\n at x"))
    Failure(kind='CorruptDataError', message='a', damaged=('items/1',))
    """
    _, mark, rest = str(error).rpartition(_MARK)
    try:
        value: Any = json.JSONDecoder().raw_decode(rest)[0] if mark else None
        failure = Failure(str(value["kind"]), str(value["message"]), tuple(map(str, value["damaged"])))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return failure if failure.kind in _KINDS else None
