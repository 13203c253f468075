"""The wait until the next poll: caching headers, hints in documents, backoff, the request budget and host pauses."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.sources.documents.document_head import DAY, DocumentHead, read_head
from runnel.sources.web_feeds.freshness import (
    back_off,
    charset_of,
    fresh_for,
    next_wait,
)
from runnel.sources.web_feeds.host_pace import HostPace, RequestBudget

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
_texts = st.text(max_size=40) | st.sampled_from(
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
def test_freshness_is_computed_from_caching_headers(headers: dict[str, str], seconds: float) -> None:
    assert fresh_for(headers, NOW) == seconds


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.sampled_from(["Cache-Control", "Expires", "Age", "Date", "Retry-After"]), _texts))
def test_freshness_of_arbitrary_headers_is_not_negative(headers: dict[str, str]) -> None:
    assert fresh_for(headers, NOW) >= 0


@settings(deadline=None, max_examples=200)
@given(
    st.floats(1, 10 * DAY),
    st.floats(0, 1e12),
    st.builds(
        DocumentHead,
        ttl=st.floats(0, DAY),
        skip_hours=st.lists(st.integers(0, 23), max_size=23).map(tuple),
        skip_days=st.lists(st.integers(0, 6), max_size=6).map(tuple),
    ),
)
def test_wait_is_at_least_the_declared_period_and_at_most_a_day(
    every: float, fresh: float, head: DocumentHead
) -> None:
    wait = next_wait(every, NOW, fresh=fresh, head=head)
    assert every <= wait <= max(every, DAY)


def test_skipped_hours_and_days_are_not_polled() -> None:
    assert next_wait(60, NOW, head=DocumentHead(skip_hours=(12, 13))) == 2 * 3600
    assert next_wait(60, NOW, head=DocumentHead(skip_hours=(14,))) == 60
    thursday = datetime.fromtimestamp(NOW, UTC).weekday()
    assert next_wait(60, NOW, head=DocumentHead(skip_days=(thursday,))) == 12 * 3600
    assert next_wait(60, NOW, head=DocumentHead(skip_days=(thursday, thursday + 1))) == DAY, "at most a day"


def test_head_of_an_rss_document_is_read_up_to_its_first_item() -> None:
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


def test_head_that_skips_all_hours_or_days_is_ignored() -> None:
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
def test_documents_without_a_valid_head_have_an_empty_one(data: bytes) -> None:
    assert read_head(data) == DocumentHead()


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda data: b"<rss><channel>" + data))
def test_read_head_accepts_any_bytes(data: bytes) -> None:
    head = read_head(data)
    assert 0 <= head.ttl <= DAY


def test_charset_is_read_from_content_type() -> None:
    assert charset_of({"Content-Type": "application/rss+xml"}) is None
    assert charset_of({"Content-Type": "text/xml;CHARSET=utf-8"}) == "utf-8"
    assert charset_of({"Content-Type": "text/xml; charset=<script>"}) is None


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 10_000), st.floats(0.1, 1000), st.floats(1, 1e6), st.integers())
def test_backoff_stays_below_a_bound_that_doubles_up_to_the_limit(
    failures: int, first: float, limit: float, seed: int
) -> None:
    wait = back_off(failures, first, limit, random.Random(seed))
    bound = min(limit, first * 2.0 ** min(failures - 1, 60))
    assert 0 < wait <= bound
    assert wait == back_off(failures, first, limit, random.Random(seed)), "the same seed gives the same wait"


def test_backoff_is_random_over_its_whole_range() -> None:
    source = random.Random(1)
    waits = [back_off(5, 60, 86_400, source) for _ in range(400)]
    assert min(waits) < 100
    assert max(waits) > 860


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 6000), st.lists(st.tuples(st.floats(-100, 100), st.integers(0, 50)), max_size=40))
def test_request_budget_is_never_exceeded(per_minute: int, turns: list[tuple[float, int]]) -> None:
    budget = RequestBudget(per_minute)
    now, highest, spent = NOW, NOW, 0
    for step, wanted in turns:
        now += step
        taken = min(wanted, budget.available(now))
        budget.spend(taken)
        spent += taken
        highest += max(0.0, step)
        assert spent <= max(1.0, per_minute / 6) + (highest - NOW) * per_minute / 60 + 1e-6


def test_host_is_limited_in_concurrency_and_paused_after_two_failures() -> None:
    hosts = HostPace(2, 60)
    first, second = "http://a.example/1", "http://b.example/1"
    hosts.begin(first)
    assert hosts.has_room(first)
    hosts.begin(first)
    assert not hosts.has_room(first)
    assert hosts.has_room(second)
    hosts.end(first)
    assert hosts.has_room(first)
    hosts.record_failure(first, NOW)
    hosts.record_response(first)
    hosts.record_failure(first, NOW)
    assert not hosts.is_paused(first, NOW)
    hosts.record_failure(first, NOW)
    assert hosts.is_paused("http://A.example/2", NOW)
    assert not hosts.is_paused(second, NOW)
    assert not hosts.is_paused(first, NOW + 60)
    hosts.pause(first, NOW, 600)
    assert not hosts.is_paused(first, NOW - 2 * DAY), "a pause ends if the clock was set back"
