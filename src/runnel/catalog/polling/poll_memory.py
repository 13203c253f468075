"""The poller's memory of a feed, in addition to the columns of its row: one JSON text, in `polls.learned`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

_MAX_QUARANTINED = 64


@dataclass(frozen=True, slots=True)
class PollMemory:
    """The memory of a feed's polls.

    `digest` is that of the last document, `held` its number of items, `broken` its error, and `ttl`, `skip_hours` and
    `skip_days` its hints about polling. `quarantined` are fingerprints of entries that were already quarantined,
    newest last. `since` is when the feed began to fail. `saturated` counts the polls that returned only new items, so
    that some items were probably missed. `refresh` belongs to the refresh policy.
    """

    digest: str = ""
    broken: str | None = None
    quarantined: tuple[str, ...] = ()
    since: int | None = None
    held: int = 0
    saturated: int = 0
    ttl: float = 0.0
    skip_hours: tuple[int, ...] = ()
    skip_days: tuple[int, ...] = ()
    refresh: str = ""

    @staticmethod
    def from_text(text: str | None) -> PollMemory:
        """Read the output of `to_text`. Ignore invalid values.

        >>> PollMemory.from_text(PollMemory(digest="ab", saturated=2).to_text()).saturated
        2
        >>> PollMemory.from_text("no JSON") == PollMemory()
        True
        """
        try:
            values = json.loads(text or "{}")
            broken, since = values.get("broken"), values.get("since")
            return PollMemory(
                digest=str(values.get("digest", "")),
                broken=None if broken is None else str(broken),
                quarantined=tuple(str(mark) for mark in values.get("quarantined", ())),
                since=None if since is None else int(since),
                held=int(values.get("held", 0)),
                saturated=int(values.get("saturated", 0)),
                ttl=float(values.get("ttl", 0.0)),
                skip_hours=tuple(int(hour) for hour in values.get("skip_hours", ())),
                skip_days=tuple(int(day) for day in values.get("skip_days", ())),
                refresh=str(values.get("refresh", "")),
            )
        except (ValueError, TypeError, AttributeError, RecursionError):
            return PollMemory()

    def to_text(self) -> str:
        """Return the memory as JSON without empty values."""
        return json.dumps({name: value for name, value in asdict(self).items() if value}, separators=(",", ":"))

    def with_quarantined(self, marks: Iterable[str]) -> PollMemory:
        """Add fingerprints of quarantined entries."""
        kept = list(dict.fromkeys([*self.quarantined, *marks]))[-_MAX_QUARANTINED:]
        return replace(self, quarantined=tuple(kept))
