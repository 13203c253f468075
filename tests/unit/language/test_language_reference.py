"""The language reference matches the parser."""

from __future__ import annotations

import typing

import pytest
from scripts.reference_language import (
    ATOMS,
    CONSTANTS,
    GRAPHS,
    MISTAKES,
    OPERATORS,
    SHOWN_MISTAKES,
    TREES,
    Row,
    language_reference,
    refusal,
)
from scripts.reference_statements import STATEMENTS, Entry

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.expressions import Atom
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.nodes.render import RESERVED
from runnel.algebra.semantics.close_conditions import leaves
from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.algebra.values.stems import languages
from runnel.families import load_part, registry
from runnel.language.grammar.parser import parse
from runnel.language.syntax import statements


@pytest.mark.parametrize("entry", STATEMENTS, ids=lambda entry: entry.title)
def test_every_example_parses(entry: Entry) -> None:
    assert parse(entry.example)


def test_every_kind_of_statement_has_an_example() -> None:
    shown = {type(parsed.statement) for entry in STATEMENTS for parsed in parse(entry.example)}
    kinds = typing.get_args(statements.Declaration) + typing.get_args(statements.Question)
    assert shown == set(kinds)


@pytest.mark.parametrize("row", ATOMS + OPERATORS, ids=lambda row: row.form)
def test_every_example_of_an_atom_parses(row: Row) -> None:
    assert parse(f"create feed F from A where {row.example}")


@pytest.mark.parametrize("row", GRAPHS, ids=lambda row: row.form)
def test_every_example_of_a_graph_block_parses(row: Row) -> None:
    (parsed,) = parse(f"create feed F from A where graph {{ {row.example} }}")
    assert isinstance(parsed.statement, statements.CreateFeed)
    assert isinstance(parsed.statement.query.conditions[0].expression, Graph)


@pytest.mark.parametrize("row", TREES, ids=lambda row: row.form)
def test_every_example_of_a_tree_pattern_parses(row: Row) -> None:
    (parsed,) = parse(f"create feed F from A where tree {row.example}")
    assert isinstance(parsed.statement, statements.CreateFeed)
    assert isinstance(parsed.statement.query.conditions[0].expression, TreePattern)


def test_every_kind_of_atom_has_an_example() -> None:
    shown: set[type[object]] = set()
    for row in ATOMS:
        (parsed,) = parse(f"create feed F from A where {row.example}")
        assert isinstance(parsed.statement, statements.CreateFeed)
        results = leaves(parsed.statement.query.conditions[0].expression)
        shown |= {type(leaf) for leaf in results if isinstance(leaf, Atom)}
    families = {load_part(family.pattern) for family in registry().families.values()}
    assert shown == {*typing.get_args(Atom), *families} - {ItemPattern}


def test_page_names_every_stemmer_language() -> None:
    page = language_reference()
    assert all(f"`{language}`" in page for language in languages())


@pytest.mark.parametrize("row", CONSTANTS, ids=lambda row: row.form)
def test_every_constant_parses(row: Row) -> None:
    assert parse(f"create feed F from A where x >= {row.example}")


@pytest.mark.parametrize("text", MISTAKES)
def test_every_example_of_a_mistake_is_rejected_with_caret_and_hint(text: str) -> None:
    shown = refusal(text)
    assert "^" in shown
    assert "hint: " in shown
    assert (shown in language_reference()) == (text in MISTAKES[:SHOWN_MISTAKES])


def test_valid_statement_is_not_shown_as_a_mistake() -> None:
    with pytest.raises(ValueError, match="not refused"):
        refusal("show feeds;")


def test_page_names_every_reserved_word() -> None:
    page = language_reference()
    assert all(f"`{word}`" in page for word in RESERVED)
    assert page.startswith("# The language\n")
    assert page.count("```") % 2 == 0
