"""The limit on nested parentheses. The parser is recursive: each level needs several Python stack frames."""

from __future__ import annotations

from runnel.errors import Span, StatementSyntaxError

MAX_NESTING = 50
"""How deeply parentheses may be nested, in the source text and in the canonical text."""


def nesting_error(span: Span | None = None) -> StatementSyntaxError:
    """Return the error for a text that is nested too deeply."""
    return StatementSyntaxError(
        f"parentheses are nested more than {MAX_NESTING} levels deep",
        span=span,
        hint="move the inner condition into a feed of its own with create feed, and read that feed",
    )
