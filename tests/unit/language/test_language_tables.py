"""Statements on tables: parsing, canonical text, and refusals with span and hint."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.language.test_language_printing import durations, expressions, name_texts, names

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Call, Constraint
from runnel.algebra.nodes.expressions import Compare, Expression
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.semantics.window_conditions import atoms_of
from runnel.errors import StatementError
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_statement
from runnel.language.syntax.statements import (
    ColumnClause,
    CreateFeed,
    DropTable,
    Name,
    RegisterFeed,
    RegisterTable,
    Show,
    ShowRows,
    Statement,
)
from runnel.model.table import ChangeForm, ColumnType, TableSchema, reserved_column

STOCKS = "register table Stocks (symbol text key, per number, checked date)"


def parsed(text: str) -> Statement:
    return parse(text)[0].statement


def problem(text: str) -> StatementError:
    with pytest.raises(StatementError) as caught:
        parse(text)
    return caught.value


@st.composite
def tables(draw: st.DrawFn) -> RegisterTable:
    """Return a valid statement: unique names, at least one key column, no reserved names."""
    texts = draw(st.lists(name_texts, min_size=1, max_size=5, unique=True))
    columns: list[ColumnClause] = []
    for number, text in enumerate(texts):
        kind = draw(st.sampled_from(ColumnType))
        name = f"{text.replace(':', '_')}{number}"
        assert reserved_column(name, kind) is None
        columns.append(ColumnClause(Name(name), kind, draw(st.booleans())))
    if not any(column.is_key for column in columns):
        columns.append(ColumnClause(Name("key"), ColumnType.TEXT, is_key=True))
    others = [column.name for column in columns if not column.is_key]
    ordered = draw(st.none() | st.sampled_from(others)) if others else None
    return RegisterTable(
        draw(names), tuple(columns), draw(st.sampled_from(ChangeForm)), draw(st.none() | durations), ordered
    )


def is_plain(condition: Expression) -> bool:
    return not any(isinstance(atom, Call | Constraint | ItemPattern) for atom in atoms_of(condition))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(tables() | st.builds(ShowRows, names, st.none() | expressions.filter(is_plain)) | names.map(DropTable))
def test_printed_statements_on_tables_parse_to_equal_statements(statement: Statement) -> None:
    text = print_statement(statement)
    assert parsed(text) == statement
    assert print_statement(parsed(text)) == text


@settings(max_examples=50, deadline=None, derandomize=True)
@given(tables())
def test_a_schema_survives_its_encoding(statement: RegisterTable) -> None:
    assert TableSchema.from_json(statement.schema.to_json()) == statement.schema


def test_clauses_can_be_in_any_order_and_rows_are_the_default() -> None:
    text = f"{STOCKS} keep 30 days as rows ordered by checked"
    assert print_statement(parsed(text)) == f"{STOCKS} keep 30 days ordered by checked;"
    assert parsed(f"{STOCKS} ordered by per as debezium keep 2 days") == RegisterTable(
        Name("Stocks"),
        (
            ColumnClause(Name("symbol"), ColumnType.TEXT, is_key=True),
            ColumnClause(Name("per"), ColumnType.NUMBER),
            ColumnClause(Name("checked"), ColumnType.DATE),
        ),
        ChangeForm.DEBEZIUM,
        timedelta(days=2),
        Name("per"),
    )


def test_key_columns_keep_the_order_of_declaration() -> None:
    statement = parsed("register table T (b text key, x number, a number key)")
    assert isinstance(statement, RegisterTable)
    assert [column.name for column in statement.schema.key] == ["b", "a"]


def test_show_rows_has_a_condition_on_columns() -> None:
    condition = Compare(Attribute("per"), ">", 50.0)
    assert parsed("show rows Stocks where per > 50") == ShowRows(Name("Stocks"), condition)
    assert parsed("show tables") == Show("tables")


@pytest.mark.parametrize("word", ["table", "key", "rows", "debezium", "keep", "ordered", "tables", "by"])
def test_new_words_are_still_names_of_feeds(word: str) -> None:
    assert parsed(f"register feed {word}") == RegisterFeed(Name(word))
    statement = parsed(f"create feed F from {word} where {word} = 1")
    assert isinstance(statement, CreateFeed)
    table = parsed(f"register table {word} ({word} text key) as rows")
    assert isinstance(table, RegisterTable)
    assert table.columns[0].name.text == word
    assert parsed(print_statement(table)) == table


@pytest.mark.parametrize(
    ("text", "message", "marked", "hint"),
    [
        ("register table T (a text key, a number)", "two columns have the name a", "a", "rename one"),
        ("register table T (a text, b number)", "the table T has no key", "T", "(symbol text key"),
        ('register table T ("a:b" text key)', "cannot contain a colon", '"a:b"', "choose another name"),
        ("register table T (a txt key)", "txt is not a type", "txt", "did you mean text?"),
        ("register table T (a int key)", "int is not a type", "int", "use text, number, date, boolean"),
        ('register table T ("graph" text key)', "not single values", '"graph"', "choose another name"),
        ("register table T (updated text, a text key)", "updated is always a date", "updated", "choose"),
        ("register table T (a text key) from 'kafka://x'", "are not built yet", "from", "runnel publish"),
        ("register table T (a text key) payload (a)", "are not built yet", "payload", "runnel publish"),
        ("register table T (a text key) as csv", "expected `debezium` or `rows`", "csv", None),
        ("register table T (a text key) keep 1 day keep 2 days", "keep is given twice", "keep", "remove"),
        ("register table T (a text key, bid number) ordered by bad", "no column bad", "bad", "did you mean bid?"),
        ("register table T (a text key) ordered by a", "a is a key column", "a", "grows with every change"),
        ("register table T a text key", "expected `(`", "a", None),
        ("register table T ()", "expected a name", ")", None),
        ("register table T (a text key unique)", "expected `)` or `,`", "unique", None),
        ("show rows T where $v[a = 1]", "cannot have variables", "$v[a = 1]", "without $v"),
        (
            "show rows T where near('x', ?m) and ?m < 2",
            "cannot have operators",
            "near('x', ?m) and ?m < 2",
            "per > 50",
        ),
        ("show rows", "expected a name", "", None),
        ("drop table T cascade", "expected `;`", "cascade", None),
    ],
)
def test_refusals_have_a_span_and_a_hint(text: str, message: str, marked: str, hint: str | None) -> None:
    error = problem(text)
    assert message in error.message
    assert error.span is not None
    assert text[error.span.column - 1 : error.span.end_column - 1].startswith(marked)
    assert hint is None or hint in (error.hint or "")


def test_the_repeated_column_is_marked_and_not_the_first_one() -> None:
    error = problem("register table T (a text key, b date, a number)")
    assert error.span is not None
    assert error.span.column == 39
