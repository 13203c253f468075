"""Retry-After in all its forms, sense and nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.net.retry_after import retry_after


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("86400", 86_400.0),
        ("86401", 86_400.0),
        ("-5", None),
        ("later", None),
        ("9" * 60, 86_400.0),
        ("9" * 400, 86_400.0),
        ("١٢", None),
        ("1.5", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:17:40 GMT", 60.0),
        ("Thu, 01 Jan 1970 00:17:40 -0000", 60.0),
        ("Thursday, 01-Jan-70 00:17:40 GMT", 60.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        ("Thu, 99 Jan 1970 00:00:00 GMT", None),
    ],
)
def test_retry_after_accepts_seconds_and_dates(value: str | None, wait: float | None) -> None:
    assert retry_after(value, 1000.0) == wait


def test_shorter_limit_is_applied() -> None:
    assert retry_after("99999999", 0.0, limit=3600) == 3600


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=80))
def test_any_retry_after_is_bounded(value: str) -> None:
    wait = retry_after(value, 1000.0)
    assert wait is None or 0.0 <= wait <= 86_400.0
