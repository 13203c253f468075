"""When to ask again: what servers and documents say, sense and nonsense."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from runnel.sources.documents.document_head import DAY, DocumentHead, read_head
from runnel.sources.web_feeds.freshness import (
    back_off,
    charset_of,
    fresh_for,
    next_wait,
)
from runnel.sources.web_feeds.host_pace import HostPace, RequestBudget

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
_texts = some.text(max_size=40) | some.sampled_from(
    ["max-age=60", 'max-age="60"', "no-cache", "max-age=-1", "max-age=" + "9" * 400, "=,=,;", "0", "-1", "NaN"]
)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0),
        ({"Cache-Control": "max-age=600"}, 600),
        ({"Cache-Control": 'Public, Max-Age="600"'}, 600),
        ({"Cache-Control": "max-age=600", "Age": "700"}, 0),
        ({"Cache-Control": "max-age=600", "Expires": "Thu, 01 Jan 2026 23:00:00 GMT"}, 600),
        ({"Cache-Control": "no-cache, max-age=600"}, 0),
        ({"Cache-Control": "max-age=soon"}, 0),
        ({"Expires": "Thu, 01 Jan 2026 12:10:00 GMT"}, 600),
        ({"Expires": "Thu, 01 Jan 2026 12:10:00 GMT", "Date": "Thu, 01 Jan 2026 12:05:00 GMT"}, 300),
        ({"Expires": "Thursday, 01-Jan-26 12:10:00 GMT"}, 600),
        ({"Expires": "0"}, 0),
        ({"Expires": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0),
    ],
)
def test_how_long_an_answer_stays_fresh(headers: dict[str, str], seconds: float) -> None:
    assert fresh_for(headers, NOW) == seconds


@settings(deadline=None, max_examples=200)
@given(some.dictionaries(some.sampled_from(["Cache-Control", "Expires", "Age", "Date", "Retry-After"]), _texts))
def test_no_header_breaks_anything(headers: dict[str, str]) -> None:
    assert fresh_for(headers, NOW) >= 0


@settings(deadline=None, max_examples=200)
@given(
    some.floats(1, 10 * DAY),
    some.floats(0, 1e12),
    some.builds(
        DocumentHead,
        ttl=some.floats(0, DAY),
        skip_hours=some.lists(some.integers(0, 23), max_size=23).map(tuple),
        skip_days=some.lists(some.integers(0, 6), max_size=6).map(tuple),
    ),
)
def test_a_wait_is_never_shorter_than_declared_nor_longer_than_a_day(
    every: float, fresh: float, head: DocumentHead
) -> None:
    wait = next_wait(every, NOW, fresh=fresh, head=head)
    assert every <= wait <= max(every, DAY)


def test_hours_and_days_to_be_skipped() -> None:
    assert next_wait(60, NOW, head=DocumentHead(skip_hours=(12, 13))) == 2 * 3600
    assert next_wait(60, NOW, head=DocumentHead(skip_hours=(14,))) == 60
    thursday = datetime.fromtimestamp(NOW, UTC).weekday()
    assert next_wait(60, NOW, head=DocumentHead(skip_days=(thursday,))) == 12 * 3600
    assert next_wait(60, NOW, head=DocumentHead(skip_days=(thursday, thursday + 1))) == DAY, "a day at most"


def test_the_head_of_a_document() -> None:
    text = """<?xml version="1.0"?><rss xmlns:atom="http://www.w3.org/2005/Atom"><channel><ttl> 90 </ttl>
        <link>https://muse.example/</link><atom:link rel="self hub" href="https://muse.example/rss"/>
        <skipHours><hour>24</hour><hour>x</hour><hour>77</hour></skipHours><skipDays><day>Sunday</day></skipDays>
        <item><ttl>5</ttl><atom:link rel="hub" href="https://evil.example/"/></item></channel></rss>"""
    assert read_head(text.encode()) == DocumentHead(
        ttl=5400,
        skip_hours=(0,),
        skip_days=(6,),
        links=(("self", "https://muse.example/rss"), ("hub", "https://muse.example/rss")),
    )
    utf_16 = text.replace('version="1.0"', 'version="1.0" encoding="UTF-16"').encode("utf-16")
    assert read_head(utf_16) == read_head(text.encode())


def test_a_head_that_skips_everything_skips_nothing() -> None:
    hours = "".join(f"<hour>{hour}</hour>" for hour in range(24))
    days = "".join(f"<day>{day}day</day>" for day in ("Mon", "Tues", "Wednes", "Thurs", "Fri", "Satur", "Sun"))
    text = f"<rss><channel><skipHours>{hours}</skipHours><skipDays>{days}</skipDays></channel></rss>"
    assert read_head(text.encode()) == DocumentHead()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"<",
        b"<rss><channel><ttl>",
        b"<!DOCTYPE a [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><rss><channel><ttl>&b;</ttl></channel></rss>",
        b"<a>" * 5000,
        b"<?xml version='1.0' encoding='no-such'?><rss/>",
    ],
)
def test_documents_without_a_head_say_nothing(data: bytes) -> None:
    assert read_head(data) == DocumentHead()


@settings(deadline=None, max_examples=200)
@given(some.binary(max_size=200) | some.binary(max_size=200).map(lambda data: b"<rss><channel>" + data))
def test_no_bytes_break_the_head(data: bytes) -> None:
    head = read_head(data)
    assert 0 <= head.ttl <= DAY


def test_charsets() -> None:
    assert charset_of({"Content-Type": "application/rss+xml"}) is None
    assert charset_of({"Content-Type": "text/xml;CHARSET=utf-8"}) == "utf-8"
    assert charset_of({"Content-Type": "text/xml; charset=<script>"}) is None


@settings(deadline=None, max_examples=100)
@given(some.integers(1, 10_000), some.floats(0.1, 1000), some.floats(1, 1e6), some.integers())
def test_waits_after_failures_double_up_to_the_limit(failures: int, first: float, limit: float, seed: int) -> None:
    wait = back_off(failures, first, limit, random.Random(seed))
    bound = min(limit, first * 2.0 ** min(failures - 1, 60))
    assert 0 < wait <= bound
    assert wait == back_off(failures, first, limit, random.Random(seed)), "seeded"


def test_waits_after_failures_use_their_whole_range() -> None:
    source = random.Random(1)
    drawn = [back_off(5, 60, 86_400, source) for _ in range(400)]
    assert min(drawn) < 100
    assert max(drawn) > 860


@settings(deadline=None, max_examples=100)
@given(some.integers(1, 6000), some.lists(some.tuples(some.floats(-100, 100), some.integers(0, 50)), max_size=40))
def test_a_budget_is_never_overdrawn(per_minute: int, turns: list[tuple[float, int]]) -> None:
    budget = RequestBudget(per_minute)
    now, highest, spent = NOW, NOW, 0
    for step, wanted in turns:
        now += step
        taken = min(wanted, budget.available(now))
        budget.spend(taken)
        spent += taken
        highest += max(0.0, step)
        assert spent <= max(1.0, per_minute / 6) + (highest - NOW) * per_minute / 60 + 1e-6


def test_hosts_rest_and_wake() -> None:
    hosts = HostPace(2, 60)
    one, other = "http://a.example/1", "http://b.example/1"
    hosts.begin(one)
    assert hosts.has_room(one)
    hosts.begin(one)
    assert not hosts.has_room(one)
    assert hosts.has_room(other)
    hosts.end(one)
    assert hosts.has_room(one)
    hosts.silent(one, NOW)
    hosts.answered(one)
    hosts.silent(one, NOW)
    assert not hosts.rests(one, NOW)
    hosts.silent(one, NOW)
    assert hosts.rests("http://A.example/2", NOW)
    assert not hosts.rests(other, NOW)
    assert not hosts.rests(one, NOW + 60)
    hosts.rest(one, NOW, 600)
    assert not hosts.rests(one, NOW - 2 * DAY), "a clock that was set back keeps nobody resting"
