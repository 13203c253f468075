"""Bindings: bounded, in an order of their own, and as JSON that gives every value back in its type."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import CorruptDataError, InvalidItemError
from runnel.model.bindings import (
    MAX_BYTES,
    MAX_ROWS,
    MAX_TEXT_LENGTH,
    NO_BINDINGS,
    Binding,
    Bindings,
    bounded,
    decode_bindings,
    encode_bindings,
)
from runnel.model.item import Value

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.one_of(
    st.booleans(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.datetimes(timezones=st.just(UTC)),
    TEXTS,
    st.sampled_from(["1", "true", "moment", "2026-11-15T09:30:00+00:00"]),
)
ROWS = st.lists(st.dictionaries(st.sampled_from(["x", "y", "people", "naïve"]), VALUES, max_size=3), max_size=6)


def told(row: Binding) -> dict[str, tuple[str, Value]]:
    """A row with the types of its values, which Python's equality does not tell apart."""
    return {name: (type(value).__name__, value) for name, value in row.items()}


@settings(max_examples=150, deadline=None)
@given(by_query=st.dictionaries(st.integers(0, 2**61), ROWS, max_size=5), seed=st.integers())
def test_bindings_round_trip_in_any_order(by_query: dict[int, list[Binding]], seed: int) -> None:
    text = encode_bindings(by_query)
    wanted = {query: bounded(rows) for query, rows in by_query.items() if any(rows)}
    assert (text is None) == (not wanted)
    bindings = decode_bindings(text or "[]")
    assert bindings == wanted
    for query, binding in bindings.items():
        assert [told(row) for row in binding.rows] == [told(row) for row in wanted[query].rows]
        assert binding.count == len({tuple(sorted(told(row).items())) for row in by_query[query] if row})
    order = random.Random(seed)
    turned = {query: order.sample(rows, len(rows)) for query, rows in reversed(by_query.items())}
    assert encode_bindings(turned) == text


def test_equal_values_of_different_types_are_distinct() -> None:
    moment = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
    rows = bounded([{"x": "1"}, {"x": moment}, {"x": 1.0}, {"x": True}])
    assert [type(row["x"]) for row in rows.rows] == [bool, float, datetime, str]
    assert rows.values() == {"x": (True, 1.0, moment, "1")}
    [binding] = decode_bindings(encode_bindings({3: rows}) or "").values()
    assert [told(row) for row in binding.rows] == [told(row) for row in rows.rows]


def test_numbers_are_doubles_and_moments_in_utc() -> None:
    zone = timezone(timedelta(hours=2))
    [row] = bounded([{"n": 3, "at": datetime(2026, 11, 15, 11, 30, tzinfo=zone)}]).rows
    assert told(row) == {"at": ("datetime", datetime(2026, 11, 15, 9, 30, tzinfo=UTC)), "n": ("float", 3.0)}
    with pytest.raises(InvalidItemError, match=r"\?n is not a finite number"):
        bounded([{"n": float("nan")}])


def test_zero_has_no_sign() -> None:
    assert encode_bindings({1: [{"x": -0.0}, {"x": 0.0}]}) == '[{"queries":[1],"rows":[{"x":0.0}],"count":1}]'


def test_rows_beyond_the_limit_are_counted() -> None:
    many = bounded({"x": float(n)} for n in range(250, 0, -1))
    assert [row["x"] for row in many.rows] == [float(n) for n in range(1, MAX_ROWS + 1)]
    assert (many.count, many.more) == (250, 150)
    again = decode_bindings(encode_bindings({1: many}) or "")
    assert again == {1: many}, "bounded bindings are not counted again"


def test_size_limit_drops_rows_but_never_the_first() -> None:
    long = bounded({"x": f"{n}" + MAX_BYTES // 4 * "é"} for n in range(9))
    assert 0 < len(long.rows) < 9
    assert long.count == 9
    wide = bounded([{f"x{n}": "é" * MAX_TEXT_LENGTH for n in range(3)}, {"y": 1.0}])
    assert (len(wide.rows), wide.more) == (1, 1)
    assert wide.bytes > MAX_BYTES // 2


def test_long_texts_are_truncated() -> None:
    same, longer = "a" * MAX_TEXT_LENGTH, "b" * (1 << 20)
    [first, second] = bounded([{"x": same}, {"x": longer}]).rows
    assert first["x"] == same
    assert second["x"] == longer[: MAX_TEXT_LENGTH - 1] + "…"


def test_equal_rows_of_queries_are_stored_once() -> None:
    text = encode_bindings({query: [{"people": 60.0}] for query in range(1000)}) or ""
    assert text.count("people") == 1
    assert decode_bindings(text, {5, 2000}) == {5: Bindings(({"people": 60.0},), 1)}


def test_rows_without_variables_give_no_bindings() -> None:
    assert bounded([{}]) == NO_BINDINGS
    assert encode_bindings({1: [{}], 2: []}) is None


def test_lone_surrogates_are_replaced() -> None:
    [binding] = decode_bindings(encode_bindings({1: [{"x": "a\ud800b"}]}) or "").values()
    assert binding.rows == ({"x": "a?b"},)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "7",
        "{}x",
        "[1]",
        '[{"queries": 3}]',
        '[{"queries": ["3"], "rows": [], "count": 0}]',
        '[{"queries": [true], "rows": [], "count": 0}]',
        '[{"queries": [[]], "rows": [], "count": 0}]',
        '[{"queries": [3], "rows": [{"x": 1}], "count": 0}]',
        '[{"queries": [3], "rows": [{"x": 1}], "count": 1.5}]',
        '[{"queries": [3], "rows": [{"x": null}], "count": 1}]',
        '[{"queries": [3], "rows": [{"x": [1]}], "count": 1}]',
        '[{"queries": [3], "rows": [{"x": NaN}], "count": 1}]',
        '[{"queries": [3], "rows": [{"x": 1e999}], "count": 1}]',
        '[{"queries": [3], "rows": [{"x": {"moment": "soon"}}], "count": 1}]',
        '[{"queries": [3], "rows": ["x"], "count": 1}]',
        "[" * 100_000,
    ],
)
def test_damaged_bindings_raise_an_error(text: str) -> None:
    with pytest.raises(CorruptDataError, match="the stored bindings of an item are invalid"):
        decode_bindings(text)
