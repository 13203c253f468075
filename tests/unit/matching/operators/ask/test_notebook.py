"""Statistics about operators: merging, decay, limits, and damaged JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.matching.operators.ask.notebook import Notebook, key_of_test
from runnel.model.learned.operator_statistics import (
    HALF_LIFE_CALLS,
    HALF_LIFE_DAYS,
    OperatorStatistics,
    OperatorUse,
    merged,
    operator_key,
)
from runnel.model.learned.stream_statistics import ObservedShare

_WEIGHTS = st.integers(0, 1_000).map(float)
_USES = st.builds(OperatorUse, _WEIGHTS, _WEIGHTS, _WEIGHTS, _WEIGHTS)
_SHARES = st.tuples(_WEIGHTS, _WEIGHTS).map(lambda pair: ObservedShare(max(pair), min(pair)))
_LEARNED = st.builds(
    OperatorStatistics,
    st.dictionaries(st.sampled_from(["a 1", "a 2", "b 1"]), _USES),
    st.dictionaries(st.sampled_from([key_of_test(str(number)) for number in range(4)]), _SHARES),
)


@given(_LEARNED, _LEARNED, _LEARNED)
@settings(deadline=None, max_examples=60)
def test_merging_does_not_depend_on_the_order(
    one: OperatorStatistics, two: OperatorStatistics, three: OperatorStatistics
) -> None:
    assert one.merge(two).merge(three) == merged((three, two, one)) == merged((one.merge(three), two))


@given(_LEARNED)
@settings(deadline=None, max_examples=60)
def test_json_round_trip(one: OperatorStatistics) -> None:
    assert OperatorStatistics.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert bool(one) == bool(one.to_json())


@given(_LEARNED, st.floats(0, 1), st.floats(0, 10))
@settings(deadline=None, max_examples=60)
def test_chances_are_probabilities_and_costs_are_not_negative(
    one: OperatorStatistics, guess: float, declared: float
) -> None:
    for test in [*one.tests, key_of_test("unknown")]:
        assert 0 <= one.chance(test, guess) <= 1
    assert one.chance(key_of_test("unknown"), guess) == pytest.approx(guess)
    assert one.cost("unknown 1", declared) == pytest.approx(declared)
    assert all(one.cost(name, declared) >= 0 for name in one.operators)


def test_estimates_move_from_the_guess_to_the_observed_value() -> None:
    test, name = key_of_test("mob@1()"), operator_key("mob", 1)
    few = OperatorStatistics({name: OperatorUse(1, 1.0)}, {test: ObservedShare(1, 0)})
    assert few.chance(test) == pytest.approx(1 / 3)
    assert few.cost(name, 0.1) == pytest.approx(0.25)
    many = OperatorStatistics({name: OperatorUse(5_000, 5_000.0)}, {test: ObservedShare(5_000, 50)})
    assert many.chance(test) == pytest.approx(0.01, rel=0.05)
    assert many.cost(name, 0.1) == pytest.approx(1.0, rel=0.01)


def test_old_observations_decay_with_new_calls_and_with_days() -> None:
    test, other = key_of_test("one"), key_of_test("other")
    known = OperatorStatistics(
        {"mob 1": OperatorUse(100, 10.0)}, {test: ObservedShare(100, 100), other: ObservedShare(100, 100)}
    )
    after = known.then(
        OperatorStatistics({"mob 1": OperatorUse(HALF_LIFE_CALLS, 0.0)}, {test: ObservedShare(HALF_LIFE_CALLS, 0)})
    )
    assert after.operators["mob 1"] == OperatorUse(HALF_LIFE_CALLS + 50, 5.0)
    assert after.tests[test] == ObservedShare(HALF_LIFE_CALLS + 50, 50)
    assert after.tests[other] == ObservedShare(100, 100), "there are no newer observations of this test"
    later = known.then(OperatorStatistics(), days=HALF_LIFE_DAYS)
    assert later.tests[other] == ObservedShare(50, 50)
    assert known.then(OperatorStatistics(), days=-5) == known, "a clock that was set back does not increase weights"


def test_estimates_follow_a_changed_rate() -> None:
    test = key_of_test("one")
    known = OperatorStatistics()
    for _ in range(100):
        known = known.then(OperatorStatistics(tests={test: ObservedShare(1_000, 900)}))
    assert known.chance(test) == pytest.approx(0.9, abs=0.01)
    for _ in range(20):
        known = known.then(OperatorStatistics(tests={test: ObservedShare(1_000, 100)}))
    assert known.chance(test) == pytest.approx(0.1, abs=0.02)


def test_the_least_used_tests_and_operators_are_dropped() -> None:
    tests = {key_of_test(str(number)): ObservedShare(float(number), 0.0) for number in range(50)}
    operators = {operator_key("mob", number): OperatorUse(float(number)) for number in range(50)}
    kept = OperatorStatistics(operators, tests).bounded(tests=10, operators=5)
    assert set(kept.tests) == {key_of_test(str(number)) for number in range(40, 50)}
    assert set(kept.operators) == {operator_key("mob", number) for number in range(45, 50)}
    same = OperatorStatistics(operators, tests)
    assert same.bounded() is same


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        [],
        "text",
        {"operators": []},
        {"operators": {"a": [1]}, "tests": {"zz": [1, 1]}},
        {"operators": {"a": [1, 2, 3, 4, 5]}},
        {"operators": {"a": [float("nan"), 1, 1, 1]}},
        {"tests": {"00" * 16: [-1, 0]}},
        {"tests": {"00" * 16: [True, 0]}},
        {"tests": {"00": [1, 0]}},
    ],
)
def test_damaged_json_yields_empty_statistics(damaged: object) -> None:
    assert OperatorStatistics.from_json(damaged) == OperatorStatistics()


def test_recorded_statistics_are_taken_once() -> None:
    notebook = Notebook()
    for _ in range(3):
        notebook.note_calls("mob", 1, calls=4, seconds=0.5, failures=1)
        notebook.note_calls("mob", 1, hits=2)
        notebook.note_test(key_of_test("one"), asked=4, passed=3)
    taken = notebook.take()
    assert taken.operators == {"mob 1": OperatorUse(12, 1.5, 3, 6)}
    assert taken.tests == {key_of_test("one"): ObservedShare(12, 9)}
    assert not notebook.take()
