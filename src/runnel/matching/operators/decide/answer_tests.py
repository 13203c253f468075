"""Tests of calls: what rows must be like for a way to go on. Answers in, a truth value for every test of each out.

Many queries ask one call for different bounds (`?people > 50`, `?people > 60`), and a round has many calls. So tests
that compare one result with a constant, or ask for any row, are decided together in one loop over numbers; all others
are, one by one, what `algebra.semantics.bindings` says.
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
Places = npt.NDArray[np.int64]

_LESS, _AT_MOST, _MORE, _AT_LEAST, _EQUAL, _UNEQUAL, _TEXT, _ANY, _OPEN, _OTHER = range(10)
"""Kinds of tests: of a number; of a text; for any row; for an answer, no more; and all others."""

_KINDS: dict[Relation, int] = {
    "<": _LESS,
    "<=": _AT_MOST,
    ">": _MORE,
    ">=": _AT_LEAST,
    "=": _EQUAL,
    "!=": _UNEQUAL,
}
_TURNED: dict[Relation, Relation] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


@dataclass(frozen=True, slots=True)
class AnswerTest:
    """A term of one call, and whether it must not hold. Without a term the test asks for an answer, no more."""

    term: Term | None
    negated: bool = False


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What a test comes to: its kind, and for comparisons the result that is compared, and with what."""

    kind: int
    result: int = 0
    bound: float | str = 0.0


class CallTests:
    """The tests of one call, in order: each as a comparison where it is one, else as the term that it asks for."""

    def __init__(self, tests: Sequence[AnswerTest]) -> None:
        self.tests = tuple(tests)
        self.comparisons = tuple(map(_comparison, tests))

    def __len__(self) -> int:
        return len(self.tests)


class AllTests:
    """The tests of many calls, laid out for many answers at once.

    >>> from runnel.algebra.nodes.calls import Call
    >>> call = Call("mob", (Variable("1"),), 1, (0,))
    >>> above = [Term((call,), (Constraint(Variable("1"), ">", Literally(bound)),)) for bound in (50.0, 70.0)]
    >>> tests = CallTests([AnswerTest(above[0]), AnswerTest(above[1]), AnswerTest(above[1], negated=True)])
    >>> AllTests([tests]).hold(np.array([0, 0]), [((60.0,),), ()], [None, None])
    array([ True, False,  True, False, False,  True])
    """

    def __init__(self, calls: Sequence[CallTests]) -> None:
        every = [one for call in calls for one in call.comparisons]
        self._offsets = offsets_of(np.array([len(call) for call in calls], dtype=np.int64))
        self._texts: dict[str, int] = {}
        self._kinds = np.array([one.kind for one in every], dtype=np.int64)
        self._results = np.array([one.result for one in every], dtype=np.int64)
        self._bounds = np.array([self._number(one.bound) for one in every], dtype=np.float64)
        self._negated = np.array([test.negated for call in calls for test in call.tests], dtype=np.bool_)
        self._others: dict[int, list[tuple[int, Term, bool]]] = {}
        for number, call in enumerate(calls):
            for place, (test, one) in enumerate(zip(call.tests, call.comparisons, strict=True)):
                if one.kind == _OTHER and test.term is not None:
                    self._others.setdefault(number, []).append((place, test.term, test.negated))
        self._with_others = np.zeros(len(calls), dtype=np.bool_)
        self._with_others[list(self._others)] = True

    def _number(self, bound: float | str) -> float:
        """Texts are numbered, so that comparing them is comparing numbers."""
        return bound if isinstance(bound, float) else float(self._texts.setdefault(bound, len(self._texts)))

    def hold(self, calls: Places, answers: Sequence[Rows], accepted: Sequence[datetime | None]) -> Truths:
        """Which tests of each call its answer passes, end to end; `accepted` is the moment of each call's item."""
        if len(calls) and not 0 <= calls.min() <= calls.max() < len(self._with_others):
            raise ValueError("there is no such call")
        offsets = offsets_of(self._offsets[calls + 1] - self._offsets[calls])
        found = np.empty(offsets[-1], dtype=np.bool_)
        laid = self._laid(answers)
        tests = self._offsets, self._kinds, self._results, self._bounds, self._negated
        _compare(calls.astype(np.int64), *tests, *laid, offsets, found)
        for pair in np.flatnonzero(self._with_others[calls]).tolist():
            rows = answers[pair]
            for place, term, negated in self._others[int(calls[pair])]:
                solved = bool(term_solutions(term, lambda _, rows=rows: rows, accepted[pair]))  # type: ignore[misc]
                found[offsets[pair] + place] = solved != negated
        return found

    def _laid(self, answers: Sequence[Rows]) -> tuple[Places, Places, npt.NDArray[np.float64], Places]:
        """Where the rows of each answer begin, where the values of each row do, and the values as numbers and texts.

        What is no number is none in the one, and what is no text that is asked for is -1 in the other.
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
    calls: Places,
    offsets: Places,
    kinds: Places,
    results: Places,
    bounds: npt.NDArray[np.float64],
    negated: Truths,
    row_offsets: Places,
    starts: Places,
    numbers: npt.NDArray[np.float64],
    texts: Places,
    found_offsets: Places,
    found: Truths,
) -> None:
    for pair in range(len(calls)):
        at = found_offsets[pair]
        for test in range(offsets[calls[pair]], offsets[calls[pair] + 1]):
            kind, holds = kinds[test], False
            for row in range(row_offsets[pair], row_offsets[pair + 1]):
                value = starts[row] + results[test]
                if kind == _ANY:
                    holds = True
                elif value >= starts[row + 1]:
                    holds = False  # a row without this result; never read what belongs to the next
                elif kind == _TEXT:
                    holds = texts[value] == bounds[test]
                else:
                    holds = _holds(kind, numbers[value], bounds[test])
                if holds:
                    break
            found[at] = kind == _OPEN or holds != negated[test]
            at += 1


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
    """A number as such; all else is none, which is unequal to every number and neither above nor below."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else np.nan


def _comparison(test: AnswerTest) -> _Comparison:
    if test.term is None:
        return _Comparison(_OPEN)
    pattern = test.term.calls[0].pattern
    variables = {one.name for one in pattern if isinstance(one, Variable)}
    if not test.term.constraints and len(variables) == len(pattern):
        return _Comparison(_ANY)
    match _simple(test.term):
        case (result, relation, float() as bound):
            return _Comparison(_KINDS[relation], result, bound)
        case (result, _, str() as text):
            return _Comparison(_TEXT, result, text)
        case _:
            return _Comparison(_OTHER)


def _simple(term: Term) -> tuple[int, Relation, float | str] | None:
    """The one result that a term compares with a constant: its place, the relation, and the constant."""
    pattern = term.calls[0].pattern
    constants = [(place, one.value) for place, one in enumerate(pattern) if isinstance(one, Literally)]
    names = [one.name for one in pattern if isinstance(one, Variable)]
    if len(set(names)) != len(names) or len(constants) + len(term.constraints) != 1:
        return None
    if constants:
        place, value = constants[0]
        return (place, "=", value) if isinstance(value, float | str) else None
    constraint = term.constraints[0]
    match constraint:
        case Constraint(Variable(name), relation, Literally(value)):
            pass
        case Constraint(Literally(value), turned, Variable(name)):
            relation = _TURNED[turned]
        case _:
            return None
    if not isinstance(value, float | str) or (isinstance(value, str) and relation != "="):
        return None
    place = next(at for at, one in enumerate(pattern) if isinstance(one, Variable) and one.name == name)
    return place, relation, value
