"""Checks the text of rules before they are loaded.

In: the rules of an operator's configuration. Out: None if they may be loaded, or the first problem with its line. The
language is that of clingo, without features that reach beyond the rules: scripts, included files, external functions,
theories, and directives that change how a program is solved. Only `_DIRECTIVES` may follow a `#`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_BYTES = 256 << 10
"""Maximum size of the rules."""

MAX_NUMBER = 2**31 - 1
"""Largest number in rules. clingo would truncate larger numbers silently."""

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
    """A problem of rules, with its line (0 if unknown) and a hint."""

    message: str
    line: int = 0
    hint: str = ""


class RulesRefusedError(Exception):
    """The rules cannot be used, in general or for an item."""

    def __init__(self, problem: RulesProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def screen(program: str) -> RulesProblem | None:
    """Return the first problem of rules, or None.

    >>> screen('holds :- has(price, P), P > 50.  % "expensive"')
    >>> screen('#include "secrets.lp".')
    RulesProblem(message='#include cannot be used', line=1, hint='rules can use only the facts of their item')
    """
    if len(program.encode("utf-8", "replace")) > MAX_BYTES:
        return RulesProblem(f"the rules have more than {MAX_BYTES} bytes")
    if "\0" in program:
        return RulesProblem("the rules contain a NUL character")
    return next(_problems(program), None)


def _problems(program: str) -> Iterator[RulesProblem]:
    position = 0
    while token := _TOKEN.search(program, position):
        position = token.end()
        line = program.count("\n", 0, token.start()) + 1
        match token.lastgroup:
            case "block":
                position = _end_of_comment(program, position)
                if position < 0:
                    yield RulesProblem("a comment has no end", line, "end it with *%")
                    return
            case "directive" if token["directive"] not in _DIRECTIVES:
                yield RulesProblem(
                    f"#{token['directive']} cannot be used", line, "rules can use only the facts of their item"
                )
            case "outside":
                yield RulesProblem(
                    f"{token['outside']} cannot be used", line, "rules can use only the facts of their item"
                )
            case "number" if len(token["number"]) > 10 or int(token["number"]) > MAX_NUMBER:
                yield RulesProblem(f"{token['number'][:40]} is too large", line, f"numbers go up to {MAX_NUMBER}")
            case "open":
                yield RulesProblem("a text has no end", line, 'end it with " on the same line')
                return
            case _:
                pass


def _end_of_comment(program: str, position: int) -> int:
    """Return the end of the block comment that starts before a position, or -1. Block comments can be nested."""
    depth = 1
    while depth and (token := _BLOCK.search(program, position)):
        depth += 1 if token.group() == "%*" else -1
        position = token.end()
    return -1 if depth else position
