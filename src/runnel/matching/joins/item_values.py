"""The values of attributes as JSON, for conditions that no index can answer exactly.

In: attributes of an item. Out: bytes, and the attributes again. Structured values are left out, because joins cannot
compare them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from runnel.errors import CorruptDataError
from runnel.model.item import Attributes, Value
from runnel.model.structured_value import StructuredValue


def encode_values(attributes: Attributes) -> bytes:
    """Encode attributes as JSON. The result is empty if there are none.

    >>> encode_values({"price": (3.0,)}), encode_values({})
    (b'{"price":[3.0]}', b'')
    """
    values = {
        name: [_encode_value(value) for value in several if not isinstance(value, StructuredValue)]
        for name, several in attributes.items()
    }
    return json.dumps(values, separators=(",", ":")).encode("ascii") if values else b""


def decode_values(data: bytes) -> Attributes:
    """Decode attributes. Raise CorruptDataError if they are damaged."""
    if not data:
        return {}
    try:
        return {name: tuple(map(_decode_value, several)) for name, several in json.loads(data).items()}
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise CorruptDataError("the values of an item in a window cannot be decoded") from error


def _encode_value(value: Value) -> Any:
    return {"moment": value.isoformat()} if isinstance(value, datetime) else value


def _decode_value(value: Any) -> Value:
    if isinstance(value, dict):
        return datetime.fromisoformat(value["moment"]).astimezone(UTC)
    return value if isinstance(value, str | bool) else float(value)
