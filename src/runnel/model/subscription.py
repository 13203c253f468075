"""Subscriptions: who receives which feed, in which form, where and how often."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from runnel.model.feed import ADMIN

INTERNAL = "feed"
"""The kind of the subscriptions of materialized feeds. They have no subscriber, and no quota counts them."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription. It starts after the log sequence `since`.

    `sheet` is the path of the stylesheet that is applied to each message. `disabled` is the reason why nothing is
    sent although the subscription was not ended, for example because its endpoint is gone.
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
        """Whether it serves a materialized feed and has no subscriber."""
        return self.kind == INTERNAL
