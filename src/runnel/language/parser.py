"""Text to statements. In: a script. Out: its statements with their places, or a StatementError."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from lark import Lark, Token
from lark.exceptions import UnexpectedInput
from lark.lark import PostLex

from runnel.algebra.render import RESERVED
from runnel.errors import StatementError, SyntaxProblem
from runnel.language.building import Builder
from runnel.language.conditions import DEEPEST, too_deep
from runnel.language.literals import span_of
from runnel.language.problems import describe_problem
from runnel.language.statements import Parsed
from runnel.model.item import MAX_NAME

_WORDS = frozenset({"NAME", "KIND", "UNIT", "PART", "LANGUAGE"})
_BEFORE_LISTS = frozenset({"_IN", "_NETWORK", "_SHARES", "_PATTERN", "ALL", "ANY"})
"""A parenthesis after these opens a list of constants, which is no level of a condition."""


def parse(text: str) -> list[Parsed]:
    """The statements of a script, in order; the last `;` may be missing if there is only one statement.

    >>> [parsed.statement.name.text for parsed in parse("explain feed Rock")]
    ['Rock']
    >>> parse("-- nothing but a comment")
    []
    """
    try:
        return _parser().parse(text)  # type: ignore[return-value]
    except UnexpectedInput as error:
        raise describe_problem(error, text) from None
    except StatementError as error:
        raise error.located(text) from None


class _Watch(PostLex):
    """Looks at the tokens on their way to the parser: nesting, reserved words, and names without end."""

    always_accept = ("UNKNOWN",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        depth = 0
        in_list = False
        previous = ""
        for token in stream:
            kind = token.type
            if kind in _WORDS:
                if token.lower() in RESERVED:
                    # No rule takes this type, so the parser stops here and knows what it expected instead.
                    token.type = "RESERVED"
                elif len(token) > MAX_NAME:
                    raise SyntaxProblem(f"a name has at most {MAX_NAME} characters", span=span_of(token))
            elif kind == "_LPAR":
                in_list = previous in _BEFORE_LISTS
                depth += not in_list
                if depth > DEEPEST:
                    raise too_deep(span_of(token))
            elif kind == "_RPAR":
                depth -= not in_list
                in_list = False
            elif kind == "_SEMICOLON":
                depth, in_list = 0, False
            previous = kind
            yield token


@cache
def _parser() -> Lark:
    """The parser, built once per process: it takes longer than parsing a hundred statements."""
    grammar = files("runnel.language").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(
        grammar,
        parser="lalr",
        lexer="contextual",
        transformer=Builder(),
        postlex=_Watch(),
        maybe_placeholders=True,
    )
