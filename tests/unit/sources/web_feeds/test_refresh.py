"""Publishing models are model from polls, and determine which feeds are polled next."""

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


def model_after(polls: list[tuple[float, int]], *, held: int = 20, period: float = HOUR) -> PublishingModel:
    """Return the model of a feed after polls, each given as (seconds since the previous poll, new items)."""
    at = MIDNIGHT
    model = PublishingModel.start(period).observed(at=at, elapsed=0, new=held, held=held)
    for elapsed, new in polls:
        at += elapsed
        model = model.observed(at=at, elapsed=elapsed, new=new, held=held)
    return model


def test_rate_is_learned_from_polls() -> None:
    assert model_after([(HOUR, 6)] * 100).rate * HOUR == pytest.approx(6, rel=0.1)
    assert model_after([(DAY, 2)] * 60).rate * DAY == pytest.approx(2, rel=0.2)


def test_old_polls_lose_weight() -> None:
    slowed = model_after([(HOUR, 10)] * 200 + [(HOUR, 0)] * 24 * 30)
    assert slowed.rate < model_after([(HOUR, 10)] * 200).rate / 4


def test_first_poll_sets_only_the_capacity() -> None:
    first = PublishingModel.start(HOUR).observed(at=MIDNIGHT, elapsed=0, new=50, held=50)
    assert (first.capacity, first.rate, first.changed) == (50, PublishingModel.start(HOUR).rate, MIDNIGHT)


def test_unchanged_document_does_not_change_the_capacity() -> None:
    model = model_after([(HOUR, 1)] * 5)
    assert model.observed(at=MIDNIGHT + DAY, elapsed=HOUR, new=0, held=0).capacity == 20
    assert model.changed == MIDNIGHT + 5 * HOUR


def test_capacity_is_lowered_only_after_items_were_pushed_out() -> None:
    young = PublishingModel.start(HOUR).observed(at=MIDNIGHT, elapsed=0, new=1, held=1)
    assert young.capacity == 10
    growing = young.observed(at=MIDNIGHT + HOUR, elapsed=HOUR, new=2, held=3)
    assert growing.capacity == 10
    for hour in range(2, 12):
        growing = growing.observed(at=MIDNIGHT + hour * HOUR, elapsed=HOUR, new=2, held=3)
    assert growing.capacity == pytest.approx(3, abs=0.1)


def test_documents_full_of_new_items_shorten_the_wait_each_time() -> None:
    waits = [
        next(wait for wait in range(60, 4 * 3600, 60) if overflow_after(model, wait) > 0.5)
        for model in (model_after([(HOUR, 20)] * polls) for polls in (1, 2, 3))
    ]
    assert waits[0] < HOUR
    assert all(later < sooner for sooner, later in pairwise(waits))


def overflow_after(model: PublishingModel, wait: float) -> float:
    curve = np.frombuffer(model.curve, dtype=np.float32).reshape(1, -1)
    items, _ = integrate(curve, np.array([MIDNIGHT]), np.array([MIDNIGHT + wait]))
    return float(overflow_chance(items, np.sqrt(items), np.array([model.capacity]))[0])


def test_bursty_feed_has_higher_burstiness_than_steady_feed() -> None:
    steady = model_after([(HOUR, 4)] * 200)
    bursty = model_after([(HOUR, 80 if number % 20 == 0 else 0) for number in range(200)], held=100)
    assert steady.burstiness < 0.2
    assert bursty.burstiness > 2


def test_bursty_feed_is_more_urgent_during_a_burst() -> None:
    quiet = [(HOUR, 0)] * 9
    bursty = model_after(([(HOUR, 40), *quiet]) * 12 + [(HOUR, 15)])
    quiet_now = model_after(([(HOUR, 40), *quiet]) * 12 + [(HOUR, 0)])
    waited = np.full(2, 600.0)
    during, outside = urgency([bursty, quiet_now], waited, MIDNIGHT + 200 * HOUR)
    assert during > 3 * outside


def test_activity_by_hour_of_the_day_is_learned() -> None:
    polls = [(HOUR, 6 if 8 <= hour % 24 < 16 else 0) for hour in range(24 * 14)]
    by_day = model_after(polls)
    noon, night = MIDNIGHT + 30 * DAY + 13 * HOUR, MIDNIGHT + 30 * DAY + 3 * HOUR
    waited = np.full(1, 2 * HOUR)
    assert urgency([by_day], waited, noon)[0] > 5 * urgency([by_day], waited, night)[0]


def test_index_of_steady_feeds_matches_the_formula() -> None:
    """Without overflow the index is λw²/2, so a feed with four times the rate waits half as long."""
    slow, fast = model_after([(HOUR, 1)] * 500, held=1000), model_after([(HOUR, 4)] * 500, held=1000)
    slow_index, fast_index = urgency([slow, fast], np.array([2 * HOUR, HOUR]), MIDNIGHT + 600 * HOUR)
    assert slow_index == pytest.approx(fast_index, rel=0.15)
    assert slow_index == pytest.approx(slow.rate * (2 * HOUR) ** 2 / 2, rel=0.15)


def test_feed_that_overflows_is_more_urgent() -> None:
    saturated = model_after([(HOUR, 9)] * 100, held=10)
    roomy = model_after([(HOUR, 9)] * 100, held=200)
    waited = np.full(2, 2 * HOUR)
    first, second = urgency([saturated, roomy], waited, MIDNIGHT + 200 * HOUR)
    assert first > 1.3 * second


def test_feed_without_new_items_is_still_polled_eventually() -> None:
    dead, live = model_after([(DAY, 0)] * 365), model_after([(HOUR, 2)] * 200)
    now = MIDNIGHT + 400 * DAY
    often = urgency([live], np.array([HOUR]), now)[0]
    assert urgency([dead], np.array([HOUR]), now)[0] < often / 100
    assert urgency([dead], np.array([40 * DAY]), now)[0] > often


def test_feed_with_items_after_a_long_silence_becomes_urgent() -> None:
    dead = model_after([(DAY, 0)] * 100)
    awake = dead.observed(at=MIDNIGHT + 101 * DAY, elapsed=DAY, new=15, held=20)
    waited = np.full(2, HOUR)
    before, after = urgency([dead, awake], waited, MIDNIGHT + 101 * DAY + HOUR)
    assert after > 20 * before


def test_feed_that_was_never_polled_is_urgent() -> None:
    unknown, known = PublishingModel.start(HOUR), model_after([(HOUR, 1)] * 10)
    values = urgency([unknown, known], np.array([np.inf, HOUR]), MIDNIGHT)
    assert np.isfinite(values).all()
    assert values[0] > values[1]


def test_empty_input_gives_empty_results() -> None:
    assert urgency([], np.empty(0), MIDNIGHT).tolist() == []
    assert choose(np.empty(0), 5).tolist() == []


def test_ranking_ten_thousand_feeds_takes_milliseconds() -> None:
    model = [PublishingModel.start(60.0 + number) for number in range(10_000)]
    waited = np.linspace(0, DAY, 10_000)
    urgency(model, waited, MIDNIGHT)
    started = time.process_time()
    for _ in range(5):
        assert len(choose(urgency(model, waited, MIDNIGHT), 600)) == 600
    assert (
        time.process_time() - started < 2.5
    )  # detects a Python loop over feeds; the vectorized code takes a fiftieth


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1e12), max_size=50), st.integers(-5, 60))
def test_choose_returns_the_most_urgent_in_order(values: list[float], budget: int) -> None:
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
def test_urgency_is_finite_and_models_survive_serialization_for_any_polls(
    polls: list[tuple[float, int, int]], period: float, waited: float
) -> None:
    model, at = PublishingModel.start(period), MIDNIGHT
    for elapsed, new, held in polls:
        at += elapsed
        model = model.observed(at=at, elapsed=elapsed, new=new, held=held)
    value = urgency([model], np.array([waited]), at + waited)
    assert np.isfinite(value).all()
    assert (value >= 0).all()
    again = PublishingModel.from_text(model.to_text(), period)
    assert again.rate == pytest.approx(model.rate, rel=1e-4)
    assert again.changed == pytest.approx(model.changed, abs=0.001)
    assert len(model.to_text()) < 2000


@settings(max_examples=80, deadline=None)
@given(st.floats(0.1, 1e3), st.floats(1, 200), st.floats(0.05, 3))
def test_urgency_does_not_decrease_with_the_wait(rate: float, capacity: float, scatter: float) -> None:
    waited = np.linspace(60, 5 * DAY, 400)
    items = rate / HOUR * waited
    spread = np.sqrt(items + scatter * items**2)
    # The same feed at many times. The weight of a missed item depends on the median wait.
    values = index(items, items * waited / 2, spread, np.full(400, capacity), waited)
    assert (np.diff(values) >= -1e-6 * values[1:]).all()


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 3 * DAY), st.floats(0, 40 * DAY), st.integers(0, 2**32))
def test_integrals_equal_sums_of_small_steps(start: float, length: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = start_rows(np.array([HOUR]))
    for day in range(3):
        for hour in range(24):
            at = np.array([MIDNIGHT + day * DAY + hour * HOUR])
            new = np.array([float(random.integers(0, 9))])
            rows = learn(rows, at, np.array([HOUR]), new, np.array([100.0]))
    curve = curves(rows)
    begin, end = np.array([MIDNIGHT + start]), np.array([MIDNIGHT + start + length])
    items, area = integrate(curve, begin, end)
    edges = np.linspace(begin[0], end[0], 4001)
    many = np.repeat(curve, 4000, axis=0)
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
def test_invalid_text_gives_the_initial_model(text: str | None) -> None:
    assert PublishingModel.from_text(text, 600) == PublishingModel.start(600)


@settings(max_examples=40, deadline=None)
@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.sampled_from(
        ["items", "seconds", "recent", "recent_expected", "excess", "square", "capacity", "held", "changed", "hours",
         "hours_expected"]), inner, max_size=11)))  # fmt: skip
def test_urgency_is_finite_for_any_json_text(value: object) -> None:
    model = PublishingModel.from_text(json.dumps(value), 600)
    assert np.isfinite(urgency([model], np.array([60.0]), MIDNIGHT)).all()
