"""Bindings: what the variables of a query's condition stood for where an item matched it.

In: rows of values by the names of variables, as operators gave them. Out: `Bindings`, bounded and in an order that
depends on the rows alone, and their JSON, in which every value keeps its type. Queries that ask an operator the same
mostly get the same rows, so what an item's queries have in common is written once.
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

MOST_ROWS = 100
"""How many rows of a match are kept; the others are counted."""

MOST_BYTES = 16 << 10
"""How many bytes of JSON the rows of a match may have, unless the first row alone has more."""

LONGEST_TEXT = 4096
"""Characters of a text that are kept: bindings go with every message, and are no place for documents."""

_VALUE_BYTES = 40
_PARTIAL = ',"partial":true'


@dataclass(frozen=True, slots=True)
class Bindings:
    """The rows of one match, as many as are kept, and how many were found; all there are, if it `is_whole`."""

    rows: tuple[Binding, ...] = ()
    count: int = 0
    is_whole: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to say: no row, and none that was not looked for."""
        return not self.rows and self.is_whole

    @property
    def more(self) -> int:
        """How many rows there were besides those that are kept."""
        return self.count - len(self.rows)

    @property
    def bytes(self) -> int:
        """About how many bytes the rows are."""
        texts = sum(len(value) for row in self.rows for value in row.values() if isinstance(value, str))
        return texts + _VALUE_BYTES * sum(map(len, self.rows))

    def values(self) -> dict[str, tuple[Value, ...]]:
        """What each variable stood for in any row, every value once.

        >>> bounded([{"x": 1.0, "place": "Bronx"}, {"x": 2.0, "place": "Bronx"}]).values()
        {'place': ('Bronx',), 'x': (1.0, 2.0)}
        """
        found: dict[str, dict[tuple[int, Value], Value]] = {}
        for row in self.rows:
            for name, value in row.items():
                found.setdefault(name, {}).setdefault((_rank(value), value), value)
        return {name: tuple(found[name].values()) for name in sorted(found)}


NO_BINDINGS = Bindings()

MatchBindings = Mapping[int, Mapping[int, Bindings | Collection[Binding]]]
"""By sequence and query, the rows under which an item matched; or would, if it passes a gate."""


def bounded(rows: Bindings | Iterable[Binding], *, is_whole: bool = True) -> Bindings:
    """Rows in canonical order, each once, and no more than are kept. Rows without a variable say nothing.

    Unless it `is_whole`, the search for rows was ended before all were found.

    >>> bounded([{"x": 2.0}, {"x": 1.0}, {"x": 2.0}, {}])
    Bindings(rows=({'x': 1.0}, {'x': 2.0}), count=2, is_whole=True)
    """
    if isinstance(rows, Bindings):
        return rows
    ranked = {tuple((name, _rank(value), value) for name, value in _typed(row)) for row in rows}
    ranked.discard(())
    kept: list[Binding] = []
    room = MOST_BYTES
    for one in nsmallest(MOST_ROWS, ranked):
        row = {name: _cut(value) for name, _, value in one}
        room -= len(_encoded(_encode_row(row)).encode())
        if kept and room < 0:
            break
        kept.append(row)
    return Bindings(tuple(kept), len(ranked), is_whole)


def encode_bindings(by_query: Mapping[int, Bindings | Collection[Binding]]) -> str | None:
    """The bindings of an item's queries as JSON; None where no query has any.

    >>> encode_bindings({7: [{"people": 60.0}], 9: [{"people": 60.0}], 8: [{}]})
    '[{"queries":[7,9],"rows":[{"people":60.0}],"count":1}]'
    """
    alike: dict[tuple[str, int, bool], list[int]] = {}
    for query in sorted(by_query):
        one = bounded(by_query[query])
        if not one.is_empty:
            rows = _encoded([_encode_row(row) for row in one.rows])
            alike.setdefault((rows, one.count, one.is_whole), []).append(query)
    groups = (
        f'{{"queries":{_encoded(queries)},"rows":{rows},"count":{count}{"" if is_whole else _PARTIAL}}}'
        for (rows, count, is_whole), queries in alike.items()
    )
    return f"[{','.join(groups)}]" if alike else None


def decode_bindings(text: str, queries: Collection[int] | None = None) -> dict[int, Bindings]:
    """The bindings of some queries, or of all, in JSON made by `encode_bindings`; CorruptData where it is damaged.

    >>> decode_bindings('[{"queries":[7,9],"rows":[{"people":60.0}],"count":3}]', {9})
    {9: Bindings(rows=({'people': 60.0},), count=3, is_whole=True)}
    """
    found: dict[int, Bindings] = {}
    try:
        for group in json.loads(text, parse_constant=_refuse):
            wanted = [_whole(one) for one in group["queries"] if queries is None or one in queries]
            if wanted:
                rows = _decode_rows(group["rows"], _whole(group["count"]), group.get("partial") is not True)
                found |= dict.fromkeys(wanted, rows)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptDataError(f"not valid bindings of an item: {str(text)[:80]!r}") from error
    return found


def _typed(row: Binding) -> list[tuple[str, Value]]:
    """The values of a row by name, in order: numbers as doubles, moments in UTC."""
    typed: list[tuple[str, Value]] = []
    for name in sorted(row):
        value = row[name]
        match value:
            case bool() | str():
                typed.append((name, value))
            case datetime():
                typed.append((name, moment(value)))
            case _ if math.isfinite(value):
                # Adding zero makes -0.0 and 0.0, which compare equal, one number.
                typed.append((name, float(value) + 0.0))
            case _:
                raise InvalidItemError(f"?{name} is not a finite number")
    return typed


def _cut(value: Value) -> Value:
    return f"{value[: LONGEST_TEXT - 1]}…" if isinstance(value, str) and len(value) > LONGEST_TEXT else value


def _rank(value: Value) -> int:
    """The place of a value's type among types: values of two types have no order."""
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
    # What is no Unicode text cannot be stored as one; operators' texts were cleaned before.
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
