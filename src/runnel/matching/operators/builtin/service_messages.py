"""The JSON format of requests to an HTTP service and of its responses, which are not trusted.

    {"operator": "mobPattern", "asks": [{"attributes": {"title": ["…"]}, "inputs": ["…"]}, …]}
    {"answers": [{"rows": [[60, "…"], …]}, {"error": "why not"}, …]}

An invalid answer fails only its own call. If the number of answers is wrong, all calls of the request fail.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall
from runnel.model.item import MAX_TEXT, Value, clean_text
from runnel.model.operator import Row

MAX_ROWS = 1000
MAX_ROW_VALUES = 64
_MAX_EXCERPT = 300


def encode_call(call: OperatorCall) -> bytes:
    """Encode a call as JSON. Attributes, including those in `inputs`, are lists, and times are texts.

    >>> encode_call(OperatorCall({"title": ("Muse",)}, ("Bronx", (1.0, 2.0))))
    b'{"attributes":{"title":["Muse"]},"inputs":["Bronx",[1.0,2.0]]}'
    """
    attributes = {name: [_plain(value) for value in values] for name, values in call.attributes.items()}
    inputs = [
        [_plain(value) for value in given] if isinstance(given, tuple) else _plain(given) for given in call.inputs
    ]
    return _json({"attributes": attributes, "inputs": inputs})


def request_body(operator: str, calls: Sequence[bytes]) -> bytes:
    """Return the body of a request for encoded calls.

    >>> request_body("mobs", [b"{}"])
    b'{"operator":"mobs","asks":[{}]}'
    """
    return b'{"operator":' + _json(operator) + b',"asks":[' + b",".join(calls) + b"]}"


def read_answers(body: bytes, count: int) -> list[Answer]:
    """Read `count` answers from a body.

    An invalid answer becomes FailedCall; raise ValueError if the body is invalid.

    >>> read_answers(b'{"answers": [{"rows": [[7, "a"]]}, {"rows": [[null]]}]}', 2)[0]
    ((7.0, 'a'),)
    """
    try:
        document = json.loads(body.decode("utf-8"), parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    except ValueError as error:
        raise ValueError("the body is not JSON in UTF-8") from error
    answers = document.get("answers") if isinstance(document, dict) else None
    if not isinstance(answers, list):
        raise ValueError("the body is not an object with a list `answers`")
    if len(answers) != count:
        raise ValueError(f"{len(answers)} answers to {count} calls")
    return [_answer(answer) for answer in answers]


def one_line(text: Any) -> str:
    """Return the beginning of a text on one line, without control characters, which a terminal would interpret."""
    beginning = str(text)[:_MAX_EXCERPT]
    return " ".join("".join(character if character.isprintable() else " " for character in beginning).split())


def _answer(value: Any) -> Answer:
    match value:
        case {"error": str(reason)}:
            return FailedCall(f"the service reports: {one_line(reason)}", passing=value.get("passing") is not False)
        case {"rows": list(rows)} if len(rows) <= MAX_ROWS:
            checked = [_row(row) for row in rows]
            distinct = dict.fromkeys(row for row in checked if row is not None)
            if None in checked:
                return FailedCall(
                    f"the service returned a row that is not a list of at most {MAX_ROW_VALUES} texts, finite "
                    "numbers and booleans",
                    passing=False,
                )
            if len({len(row) for row in distinct}) > 1:
                return FailedCall("the service returned rows of different lengths", passing=False)
            return tuple(distinct)
        case {"rows": list()}:
            return FailedCall(f"the service returned more than {MAX_ROWS} rows", passing=False)
        case _:
            return FailedCall("the service returned an answer without a list `rows` or a text `error`", passing=False)


def _row(row: Any) -> Row | None:
    if not isinstance(row, list) or len(row) > MAX_ROW_VALUES:
        return None
    values = tuple(checked for value in row if (checked := _value(value)) is not None)
    return values if len(values) == len(row) else None


def _value(value: Any) -> Value | None:
    match value:
        case bool():
            return value
        case str() if len(value) <= MAX_TEXT:
            return clean_text(value)
        case int() | float():
            try:
                number = float(value)
            except OverflowError:
                return None
            return number if math.isfinite(number) else None
        case _:
            return None


def _plain(value: Value) -> str | float | bool:
    return value.isoformat() if isinstance(value, datetime) else value


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _refuse(constant: str) -> Any:
    raise ValueError(constant)
