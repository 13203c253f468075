"""What polls teach, and which feeds are polled next."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runnel.sources.web_feeds.publishing_rates import DAY, HOUR, curves, integrate, learn, start_rows
from runnel.sources.web_feeds.refresh import PublishingModel, choose, index, overflow_chance, urgency

MIDNIGHT = 20_000 * DAY


def taught(finds: list[tuple[float, int]], *, held: int = 20, period: float = HOUR) -> PublishingModel:
    """A feed after polls at some distances, each with its number of new items."""
    at = MIDNIGHT
    learned = PublishingModel.start(period).observed(at=at, elapsed=0, new=held, held=held)
    for elapsed, new in finds:
        at += elapsed
        learned = learned.observed(at=at, elapsed=elapsed, new=new, held=held)
    return learned


def test_the_rate_is_learned() -> None:
    assert taught([(HOUR, 6)] * 100).rate * HOUR == pytest.approx(6, rel=0.1)
    assert taught([(DAY, 2)] * 60).rate * DAY == pytest.approx(2, rel=0.2)


def test_the_past_is_forgotten() -> None:
    slowed = taught([(HOUR, 10)] * 200 + [(HOUR, 0)] * 24 * 30)
    assert slowed.rate < taught([(HOUR, 10)] * 200).rate / 4


def test_the_first_poll_teaches_only_what_the_document_holds() -> None:
    first = PublishingModel.start(HOUR).observed(at=MIDNIGHT, elapsed=0, new=50, held=50)
    assert (first.capacity, first.rate, first.changed) == (50, PublishingModel.start(HOUR).rate, MIDNIGHT)


def test_a_document_that_was_not_sent_again_leaves_the_capacity() -> None:
    learned = taught([(HOUR, 1)] * 5)
    assert learned.observed(at=MIDNIGHT + DAY, elapsed=HOUR, new=0, held=0).capacity == 20
    assert learned.changed == MIDNIGHT + 5 * HOUR


def test_a_short_document_may_grow_until_it_pushes_items_out() -> None:
    young = PublishingModel.start(HOUR).observed(at=MIDNIGHT, elapsed=0, new=1, held=1)
    assert young.capacity == 10
    growing = young.observed(at=MIDNIGHT + HOUR, elapsed=HOUR, new=2, held=3)
    assert growing.capacity == 10
    for hour in range(2, 12):
        growing = growing.observed(at=MIDNIGHT + hour * HOUR, elapsed=HOUR, new=2, held=3)
    assert growing.capacity == pytest.approx(3, abs=0.1)


def test_a_document_full_of_new_items_is_polled_sooner_and_sooner() -> None:
    waits = [
        next(wait for wait in range(60, 4 * 3600, 60) if chance(learned, wait) > 0.5)
        for learned in (taught([(HOUR, 20)] * polls) for polls in (1, 2, 3))
    ]
    assert waits[0] < HOUR
    assert all(later < sooner for sooner, later in pairwise(waits))


def chance(learned: PublishingModel, wait: float) -> float:
    made = np.frombuffer(learned.curve, dtype=np.float32).reshape(1, -1)
    items, _ = integrate(made, np.array([MIDNIGHT]), np.array([MIDNIGHT + wait]))
    return float(overflow_chance(items, np.sqrt(items), np.array([learned.capacity]))[0])


def test_bursts_are_told_from_steadiness() -> None:
    steady = taught([(HOUR, 4)] * 200)
    bursty = taught([(HOUR, 80 if number % 20 == 0 else 0) for number in range(200)], held=100)
    assert steady.burstiness < 0.2
    assert bursty.burstiness > 2


def test_after_a_burst_a_bursty_feed_is_more_urgent_than_a_steady_one() -> None:
    quiet = [(HOUR, 0)] * 9
    bursty = taught(([(HOUR, 40), *quiet]) * 12 + [(HOUR, 15)])
    asleep = taught(([(HOUR, 40), *quiet]) * 12 + [(HOUR, 0)])
    waited = np.full(2, 600.0)
    during, outside = urgency([bursty, asleep], waited, MIDNIGHT + 200 * HOUR)
    assert during > 3 * outside


def test_the_hours_of_the_day_are_learned() -> None:
    finds = [(HOUR, 6 if 8 <= hour % 24 < 16 else 0) for hour in range(24 * 14)]
    by_day = taught(finds)
    noon, night = MIDNIGHT + 30 * DAY + 13 * HOUR, MIDNIGHT + 30 * DAY + 3 * HOUR
    waited = np.full(1, 2 * HOUR)
    assert urgency([by_day], waited, noon)[0] > 5 * urgency([by_day], waited, night)[0]


def test_two_steady_feeds_are_urgent_as_theory_has_it() -> None:
    """Without overflow the index is λw²/2, so a feed four times as fast waits half as long."""
    slow, fast = taught([(HOUR, 1)] * 500, held=1000), taught([(HOUR, 4)] * 500, held=1000)
    one, other = urgency([slow, fast], np.array([2 * HOUR, HOUR]), MIDNIGHT + 600 * HOUR)
    assert one == pytest.approx(other, rel=0.15)
    assert one == pytest.approx(slow.rate * (2 * HOUR) ** 2 / 2, rel=0.15)


def test_saturated_feeds_come_first() -> None:
    saturated = taught([(HOUR, 9)] * 100, held=10)
    roomy = taught([(HOUR, 9)] * 100, held=200)
    waited = np.full(2, 2 * HOUR)
    first, second = urgency([saturated, roomy], waited, MIDNIGHT + 200 * HOUR)
    assert first > 1.3 * second


def test_a_dead_feed_is_looked_at_again_some_day() -> None:
    dead, live = taught([(DAY, 0)] * 365), taught([(HOUR, 2)] * 200)
    now = MIDNIGHT + 400 * DAY
    often = urgency([live], np.array([HOUR]), now)[0]
    assert urgency([dead], np.array([HOUR]), now)[0] < often / 100
    assert urgency([dead], np.array([40 * DAY]), now)[0] > often


def test_an_awakened_feed_is_found_urgent_at_once() -> None:
    dead = taught([(DAY, 0)] * 100)
    awake = dead.observed(at=MIDNIGHT + 101 * DAY, elapsed=DAY, new=15, held=20)
    waited = np.full(2, HOUR)
    before, after = urgency([dead, awake], waited, MIDNIGHT + 101 * DAY + HOUR)
    assert after > 20 * before


def test_what_was_never_polled_is_urgent() -> None:
    unknown, known = PublishingModel.start(HOUR), taught([(HOUR, 1)] * 10)
    values = urgency([unknown, known], np.array([np.inf, HOUR]), MIDNIGHT)
    assert np.isfinite(values).all()
    assert values[0] > values[1]


def test_no_feeds_are_no_trouble() -> None:
    assert urgency([], np.empty(0), MIDNIGHT).tolist() == []
    assert choose(np.empty(0), 5).tolist() == []


def test_ten_thousand_feeds_take_milliseconds() -> None:
    learned = [PublishingModel.start(60.0 + number) for number in range(10_000)]
    waited = np.linspace(0, DAY, 10_000)
    urgency(learned, waited, MIDNIGHT)
    started = time.process_time()
    for _ in range(5):
        assert len(choose(urgency(learned, waited, MIDNIGHT), 600)) == 600
    assert time.process_time() - started < 2.5  # a guard against a loop over feeds; it takes a fiftieth of that


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1e12), max_size=50), st.integers(-5, 60))
def test_choose_takes_the_most_urgent_in_order(values: list[float], budget: int) -> None:
    array = np.array(values)
    chosen = choose(array, budget)
    assert len(chosen) == len(set(chosen.tolist())) == max(0, min(budget, len(values)))
    assert array[chosen].tolist() == sorted(values, reverse=True)[: len(chosen)]


POLLS = st.lists(
    st.tuples(st.floats(0, 100 * DAY), st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=12
)


@settings(max_examples=80, deadline=None)
@given(POLLS, st.floats(1, 30 * DAY), st.floats(0, 100 * DAY))
@example([(1.0, 1131, 1), (1672.0, 0, 0)], 1.0, 0.0)
def test_whatever_is_found_urgency_is_finite_and_what_is_kept_comes_back(
    polls: list[tuple[float, int, int]], period: float, waited: float
) -> None:
    learned, at = PublishingModel.start(period), MIDNIGHT
    for elapsed, new, held in polls:
        at += elapsed
        learned = learned.observed(at=at, elapsed=elapsed, new=new, held=held)
    value = urgency([learned], np.array([waited]), at + waited)
    assert np.isfinite(value).all()
    assert (value >= 0).all()
    again = PublishingModel.from_text(learned.to_text(), period)
    assert again.rate == pytest.approx(learned.rate, rel=1e-4)
    assert again.changed == pytest.approx(learned.changed, abs=0.001)
    assert len(learned.to_text()) < 2000


@settings(max_examples=80, deadline=None)
@given(st.floats(0.1, 1e3), st.floats(1, 200), st.floats(0.05, 3))
def test_waiting_longer_is_never_less_urgent(rate: float, capacity: float, scatter: float) -> None:
    waited = np.linspace(60, 5 * DAY, 400)
    items = rate / HOUR * waited
    spread = np.sqrt(items + scatter * items**2)
    # One feed at many moments; the weight of a missed item is that of their median.
    values = index(items, items * waited / 2, spread, np.full(400, capacity), waited)
    assert (np.diff(values) >= -1e-6 * values[1:]).all()


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 3 * DAY), st.floats(0, 40 * DAY), st.integers(0, 2**32))
def test_integrals_are_those_of_small_steps(start: float, length: float, seed: int) -> None:
    chance = np.random.default_rng(seed)
    rows = start_rows(np.array([HOUR]))
    for day in range(3):
        for hour in range(24):
            at = np.array([MIDNIGHT + day * DAY + hour * HOUR])
            found = np.array([float(chance.integers(0, 9))])
            rows = learn(rows, at, np.array([HOUR]), found, np.array([100.0]))
    made = curves(rows)
    begin, end = np.array([MIDNIGHT + start]), np.array([MIDNIGHT + start + length])
    items, area = integrate(made, begin, end)
    edges = np.linspace(begin[0], end[0], 4001)
    many = np.repeat(made, 4000, axis=0)
    steps, _ = integrate(many, edges[:-1], edges[1:])
    assert items[0] == pytest.approx(steps.sum(), rel=1e-3, abs=1e-3)
    by_steps = (steps * (edges[-1] - (edges[1:] + edges[:-1]) / 2)).sum()
    assert area[0] == pytest.approx(by_steps, rel=1e-2, abs=10)


@pytest.mark.parametrize(
    "text",
    [
        "", None, "{", "[]", "7", "null", '{"items": 1}', "x" * 20_000, "[" * 9_000,
        json.dumps({"items": float("nan")}), PublishingModel.start(60).to_text().replace("1.0", "1e400", 1),
        PublishingModel.start(60).to_text().replace("1.0", "-1", 1),
        PublishingModel.start(60).to_text().replace("1.0", '"1"', 1),
        PublishingModel.start(60).to_text().replace("1.0", "true", 1),
        PublishingModel.start(60).to_text()[:-2] + ",1]}",
        PublishingModel.start(60).to_text().replace('"capacity":10.0', '"capacity":0'),
    ],
)  # fmt: skip
def test_learning_starts_anew_from_what_is_not_ours(text: str | None) -> None:
    assert PublishingModel.from_text(text, 600) == PublishingModel.start(600)


@settings(max_examples=40, deadline=None)
@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.sampled_from(
        ["items", "seconds", "recent", "recent_expected", "excess", "square", "capacity", "held", "changed", "hours",
         "hours_expected"]), inner, max_size=11)))  # fmt: skip
def test_hostile_text_never_breaks_urgency(value: object) -> None:
    learned = PublishingModel.from_text(json.dumps(value), 600)
    assert np.isfinite(urgency([learned], np.array([60.0]), MIDNIGHT)).all()
