"""Dates in the formats of feeds, fingerprints of items, and the items accepted from a first document."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.logs.items.fingerprint import fingerprint
from runnel.model.item import Item, Value
from runnel.sources.acquire import first_fetch
from runnel.sources.documents.dates import parse_date
from runnel.sources.documents.wire import DocumentKind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sun, 15 Nov 2026 09:30:00 GMT", "2026-11-15T09:30:00"),
        ("15 Nov 26 09:30 Z", "2026-11-15T09:30:00"),
        ("Sun, 15 November 2026 09:30:00 PDT", "2026-11-15T16:30:00"),
        ("Sun, 15 Nov 2026 09:30:00 CEST", "2026-11-15T07:30:00"),
        ("Sun, 15 Nov 2026 09:30:00 +05:30", "2026-11-15T04:00:00"),
        ("Sun, 15 Nov 2026 09:30:00 GMT+0000", "2026-11-15T09:30:00"),
        ("Sun, 15 Nov 2026 24:00:00 GMT", "2026-11-16T00:00:00"),
        ("Sat, 31 Dec 2016 23:59:60 GMT", "2017-01-01T00:00:00"),
        ("15-Nov-1999", "1999-11-15T00:00:00"),
        ("2026-11-15", "2026-11-15T00:00:00"),
        ("2026-11", "2026-11-01T00:00:00"),
        ("2026", "2026-01-01T00:00:00"),
        ("2026-11-15 09:30:00", "2026-11-15T09:30:00"),
        ("2026-11-15 09:30:00 UTC", "2026-11-15T09:30:00"),
        ("2026-11-15T09:30:00.123456789Z", "2026-11-15T09:30:00.123456"),
        ("20261115T093000Z", "2026-11-15T09:30:00"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00"),
        ("2099-12-31T23:59:59-01:00", "2100-01-01T00:59:59"),
    ],
)
def test_dates_are_parsed(text: str, expected: str) -> None:
    date = parse_date(text)
    assert date is not None
    assert date.tzinfo is UTC
    assert date.replace(tzinfo=None).isoformat() == expected


@pytest.mark.parametrize(
    "text",
    ["", "now", "32 Nov 2026 00:00 GMT", "15 Foo 2026 00:00 GMT", "0001-01-01T00:00:00+14:00", "0000", "2026-13",
     "15 Nov 2026 99:00 GMT", "9999-12-31T23:59:59-14:00", "१५ Nov 2026", "1" * 100, "15 Nov 2026 00:00 +9999"],
)  # fmt: skip
def test_other_texts_are_not_dates(text: str) -> None:
    assert parse_date(text) is None


MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(lambda moment: moment.replace(microsecond=0))
ZONES = st.integers(-14 * 4, 14 * 4).map(lambda quarters: timezone(timedelta(minutes=15 * quarters)))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(MOMENTS, ZONES)
def test_dates_round_trip_in_both_formats(moment: datetime, zone: timezone) -> None:
    moment = moment.replace(tzinfo=zone)
    assert parse_date(moment.isoformat()) == moment
    assert parse_date(format_datetime(moment)) == moment


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(alphabet="0123456789-:+TZ, NovGMT().", max_size=40))
def test_any_text_is_a_date_or_none(text: str) -> None:
    date = parse_date(text)
    assert date is None or date.tzinfo is UTC


def item(**attributes: Value | tuple[Value, ...]) -> Item:
    return Item(
        "F", "1", {name: value if isinstance(value, tuple) else (value,) for name, value in attributes.items()}
    )


def test_fingerprints_distinguish_edits_from_noise() -> None:
    base = item(title="a", price=1.0)
    assert len(fingerprint(base)) == 16
    assert fingerprint(base) == fingerprint(Item("G", "2", {"price": (1.0,), "title": ("a",)}, version=3))
    assert fingerprint(base) == fingerprint(item(title="a", price=1.0, **{"slash:comments": "17"}))
    changed = [
        item(title="b", price=1.0),
        item(title="a"),
        item(title="a", price="1.0"),
        item(title="a", price=True),
        item(title=("a", "a2"), price=1.0),
        item(titlea="", price=1.0),
    ]
    assert len({fingerprint(value) for value in (base, *changed)}) == 7


def test_fingerprints_of_similar_attributes_differ() -> None:
    assert fingerprint(item(a=("bc", "d"))) != fingerprint(item(a=("b", "cd")))
    assert fingerprint(item(a="x", b="y")) != fingerprint(item(a="xb", y=""))
    zone = timezone(timedelta(hours=1))
    assert fingerprint(item(a=datetime(2026, 1, 1, 1, tzinfo=zone))) == fingerprint(
        item(a=datetime(2026, 1, 1, tzinfo=UTC))
    )
    assert fingerprint(item(a=-0.0)) == fingerprint(item(a=0.0))


def test_fingerprints_are_the_same_in_another_process() -> None:
    script = (
        "from runnel.model.item import Item; from runnel.logs.items.fingerprint import fingerprint;"
        "print(fingerprint(Item('F', '1', {'title': ('é',), 'n': (1.5, True)})).hex())"
    )
    other_process = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"},
    )  # fmt: skip
    assert other_process.stdout.strip() == fingerprint(Item("F", "1", {"n": (1.5, True), "title": ("é",)})).hex()


NOW = datetime(2026, 11, 15, tzinfo=UTC)


def aged(*days: int) -> list[Item]:
    return [Item("F", str(age), {"published": (NOW - timedelta(days=age),)}) for age in days]


def test_first_fetch_accepts_the_newest() -> None:
    accepted, remembered = first_fetch(aged(9, 5, 3, 1), 2)
    assert [entry.id for entry in accepted] == ["3", "1"]
    assert [entry.id for entry in remembered] == ["9", "5"]


def test_first_fetch_can_accept_nothing_and_accepts_all_json_lines() -> None:
    assert first_fetch(aged(1), 0) == ([], aged(1))
    assert first_fetch(aged(2, 1), 2) == first_fetch(aged(2, 1), 3) == (aged(2, 1), [])
    many = aged(*range(300))
    assert first_fetch(many, 100, kind=DocumentKind.JSON_LINES) == (many, [])
    accepted, remembered = first_fetch(many, 100, kind=DocumentKind.ATOM)
    assert (len(accepted), len(remembered)) == (100, 200)
