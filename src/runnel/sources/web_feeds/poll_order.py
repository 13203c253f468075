"""The order of polls: the feeds whose polls remove most loss and staleness come first.

In: the feeds that are due. Out: the same, most urgent first (RoSeS §2: refresh under limited bandwidth). What was
learned of a feed is kept as it was read, since the same feeds come again and again while they wait.
"""

from __future__ import annotations

import numpy as np

from runnel.catalog.polling.polls import DuePoll
from runnel.settings import Settings
from runnel.sources.web_feeds.refresh import PublishingModel, choose, urgency
from runnel.sources.web_feeds.response_handler import every_of


class PollOrder:
    """Ranks feeds that are due."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._learned: dict[int, tuple[str, PublishingModel]] = {}

    def by_urgency(self, due: list[DuePoll], now: float) -> list[DuePoll]:
        """The feeds, most urgent first, at a moment (seconds since 1970)."""
        if len(due) < 2:
            return due
        if len(self._learned) > 2 * len(due) + 10_000:
            self._learned.clear()  # mostly feeds that are dropped, or not due together
        learned = [self._learned_of(poll) for poll in due]
        waited = np.array([self._waited(poll, now) for poll in due])
        return [due[row] for row in choose(urgency(learned, waited, now), len(due))]

    def _learned_of(self, poll: DuePoll) -> PublishingModel:
        text = poll.state.learned or ""
        known = self._learned.get(poll.feed.id)
        if known is None or known[0] != text:
            made = PublishingModel.from_text(poll.state.memory.refresh, every_of(poll, self._settings))
            known = self._learned[poll.feed.id] = (text, made)
        return known[1]

    def _waited(self, poll: DuePoll, now: float) -> float:
        """Seconds since the last look. A feed that nobody looked at counts as if its period were over already."""
        state = poll.state
        if state.checked is None:
            return max(0.0, now - state.due / 1e6) + every_of(poll, self._settings)
        return max(0.0, now - state.checked / 1e6)
