"""What polls teach about the publishing of feeds, for many feeds at once.

In: what each poll found (new items, items held, time since the poll before). Out: a matrix with a row for each feed,
and its `curves`, from which `expect` tells how many items are waiting. The model, in the order of its columns:

- a slow rate: items and seconds, both forgotten with a half-life of days;
- the momentary activity against that rate: items found and items expected, forgotten within hours;
- burstiness: how much more the finds scatter than those of a steady (Poisson) feed would;
- capacity: how many items the feed's document holds; what comes on top pushes older items out unseen;
- the hours of the day (UTC): items found and expected in each.

A find is a count with a Gamma-distributed rate behind it (a negative binomial count), which is why burstiness is also
the weight of the recent past: for a steady feed the last hours say nothing new, for a bursty one they say most.
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
LONGEST = 60 * DAY
"""A longer time between two polls counts as this."""

LARGEST = 1e15
"""No number in a row is larger."""

SLOW_ITEMS, SLOW_SECONDS, FAST_ITEMS, FAST_EXPECTED, EXCESS, SQUARE, CAPACITY, HELD, CHANGED = range(9)
HOUR_ITEMS = slice(9, 33)
HOUR_EXPECTED = slice(33, 57)
WIDTH = 57
CURVE_WIDTH = 54

FLOOR_ITEMS = 0.7
"""Items credited to every feed: together with forgetting, they keep a dead feed worth a look now and then."""

_CENSORED = 1.5
"""A document full of new items has pushed out others: so many times more are assumed, until a poll comes in time."""

_HOURLY_DOUBT = 4.0
_START_BURSTINESS = 0.5
_START_SQUARE = 2.0
_MOST_BURSTY = 20.0
_START_CAPACITY = 10.0
_WIDEST = 0.7
"""Burstiness beyond this does not make an overflow likelier: it says that there are bursts, not that one is on."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected to wait at each feed: items, their item-seconds of waiting, and the spread of the items."""

    items: Numbers
    waiting: Numbers
    spread: Numbers


def start_rows(periods: Numbers) -> Numbers:
    """The rows of feeds of which nothing is known yet: one item a period is expected, without much conviction.

    >>> start_rows(np.array([600.0])).shape
    (1, 57)
    """
    rows = np.zeros((len(periods), WIDTH))
    rows[:, SLOW_ITEMS] = 1.0
    rows[:, SLOW_SECONDS] = np.clip(periods, 1.0, LONGEST)
    rows[:, EXCESS] = _START_BURSTINESS * _START_SQUARE
    rows[:, SQUARE] = _START_SQUARE
    rows[:, CAPACITY] = _START_CAPACITY
    return rows


def learn(rows: Numbers, at: Numbers, elapsed: Numbers, new: Numbers, held: Numbers) -> Numbers:
    """The rows after one poll each.

    `elapsed` is the time since the poll before; 0 where there was none, so that only the capacity is learned. `held`
    is the number of items in the document; 0 where it was not sent again because it had not changed.
    """
    elapsed = np.clip(np.where(elapsed < 1.0, 0.0, elapsed), 0.0, LONGEST)
    counted = elapsed > 0
    found = np.where(counted, new, 0.0)
    found = np.where(counted & (held > 0) & (new >= held), _CENSORED * new, found)
    expected = integrate(curves(rows), at - elapsed, at)[0]
    after = rows.copy()
    _learn_capacity(after, at, new, held)
    _learn_rate(after, elapsed, found)
    _learn_activity(after, elapsed, found, expected)
    _learn_hours(after, rows, at, elapsed, found)
    return after


def _learn_capacity(after: Numbers, at: Numbers, new: Numbers, held: Numbers) -> None:
    """A document is known to be full when new items have pushed out others; until then it may well grow."""
    told = held > 0
    before, capacity = after[:, HELD], after[:, CAPACITY]
    full = told & (new > 0) & (before > 0) & (before + new > held)
    sunk = np.maximum(held, capacity + 0.5 * (held - capacity))
    after[:, CAPACITY] = np.where(full, sunk, np.where(told, np.maximum(held, capacity), capacity))
    after[:, HELD] = np.where(told, held, before)
    after[:, CHANGED] = np.where((new > 0) | (after[:, CHANGED] == 0), at, after[:, CHANGED])


def _learn_rate(after: Numbers, elapsed: Numbers, found: Numbers) -> None:
    kept = np.exp2(-elapsed / SLOW_HALF_LIFE)
    after[:, SLOW_ITEMS] = after[:, SLOW_ITEMS] * kept + found
    after[:, SLOW_SECONDS] = after[:, SLOW_SECONDS] * kept + elapsed


def _learn_activity(after: Numbers, elapsed: Numbers, found: Numbers, expected: Numbers) -> None:
    kept = np.exp2(-elapsed / SLOW_HALF_LIFE)
    after[:, EXCESS] = after[:, EXCESS] * kept + (found - expected) ** 2 - expected
    after[:, SQUARE] = after[:, SQUARE] * kept + expected**2
    # Only their ratio matters: both shrink alike where a feed's numbers are out of all proportion.
    size = np.maximum(np.abs(after[:, EXCESS]), after[:, SQUARE])
    after[:, [EXCESS, SQUARE]] *= np.minimum(1.0, LARGEST / size)[:, None]
    kept = np.exp2(-elapsed / FAST_HALF_LIFE)
    # Of a long time without a poll only the end is recent; where in it the items fell is not known.
    recent = np.divide(1.0 - kept, np.log(2.0) * elapsed / FAST_HALF_LIFE, out=np.ones_like(kept), where=elapsed > 0)
    after[:, FAST_ITEMS] = after[:, FAST_ITEMS] * kept + found * recent
    after[:, FAST_EXPECTED] = after[:, FAST_EXPECTED] * kept + expected * recent


def _learn_hours(after: Numbers, before: Numbers, at: Numbers, elapsed: Numbers, found: Numbers) -> None:
    kept = np.exp2(-elapsed / SLOW_HALF_LIFE)[:, None]
    # A poll after more than a day says nothing about hours.
    spent = np.where((elapsed <= DAY)[:, None], _hours_spent(at, elapsed), 0.0)
    likely = spent * hourly_factors(before)
    total = likely.sum(axis=1, keepdims=True)
    share = np.divide(likely, total, out=np.zeros_like(likely), where=total > 0)
    after[:, HOUR_ITEMS] = after[:, HOUR_ITEMS] * kept + share * found[:, None]
    after[:, HOUR_EXPECTED] = after[:, HOUR_EXPECTED] * kept + spent * slow_rates(before)[:, None]


def _hours_spent(at: Numbers, elapsed: Numbers) -> Numbers:
    """Seconds of the time before each moment that fall into each hour of the day."""
    starts = np.arange(24) * HOUR

    def until(moment: Numbers) -> Numbers:
        days, within = np.divmod(moment, DAY)
        spent: Numbers = days[:, None] * HOUR + np.clip(within[:, None] - starts, 0.0, HOUR)
        return spent

    return until(at) - until(at - elapsed)


def slow_rates(rows: Numbers) -> Numbers:
    """Items a second over the last weeks, never quite 0."""
    rates: Numbers = (rows[:, SLOW_ITEMS] + FLOOR_ITEMS) / rows[:, SLOW_SECONDS]
    return rates


def hourly_factors(rows: Numbers) -> Numbers:
    """How much busier each hour of the day is than the average hour; all 1 until there is enough to tell."""
    factors = (rows[:, HOUR_ITEMS] + _HOURLY_DOUBT) / (rows[:, HOUR_EXPECTED] + _HOURLY_DOUBT)
    scaled: Numbers = factors * (24.0 / factors.sum(axis=1, keepdims=True))
    return scaled


def burstiness(rows: Numbers) -> Numbers:
    """By how much finds scatter more than a steady feed's: the variance of the rate, relative to its square."""
    return np.clip(rows[:, EXCESS] / np.maximum(rows[:, SQUARE], 1e-9), 0.01, _MOST_BURSTY)


def curves(rows: Numbers) -> Curves:
    """What `expect` needs to know, made ready once after each poll.

    For every hour of the day the items expected since midnight by the slow rate, and the integral of that; then the
    recent finds, the items that were expected instead, burstiness and capacity.
    """
    rates = hourly_factors(rows) * slow_rates(rows)[:, None]
    made = np.zeros((len(rows), CURVE_WIDTH), dtype=np.float32)
    items = np.cumsum(rates * HOUR, axis=1)
    made[:, 1:25] = items
    before = np.concatenate([np.zeros((len(rows), 1)), items[:, :-1]], axis=1)
    made[:, 26:50] = np.cumsum(before * HOUR + rates * (HOUR * HOUR / 2), axis=1)
    made[:, 50] = rows[:, FAST_ITEMS]
    made[:, 51] = rows[:, FAST_EXPECTED]
    made[:, 52] = burstiness(rows)
    made[:, 53] = rows[:, CAPACITY]
    return made


def integrate(made: Curves, start: Numbers, end: Numbers) -> tuple[Numbers, Numbers]:
    """Items between two moments by the slow rate and the hours of the day, and their item-seconds until the end."""
    everyone = np.arange(len(made))
    a_day, a_day_summed = made[:, 24].astype(np.float64), made[:, 49].astype(np.float64)
    first_day = np.floor(start / DAY)

    def primitives(moment: Numbers) -> tuple[Numbers, Numbers]:
        """The integral of the rate since the first day, and the integral of that."""
        days = np.floor(moment / DAY)
        within = moment - days * DAY
        days = days - first_day
        hour = np.minimum(within // HOUR, 23).astype(np.intp)
        rest = within - hour * HOUR
        before = made[everyone, hour].astype(np.float64)
        rate = (made[everyone, hour + 1] - before) / HOUR
        items = days * a_day + before + rate * rest
        area = a_day * (DAY * days * (days - 1) / 2 + days * within) + days * a_day_summed
        area += made[everyone, hour + 25] + before * rest + rate * rest * rest / 2
        return items, area

    items_then, area_then = primitives(start)
    items_now, area_now = primitives(end)
    items = np.maximum(items_now - items_then, 0.0)
    return items, np.maximum(area_now - area_then - (end - start) * items_then, 0.0)


def expect(made: Curves, waited: Numbers, now: float) -> Expected:
    """What waits at each feed that was polled last so many seconds ago."""
    waited = np.clip(np.nan_to_num(waited, nan=LONGEST, posinf=LONGEST), 0.0, LONGEST)
    end = np.full(len(made), now)
    items, waiting = integrate(made, end - waited, end)
    recent, usual, scatter = (made[:, column].astype(np.float64) for column in (50, 51, 52))
    # The posterior mean of a Gamma rate; what was learned of the last hours fades while nobody looks.
    remembered = np.exp2(-waited / (2 * FAST_HALF_LIFE))
    doubt = 1.0 / scatter
    activity = (recent * remembered + doubt) / (usual * remembered + doubt)
    items = items * activity
    return Expected(items, waiting * activity, np.sqrt(items + np.minimum(scatter, _WIDEST) * items**2))
