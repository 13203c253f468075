"""Reads a document with changes of a table.

In: the text of a document: JSON lines, a JSON array, or CSV with a header. Out: an AdaptedFeed whose items are the
changes in order, with their number in the document as id, and the problems of the others.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runnel.errors import BrokenDocumentError, InputError, InvalidItemError
from runnel.model.item import MAX_TEXT, Attributes, Item
from runnel.model.table import ChangeForm, TableSchema, change_of
from runnel.sources.documents.adapt import AdaptedFeed
from runnel.sources.documents.bounds import MAX_DOCUMENT_VALUES, ProblemList, refuse_more_items
from runnel.sources.documents.charset import decode_text
from runnel.sources.documents.decode_json import decode_json
from runnel.sources.documents.wire import DocumentKind, WireRecord
from runnel.sources.tables.decode_debezium import decode_debezium
from runnel.sources.tables.decode_rows import decode_row

_DELIMITERS = (",", ";", "\t")
_DECODERS: dict[ChangeForm, Callable[[Mapping[str, Any], TableSchema, str], list[Attributes]]] = {
    ChangeForm.ROWS: decode_row,
    ChangeForm.DEBEZIUM: decode_debezium,
}


def decode_change(value: Mapping[str, Any], schema: TableSchema, place: str) -> list[Attributes]:
    """Return the changes that an object describes in the form of the table."""
    return _DECODERS[schema.form](value, schema, place)


def read_changes(
    data: bytes, name: str, table: str, schema: TableSchema, *, max_items: int, is_whole: bool = False
) -> AdaptedFeed:
    """Read a document with changes. If it `is_whole`, it has all rows, so no two may have the same key.

    >>> from runnel.model.table import Column, ColumnType
    >>> schema = TableSchema((Column("id", ColumnType.TEXT, True),))
    >>> read_changes(b"id\\na\\nb\\n", "a.csv", "T", schema, max_items=9).items[1].attributes
    {'id': ('b',)}
    """
    text = decode_text(data, name).lstrip("\ufeff")
    records, problems = _read_records(text, name, schema, max_items)
    items: list[Item] = []
    lines: dict[str, int] = {}
    values = 0
    for record in records:
        place = f"{name}:{record.line}"
        try:
            for attributes in decode_change(record.value, schema, place):
                change = change_of(table, schema, attributes, place)
                if is_whole:
                    _refuse_repeated(change.item.id, change.is_deletion, lines, record.line, place)
                items.append(Item(table, str(len(items) + 1), attributes))
                values += len(attributes)
        except InputError as problem:
            problems.add(problem)
            continue
        refuse_more_items(len(items), max_items, place)
        if values > MAX_DOCUMENT_VALUES:
            raise BrokenDocumentError(
                f"the document has more than {MAX_DOCUMENT_VALUES} values", place=place, hint="split it"
            )
    return AdaptedFeed(DocumentKind.JSON_LINES, None, None, None, items, problems.summary())


def _refuse_repeated(key: str, is_deletion: bool, lines: dict[str, int], line: int, place: str) -> None:
    if is_deletion:
        raise InvalidItemError(
            "a document with all rows cannot contain deletions", place=place, hint="leave deleted rows out"
        )
    if key in lines:
        raise InvalidItemError(
            f"the key {key[:80]} is also in line {lines[key]}", place=place, hint="write each row only once"
        )
    lines[key] = line


def _read_records(
    text: str, name: str, schema: TableSchema, max_items: int
) -> tuple[Iterator[WireRecord], ProblemList]:
    if not text.strip():
        return iter(()), ProblemList(name)
    if text.lstrip()[0] in "{[" or schema.form is ChangeForm.DEBEZIUM:
        document = decode_json(text, name, max_items, skips_null=schema.form is ChangeForm.DEBEZIUM)
        if document.kind is not DocumentKind.JSON_LINES:
            raise BrokenDocumentError(
                "the document is a JSON Feed", place=f"{name}:1", hint="write one JSON object per row"
            )
        return iter(document.records), ProblemList(name, document.problems)
    problems = ProblemList(name)
    return _read_csv(text, name, schema, problems), problems


def _read_csv(text: str, name: str, schema: TableSchema, problems: ProblemList) -> Iterator[WireRecord]:
    """Read CSV with a header. Commas, semicolons and tabs can separate the columns."""
    csv.field_size_limit(4 * MAX_TEXT)
    header: list[str] = []
    broken: csv.Error | None = None
    for delimiter in _DELIMITERS:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        try:
            header = [column.strip() for column in next(reader)]
        except csv.Error as error:
            broken = error  # a quoted name is an error if another delimiter follows it
            continue
        if all(column.name in header for column in schema.key):
            break
    else:
        if broken is not None and not header:
            raise BrokenDocumentError(f"not CSV: {broken}", place=f"{name}:1")
        missing = ", ".join(column.name for column in schema.key)
        raise BrokenDocumentError(
            "the document is neither JSON nor CSV with the key columns in its first line",
            place=f"{name}:1",
            hint=f"the key of the table is: {missing}",
        )
    if len(set(header)) != len(header):
        raise BrokenDocumentError("a column occurs twice in the first line", place=f"{name}:1")
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise BrokenDocumentError(f"not CSV: {error}", place=f"{name}:{line}") from None
        if cells is None:
            return
        if not cells:
            continue
        if len(cells) != len(header):
            message = f"the line has {len(cells)} cells, and the first line has {len(header)}"
            problems.add(InvalidItemError(message, place=f"{name}:{line}", hint='write empty cells as ,, or ""'))
            continue
        yield WireRecord(line, dict(zip(header, cells, strict=True)))
