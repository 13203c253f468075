"""Encode attributes, inputs and rows as JSON, for operators in sandboxes, for digests, and for cache files.

A time is encoded as `{"date": …}`; all other values use their plain JSON form. Pickle is not used, because a
plug-in's process is not trusted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from runnel.errors import CorruptDataError
from runnel.model.item import moment
from runnel.model.operator import Rows

_DATE = "date"


def to_bytes(value: object) -> bytes:
    """Encode a value as JSON. Equal values have equal bytes: names are sorted, and times are in UTC.

    >>> to_bytes({"b": (True, 1.0), "a": (datetime(2026, 1, 2),)})
    b'{"a":[{"date":"2026-01-02T00:00:00+00:00"}],"b":[true,1.0]}'
    """
    return _ENCODER.encode(value).encode("ascii")


def from_bytes(data: bytes) -> Any:
    """Decode the bytes of `to_bytes`, with lists instead of tuples. Raise CorruptDataError if they are invalid.

    >>> from_bytes(b'[[{"date":"2026-01-02T00:00:00+00:00"}]]')
    [[datetime.datetime(2026, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)]]
    """
    try:
        return json.loads(data, object_hook=_decode_object)
    except (ValueError, RecursionError, OverflowError) as error:
        raise CorruptDataError(f"invalid JSON in operator data: {str(error)[:200]}") from error


def rows_from_bytes(data: bytes) -> Rows:
    """Decode the rows of a stored answer. Raise CorruptDataError if the bytes are not an answer.

    >>> rows_from_bytes(to_bytes((("Bronx", 2.0),)))
    (('Bronx', 2.0),)
    """
    decoded = from_bytes(data)
    if not isinstance(decoded, list) or not all(isinstance(row, list) for row in decoded):
        raise CorruptDataError("a stored operator answer is not a list of rows")
    return tuple(tuple(_check_stored_value(value) for value in row) for row in decoded)


def plain(value: object) -> object:
    """Convert a numpy value, which plug-ins often return, to a plain Python value. Return other values unchanged.

    >>> import numpy
    >>> plain(numpy.float32(0.5)), plain(numpy.array(["a", "b"])), plain("a")
    (0.5, ['a', 'b'], 'a')
    """
    # Compare the module's name: importing numpy would dominate the start time of a process.
    if type(value).__module__ == "numpy" and callable(to_list := getattr(value, "tolist", None)):
        return to_list()
    return value


def _check_stored_value(value: object) -> str | float | bool | datetime:
    if not isinstance(value, str | float | bool | datetime):
        raise CorruptDataError("a stored operator answer contains an invalid value")
    return value


def _encode_value(value: object) -> object:
    match value:
        case datetime():
            return {_DATE: moment(value).isoformat()}
        case date():
            return {_DATE: datetime(value.year, value.month, value.day, tzinfo=UTC).isoformat()}
        case _ if (other := plain(value)) is not value:
            return other
        case _:
            raise TypeError(f"values of the type {type(value).__name__} cannot be encoded")


def _decode_object(decoded: dict[str, Any]) -> object:
    if len(decoded) == 1 and isinstance(text := decoded.get(_DATE), str):
        return moment(datetime.fromisoformat(text))
    return decoded


_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True, default=_encode_value)


def size_of(rows: Sequence[Sequence[object]]) -> int:
    """Estimate the bytes that rows take in memory."""
    return 120 + sum(72 + sum(48 + len(value) if isinstance(value, str) else 32 for value in row) for row in rows)
