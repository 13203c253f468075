"""Text to statements. In: a script. Out: its statements with their spans, or a StatementError."""

from __future__ import annotations

from runnel.errors import StatementError
from runnel.language.gc_paused import gc_paused
from runnel.language.grammar.parse_conditions import CONDITIONS
from runnel.language.grammar.parse_statements import STATEMENTS
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.reader import Grammar, TokenReader
from runnel.language.syntax.statements import Parsed
from runnel.language.syntax.tokens import END

GRAMMAR = Grammar(STATEMENTS, CONDITIONS)
"""The language as it is."""


def parse(text: str, grammar: Grammar = GRAMMAR) -> list[Parsed]:
    """The statements of a script, in order; the last `;` may be missing if there is only one statement.

    >>> [parsed.statement.name.text for parsed in parse("explain feed Rock")]
    ['Rock']
    >>> parse("-- nothing but a comment")
    []
    """
    try:
        with gc_paused():
            return _parse_script(TokenReader(text, grammar))
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
