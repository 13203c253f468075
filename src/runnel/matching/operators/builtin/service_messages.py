"""What is said between Runnel and a service: asks in, JSON out; JSON of anybody in, answers out.

    {"operator": "mobPattern", "asks": [{"attributes": {"title": ["…"]}, "inputs": ["…"]}, …]}
    {"answers": [{"rows": [[60, "…"], …]}, {"error": "why not"}, …]}

An answer that is not as it should be fails for its ask alone; where their number is wrong, all do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from runnel.matching.operators.plugins.contract import Answer, Ask, Failed
from runnel.model.item import MAX_TEXT, Value, clean_text
from runnel.model.operator import Row

MAX_ROWS = 1000
MAX_PLACES = 64
_SHOWN = 300


def encode_ask(ask: Ask) -> bytes:
    """An ask as JSON: attributes and attributes among the inputs are lists, moments are texts.

    >>> encode_ask(Ask({"title": ("Muse",)}, ("Bronx", (1.0, 2.0))))
    b'{"attributes":{"title":["Muse"]},"inputs":["Bronx",[1.0,2.0]]}'
    """
    attributes = {name: [_plain(value) for value in values] for name, values in ask.attributes.items()}
    inputs = [[_plain(one) for one in given] if isinstance(given, tuple) else _plain(given) for given in ask.inputs]
    return _json({"attributes": attributes, "inputs": inputs})


def request_body(operator: str, asks: Sequence[bytes]) -> bytes:
    """The body that is posted for encoded asks.

    >>> request_body("mobs", [b"{}"])
    b'{"operator":"mobs","asks":[{}]}'
    """
    return b'{"operator":' + _json(operator) + b',"asks":[' + b",".join(asks) + b"]}"


def read_answers(body: bytes, count: int) -> list[Answer]:
    """The answers of a body; Failed for one that is not as it should be, ValueError where the whole is not.

    >>> read_answers(b'{"answers": [{"rows": [[7, "a"]]}, {"rows": [[null]]}]}', 2)[0]
    ((7.0, 'a'),)
    """
    try:
        document = json.loads(body.decode("utf-8"), parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("its answer is nested too deeply") from error
    except ValueError as error:
        raise ValueError("its answer is no JSON") from error
    answers = document.get("answers") if isinstance(document, dict) else None
    if not isinstance(answers, list):
        raise ValueError("its answer has no list `answers`")
    if len(answers) != count:
        raise ValueError(f"it gave {len(answers)} answers to {count} asks")
    return [_answer(one) for one in answers]


def shown(text: Any) -> str:
    """The beginning of what somebody said, on one line and without what a terminal would act on."""
    beginning = str(text)[:_SHOWN]
    return " ".join("".join(one if one.isprintable() else " " for one in beginning).split())


def _answer(value: Any) -> Answer:
    match value:
        case {"error": str(reason)}:
            return Failed(f"the service says: {shown(reason)}", passing=value.get("passing") is not False)
        case {"rows": list(rows)} if len(rows) <= MAX_ROWS:
            found = [_row(row) for row in rows]
            kept = dict.fromkeys(row for row in found if row is not None)
            if len({len(row) for row in kept}) <= 1 and None not in found:
                return tuple(kept)
            return Failed("the service gave a row that is not one of texts, numbers and truths", passing=False)
        case {"rows": list()}:
            return Failed(f"the service gave more than {MAX_ROWS} rows", passing=False)
        case _:
            return Failed("the service gave neither `rows` nor `error`", passing=False)


def _row(row: Any) -> Row | None:
    if not isinstance(row, list) or len(row) > MAX_PLACES:
        return None
    values = tuple(value for one in row if (value := _value(one)) is not None)
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
