"""Which feeds to poll next when not all can be polled: refresh under limited bandwidth (RoSeS §2).

In: what was learned of each feed, and how long ago it was polled. Out: its urgency, which is what one request to it
removes, and the choice of the most urgent. Two things are removed: items that would be missed, because a document
holds only so many and later ones push them out, and staleness, which is the time that items wait to be seen. See
docs/internals/polling.md for the formulas and for what they save.
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
    LARGEST,
    LONGEST,
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
"""An item that is never seen weighs as much as one that waits so many times as long as feeds wait now.

The weight has to go with the waits: a fixed one would starve small documents where the budget is small, and take
from the search for bursts where it is large.
"""

_SCALARS = ("items", "seconds", "recent", "recent_expected", "excess", "square", "capacity", "held", "changed")
_LEAST_WEIGHT = 600.0
_LONGEST_TEXT = 10_000


@dataclass(frozen=True, slots=True)
class PublishingModel:
    """What was learned of a feed's publishing: its row of the matrix that `publishing_rates` has, and its curve."""

    row: bytes
    curve: bytes = field(repr=False, compare=False)

    @staticmethod
    def start(period_seconds: float) -> PublishingModel:
        """Nothing is known but how often the feed is to be asked.

        >>> round(PublishingModel.start(600).rate * 600, 1)
        1.7
        """
        return PublishingModel._of(start_rows(np.array([float(period_seconds)])))

    def observed(self, *, at: float, elapsed: float, new: int, held: int) -> PublishingModel:
        """What is known after a poll: at which moment, how long after the one before, and what it found.

        `elapsed` is 0 for the first poll of a feed; `held` is 0 where the server said that nothing has changed.

        >>> busy = PublishingModel.start(3600).observed(at=1e9, elapsed=0, new=20, held=20)
        >>> busy = busy.observed(at=1e9 + 3600, elapsed=3600, new=12, held=20)
        >>> busy.capacity, busy.rate > PublishingModel.start(3600).rate
        (20.0, True)
        """
        told = (np.array([float(max(0.0, value))]) for value in (at, elapsed, new, held))
        return PublishingModel._of(learn(self._matrix(), *told))

    @property
    def rate(self) -> float:
        """Items a second, over the last weeks."""
        return float(slow_rates(self._matrix())[0])

    @property
    def burstiness(self) -> float:
        """0 for a steady feed; the variance of its rate, relative to the square of the rate."""
        return float(burstiness(self._matrix())[0])

    @property
    def capacity(self) -> float:
        """How many items the feed's document holds."""
        return float(self._matrix()[0, CAPACITY])

    @property
    def changed(self) -> float:
        """When new items were found last; 0 before the first poll."""
        return float(self._matrix()[0, CHANGED])

    def to_text(self) -> str:
        """As JSON, with short numbers.

        >>> PublishingModel.from_text(PublishingModel.start(600).to_text(), 600) == PublishingModel.start(600)
        True
        """
        row = [float(f"{value:.6g}") for value in self._matrix()[0]]
        row[CHANGED] = round(self.changed, 3)
        told: dict[str, Any] = dict(zip(_SCALARS, row, strict=False))
        told["hours"] = row[HOUR_ITEMS]
        told["hours_expected"] = row[HOUR_EXPECTED]
        return json.dumps(told, separators=(",", ":"))

    @staticmethod
    def from_text(text: str | None, period_seconds: float) -> PublishingModel:
        """What `to_text` wrote; learning starts anew from anything else.

        >>> PublishingModel.from_text('{"items": "many"}', 600) == PublishingModel.start(600)
        True
        """
        row = _row_of(text or "")
        return PublishingModel.start(period_seconds) if row is None else PublishingModel._of(row.reshape(1, WIDTH))

    @staticmethod
    def _of(rows: Numbers) -> PublishingModel:
        return PublishingModel(rows.tobytes(), curves(rows).tobytes())

    def _matrix(self) -> Numbers:
        return np.frombuffer(self.row).reshape(1, WIDTH)


def _row_of(text: str) -> Numbers | None:
    if not text or len(text) > _LONGEST_TEXT:
        return None
    try:
        told = json.loads(text)
        values = [told[name] for name in _SCALARS] + told["hours"] + told["hours_expected"]
        if len(told["hours"]) != 24 or any(type(value) not in (int, float) for value in values):
            return None
        row = np.array(values, dtype=np.float64)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    positive = np.delete(row, 4) if row.shape == (WIDTH,) else row  # the excess alone may be negative
    if row.shape != (WIDTH,) or not np.isfinite(row).all() or (np.abs(row) > LARGEST).any() or (positive < 0).any():
        return None
    return row if row[1] >= 1.0 and row[CAPACITY] > 0 else None


def urgency(learned: Sequence[PublishingModel], waited: Numbers, now: float) -> Numbers:
    """What a request to each feed would remove now, in item-seconds.

    >>> fast, slow = PublishingModel.start(60), PublishingModel.start(86_400)
    >>> fast_first = urgency([slow, fast], np.array([600.0, 600.0]), 1e9)
    >>> bool(fast_first[1] > fast_first[0])
    True
    """
    made = np.frombuffer(b"".join([one.curve for one in learned]), dtype=np.float32)
    return urgency_of_curves(made.reshape(len(learned), CURVE_WIDTH), waited, now)


def urgency_of_curves(made: Curves, waited: Numbers, now: float) -> Numbers:
    """The same for feeds whose curves stand in one matrix."""
    expected = expect(made, waited, now)
    return index(expected.items, expected.waiting, expected.spread, made[:, 53].astype(np.float64), waited)


def index(items: Numbers, waiting: Numbers, spread: Numbers, capacity: Numbers, waited: Numbers) -> Numbers:
    """The index of a poll: what it is worth to end a wait of this length now.

    A feed that costs C(s) a second after s seconds without a poll is worth w·C(w) - ∫C(s)ds after w of them: a budget
    is used best where all feeds have the same index when they are polled (Lagrange's condition; Whittle's index).
    Missed items cost as they come, so for them it is capacity·P(N > capacity), N being the new items. Items that wait
    cost an item-second a second each, of which the document saves no more than it holds.
    """
    waited = np.nan_to_num(waited, nan=LONGEST, posinf=LONGEST)
    saved = capacity * overflow_chance(items, spread, capacity)
    stale = np.maximum(waited * items - waiting, 0.0) / (1.0 + items / capacity)
    weight = np.clip(MISSED_WAITS * np.median(waited), _LEAST_WEIGHT, DAY) if len(waited) else 0.0
    total: Numbers = weight * saved + stale
    return total


def overflow_chance(items: Numbers, spread: Numbers, capacity: Numbers) -> Numbers:
    """The chance that more new items have come than a document holds, their number being about Gamma distributed.

    The cube root of such a number is nearly normal (Wilson and Hilferty), and the normal nearly logistic.

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
    """The indices of the most urgent feeds, most urgent first, as many as the budget allows.

    >>> choose(np.array([1.0, 9.0, 4.0, 7.0]), 2).tolist()
    [1, 3]
    """
    budget = min(max(0, budget), len(urgency))
    if budget == 0:
        return np.empty(0, dtype=np.intp)
    chosen = np.argpartition(-urgency, budget - 1)[:budget]
    return chosen[np.argsort(-urgency[chosen], kind="stable")]
