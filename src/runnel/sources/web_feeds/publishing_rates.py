"""Publishing models of feeds, estimated from polls, for many feeds at once (vectorized).

In: the result of each poll (new items, items in the document, time since the previous poll). Out: a matrix with one
row per feed, and its `curves`, from which `expect` computes how many items are waiting. A row contains:

- a slow rate: items and seconds, both with exponential decay and a half-life of days;
- the recent activity relative to that rate: observed and expected items, with a half-life of an hour;
- burstiness: how much more the counts vary than those of a steady (Poisson) feed;
- capacity: how many items the feed's document contains. Further items push out older ones before they are seen;
- the hours of the day (UTC): observed and expected items in each.

The count of a poll is modeled as Poisson with a Gamma-distributed rate (a negative binomial count). Burstiness is
therefore also the weight of the recent past: the last hours say little about a steady feed, and much about a bursty
one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Curves = NDArray[np.float32]

DAY = 86_400.0
HOUR = 3_600.0
SLOW_HALF_LIFE = 10 * DAY
FAST_HALF_LIFE = HOUR
MAX_SECONDS = 60 * DAY
"""Longer times between two polls are cut to this."""

MAX_VALUE = 1e15
"""No value in a row is larger."""

SLOW_ITEMS, SLOW_SECONDS, FAST_ITEMS, FAST_EXPECTED, EXCESS, SQUARE, CAPACITY, HELD, CHANGED = range(9)
HOUR_ITEMS = slice(9, 33)
HOUR_EXPECTED = slice(33, 57)
WIDTH = 57
CURVE_WIDTH = 54

FLOOR_ITEMS = 0.7
"""Items added to the count of every feed, so that a feed without new items is still polled from time to time."""

_OVERFLOW_FACTOR = 1.5
"""If all items of a document are new, others were pushed out unseen. Their count is multiplied by this."""

_HOURLY_PRIOR_ITEMS = 4.0
_START_BURSTINESS = 0.5
_START_SQUARE = 2.0
_MAX_BURSTINESS = 20.0
_START_CAPACITY = 10.0
_MAX_SPREAD_BURSTINESS = 0.7
"""Maximum burstiness for the spread of expected items. Higher values do not mean that a burst is in progress."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected new items per feed: number, total waiting time in item-seconds, and standard deviation."""

    items: Numbers
    waiting: Numbers
    spread: Numbers


def start_rows(periods: Numbers) -> Numbers:
    """Return initial rows for feeds without polls. They expect one item per period, with little weight.

    >>> start_rows(np.array([600.0])).shape
    (1, 57)
    """
    rows = np.zeros((len(periods), WIDTH))
    rows[:, SLOW_ITEMS] = 1.0
    rows[:, SLOW_SECONDS] = np.clip(periods, 1.0, MAX_SECONDS)
    rows[:, EXCESS] = _START_BURSTINESS * _START_SQUARE
    rows[:, SQUARE] = _START_SQUARE
    rows[:, CAPACITY] = _START_CAPACITY
    return rows


def learn(rows: Numbers, at: Numbers, elapsed: Numbers, new: Numbers, held: Numbers) -> Numbers:
    """Return the rows after one poll of each feed.

    `elapsed` is the time since the previous poll, or 0 for the first, from which only the capacity is learned. `held`
    is the number of items in the document, or 0 if the server did not send it because it had not changed.
    """
    elapsed = np.clip(np.where(elapsed < 1.0, 0.0, elapsed), 0.0, MAX_SECONDS)
    has_previous = elapsed > 0
    observed = np.where(has_previous, new, 0.0)
    observed = np.where(has_previous & (held > 0) & (new >= held), _OVERFLOW_FACTOR * new, observed)
    expected = integrate(curves(rows), at - elapsed, at)[0]
    after = rows.copy()
    _learn_capacity(after, at, new, held)
    _learn_rate(after, elapsed, observed)
    _learn_activity(after, elapsed, observed, expected)
    _learn_hours(after, rows, at, elapsed, observed)
    return after


def _learn_capacity(after: Numbers, at: Numbers, new: Numbers, held: Numbers) -> None:
    """Estimate how many items a document can contain. It is full if new items have pushed out others."""
    has_document = held > 0
    before, capacity = after[:, HELD], after[:, CAPACITY]
    is_full = has_document & (new > 0) & (before > 0) & (before + new > held)
    lowered = np.maximum(held, capacity + 0.5 * (held - capacity))
    after[:, CAPACITY] = np.where(is_full, lowered, np.where(has_document, np.maximum(held, capacity), capacity))
    after[:, HELD] = np.where(has_document, held, before)
    after[:, CHANGED] = np.where((new > 0) | (after[:, CHANGED] == 0), at, after[:, CHANGED])


def _learn_rate(after: Numbers, elapsed: Numbers, observed: Numbers) -> None:
    decay = np.exp2(-elapsed / SLOW_HALF_LIFE)
    after[:, SLOW_ITEMS] = after[:, SLOW_ITEMS] * decay + observed
    after[:, SLOW_SECONDS] = after[:, SLOW_SECONDS] * decay + elapsed


def _learn_activity(after: Numbers, elapsed: Numbers, observed: Numbers, expected: Numbers) -> None:
    decay = np.exp2(-elapsed / SLOW_HALF_LIFE)
    after[:, EXCESS] = after[:, EXCESS] * decay + (observed - expected) ** 2 - expected
    after[:, SQUARE] = after[:, SQUARE] * decay + expected**2
    # Only their ratio matters. If one exceeds the maximum, scale both down by the same factor.
    size = np.maximum(np.abs(after[:, EXCESS]), after[:, SQUARE])
    after[:, [EXCESS, SQUARE]] *= np.minimum(1.0, MAX_VALUE / size)[:, None]
    decay = np.exp2(-elapsed / FAST_HALF_LIFE)
    # After a long time without a poll, only its end is recent. It is not known when the items came in that time, so
    # a proportional part of them counts as recent.
    recent = np.divide(
        1.0 - decay, np.log(2.0) * elapsed / FAST_HALF_LIFE, out=np.ones_like(decay), where=elapsed > 0
    )
    after[:, FAST_ITEMS] = after[:, FAST_ITEMS] * decay + observed * recent
    after[:, FAST_EXPECTED] = after[:, FAST_EXPECTED] * decay + expected * recent


def _learn_hours(after: Numbers, before: Numbers, at: Numbers, elapsed: Numbers, observed: Numbers) -> None:
    decay = np.exp2(-elapsed / SLOW_HALF_LIFE)[:, None]
    # A poll after more than a day carries no information about hours.
    spent = np.where((elapsed <= DAY)[:, None], _hours_spent(at, elapsed), 0.0)
    likely = spent * hourly_factors(before)
    total = likely.sum(axis=1, keepdims=True)
    share = np.divide(likely, total, out=np.zeros_like(likely), where=total > 0)
    after[:, HOUR_ITEMS] = after[:, HOUR_ITEMS] * decay + share * observed[:, None]
    after[:, HOUR_EXPECTED] = after[:, HOUR_EXPECTED] * decay + spent * slow_rates(before)[:, None]


def _hours_spent(at: Numbers, elapsed: Numbers) -> Numbers:
    """Return how many of the `elapsed` seconds before each time fall into each hour of the day."""
    starts = np.arange(24) * HOUR

    def until(moment: Numbers) -> Numbers:
        days, within = np.divmod(moment, DAY)
        spent: Numbers = days[:, None] * HOUR + np.clip(within[:, None] - starts, 0.0, HOUR)
        return spent

    return until(at) - until(at - elapsed)


def slow_rates(rows: Numbers) -> Numbers:
    """Return items per second over the last weeks. The result is always positive."""
    rates: Numbers = (rows[:, SLOW_ITEMS] + FLOOR_ITEMS) / rows[:, SLOW_SECONDS]
    return rates


def hourly_factors(rows: Numbers) -> Numbers:
    """Return the activity of each hour of the day relative to the average hour. All are near 1 for few items."""
    factors = (rows[:, HOUR_ITEMS] + _HOURLY_PRIOR_ITEMS) / (rows[:, HOUR_EXPECTED] + _HOURLY_PRIOR_ITEMS)
    scaled: Numbers = factors * (24.0 / factors.sum(axis=1, keepdims=True))
    return scaled


def burstiness(rows: Numbers) -> Numbers:
    """Return the variance of the rate relative to its square. It is near 0 for a steady feed."""
    return np.clip(rows[:, EXCESS] / np.maximum(rows[:, SQUARE], 1e-9), 0.01, _MAX_BURSTINESS)


def curves(rows: Numbers) -> Curves:
    """Precompute the input of `expect`, once after each poll.

    The columns are, for every hour of the day, the expected items since midnight by the slow rate, and the integral
    of these; then the recently observed items, the recently expected items, burstiness and capacity.
    """
    rates = hourly_factors(rows) * slow_rates(rows)[:, None]
    result = np.zeros((len(rows), CURVE_WIDTH), dtype=np.float32)
    items = np.cumsum(rates * HOUR, axis=1)
    result[:, 1:25] = items
    before = np.concatenate([np.zeros((len(rows), 1)), items[:, :-1]], axis=1)
    result[:, 26:50] = np.cumsum(before * HOUR + rates * (HOUR * HOUR / 2), axis=1)
    result[:, 50] = rows[:, FAST_ITEMS]
    result[:, 51] = rows[:, FAST_EXPECTED]
    result[:, 52] = burstiness(rows)
    result[:, 53] = rows[:, CAPACITY]
    return result


def integrate(curves: Curves, start: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
    """Return the expected items between two times, and their waiting time at the end, in item-seconds."""
    rows = np.arange(len(curves))
    items_per_day, area_per_day = curves[:, 24].astype(np.float64), curves[:, 49].astype(np.float64)
    first_day = np.floor(start / DAY)

    def primitives(moment: Numbers) -> tuple[Numbers, Numbers]:
        """Return the integral of the rate since the first day, and the integral of that integral."""
        days = np.floor(moment / DAY)
        within = moment - days * DAY
        days = days - first_day
        hour = np.minimum(within // HOUR, 23).astype(np.intp)
        rest = within - hour * HOUR
        before = curves[rows, hour].astype(np.float64)
        rate = (curves[rows, hour + 1] - before) / HOUR
        items = days * items_per_day + before + rate * rest
        area = items_per_day * (DAY * days * (days - 1) / 2 + days * within) + days * area_per_day
        area += curves[rows, hour + 25] + before * rest + rate * rest * rest / 2
        return items, area

    start_items, start_area = primitives(start)
    end_items, end_area = primitives(end)
    items = np.maximum(end_items - start_items, 0.0)
    return items, np.maximum(end_area - start_area - (end - start) * start_items, 0.0)


def expect(curves: Curves, waited: Numbers, now: float) -> Expected:
    """Return the expected new items of feeds that were last polled `waited` seconds ago."""
    waited = np.clip(np.nan_to_num(waited, nan=MAX_SECONDS, posinf=MAX_SECONDS), 0.0, MAX_SECONDS)
    end = np.full(len(curves), now)
    items, waiting = integrate(curves, end - waited, end)
    observed, expected, scatter = (curves[:, column].astype(np.float64) for column in (50, 51, 52))
    # The posterior mean of a Gamma rate. The weight of the recent activity decays with the time since the last poll.
    decay = np.exp2(-waited / (2 * FAST_HALF_LIFE))
    prior = 1.0 / scatter
    activity = (observed * decay + prior) / (expected * decay + prior)
    items = items * activity
    return Expected(
        items, waiting * activity, np.sqrt(items + np.minimum(scatter, _MAX_SPREAD_BURSTINESS) * items**2)
    )
