"""Regular expressions by RE2, which takes linear time in the length of the text for every pattern.

In: a pattern. Out: a compiled pattern of limited size and memory, or a RefusedPatternError with the invalid part.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import re2

MAX_PATTERN_LENGTH = 1_000
"""How many characters a pattern can have."""

_MAX_MEMORY = 1 << 20
"""Memory in bytes for a compiled pattern and its state during a search."""

_CACHE_SIZE = 512


class RefusedPatternError(ValueError):
    """A pattern that RE2 rejects: the reason, and the offsets of the invalid part (None: the whole pattern)."""

    def __init__(self, reason: str, place: tuple[int, int] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place


@lru_cache(maxsize=_CACHE_SIZE)
def compiled(pattern: str) -> Any:
    """Return the compiled pattern. Patterns are cached.

    >>> compiled("gr[ae]y").search("a gray day").span()
    (2, 6)
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise RefusedPatternError(f"the pattern has more than {MAX_PATTERN_LENGTH:,} characters")
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except UnicodeEncodeError as error:
        raise RefusedPatternError("texts cannot contain this character", (error.start, error.end)) from None
    except re2.error as error:
        raise _pattern_error(pattern, error.args[0]) from None


def _pattern_error(pattern: str, message: bytes) -> RefusedPatternError:
    """Convert an error message of RE2: the reason and, after a colon, the invalid part of the pattern."""
    reason, _, part = message.decode("utf-8", "replace").partition(": ")
    match reason:
        case "missing )" | "unexpected )":  # RE2 shows the whole pattern here
            return RefusedPatternError(reason, _find_unbalanced(pattern))
        case "trailing \\":
            return RefusedPatternError(reason, (len(pattern) - 1, len(pattern)))
        case "pattern too large - compile failed":
            return RefusedPatternError("the pattern needs too much memory")
    at = pattern.find(part) if part else -1
    return RefusedPatternError(f"{reason}: {part}" if part else reason, (at, at + len(part)) if at >= 0 else None)


def _find_unbalanced(pattern: str) -> tuple[int, int] | None:
    """Return the offsets of the first unopened or the last unclosed parenthesis, ignoring classes and escapes."""
    opened: list[int] = []
    in_class = False
    at = 0
    while at < len(pattern):
        match pattern[at]:
            case "\\":
                at += 1
            case "[":
                in_class = True
            case "]":
                in_class = False
            case "(" if not in_class:
                opened.append(at)
            case ")" if not in_class and not opened:
                return at, at + 1
            case ")" if not in_class:
                opened.pop()
        at += 1
    return (opened[-1], opened[-1] + 1) if opened else None


def occurs_in(pattern: str, text: str) -> bool:
    """Return whether a pattern matches any part of a text.

    >>> occurs_in("^rock", "hard rock"), occurs_in("(?i)ROCK$", "hard rock")
    (False, True)
    """
    return compiled(pattern).search(_encode(text)) is not None


def match_spans(pattern: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the matches of a pattern in a text, in characters. Empty matches are skipped."""
    encodable = _encode(text).decode("utf-8")
    for match in compiled(pattern).finditer(encodable):
        start, end = match.span()
        if start < end:
            yield start, end


def _encode(text: str) -> bytes:
    # A lone surrogate cannot be encoded. It becomes one `?`, so that offsets do not change.
    return text.encode("utf-8", "replace")
