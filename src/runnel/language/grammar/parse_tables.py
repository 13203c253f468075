"""Grammar rules for tables: `register table`, and the condition of `show rows`.

In: the token after the keywords. Out: validated statements.
"""

from __future__ import annotations

from typing import Any

from runnel.algebra.nodes.calls import Call, Constraint
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.semantics.window_conditions import atoms_of
from runnel.errors import DuplicateNameError, InvalidConditionError, StatementSyntaxError, UnknownNameError
from runnel.language.grammar.parse_conditions import parse_condition
from runnel.language.grammar.parse_values import parse_duration, parse_enclosed, parse_name
from runnel.language.nearest import did_you_mean
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.conditions import Conjuncts
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.script_tokens import Token
from runnel.language.syntax.statements import ColumnClause, Name, RegisterTable, ShowRows
from runnel.model.table import ChangeForm, ColumnType, reserved_column

MAX_COLUMNS = 1_000
_TYPES = tuple(kind.value for kind in ColumnType)
_NOT_BUILT = {
    "from": "tables with an address are not built yet",
    "payload": "columns that are sent on request are not built yet",
}


def parse_table(tokens: TokenReader) -> RegisterTable:
    """Parse `register table Name (column type [key], …) [clause]…`; the word `table` has been read."""
    name = parse_name(tokens)
    columns = _parse_columns(tokens, name)
    clauses: dict[str, Any] = {}
    while (keyword := tokens.take_one_of("as", "keep", "ordered")) is not None:
        field, value = _parse_clause(tokens, keyword, columns)
        if field in clauses:
            raise StatementSyntaxError(
                f"the clause {keyword.text.lower()} is given twice", span=keyword.span, hint="remove one of the two"
            )
        clauses[field] = value
    if tokens.word in _NOT_BUILT:
        raise StatementSyntaxError(
            _NOT_BUILT[tokens.word],
            span=tokens.span,
            hint="leave the clause out, and publish changes: runnel publish Stocks changes.jsonl",
        )
    return RegisterTable(name, columns, **clauses)


def _parse_columns(tokens: TokenReader, table: Name) -> tuple[ColumnClause, ...]:
    if not tokens.is_at("("):
        raise tokens.unexpected()
    columns = tuple(parse_enclosed(tokens, _parse_column))
    if len(columns) > MAX_COLUMNS:
        raise StatementSyntaxError(
            f"a table has at most {MAX_COLUMNS:,} columns", span=columns[MAX_COLUMNS].name.span
        )
    names: set[str] = set()
    for column in columns:
        if column.name.text in names:
            raise DuplicateNameError(
                f"two columns have the name {column.name.text}", span=column.name.span, hint="rename one of the two"
            )
        names.add(column.name.text)
    if not any(column.is_key for column in columns):
        raise StatementSyntaxError(
            f"the table {table.text} has no key",
            span=table.span,
            hint="write key after the type of each column that identifies a row: (symbol text key, price number)",
        )
    return columns


def _parse_column(tokens: TokenReader) -> ColumnClause:
    """Parse `name type [key]`."""
    name = parse_name(tokens)
    word = tokens.expect_any_word(expects.TYPE)
    if word.text.lower() not in _TYPES:
        raise StatementSyntaxError(
            f"{word.text} is not a type of a column",
            span=word.span,
            hint=did_you_mean(word.text.lower(), _TYPES) or f"use {', '.join(_TYPES)}",
        )
    kind = ColumnType(word.text.lower())
    problem = reserved_column(name.text, kind)
    if problem is not None:
        raise StatementSyntaxError(problem, span=name.span, hint="choose another name for the column")
    return ColumnClause(name, kind, tokens.take("key"))


def _parse_clause(tokens: TokenReader, keyword: Token, columns: tuple[ColumnClause, ...]) -> tuple[str, object]:
    """Parse the value of a clause. Return the field of the statement that it sets, and the value."""
    match keyword.text.lower():
        case "as":
            form = tokens.take_one_of("rows", "debezium")
            if form is None:
                raise tokens.unexpected()
            return "form", ChangeForm(form.text.lower())
        case "keep":
            return "keep", parse_duration(tokens).length
        case _:
            tokens.expect("by")
            return "ordered_by", _find_column(parse_name(tokens), columns)


def _find_column(name: Name, columns: tuple[ColumnClause, ...]) -> Name:
    """Return the name of a column that can order changes."""
    column = next((column for column in columns if column.name.text == name.text), None)
    names = [column.name.text for column in columns]
    if column is None:
        raise UnknownNameError(
            f"there is no column {name.text}",
            span=name.span,
            hint=did_you_mean(name.text, names) or f"the columns are {', '.join(names)}",
        )
    if column.is_key:
        raise StatementSyntaxError(
            f"{name.text} is a key column, which is the same in all changes of a row",
            span=name.span,
            hint="name a column that grows with every change, such as the time of the change",
        )
    return name


def parse_show_rows(tokens: TokenReader) -> ShowRows:
    """Parse `show rows Table [where condition]`; the word `rows` has been read."""
    table = parse_name(tokens)
    if not tokens.take("where"):
        return ShowRows(table)
    start = tokens.start
    condition = parse_condition(tokens)
    span = tokens.script.span(start, tokens.previous_end)
    if isinstance(condition, Conjuncts):
        raise InvalidConditionError(
            "the condition on rows cannot have variables", span=span, hint="write the condition without $v[…]"
        )
    if any(isinstance(atom, Call | Constraint | ItemPattern) for atom in atoms_of(condition)):
        raise InvalidConditionError(
            "the condition on rows cannot have operators or patterns",
            span=span,
            hint="compare columns with constants: show rows Stocks where per > 50",
        )
    return ShowRows(table, condition, span)
