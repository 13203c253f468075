"""Bindings: the values of a query's variables for a match.

In: rows of values by variable name, from operators. Out: `Bindings`, bounded and in an order that depends only on the
rows, and their JSON, in which every value keeps its type. Queries that make the same operator call mostly get the
same rows, so rows that an item's queries share are written once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from typing import Any

from runnel.errors import CorruptDataError, InvalidItemError
from runnel.model.item import Value, moment

Binding = Mapping[str, Value]
"""A value for every variable."""

MAX_ROWS = 100
"""Maximum number of rows that are kept per match. Further rows are only counted."""

MAX_BYTES = 16 << 10
"""Maximum size of the JSON of a match's rows, unless the first row alone is larger."""

MAX_TEXT_LENGTH = 4096
"""Maximum number of characters of a text. Bindings are part of every message and must not contain documents."""

_VALUE_BYTES = 40
_PARTIAL = ',"partial":true'


@dataclass(frozen=True, slots=True)
class Bindings:
    """The kept rows of one match, and the number of rows found. If `is_whole`, the search was complete."""

    rows: tuple[Binding, ...] = ()
    count: int = 0
    is_whole: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows and the search for rows was complete."""
        return not self.rows and self.is_whole

    @property
    def more(self) -> int:
        """The number of rows that were found but not kept."""
        return self.count - len(self.rows)

    @property
    def bytes(self) -> int:
        """The approximate size of the rows in bytes."""
        texts = sum(len(value) for row in self.rows for value in row.values() if isinstance(value, str))
        return texts + _VALUE_BYTES * sum(map(len, self.rows))

    def values(self) -> dict[str, tuple[Value, ...]]:
        """Return the distinct values of each variable in all rows.

        >>> bounded([{"x": 1.0, "place": "Bronx"}, {"x": 2.0, "place": "Bronx"}]).values()
        {'place': ('Bronx',), 'x': (1.0, 2.0)}
        """
        values: dict[str, dict[tuple[int, Value], Value]] = {}
        for row in self.rows:
            for name, value in row.items():
                values.setdefault(name, {}).setdefault((_rank(value), value), value)
        return {name: tuple(values[name].values()) for name in sorted(values)}


NO_BINDINGS = Bindings()

MatchBindings = Mapping[int, Mapping[int, Bindings | Collection[Binding]]]
"""By sequence and query, the rows of an item's match, or of a match that may still have to pass a gate."""


def bounded(rows: Bindings | Iterable[Binding], *, is_whole: bool = True) -> Bindings:
    """Return distinct rows in canonical order, up to the maximum. Rows without a variable are ignored.

    `is_whole` is False if the search for rows ended before all were found.

    >>> bounded([{"x": 2.0}, {"x": 1.0}, {"x": 2.0}, {}])
    Bindings(rows=({'x': 1.0}, {'x': 2.0}), count=2, is_whole=True)
    """
    if isinstance(rows, Bindings):
        return rows
    ranked = {tuple((name, _rank(value), value) for name, value in _typed(row)) for row in rows}
    ranked.discard(())
    selected: list[Binding] = []
    room = MAX_BYTES
    for ranked_row in nsmallest(MAX_ROWS, ranked):
        row = {name: _cut(value) for name, _, value in ranked_row}
        room -= len(_encoded(_encode_row(row)).encode())
        if selected and room < 0:
            break
        selected.append(row)
    return Bindings(tuple(selected), len(ranked), is_whole)


def encode_bindings(by_query: Mapping[int, Bindings | Collection[Binding]]) -> str | None:
    """Encode the bindings of an item's queries as JSON. Return None if no query has any.

    >>> encode_bindings({7: [{"people": 60.0}], 9: [{"people": 60.0}], 8: [{}]})
    '[{"queries":[7,9],"rows":[{"people":60.0}],"count":1}]'
    """
    groups_by_rows: dict[tuple[str, int, bool], list[int]] = {}
    for query in sorted(by_query):
        bindings = bounded(by_query[query])
        if not bindings.is_empty:
            rows = _encoded([_encode_row(row) for row in bindings.rows])
            groups_by_rows.setdefault((rows, bindings.count, bindings.is_whole), []).append(query)
    groups = (
        f'{{"queries":{_encoded(queries)},"rows":{rows},"count":{count}{"" if is_whole else _PARTIAL}}}'
        for (rows, count, is_whole), queries in groups_by_rows.items()
    )
    return f"[{','.join(groups)}]" if groups_by_rows else None


def decode_bindings(text: str, queries: Collection[int] | None = None) -> dict[int, Bindings]:
    """Decode the bindings of all queries, or of `queries`, from JSON. Raise CorruptDataError if it is damaged.

    The text may also contain annotations (see `runnel.model.annotation`), which are skipped.

    >>> decode_bindings('[{"queries":[7,9],"rows":[{"people":60.0}],"count":3}]', {9})
    {9: Bindings(rows=({'people': 60.0},), count=3, is_whole=True)}
    """
    by_query: dict[int, Bindings] = {}
    try:
        for group in json.loads(text, parse_constant=_refuse):
            selected = [_whole(query) for query in group["queries"] if queries is None or query in queries]
            if selected and "annotations" not in group:
                rows = _decode_rows(group["rows"], _whole(group["count"]), group.get("partial") is not True)
                by_query |= dict.fromkeys(selected, rows)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptDataError(f"the stored bindings of an item are invalid: {str(text)[:80]!r}") from error
    return by_query


def _typed(row: Binding) -> list[tuple[str, Value]]:
    """Return the values of a row by name, in order: numbers as doubles, dates in UTC."""
    typed: list[tuple[str, Value]] = []
    for name in sorted(row):
        value = row[name]
        match value:
            case bool() | str():
                typed.append((name, value))
            case datetime():
                typed.append((name, moment(value)))
            case _ if math.isfinite(value):
                # Adding zero turns -0.0 into 0.0, which compares equal.
                typed.append((name, float(value) + 0.0))
            case _:
                raise InvalidItemError(f"?{name} is not a finite number")
    return typed


def _cut(value: Value) -> Value:
    return f"{value[: MAX_TEXT_LENGTH - 1]}…" if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH else value


def _rank(value: Value) -> int:
    """Return the rank of a value's type, because values of different types cannot be compared."""
    match value:
        case bool():
            return 0
        case datetime():
            return 2
        case str():
            return 3
        case _:
            return 1


def _encode_row(row: Binding) -> dict[str, Any]:
    return {
        name: {"moment": value.isoformat()} if isinstance(value, datetime) else value for name, value in row.items()
    }


def _encoded(value: Any) -> str:
    # Replace lone surrogates, which cannot be stored. Texts of operators are cleaned before.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace").decode("utf-8")


def _decode_rows(rows: Any, count: int, is_whole: bool) -> Bindings:
    decoded = tuple({str(name): _decode_value(value) for name, value in row.items()} for row in rows)
    if count < len(decoded):
        raise ValueError("the count is lower than the number of rows")
    return Bindings(decoded, count, is_whole)


def _decode_value(value: Any) -> Value:
    match value:
        case bool() | str():
            return value
        case int() | float() if math.isfinite(value):
            return float(value)
        case {"moment": str() as text}:
            return moment(datetime.fromisoformat(text))
    raise ValueError(f"unknown value {value!r}")


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number")
