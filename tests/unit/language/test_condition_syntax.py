"""Condition families add their syntax by an entry in a table."""

from __future__ import annotations

import pytest

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Compare, Contains, Expression, Not
from runnel.errors import StatementSyntaxError
from runnel.families import load_part, registry
from runnel.language.grammar.parse_conditions import CONDITIONS, parse_condition
from runnel.language.grammar.parse_values import parse_duration
from runnel.language.grammar.parser import current_grammar, parse
from runnel.language.syntax.reader import ConditionSyntax, TokenReader
from runnel.language.syntax.script_tokens import WORD
from runnel.language.syntax.statements import CreateFeed


def parse_window(tokens: TokenReader) -> Expression:
    """`window last 3 days (condition)`: a family that this test adds."""
    tokens.expect("window", "last")
    length = parse_duration(tokens).length
    tokens.open()
    inner = parse_condition(tokens)
    tokens.close()
    assert isinstance(inner, Contains)
    return Compare(Attribute(inner.words[0]), "=", length.total_seconds())


WINDOWS = current_grammar().with_conditions(ConditionSyntax(("window",), parse_window))


def condition(text: str) -> Expression:
    (parsed,) = parse(f"create feed F from A where {text}", WINDOWS)
    assert isinstance(parsed.statement, CreateFeed)
    return parsed.statement.query.conditions[0].expression


def test_family_adds_its_syntax_without_a_change_to_the_parser() -> None:
    window = Compare(Attribute("rock"), "=", 3 * 86_400.0)
    plain = Compare(Attribute("x"), "=", 1.0)
    assert condition("window last 3 days (title contains 'rock')") == window
    assert condition("x = 1 and not (window last 3 days (title contains 'rock'))") == And((plain, Not(window)))


def test_errors_in_the_added_syntax_list_its_expectations() -> None:
    with pytest.raises(StatementSyntaxError, match="expected `last` but found `3`") as refused:
        condition("window 3 days (x = 1)")
    assert refused.value.span is not None
    assert refused.value.span.column == 35


def test_grammar_without_the_family_rejects_its_syntax() -> None:
    with pytest.raises(StatementSyntaxError, match="expected a condition but found `window`"):
        parse("create feed F from A where window last 3 days (title contains 'rock')")


def test_two_families_cannot_begin_with_the_same_word() -> None:
    with pytest.raises(ValueError, match="two families of conditions begin with window"):
        WINDOWS.with_conditions(ConditionSyntax(("window",), parse_window))
    with pytest.raises(ValueError, match=f"begin with {WORD}"):
        current_grammar().with_conditions(ConditionSyntax((WORD,), parse_window))


def test_every_condition_is_an_entry_of_the_table_or_of_a_family() -> None:
    families = [load_part(family.syntax) for family in registry().families.values() if family.syntax is not None]
    starts = {start for syntax in (*CONDITIONS, *families) for start in syntax.starts}
    assert starts == set(current_grammar().conditions)
