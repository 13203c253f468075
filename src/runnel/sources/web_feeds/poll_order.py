"""The order of polls: feeds whose poll avoids the most lost items and staleness come first.

In: the feeds that are due. Out: the same feeds, most urgent first (RoSeS §2: refresh under limited bandwidth). Parsed
publishing models are cached, because the same feeds are ranked repeatedly while they wait.
"""

from __future__ import annotations

import numpy as np

from runnel.catalog.polling.polls import DuePoll
from runnel.settings import Settings
from runnel.sources.web_feeds.refresh import PublishingModel, choose, urgency
from runnel.sources.web_feeds.response_handler import poll_period


class PollOrder:
    """Ranks feeds that are due."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._models: dict[int, tuple[str, PublishingModel]] = {}

    def by_urgency(self, due: list[DuePoll], now: float) -> list[DuePoll]:
        """Return the feeds, most urgent first, at time `now` (seconds since 1970)."""
        if len(due) < 2:
            return due
        if len(self._models) > 2 * len(due) + 10_000:
            self._models.clear()  # most of the cached feeds were dropped or are not due now
        models = [self._model(poll) for poll in due]
        waited = np.array([self._waited(poll, now) for poll in due])
        return [due[row] for row in choose(urgency(models, waited, now), len(due))]

    def _model(self, poll: DuePoll) -> PublishingModel:
        text = poll.state.learned or ""
        cached = self._models.get(poll.feed.id)
        if cached is None or cached[0] != text:
            model = PublishingModel.from_text(poll.state.memory.refresh, poll_period(poll, self._settings))
            cached = self._models[poll.feed.id] = (text, model)
        return cached[1]

    def _waited(self, poll: DuePoll, now: float) -> float:
        """Return the seconds since the last poll. A feed that was never polled gets one period more than its wait."""
        state = poll.state
        if state.checked is None:
            return max(0.0, now - state.due / 1e6) + poll_period(poll, self._settings)
        return max(0.0, now - state.checked / 1e6)
