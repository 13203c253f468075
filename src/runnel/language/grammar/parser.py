"""The entry point of the parser. In: a script. Out: its statements with their spans, or a StatementError."""

from __future__ import annotations

import logging
from functools import cache

from runnel.errors import InputError, StatementError
from runnel.families import Family, load_part, registry
from runnel.gc_paused import gc_paused
from runnel.language.grammar.parse_conditions import CONDITIONS
from runnel.language.grammar.parse_statements import STATEMENTS
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.parameters import Parameters
from runnel.language.syntax.reader import ConditionSyntax, Grammar, TokenReader
from runnel.language.syntax.script_tokens import END
from runnel.language.syntax.statements import Parsed

logger = logging.getLogger("runnel")


def current_grammar() -> Grammar:
    """Return the grammar of all statements and of all registered condition families and gates."""
    registered = registry()
    gates = tuple(kind.syntax for kind in registered.gates.values() if kind.syntax is not None)
    return _build_grammar(tuple(registered.families.values()), gates)


@cache
def _build_grammar(families: tuple[Family, ...], gates: tuple[str, ...]) -> Grammar:
    """Build a grammar with the conditions of families. Log a warning for a family whose syntax is invalid."""
    grammar = Grammar(STATEMENTS, CONDITIONS, map(load_part, gates))
    for family in families:
        try:
            if family.syntax is not None:
                grammar = grammar.with_conditions(_load_syntax(family, family.syntax))
        except (InputError, ValueError) as error:
            logger.warning(
                "ignored the syntax of the condition family %r, statements cannot use it: %s", family.name, error
            )
    return grammar


def _load_syntax(family: Family, reference: str) -> ConditionSyntax:
    """Load the syntax of a family.

    The only keyword that may begin its conditions is the family's name, so that printing knows which names to quote.
    """
    syntax = load_part(reference)
    if not isinstance(syntax, ConditionSyntax):
        raise InputError(f"{reference} is not a ConditionSyntax")
    for start in syntax.starts:
        if start.islower() and start != family.name:
            raise InputError(
                f"its conditions begin with the keyword {start!r}",
                hint=f"the only keyword allowed is the name of the family, {family.name}",
            )
    return syntax


def parse(text: str, grammar: Grammar | None = None, parameters: Parameters | None = None) -> list[Parsed]:
    """Parse a script. The last `;` may be omitted if the script has only one statement.

    `parameters` are the values of parameters such as `:word`.

    >>> [parsed.statement.name.text for parsed in parse("explain feed Rock")]
    ['Rock']
    >>> parse("why item :item in Rock", parameters=Parameters({"item": "it's 1"}))[0].statement.item
    "it's 1"
    >>> parse("-- nothing but a comment")
    []
    """
    try:
        with gc_paused():
            return _parse_script(TokenReader(text, grammar or current_grammar(), parameters))
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
