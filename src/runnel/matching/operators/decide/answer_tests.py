"""Tests of operator answers. In: the answers of calls. Out: for every test of each call, whether its answer passes.

Many queries compare the results of the same call with different bounds (`?people > 50`, `?people > 60`), and a round
has many calls. So tests that compare one result with a constant, or need any row, are evaluated together in one loop
over numbers. All other tests are evaluated one by one with `algebra.semantics.bindings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from runnel.algebra.nodes.calls import Constraint, Literally, Relation, Variable
from runnel.algebra.nodes.terms import Term
from runnel.algebra.semantics.bindings import term_solutions
from runnel.arrays import offsets_of
from runnel.kernel import kernel, step
from runnel.model.item import Value
from runnel.model.operator import Rows

Truths = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

_LESS, _AT_MOST, _MORE, _AT_LEAST, _EQUAL, _UNEQUAL, _TEXT, _ANY, _OPEN, _OTHER = range(10)
"""Kinds of tests: comparisons of a number, equality of a text, any row, any answer even without rows, and others."""

_KINDS: dict[Relation, int] = {
    "<": _LESS,
    "<=": _AT_MOST,
    ">": _MORE,
    ">=": _AT_LEAST,
    "=": _EQUAL,
    "!=": _UNEQUAL,
}
_SWAPPED: dict[Relation, Relation] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


@dataclass(frozen=True, slots=True)
class AnswerTest:
    """A term of one call, and whether it must not hold. A test without a term passes with any answer."""

    term: Term | None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A test in a form for the kernel: its kind, and for comparisons the index of the result and the constant."""

    kind: int
    result: int = 0
    bound: float | str = 0.0


class CallTests:
    """The tests of one call, in order, with their forms for the kernel."""

    def __init__(self, tests: Sequence[AnswerTest]) -> None:
        self.tests = tuple(tests)
        self.comparisons = tuple(map(_comparison, tests))

    def __len__(self) -> int:
        return len(self.tests)


class AllTests:
    """The tests of many calls in arrays, to evaluate many answers at once.

    >>> from runnel.algebra.nodes.calls import Call
    >>> call = Call("mob", (Variable("1"),), 1, (0,))
    >>> above = [Term((call,), (Constraint(Variable("1"), ">", Literally(bound)),)) for bound in (50.0, 70.0)]
    >>> tests = CallTests([AnswerTest(above[0]), AnswerTest(above[1]), AnswerTest(above[1], negated=True)])
    >>> AllTests([tests]).hold(np.array([0, 0]), [((60.0,),), ()], [None, None])
    array([ True, False,  True, False, False,  True])
    """

    def __init__(self, calls: Sequence[CallTests]) -> None:
        comparisons = [comparison for call in calls for comparison in call.comparisons]
        self._offsets = offsets_of(np.array([len(call) for call in calls], dtype=np.int64))
        self._texts: dict[str, int] = {}
        self._kinds = np.array([comparison.kind for comparison in comparisons], dtype=np.int64)
        self._results = np.array([comparison.result for comparison in comparisons], dtype=np.int64)
        self._bounds = np.array([self._number(comparison.bound) for comparison in comparisons], dtype=np.float64)
        self._negated = np.array([test.negated for call in calls for test in call.tests], dtype=np.bool_)
        self._others: dict[int, list[tuple[int, Term, bool]]] = {}
        for number, call in enumerate(calls):
            for index, (test, comparison) in enumerate(zip(call.tests, call.comparisons, strict=True)):
                if comparison.kind == _OTHER and test.term is not None:
                    self._others.setdefault(number, []).append((index, test.term, test.negated))
        self._with_others = np.zeros(len(calls), dtype=np.bool_)
        self._with_others[list(self._others)] = True

    def _number(self, bound: float | str) -> float:
        """Return the number of a bound. Texts are numbered, so that comparing texts means comparing numbers."""
        return bound if isinstance(bound, float) else float(self._texts.setdefault(bound, len(self._texts)))

    def hold(self, calls: Integers, answers: Sequence[Rows], accepted: Sequence[datetime | None]) -> Truths:
        """Return for every test of each call, one call after another, whether the call's answer passes it.

        `accepted` is the time when each call's item was accepted.
        """
        if len(calls) and not 0 <= calls.min() <= calls.max() < len(self._with_others):
            raise ValueError("a call number is out of range")
        offsets = offsets_of(self._offsets[calls + 1] - self._offsets[calls])
        passed = np.empty(offsets[-1], dtype=np.bool_)
        tests = self._offsets, self._kinds, self._results, self._bounds, self._negated
        _compare(calls.astype(np.int64), *tests, *self._answer_arrays(answers), offsets, passed)
        for pair in np.flatnonzero(self._with_others[calls]).tolist():
            rows = answers[pair]
            for index, term, negated in self._others[int(calls[pair])]:
                holds = bool(term_solutions(term, lambda _, rows=rows: rows, accepted[pair]))  # type: ignore[misc]
                passed[offsets[pair] + index] = holds != negated
        return passed

    def _answer_arrays(self, answers: Sequence[Rows]) -> tuple[Integers, Integers, npt.NDArray[np.float64], Integers]:
        """Return the offsets of the rows of each answer, the offsets of the values of each row, and the values.

        The values come as two arrays. In the array of numbers, other values are NaN; in the array of text numbers,
        values that are no bound of a test are -1.
        """
        starts: list[int] = [0]
        numbers: list[float] = []
        texts: list[int] = []
        for rows in answers:
            for row in rows:
                for value in row:
                    numbers.append(value if isinstance(value, float) else _as_number(value))
                    texts.append(self._texts.get(value, -1) if isinstance(value, str) else -1)
                starts.append(len(numbers))
        offsets = offsets_of(np.array([len(rows) for rows in answers], dtype=np.int64))
        return (
            offsets,
            np.array(starts, dtype=np.int64),
            np.array(numbers, dtype=np.float64),
            np.array(texts, np.int64),
        )


@kernel
def _compare(
    calls: Integers,
    offsets: Integers,
    kinds: Integers,
    results: Integers,
    bounds: npt.NDArray[np.float64],
    negated: Truths,
    row_offsets: Integers,
    starts: Integers,
    numbers: npt.NDArray[np.float64],
    texts: Integers,
    passed_offsets: Integers,
    passed: Truths,
) -> None:
    for pair in range(len(calls)):
        position = passed_offsets[pair]
        for test in range(offsets[calls[pair]], offsets[calls[pair] + 1]):
            kind, holds = kinds[test], False
            for row in range(row_offsets[pair], row_offsets[pair + 1]):
                value = starts[row] + results[test]
                if kind == _ANY:
                    holds = True
                elif value >= starts[row + 1]:
                    holds = False  # the row lacks this result; do not read values of the next row
                elif kind == _TEXT:
                    holds = texts[value] == bounds[test]
                else:
                    holds = _holds(kind, numbers[value], bounds[test])
                if holds:
                    break
            passed[position] = kind == _OPEN or holds != negated[test]
            position += 1


@step
def _holds(kind: int, value: float, bound: float) -> bool:
    if kind == _LESS:
        return value < bound
    if kind == _AT_MOST:
        return value <= bound
    if kind == _MORE:
        return value > bound
    if kind == _AT_LEAST:
        return value >= bound
    if kind == _EQUAL:
        return value == bound
    return kind == _UNEQUAL and value != bound


def _as_number(value: Value) -> float:
    """Return an integer as a float, and NaN for other values, which is unequal to every number."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else np.nan


def _comparison(test: AnswerTest) -> _Comparison:
    if test.term is None:
        return _Comparison(_OPEN)
    pattern = test.term.calls[0].pattern
    variables = {element.name for element in pattern if isinstance(element, Variable)}
    if not test.term.constraints and len(variables) == len(pattern):
        return _Comparison(_ANY)
    match _simple_comparison(test.term):
        case (result, relation, float() as bound):
            return _Comparison(_KINDS[relation], result, bound)
        case (result, _, str() as text):
            return _Comparison(_TEXT, result, text)
        case _:
            return _Comparison(_OTHER)


def _simple_comparison(term: Term) -> tuple[int, Relation, float | str] | None:
    """Return result index, relation and constant of a term that only compares one result with a constant, or None."""
    pattern = term.calls[0].pattern
    constants = [(index, element.value) for index, element in enumerate(pattern) if isinstance(element, Literally)]
    names = [element.name for element in pattern if isinstance(element, Variable)]
    if len(set(names)) != len(names) or len(constants) + len(term.constraints) != 1:
        return None
    if constants:
        index, value = constants[0]
        return (index, "=", value) if isinstance(value, float | str) else None
    constraint = term.constraints[0]
    match constraint:
        case Constraint(Variable(name), relation, Literally(value)):
            pass
        case Constraint(Literally(value), swapped, Variable(name)):
            relation = _SWAPPED[swapped]
        case _:
            return None
    if not isinstance(value, float | str) or (isinstance(value, str) and relation != "="):
        return None
    index = next(
        index for index, element in enumerate(pattern) if isinstance(element, Variable) and element.name == name
    )
    return index, relation, value
