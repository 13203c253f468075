"""Text to statements. In: a script. Out: its statements with their places, or a StatementError."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from lark import Lark
from lark.exceptions import UnexpectedInput

from runnel.errors import StatementError
from runnel.language.bulk.gc_paused import gc_paused
from runnel.language.bulk.shapes import Shapes
from runnel.language.grammar.describe_problem import describe_problem
from runnel.language.grammar.token_checks import TokenChecks
from runnel.language.grammar.transformer import StatementTransformer
from runnel.language.syntax.statements import Parsed

_MANY = 50
"""Statements from which on their shapes are looked at: a second parser has to be made for that, once."""


def parse(text: str) -> list[Parsed]:
    """The statements of a script, in order; the last `;` may be missing if there is only one statement.

    >>> [parsed.statement.name.text for parsed in parse("explain feed Rock")]
    ['Rock']
    >>> parse("-- nothing but a comment")
    []
    """
    if text.count(";") >= _MANY:
        found = parse_shapes(text)
        if found is not None:
            return found
    return parse_plainly(text)


def parse_plainly(text: str) -> list[Parsed]:
    """As `parse`, statement by statement, however many there are."""
    try:
        return _parser().parse(text)  # type: ignore[return-value]
    except UnexpectedInput as error:
        raise describe_problem(error, text) from None
    except StatementError as error:
        raise error.located(text) from None


def parse_shapes(text: str) -> list[Parsed] | None:
    """As `parse`, fast where many statements have few shapes; None where only `parse_plainly` can tell.

    >>> parse_shapes("show feeds; drop feed Old;") == parse_plainly("show feeds; drop feed Old;")
    True
    >>> parse_shapes("show feeds; drop") is None
    True
    """
    with gc_paused():
        return _shapes().parse(text)


@cache
def _parser() -> Lark:
    """The parser, built once per process: it takes longer than parsing a hundred statements."""
    return Lark(
        _grammar(),
        parser="lalr",
        lexer="contextual",
        transformer=StatementTransformer(),
        postlex=TokenChecks(),
        maybe_placeholders=True,
    )


@cache
def _shapes() -> Shapes:
    def tree_parser(watch: TokenChecks) -> Lark:
        return Lark(
            _grammar(),
            parser="lalr",
            lexer="contextual",
            postlex=watch,
            maybe_placeholders=True,
            propagate_positions=True,
        )

    return Shapes(tree_parser)


def _grammar() -> str:
    return files("runnel.language.grammar").joinpath("grammar.lark").read_text(encoding="utf-8")
