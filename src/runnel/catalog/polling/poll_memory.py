"""What the poller remembers of a feed besides the columns of its row: one JSON text, in `polls.learned`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

_ASIDE_KEPT = 64


@dataclass(frozen=True, slots=True)
class PollMemory:
    """What a feed's polls have left behind.

    `digest` is that of the last document, `held` how many items it had, `broken` what was wrong with it, and `ttl`,
    `skip_hours` and `skip_days` what it said about when to ask again; `aside` are marks of what was put aside
    already, the newest last; `since` is when the feed began to fail. `saturated` counts the polls that found nothing
    but new items, so that some were probably missed. `refresh` belongs to the refresh policy.
    """

    digest: str = ""
    broken: str | None = None
    aside: tuple[str, ...] = ()
    since: int | None = None
    held: int = 0
    saturated: int = 0
    ttl: float = 0.0
    skip_hours: tuple[int, ...] = ()
    skip_days: tuple[int, ...] = ()
    refresh: str = ""

    @staticmethod
    def from_text(text: str | None) -> PollMemory:
        """Read what `to_text` wrote; whatever else stands there is forgotten.

        >>> PollMemory.from_text(PollMemory(digest="ab", saturated=2).to_text()).saturated
        2
        >>> PollMemory.from_text("no JSON") == PollMemory()
        True
        """
        try:
            told = json.loads(text or "{}")
            broken, since = told.get("broken"), told.get("since")
            return PollMemory(
                digest=str(told.get("digest", "")),
                broken=None if broken is None else str(broken),
                aside=tuple(str(mark) for mark in told.get("aside", ())),
                since=None if since is None else int(since),
                held=int(told.get("held", 0)),
                saturated=int(told.get("saturated", 0)),
                ttl=float(told.get("ttl", 0.0)),
                skip_hours=tuple(int(hour) for hour in told.get("skip_hours", ())),
                skip_days=tuple(int(day) for day in told.get("skip_days", ())),
                refresh=str(told.get("refresh", "")),
            )
        except (ValueError, TypeError, AttributeError, RecursionError):
            return PollMemory()

    def to_text(self) -> str:
        """As JSON, without what is empty."""
        return json.dumps({name: value for name, value in asdict(self).items() if value}, separators=(",", ":"))

    def with_aside(self, marks: Iterable[str]) -> PollMemory:
        """The same, knowing of more that was put aside."""
        kept = list(dict.fromkeys([*self.aside, *marks]))[-_ASIDE_KEPT:]
        return replace(self, aside=tuple(kept))
