"""The ways of a plan that operators decide, laid out: which calls they need, and what these must answer.

In: the operator table of a plan. Out: calls, their tests, the ways over tests as the orders take them, and for ways
with terms of several calls the joins that are checked once all their tests have passed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from runnel.algebra.nodes.calls import Call, Constraint, Given, Literally, variables_of
from runnel.algebra.nodes.encode import decode_operators, encode_operators
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.nodes.terms import Term
from runnel.arrays import Array
from runnel.errors import CorruptDataError
from runnel.matching.operators.decide.answer_tests import AnswerTest, CallTests
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.plan.operator_table import OperatorTable

Chance = Callable[[bytes], float]
"""How likely a test passes, by its digest."""

Price = Callable[[tuple[str, int]], float]
"""What a call of an operator (name and version) costs, in seconds."""

DIGEST = 16


@dataclass(frozen=True, slots=True)
class Check:
    """A term that is looked at once all tests of its way have passed, because no test of one call decides it."""

    term: Term
    negated: bool


@dataclass(frozen=True)
class OperatorDisjuncts:
    """Ways over tests over calls, by their places in the operator table."""

    table: OperatorTable
    calls: tuple[Call, ...]
    call_patterns: tuple[tuple[ItemPattern, ...], ...]
    """For calls that are given variables of item patterns, these patterns."""
    tests: tuple[AnswerTest, ...]
    test_calls: tuple[int, ...]
    way_tests: tuple[tuple[int, ...], ...]
    way_checks: tuple[tuple[Check, ...], ...]
    way_literals: tuple[tuple[Check, ...], ...]
    """All that operators must decide of a way, whether a test of one call does or not."""
    way_terms: tuple[tuple[tuple[Term, tuple[str, ...]], ...], ...]
    """The terms of a way that bind variables of its query, and what these are called there."""

    @property
    def operators(self) -> list[tuple[str, int]]:
        """The operators that are called, by name and version."""
        return sorted({(call.operator, call.version) for call in self.calls})

    @cached_property
    def binding(self) -> Array:
        """Which ways bind variables."""
        return np.array([bool(terms) for terms in self.way_terms], dtype=np.bool_)

    @cached_property
    def call_tests(self) -> tuple[CallTests, ...]:
        """The tests of each call, in the order of their numbers."""
        own: list[list[AnswerTest]] = [[] for _ in self.calls]
        for test, call in zip(self.tests, self.test_calls, strict=True):
            own[call].append(test)
        return tuple(map(CallTests, own))

    @cached_property
    def digests(self) -> tuple[bytes, ...]:
        """For every test a digest that stays the same from plan to plan."""
        return tuple(
            _digest(self.calls[call].question if test.term is None else test.term, test.negated)
            for test, call in zip(self.tests, self.test_calls, strict=True)
        )

    def problem(self, chance: Chance, price: Price) -> OrderProblem:
        """The ways, tests and calls as orders take them, with what was learned of them."""
        chances = [
            1.0 if test.term is None else chance(digest)
            for test, digest in zip(self.tests, self.digests, strict=True)
        ]
        prices = {operator: price(operator) for operator in self.operators}
        costs = [prices[call.operator, call.version] for call in self.calls]
        return OrderProblem.of(self.way_tests, self.test_calls, chances, costs)

    @staticmethod
    def of(table: OperatorTable) -> OperatorDisjuncts:
        """The ways of an operator table."""
        return _Laying(table).done()


def _digest(part: Call | Term, negated: bool) -> bytes:
    text = json.dumps([negated, encode_operators(part)])
    return hashlib.blake2b(text.encode(), digest_size=DIGEST).digest()


@lru_cache(maxsize=1 << 17)
def _term(text: str) -> Term:
    """A term by its stored form; a plan that was loaded anew has mostly the same."""
    try:
        tag, *rest = json.loads(text)
        found = decode_operators(tag, rest)
    except (ValueError, TypeError, IndexError) as error:
        raise CorruptDataError(f"this is not a term of a plan: {text[:200]}") from error
    if not isinstance(found, Term) or not (found.calls or found.patterns):
        raise CorruptDataError(f"this is not a term of a plan: {text[:200]}")
    return found


class _Laying:
    """Numbers calls and tests while the ways are gone through."""

    def __init__(self, table: OperatorTable) -> None:
        self._table = table
        self._calls: dict[tuple[Call, tuple[ItemPattern, ...]], int] = {}
        self._tests: dict[tuple[int, AnswerTest], int] = {}
        self._literals: dict[int, tuple[tuple[int, ...], Check | None]] = {}

    def done(self) -> OperatorDisjuncts:
        terms = [_term(self._table.terms.text(number)) for number in range(len(self._table.terms))]
        way_tests: list[tuple[int, ...]] = []
        way_checks: list[tuple[Check, ...]] = []
        way_literals: list[tuple[Check, ...]] = []
        way_terms: list[tuple[tuple[Term, tuple[str, ...]], ...]] = []
        for way, literals in enumerate(self._table.literals.lists()):
            laid = [self._literal(literal, terms) for literal in literals]
            way_tests.append(tuple(dict.fromkeys(test for tests, _ in laid for test in tests)))
            way_checks.append(tuple(check for _, check in laid if check is not None))
            asked = (Check(terms[one >> 1], bool(one & 1)) for one in literals)
            way_literals.append(tuple(one for one in asked if one.term.calls))
            names = self._table.names_of(way, len(literals))
            named = zip(literals, names, strict=True)
            way_terms.append(tuple((terms[one >> 1], own) for one, several in named for own in several))
        return OperatorDisjuncts(
            self._table,
            tuple(call for call, _ in self._calls),
            tuple(patterns for _, patterns in self._calls),
            tuple(test for _, test in self._tests),
            tuple(call for call, _ in self._tests),
            tuple(way_tests),
            tuple(way_checks),
            tuple(way_literals),
            tuple(way_terms),
        )

    def _literal(self, literal: int, terms: Sequence[Term]) -> tuple[tuple[int, ...], Check | None]:
        if literal not in self._literals:
            self._literals[literal] = self._laid(terms[literal >> 1], bool(literal & 1))
        return self._literals[literal]

    def _laid(self, term: Term, negated: bool) -> tuple[tuple[int, ...], Check | None]:
        """The tests of a literal, and what is left to check behind them."""
        if not term.calls:
            return (), None  # the filter before it has the pattern
        if len(term.calls) == 1 and not term.patterns:
            return (self._test(term.calls[0], (), AnswerTest(term, negated)),), None
        if negated:
            # No row of one call rules the others out: all must be answered.
            return tuple(self._test(one, term.patterns, AnswerTest(None)) for one in term.calls), Check(term, negated)
        own = [AnswerTest(Term((_ungiven(call),), _own(call, term.constraints))) for call in term.calls]
        tests = tuple(self._test(call, term.patterns, test) for call, test in zip(term.calls, own, strict=True))
        return tests, Check(term, negated)

    def _test(self, call: Call, patterns: tuple[ItemPattern, ...], test: AnswerTest) -> int:
        number = self._calls.setdefault((call.question, patterns if call.given else ()), len(self._calls))
        return self._tests.setdefault((number, test), len(self._tests))


def _ungiven(call: Call) -> Call:
    """A call whose results alone matter, whatever it was given."""
    if not call.given:
        return call
    arguments = tuple(Literally(f"?{one.name}") if isinstance(one, Given) else one for one in call.arguments)
    return replace(call, arguments=arguments)


def _own(call: Call, constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """The constraints that speak of a call's variables alone."""
    bound = {variable.name for variable in variables_of(call)}
    return tuple(one for one in constraints if {variable.name for variable in variables_of(one)} <= bound)
