"""Text to statements. In: a script. Out: its statements with their spans, or a StatementError."""

from __future__ import annotations

from functools import cache

from runnel.errors import StatementError
from runnel.families import FAMILIES, GATE_KINDS, load_part
from runnel.language.gc_paused import gc_paused
from runnel.language.grammar.parse_conditions import CONDITIONS
from runnel.language.grammar.parse_statements import STATEMENTS
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.reader import Grammar, TokenReader
from runnel.language.syntax.script_tokens import END
from runnel.language.syntax.statements import Parsed


def current_grammar() -> Grammar:
    """The language as it is: all statements, and the conditions and gates that are registered."""
    return _grammar_of(
        tuple(family.syntax for family in FAMILIES.values() if family.syntax is not None),
        tuple(kind.syntax for kind in GATE_KINDS.values() if kind.syntax is not None),
    )


@cache
def _grammar_of(families: tuple[str, ...], gates: tuple[str, ...]) -> Grammar:
    return Grammar(STATEMENTS, (*CONDITIONS, *map(load_part, families)), map(load_part, gates))


def parse(text: str, grammar: Grammar | None = None) -> list[Parsed]:
    """The statements of a script, in order; the last `;` may be missing if there is only one statement.

    >>> [parsed.statement.name.text for parsed in parse("explain feed Rock")]
    ['Rock']
    >>> parse("-- nothing but a comment")
    []
    """
    try:
        with gc_paused():
            return _parse_script(TokenReader(text, grammar or current_grammar()))
    except StatementError as error:
        raise error.located(text) from None


def _parse_script(tokens: TokenReader) -> list[Parsed]:
    script: list[Parsed] = []
    while tokens.kind != END:
        parse_statement = tokens.grammar.statements.get(tokens.word)
        if parse_statement is None:
            raise tokens.unexpected(expects.STATEMENT)
        span = tokens.span
        statement = parse_statement(tokens, tokens.take_token())
        script.append(Parsed(statement, span))
        if not tokens.take(";") and (tokens.kind != END or len(script) > 1):
            raise tokens.unexpected()
    return script
