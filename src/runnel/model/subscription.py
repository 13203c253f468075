"""Subscriptions: who wants which feed, in which form, where and how often."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Subscription:
    """One standing delivery. `since` is the log sequence after which its items begin."""

    id: int
    feed: int
    kind: str
    target: str | None
    since: int
    created: datetime
    every: timedelta | None = None
    expires: datetime | None = None
    paused: bool = False
