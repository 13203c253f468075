"""Regular expressions, by RE2: time grows with the text and never explodes, whoever wrote the pattern.

In: a pattern. Out: a compiled one, bounded in size and memory; or RefusedPattern, which knows the place.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import re2

LONGEST_PATTERN = 1_000
"""Characters of a pattern."""

_MEMORY = 1 << 20
"""Bytes for one compiled pattern and what it remembers while it searches."""

_COMPILED = 512


class RefusedPatternError(ValueError):
    """A pattern that RE2 does not take: its words, and from where to where in the pattern (None: all of it)."""

    def __init__(self, reason: str, place: tuple[int, int] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place


@lru_cache(maxsize=_COMPILED)
def compiled(pattern: str) -> Any:
    """The compiled pattern, kept for the next text.

    >>> compiled("gr[ae]y").search("a gray day").span()
    (2, 6)
    """
    if len(pattern) > LONGEST_PATTERN:
        raise RefusedPatternError(f"the pattern has more than {LONGEST_PATTERN:,} characters")
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except UnicodeEncodeError as error:
        raise RefusedPatternError("this character cannot stand in a text", (error.start, error.end)) from None
    except re2.error as error:
        raise _refused(pattern, error.args[0]) from None


def _refused(pattern: str, said: bytes) -> RefusedPatternError:
    """RE2 says what is wrong and, after a colon, which part of the pattern it speaks of."""
    reason, _, part = said.decode("utf-8", "replace").partition(": ")
    match reason:
        case "missing )" | "unexpected )":  # RE2 shows the whole pattern here
            return RefusedPatternError(reason, _unbalanced(pattern))
        case "trailing \\":
            return RefusedPatternError(reason, (len(pattern) - 1, len(pattern)))
        case "pattern too large - compile failed":
            return RefusedPatternError("the pattern needs too much memory")
    at = pattern.find(part) if part else -1
    return RefusedPatternError(f"{reason}: {part}" if part else reason, (at, at + len(part)) if at >= 0 else None)


def _unbalanced(pattern: str) -> tuple[int, int] | None:
    """The first parenthesis that closes nothing, or the last that is not closed, outside classes and escapes."""
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
    """Whether a pattern is found anywhere in a text.

    >>> occurs_in("^rock", "hard rock"), occurs_in("(?i)ROCK$", "hard rock")
    (False, True)
    """
    return compiled(pattern).search(_bytes(text)) is not None


def match_spans(pattern: str, text: str) -> Iterator[tuple[int, int]]:
    """From where to where a pattern is found, in characters, one after another; what is empty has no place."""
    readable = _bytes(text).decode("utf-8")
    for found in compiled(pattern).finditer(readable):
        start, end = found.span()
        if start < end:
            yield start, end


def _bytes(text: str) -> bytes:
    # A lone surrogate has no UTF-8: it becomes one `?`, so that places stay where they are.
    return text.encode("utf-8", "replace")
