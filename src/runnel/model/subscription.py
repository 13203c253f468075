"""Subscriptions: who wants which feed, in which form, where and how often."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from runnel.model.feed import ADMIN

INTERNAL = "feed"
"""The kind of the subscriptions that serve materialized feeds: nobody made them, and no quota counts them."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One standing delivery. `since` is the log sequence after which its items begin.

    `sheet` is the path of the stylesheet that is applied to each message; `disabled` says why nothing is sent any
    more although nobody ended it (its endpoint said that it is gone).
    """

    id: int
    feed: int
    kind: str
    target: str | None
    since: int
    created: datetime
    every: timedelta | None = None
    expires: datetime | None = None
    paused: bool = False
    owner: int = ADMIN
    sheet: str | None = None
    disabled: str | None = None

    @property
    def is_internal(self) -> bool:
        """Whether it serves a materialized feed, rather than somebody who subscribed."""
        return self.kind == INTERNAL
