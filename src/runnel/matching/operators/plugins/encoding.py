"""Values as bytes and back, for the sandboxes of operators, for digests, and for the files of the cache.

In: attributes, inputs and rows. Out: JSON in which a moment is `{"date": …}` and everything else is as JSON has it.
No pickles, since a plug-in's process is not trusted.
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
    """JSON as it is stored and sent, the same for equal values: names in order, moments in UTC.

    >>> to_bytes({"b": (True, 1.0), "a": (datetime(2026, 1, 2),)})
    b'{"a":[{"date":"2026-01-02T00:00:00+00:00"}],"b":[true,1.0]}'
    """
    return _ENCODER.encode(value).encode("ascii")


def from_bytes(data: bytes) -> Any:
    """What `to_bytes` was given, with lists in place of tuples; CorruptData for anything that is not JSON.

    >>> from_bytes(b'[[{"date":"2026-01-02T00:00:00+00:00"}]]')
    [[datetime.datetime(2026, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)]]
    """
    try:
        return json.loads(data, object_hook=_revived)
    except (ValueError, RecursionError, OverflowError) as error:
        raise CorruptDataError(f"this is not JSON as it is sent and stored: {str(error)[:200]}") from error


def rows_from_bytes(data: bytes) -> Rows:
    """The rows of an answer that was stored.

    >>> rows_from_bytes(to_bytes((("Bronx", 2.0),)))
    (('Bronx', 2.0),)
    """
    found = from_bytes(data)
    if not isinstance(found, list) or not all(isinstance(row, list) for row in found):
        raise CorruptDataError("this is not an answer as it is stored")
    return tuple(tuple(_stored(value) for value in row) for row in found)


def plain(value: object) -> object:
    """A value without the types of numpy, which plug-ins like to give.

    >>> import numpy
    >>> plain(numpy.float32(0.5)), plain(numpy.array(["a", "b"])), plain("a")
    (0.5, ['a', 'b'], 'a')
    """
    # By name: importing numpy would take most of the time that a process needs to begin.
    if type(value).__module__ == "numpy" and callable(to_list := getattr(value, "tolist", None)):
        return to_list()
    return value


def _stored(value: object) -> str | float | bool | datetime:
    if not isinstance(value, str | float | bool | datetime):
        raise CorruptDataError("this is not a value as it is stored")
    return value


def _encoded(value: object) -> object:
    match value:
        case datetime():
            return {_DATE: moment(value).isoformat()}
        case date():
            return {_DATE: datetime(value.year, value.month, value.day, tzinfo=UTC).isoformat()}
        case _ if (other := plain(value)) is not value:
            return other
        case _:
            raise TypeError(f"a value of the type {type(value).__name__}")


def _revived(found: dict[str, Any]) -> object:
    if len(found) == 1 and isinstance(text := found.get(_DATE), str):
        return moment(datetime.fromisoformat(text))
    return found


_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True, default=_encoded)


def size_of(rows: Sequence[Sequence[object]]) -> int:
    """About how many bytes rows take in memory."""
    return 120 + sum(72 + sum(48 + len(one) if isinstance(one, str) else 32 for one in row) for row in rows)
