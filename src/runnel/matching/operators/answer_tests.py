"""Tests of a call: what its rows must be like for a way to go on. Rows in, a truth value for every test out.

Many queries ask one call for different bounds (`?people > 50`, `?people > 60`), so tests that compare one result with
a constant are decided together; all others are, one by one, what `algebra.bindings` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from runnel.algebra.bindings import term_solutions
from runnel.algebra.calls import Constraint, Literally, Relation, Term, Variable
from runnel.model.item import Value
from runnel.model.operator import Rows

Truths = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

_TURNED: dict[Relation, Relation] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}


@dataclass(frozen=True, slots=True)
class AnswerTest:
    """A term of one call, and whether it must not hold. Without a term the test asks for an answer, no more."""

    term: Term | None
    negated: bool = False


@dataclass(frozen=True)
class _Bounds:
    """Tests that compare one result with numbers: the tests, and the number of each."""

    result: int
    relation: Relation
    tests: Places
    numbers: npt.NDArray[np.float64]

    def hold(self, value: Value) -> Truths:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return np.zeros(len(self.tests), dtype=np.bool_) | (self.relation == "!=")
        match self.relation:
            case "=":
                return np.asarray(value == self.numbers)
            case "!=":
                return np.asarray(value != self.numbers)
            case "<":
                return np.asarray(value < self.numbers)
            case "<=":
                return np.asarray(value <= self.numbers)
            case ">":
                return np.asarray(value > self.numbers)
            case ">=":
                return np.asarray(value >= self.numbers)


@dataclass(frozen=True)
class _Texts:
    """Tests that ask for one text in a result: the tests by text."""

    result: int
    tests: dict[str, Places]


class CallTests:
    """The tests of one call, in order.

    >>> from runnel.algebra.calls import Call
    >>> call = Call("mob", (Variable("1"),), 1, (0,))
    >>> above = [Term((call,), (Constraint(Variable("1"), ">", Literally(bound)),)) for bound in (50.0, 70.0)]
    >>> CallTests([AnswerTest(above[0]), AnswerTest(above[1]), AnswerTest(above[1], negated=True)]).hold(((60.0,),))
    array([ True, False,  True])
    """

    def __init__(self, tests: Sequence[AnswerTest]) -> None:
        bounds: dict[tuple[int, Relation], list[tuple[int, float]]] = {}
        texts: dict[int, dict[str, list[int]]] = {}
        self._others: list[tuple[int, Term]] = []
        self._open = np.array([one.term is None for one in tests], dtype=np.bool_)
        self._negated = np.array([one.negated for one in tests], dtype=np.bool_)
        for number, one in enumerate(tests):
            match one.term and _simple(one.term):
                case (int() as result, str() as relation, float() as bound):
                    bounds.setdefault((result, relation), []).append((number, bound))
                case (int() as result, "=", str() as text):
                    texts.setdefault(result, {}).setdefault(text, []).append(number)
                case _ if one.term is not None:
                    self._others.append((number, one.term))
        self._bounds = [
            _Bounds(result, relation, np.array([at for at, _ in some]), np.array([bound for _, bound in some]))
            for (result, relation), some in bounds.items()
        ]
        self._texts = [
            _Texts(result, {text: np.array(some) for text, some in by_text.items()})
            for result, by_text in texts.items()
        ]

    def __len__(self) -> int:
        return len(self._open)

    def hold(self, rows: Rows, accepted: datetime | None = None) -> Truths:
        """Which of the tests the rows pass."""
        found = np.zeros(len(self), dtype=np.bool_)
        for row in rows:
            for bounds in self._bounds:
                found[bounds.tests] |= bounds.hold(row[bounds.result])
            for texts in self._texts:
                value = row[texts.result]
                if isinstance(value, str) and value in texts.tests:
                    found[texts.tests[value]] = True
        for number, term in self._others:
            found[number] = bool(term_solutions(term, lambda _: rows, accepted))
        return (found ^ self._negated) | self._open


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
