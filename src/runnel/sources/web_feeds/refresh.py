"""Which feeds to poll next when not all can be polled: refresh under limited bandwidth (RoSeS §2).

In: the publishing model of each feed, and how long ago it was polled. Out: the urgency of each feed, and the most
urgent feeds. Urgency is the expected benefit of one request: items that would otherwise be missed, because
newer items push them out of the document, and less staleness, which is the time that items wait until they are seen.
See docs/internals/polling.md for the formulas and measurements.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runnel.sources.web_feeds.publishing_rates import (
    CAPACITY,
    CHANGED,
    CURVE_WIDTH,
    DAY,
    HOUR_EXPECTED,
    HOUR_ITEMS,
    MAX_SECONDS,
    MAX_VALUE,
    WIDTH,
    Curves,
    Numbers,
    burstiness,
    curves,
    expect,
    learn,
    slow_rates,
    start_rows,
)

MISSED_WAITS = 2.0
"""The cost of a missed item: that of an item that waits this many times the median wait of the due feeds.

The cost is relative to the waits. With a fixed cost, feeds with small documents would starve under a small budget,
and bursts would be found later under a large one.
"""

_SCALARS = ("items", "seconds", "recent", "recent_expected", "excess", "square", "capacity", "held", "changed")
_MIN_WEIGHT = 600.0
_MAX_TEXT_LENGTH = 10_000


@dataclass(frozen=True, slots=True)
class PublishingModel:
    """The publishing model of a feed: its row of the matrix of `publishing_rates`, and its row of `curves`."""

    row: bytes
    curve: bytes = field(repr=False, compare=False)

    @staticmethod
    def start(period_seconds: float) -> PublishingModel:
        """Return the model of a feed without polls, from its declared period.

        >>> round(PublishingModel.start(600).rate * 600, 1)
        1.7
        """
        return PublishingModel._of(start_rows(np.array([float(period_seconds)])))

    def observed(self, *, at: float, elapsed: float, new: int, held: int) -> PublishingModel:
        """Return the model after a poll at time `at`, with `new` new items of `held` items in the document.

        `elapsed` is the time since the previous poll, or 0 for the first. `held` is 0 if the document is unchanged.

        >>> busy = PublishingModel.start(3600).observed(at=1e9, elapsed=0, new=20, held=20)
        >>> busy = busy.observed(at=1e9 + 3600, elapsed=3600, new=12, held=20)
        >>> busy.capacity, busy.rate > PublishingModel.start(3600).rate
        (20.0, True)
        """
        columns = (np.array([float(max(0.0, value))]) for value in (at, elapsed, new, held))
        return PublishingModel._of(learn(self._matrix(), *columns))

    @property
    def rate(self) -> float:
        """Items per second, over the last weeks."""
        return float(slow_rates(self._matrix())[0])

    @property
    def burstiness(self) -> float:
        """The variance of the rate relative to its square. Near 0 for a steady feed."""
        return float(burstiness(self._matrix())[0])

    @property
    def capacity(self) -> float:
        """How many items the document of the feed contains when it is full."""
        return float(self._matrix()[0, CAPACITY])

    @property
    def changed(self) -> float:
        """When a poll last found new items, or 0 before the first poll."""
        return float(self._matrix()[0, CHANGED])

    def to_text(self) -> str:
        """Return the model as JSON, with numbers of six digits.

        >>> PublishingModel.from_text(PublishingModel.start(600).to_text(), 600) == PublishingModel.start(600)
        True
        """
        row = [float(f"{value:.6g}") for value in self._matrix()[0]]
        row[CHANGED] = round(self.changed, 3)
        fields: dict[str, Any] = dict(zip(_SCALARS, row, strict=False))
        fields["hours"] = row[HOUR_ITEMS]
        fields["hours_expected"] = row[HOUR_EXPECTED]
        return json.dumps(fields, separators=(",", ":"))

    @staticmethod
    def from_text(text: str | None, period_seconds: float) -> PublishingModel:
        """Parse the output of `to_text`. Return an initial model for any other text.

        >>> PublishingModel.from_text('{"items": "many"}', 600) == PublishingModel.start(600)
        True
        """
        row = _parse_row(text or "")
        return PublishingModel.start(period_seconds) if row is None else PublishingModel._of(row.reshape(1, WIDTH))

    @staticmethod
    def _of(rows: Numbers) -> PublishingModel:
        return PublishingModel(rows.tobytes(), curves(rows).tobytes())

    def _matrix(self) -> Numbers:
        return np.frombuffer(self.row).reshape(1, WIDTH)


def _parse_row(text: str) -> Numbers | None:
    if not text or len(text) > _MAX_TEXT_LENGTH:
        return None
    try:
        fields = json.loads(text)
        values = [fields[name] for name in _SCALARS] + fields["hours"] + fields["hours_expected"]
        if len(fields["hours"]) != 24 or any(type(value) not in (int, float) for value in values):
            return None
        row = np.array(values, dtype=np.float64)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    non_negative = np.delete(row, 4) if row.shape == (WIDTH,) else row  # only the excess may be negative
    if row.shape != (WIDTH,) or not np.isfinite(row).all() or (np.abs(row) > MAX_VALUE).any():
        return None
    if (non_negative < 0).any():
        return None
    return row if row[1] >= 1.0 and row[CAPACITY] > 0 else None


def urgency(models: Sequence[PublishingModel], waited: Numbers, now: float) -> Numbers:
    """Return the benefit of polling each feed now, in item-seconds.

    >>> fast, slow = PublishingModel.start(60), PublishingModel.start(86_400)
    >>> fast_first = urgency([slow, fast], np.array([600.0, 600.0]), 1e9)
    >>> bool(fast_first[1] > fast_first[0])
    True
    """
    curves_of_feeds = np.frombuffer(b"".join([model.curve for model in models]), dtype=np.float32)
    return urgency_of_curves(curves_of_feeds.reshape(len(models), CURVE_WIDTH), waited, now)


def urgency_of_curves(curves_of_feeds: Curves, waited: Numbers, now: float) -> Numbers:
    """Return the same as `urgency`, for a matrix of curves with one row per feed."""
    expected = expect(curves_of_feeds, waited, now)
    capacity = curves_of_feeds[:, 53].astype(np.float64)
    return index(expected.items, expected.waiting, expected.spread, capacity, waited)


def index(items: Numbers, waiting: Numbers, spread: Numbers, capacity: Numbers, waited: Numbers) -> Numbers:
    """Return the index of each feed: the value of polling it after a wait of `waited` seconds.

    If a feed costs C(s) per second after s seconds without a poll, its index after w seconds is w·C(w) - ∫C(s)ds. The
    budget is used best if all feeds have the same index when they are polled (Lagrange's condition; Whittle's index).
    For missed items, the index is capacity·P(N > capacity), where N is the number of new items. A waiting item costs
    one item-second per second. A poll ends the wait of at most `capacity` items.
    """
    waited = np.nan_to_num(waited, nan=MAX_SECONDS, posinf=MAX_SECONDS)
    missed = capacity * overflow_chance(items, spread, capacity)
    staleness = np.maximum(waited * items - waiting, 0.0) / (1.0 + items / capacity)
    weight = np.clip(MISSED_WAITS * np.median(waited), _MIN_WEIGHT, DAY) if len(waited) else 0.0
    total: Numbers = weight * missed + staleness
    return total


def overflow_chance(items: Numbers, spread: Numbers, capacity: Numbers) -> Numbers:
    """Return the probability that there are more new items than a document contains.

    The number of new items is approximately Gamma distributed. Its cube root is approximately normal (Wilson and
    Hilferty), and the normal distribution is approximated by the logistic one.

    >>> few, enough, many = overflow_chance(np.array([2.0, 20.0, 90.0]), np.array([1.5, 4.5, 9.5]), np.full(3, 20.0))
    >>> bool(few < 0.001 and 0.3 < enough < 0.6 and many > 0.999)
    True
    """
    items = np.maximum(items, 1e-9)
    shape = np.maximum((items / np.maximum(spread, 1e-9)) ** 2, 1e-6)
    above = np.cbrt((capacity + 0.5) / items) - 1.0 + 1.0 / (9.0 * shape)
    chance: Numbers = 1.0 / (1.0 + np.exp(np.clip(1.702 * 3.0 * np.sqrt(shape) * above, -500.0, 500.0)))
    return chance


def choose(urgency: Numbers, budget: int) -> NDArray[np.intp]:
    """Return the indices of the `budget` most urgent feeds, most urgent first.

    >>> choose(np.array([1.0, 9.0, 4.0, 7.0]), 2).tolist()
    [1, 3]
    """
    budget = min(max(0, budget), len(urgency))
    if budget == 0:
        return np.empty(0, dtype=np.intp)
    chosen = np.argpartition(-urgency, budget - 1)[:budget]
    return chosen[np.argsort(-urgency[chosen], kind="stable")]
