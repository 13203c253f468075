"""The disjuncts of a plan that operators decide: which calls they need, and which tests the answers must pass.

In: the operator table of a plan. Out: calls, their tests, the tests of each disjunct for the orders, and for terms of
several calls the joins that are checked after all tests of the disjunct have passed.
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
"""Returns the probability that a test passes, by the test's digest."""

Price = Callable[[tuple[str, int]], float]
"""Returns the cost of a call in seconds, by the operator's name and version."""

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Check:
    """A term that must hold, or must not hold if `negated`.

    It is checked after all tests of its disjunct have passed, because it joins several calls or patterns.
    """

    term: Term
    negated: bool


@dataclass(frozen=True)
class OperatorDisjuncts:
    """Calls, their tests, and the tests of each disjunct. Disjuncts have the order of the operator table."""

    table: OperatorTable
    calls: tuple[Call, ...]
    call_patterns: tuple[tuple[ItemPattern, ...], ...]
    """For each call that takes variables of item patterns as inputs, these patterns."""
    tests: tuple[AnswerTest, ...]
    test_calls: tuple[int, ...]
    disjunct_tests: tuple[tuple[int, ...], ...]
    disjunct_checks: tuple[tuple[Check, ...], ...]
    disjunct_literals: tuple[tuple[Check, ...], ...]
    """All terms with calls of a disjunct, including those that a test of a single call decides."""
    disjunct_terms: tuple[tuple[tuple[Term, tuple[str, ...]], ...], ...]
    """The terms of a disjunct that bind variables of its query, with the query's names of these variables."""

    @property
    def operators(self) -> list[tuple[str, int]]:
        """The names and versions of the operators that are called."""
        return sorted({(call.operator, call.version) for call in self.calls})

    @cached_property
    def binding(self) -> Array:
        """Whether each disjunct binds variables of its query."""
        return np.array([bool(terms) for terms in self.disjunct_terms], dtype=np.bool_)

    @cached_property
    def call_tests(self) -> tuple[CallTests, ...]:
        """The tests of each call, in the order of their numbers."""
        own: list[list[AnswerTest]] = [[] for _ in self.calls]
        for test, call in zip(self.tests, self.test_calls, strict=True):
            own[call].append(test)
        return tuple(map(CallTests, own))

    @cached_property
    def digests(self) -> tuple[bytes, ...]:
        """A digest of every test, which is the same in all plans."""
        return tuple(
            _digest(self.calls[call].question if test.term is None else test.term, test.negated)
            for test, call in zip(self.tests, self.test_calls, strict=True)
        )

    def problem(self, chance: Chance, price: Price) -> OrderProblem:
        """Return the disjuncts, tests and calls for the orders, with their probabilities and costs."""
        chances = [
            1.0 if test.term is None else chance(digest)
            for test, digest in zip(self.tests, self.digests, strict=True)
        ]
        prices = {operator: price(operator) for operator in self.operators}
        costs = [prices[call.operator, call.version] for call in self.calls]
        return OrderProblem.of(self.disjunct_tests, self.test_calls, chances, costs)

    @staticmethod
    def of(table: OperatorTable) -> OperatorDisjuncts:
        """Build the disjuncts of an operator table."""
        return _Builder(table).build()


def _digest(node: Call | Term, negated: bool) -> bytes:
    text = json.dumps([negated, encode_operators(node)])
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


@lru_cache(maxsize=1 << 17)
def _decode_term(text: str) -> Term:
    """Decode a stored term. Terms are cached, because a new plan has mostly the terms of the old one."""
    try:
        tag, *rest = json.loads(text)
        node = decode_operators(tag, rest)
    except (ValueError, TypeError, IndexError) as error:
        raise CorruptDataError(f"invalid operator term in a plan: {text[:200]}") from error
    if not isinstance(node, Term) or not (node.calls or node.patterns):
        raise CorruptDataError(f"invalid operator term in a plan: {text[:200]}")
    return node


class _Builder:
    """Collects and numbers the calls and tests of all disjuncts."""

    def __init__(self, table: OperatorTable) -> None:
        self._table = table
        self._calls: dict[tuple[Call, tuple[ItemPattern, ...]], int] = {}
        self._tests: dict[tuple[int, AnswerTest], int] = {}
        self._literals: dict[int, tuple[tuple[int, ...], Check | None]] = {}

    def build(self) -> OperatorDisjuncts:
        terms = [_decode_term(self._table.terms.text(number)) for number in range(len(self._table.terms))]
        disjunct_tests: list[tuple[int, ...]] = []
        disjunct_checks: list[tuple[Check, ...]] = []
        disjunct_literals: list[tuple[Check, ...]] = []
        disjunct_terms: list[tuple[tuple[Term, tuple[str, ...]], ...]] = []
        for disjunct, literals in enumerate(self._table.literals.lists()):
            parts = [self._literal(literal, terms) for literal in literals]
            disjunct_tests.append(tuple(dict.fromkeys(test for tests, _ in parts for test in tests)))
            disjunct_checks.append(tuple(check for _, check in parts if check is not None))
            checks = (Check(terms[literal >> 1], bool(literal & 1)) for literal in literals)
            disjunct_literals.append(tuple(check for check in checks if check.term.calls))
            names = self._table.names_of(disjunct, len(literals))
            named = zip(literals, names, strict=True)
            disjunct_terms.append(
                tuple((terms[literal >> 1], variables) for literal, lists in named for variables in lists)
            )
        return OperatorDisjuncts(
            self._table,
            tuple(call for call, _ in self._calls),
            tuple(patterns for _, patterns in self._calls),
            tuple(test for _, test in self._tests),
            tuple(call for call, _ in self._tests),
            tuple(disjunct_tests),
            tuple(disjunct_checks),
            tuple(disjunct_literals),
            tuple(disjunct_terms),
        )

    def _literal(self, literal: int, terms: Sequence[Term]) -> tuple[tuple[int, ...], Check | None]:
        if literal not in self._literals:
            self._literals[literal] = self._split_literal(terms[literal >> 1], bool(literal & 1))
        return self._literals[literal]

    def _split_literal(self, term: Term, negated: bool) -> tuple[tuple[int, ...], Check | None]:
        """Return the tests of a literal, and the check that remains after them."""
        if not term.calls:
            return (), None  # the matcher's filter evaluates the pattern
        if len(term.calls) == 1 and not term.patterns:
            return (self._test(term.calls[0], (), AnswerTest(term, negated)),), None
        if negated:
            # The rows of a single call cannot decide a negated join, so all its calls must be answered.
            tests = tuple(self._test(call, term.patterns, AnswerTest(None)) for call in term.calls)
            return tests, Check(term, negated)
        answer_tests = [
            AnswerTest(Term((_without_given(call),), _own_constraints(call, term.constraints))) for call in term.calls
        ]
        tests = tuple(
            self._test(call, term.patterns, test) for call, test in zip(term.calls, answer_tests, strict=True)
        )
        return tests, Check(term, negated)

    def _test(self, call: Call, patterns: tuple[ItemPattern, ...], test: AnswerTest) -> int:
        number = self._calls.setdefault((call.question, patterns if call.given else ()), len(self._calls))
        return self._tests.setdefault((number, test), len(self._tests))


def _without_given(call: Call) -> Call:
    """Replace the input variables of a call by constants, so that only its results are tested."""
    if not call.given:
        return call
    arguments = tuple(
        Literally(f"?{argument.name}") if isinstance(argument, Given) else argument for argument in call.arguments
    )
    return replace(call, arguments=arguments)


def _own_constraints(call: Call, constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """Return the constraints that use only variables of the call."""
    bound = {variable.name for variable in variables_of(call)}
    return tuple(
        constraint for constraint in constraints if {variable.name for variable in variables_of(constraint)} <= bound
    )
