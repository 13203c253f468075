"""Rules as they are written: a text from a configuration in; nothing out if it may be loaded, or what is wrong where.

The language is that of clingo, without whatever reaches beyond the rules: scripts, included files, functions of the
host, theories, and everything that changes how a program is solved. Only the words of this list may follow a `#`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_BYTES = 256 << 10
"""Largest program that is taken."""

LARGEST = 2**31 - 1
"""Largest number that rules can hold; clingo would cut larger ones without a word."""

_DIRECTIVES = frozenset({"true", "false", "sum", "sum+", "count", "min", "max", "const", "sup", "inf", "infimum"})
_DIRECTIVES |= {"supremum"}
_TOKEN = re.compile(
    r'(?P<text>"(?:\\.|[^"\\\n])*")|(?P<block>%\*)|(?P<line>%[^\n]*)|#\s*(?P<directive>[a-z_]+\+?|.?)'
    r"|(?P<outside>[@&])|(?P<number>\d+)|(?P<name>[A-Za-z_'][A-Za-z0-9_']*)|(?P<open>\")",
    re.DOTALL,
)
_BLOCK = re.compile(r"%\*|\*%")


@dataclass(frozen=True, slots=True)
class RulesProblem:
    """What is wrong with rules, at a line of them (0: nowhere in particular), and what to do about it."""

    message: str
    line: int = 0
    hint: str = ""


class RulesRefusedError(Exception):
    """Rules that cannot be used, or not for this item."""

    def __init__(self, problem: RulesProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def screen(program: str) -> RulesProblem | None:
    """The first thing in rules that is not allowed in them.

    >>> screen('holds :- has(price, P), P > 50.  % "dear"')
    >>> screen('#include "secrets.lp".')
    RulesProblem(message='#include cannot be used', line=1, hint='rules have their item, and nothing else')
    """
    if len(program.encode("utf-8", "replace")) > MAX_BYTES:
        return RulesProblem(f"the rules have more than {MAX_BYTES} bytes")
    if "\0" in program:
        return RulesProblem("the rules have a NUL in them")
    return next(_problems(program), None)


def _problems(program: str) -> Iterator[RulesProblem]:
    place = 0
    while found := _TOKEN.search(program, place):
        place = found.end()
        line = program.count("\n", 0, found.start()) + 1
        match found.lastgroup:
            case "block":
                place = _end_of_comment(program, place)
                if place < 0:
                    yield RulesProblem("a comment has no end", line, "it ends with *%")
                    return
            case "directive" if found["directive"] not in _DIRECTIVES:
                yield RulesProblem(
                    f"#{found['directive']} cannot be used", line, "rules have their item, and nothing else"
                )
            case "outside":
                yield RulesProblem(
                    f"{found['outside']} cannot be used", line, "rules have their item, and nothing else"
                )
            case "number" if len(found["number"]) > 10 or int(found["number"]) > LARGEST:
                yield RulesProblem(f"{found['number'][:40]} is too large", line, f"numbers go up to {LARGEST}")
            case "open":
                yield RulesProblem("a text has no end", line, 'it ends with " on the same line')
                return
            case _:
                pass


def _end_of_comment(program: str, place: int) -> int:
    """Where the comment that began before a place ends; comments stand within comments. -1 where it does not end."""
    depth = 1
    while depth and (found := _BLOCK.search(program, place)):
        depth += 1 if found.group() == "%*" else -1
        place = found.end()
    return -1 if depth else place
