"""Add the position of a statement in its script to the errors that it raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from runnel.errors import NotAllowedError, NotFoundError, Span, StatementError


@contextmanager
def locate_errors(text: str, span: Span, done: str | None = None) -> Iterator[None]:
    """Add the span and the script to errors that are raised inside. `done` is added to the hint.

    >>> with locate_errors("drop feed A;", Span(1, 1, 5)):
    ...     raise NotFoundError("there is no feed A")
    Traceback (most recent call last):
    runnel.errors.StatementError: there is no feed A
    """
    try:
        yield
    except StatementError as error:
        error.hint = _joined(error.hint, done)
        error.located(text, span)
        raise
    except NotFoundError as error:
        raise StatementError(error.message, hint=_joined(error.hint, done), span=span, text=text) from error
    except NotAllowedError as error:
        error.hint = _joined(error.hint, done, f"line {span.line}, column {span.column}")
        raise


def _joined(*parts: str | None) -> str | None:
    return "; ".join(part for part in parts if part) or None
