"""How deeply a text may be nested: every level takes a call of the parser."""

from __future__ import annotations

from runnel.errors import Span, StatementSyntaxError

DEEPEST = 50
"""How deeply parentheses may be nested, as written and as printed."""


def too_deep(span: Span | None = None) -> StatementSyntaxError:
    """The refusal of a text that is nested too deeply."""
    return StatementSyntaxError(
        f"parentheses are nested more than {DEEPEST} levels deep",
        span=span,
        hint="give the inner part a name with create feed and read that feed",
    )
