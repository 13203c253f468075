"""Statistics of operators: the cost of a call, and how often its tests pass.

In: observations of workers in a batch. Out: costs and probabilities, for the order of calls. They affect speed, never
results. Old observations have exponentially decreasing weight, and rarely used tests are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any, NamedTuple

from runnel.model.learned.stream_statistics import ObservedShare

HALF_LIFE_CALLS = 2_000.0
"""Number of calls of an operator, or evaluations of a test, after which an observation has half its weight."""
HALF_LIFE_DAYS = 30.0

MAX_TESTS, MAX_OPERATORS = 20_000, 2_000
TEST_BYTES = 16
_GUESS_ASKS = 2.0
"""Weight of a guessed probability, in evaluations. With a guess of 0.5: one that passed and one that failed."""
_GUESS_CALLS = 5.0
"""Weight of a declared cost, in calls."""


class OperatorUse(NamedTuple):
    """The use of an operator: number of calls, their seconds, failed calls, and cached answers.

    The numbers are weighted, so they are not integers.
    """

    calls: float = 0.0
    seconds: float = 0.0
    failures: float = 0.0
    hits: float = 0.0

    def plus(self, other: OperatorUse) -> OperatorUse:
        """Return the sum of both."""
        return OperatorUse(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, factor: float) -> OperatorUse:
        """Return the use multiplied by a factor."""
        return OperatorUse(*(value * factor for value in self))


_NOT_ASKED = ObservedShare(0.0, 0.0)


@dataclass(frozen=True)
class OperatorStatistics:
    """Uses of operators by `operator_key`, and evaluations and passes of tests by the digest of the test.

    >>> some = OperatorStatistics({"mob 1": OperatorUse(10, 0.4)}, {b"1" * 16: ObservedShare(6, 6)})
    >>> some.chance(b"1" * 16), some.chance(b"2" * 16), some.chance(b"2" * 16, 0.1)
    (0.875, 0.5, 0.1)
    >>> some.cost("mob 1", 0.25), some.cost("mob 2", 0.001)
    (0.11, 0.001)
    """

    operators: Mapping[str, OperatorUse] = field(default_factory=dict)
    tests: Mapping[bytes, ObservedShare] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.operators or self.tests)

    def chance(self, test: bytes, guess: float = 0.5) -> float:
        """Return the probability that a test passes, or a guess while there are few observations."""
        known = self.tests.get(test, _NOT_ASKED)
        return (min(known.held, known.asked) + _GUESS_ASKS * guess) / (known.asked + _GUESS_ASKS)

    def cost(self, operator: str, declared: float) -> float:
        """Return the seconds per call, or the declared cost while there are few observations."""
        known = self.operators.get(operator, OperatorUse())
        return (known.seconds + _GUESS_CALLS * declared) / (known.calls + _GUESS_CALLS)

    def merge(self, other: OperatorStatistics) -> OperatorStatistics:
        """Combine observations of the same time."""
        return merged((self, other))

    def then(self, newer: OperatorStatistics, *, days: float = 0.0) -> OperatorStatistics:
        """Add observations made `days` later. Older observations lose weight by the number of new ones.

        >>> known = OperatorStatistics(tests={b"1" * 16: ObservedShare(2_000, 1_000)})
        >>> known.then(OperatorStatistics(tests={b"1" * 16: ObservedShare(2_000, 2_000)})).tests[b"1" * 16]
        ObservedShare(asked=3000.0, held=2500.0)
        """
        age = 0.5 ** (max(0.0, days) / HALF_LIFE_DAYS)
        operators = {
            name: use.times(age * _left(newer.operators.get(name, OperatorUse()).calls))
            for name, use in self.operators.items()
        }
        tests = {}
        for test, (asked, held) in self.tests.items():
            left = age * _left(newer.tests.get(test, _NOT_ASKED).asked)
            tests[test] = ObservedShare(asked * left, held * left)
        return OperatorStatistics(operators, tests).merge(newer)

    def bounded(self, *, tests: int = MAX_TESTS, operators: int = MAX_OPERATORS) -> OperatorStatistics:
        """Return only the most frequently evaluated tests and the most frequently called operators."""
        if len(self.tests) <= tests and len(self.operators) <= operators:
            return self
        return OperatorStatistics(
            dict(nlargest(operators, self.operators.items(), key=lambda entry: entry[1].calls + entry[1].hits)),
            dict(nlargest(tests, self.tests.items(), key=lambda entry: entry[1].asked)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return a short JSON value without empty parts."""
        members = {
            "operators": {name: [_short(value) for value in use] for name, use in self.operators.items()},
            "tests": {test.hex(): [_short(asked), _short(held)] for test, (asked, held) in self.tests.items()},
        }
        return {name: value for name, value in members.items() if value}

    @staticmethod
    def from_json(value: object) -> OperatorStatistics:
        """Read the output of `to_json`. Ignore invalid values.

        >>> OperatorStatistics.from_json({"operators": {"mob 1": [1, 0.5, 0, 2]}}).operators["mob 1"]
        OperatorUse(calls=1.0, seconds=0.5, failures=0.0, hits=2.0)
        >>> broken = OperatorStatistics.from_json({"tests": {"00": [1, 1]}})
        >>> broken == OperatorStatistics.from_json(None) == OperatorStatistics()
        True
        """
        if not isinstance(value, dict):
            return OperatorStatistics()
        try:
            operators = {
                str(name): OperatorUse(*(_weight(value) for value in use))
                for name, use in value.get("operators", {}).items()
            }
            tests = {
                _digest(test): ObservedShare(_weight(asked), _weight(held))
                for test, (asked, held) in value.get("tests", {}).items()
            }
        except (AttributeError, TypeError, ValueError):
            return OperatorStatistics()
        return OperatorStatistics(operators, tests)


def merged(several: Iterable[OperatorStatistics]) -> OperatorStatistics:
    """Combine all observations."""
    operators: dict[str, OperatorUse] = {}
    tests: dict[bytes, ObservedShare] = {}
    for statistics in several:
        for name, use in statistics.operators.items():
            operators[name] = operators.get(name, OperatorUse()).plus(use)
        for test, (asked, held) in statistics.tests.items():
            known = tests.get(test, _NOT_ASKED)
            tests[test] = ObservedShare(known.asked + asked, known.held + held)
    return OperatorStatistics(operators, tests)


def operator_key(name: str, version: int) -> str:
    """Return the key of an operator's registration in the statistics.

    >>> operator_key("mobPattern", 2)
    'mobPattern 2'
    """
    return f"{name} {version}"


def _left(asked: float) -> float:
    """Return the remaining weight of an observation after `asked` further ones."""
    return float(0.5 ** (asked / HALF_LIFE_CALLS))


def _short(number: float) -> float:
    """Round to five significant digits, to keep the JSON short."""
    return float(f"{number:.5g}") if number != int(number) else int(number)


def _digest(text: str) -> bytes:
    digest = bytes.fromhex(text)
    if len(digest) != TEST_BYTES:
        raise ValueError("not a digest")
    return digest


def _weight(number: object) -> float:
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number) or number < 0:
        raise ValueError("not a weight")
    return float(number)
