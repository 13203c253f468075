"""Deciding the ways that operators must settle: what filters let through in, matches with bindings out.

In: a batch of items and what its matcher answered, ways among it. Out: the queries instead of the ways, for each
match of a query with variables the bindings, and what stays unknown because an operator failed. Evaluation goes in
rounds: every item names the call that its order wants next, and all are asked together, so that operators get large
batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

import numpy as np

from runnel.algebra.nodes.calls import Call
from runnel.algebra.nodes.terms import Term
from runnel.algebra.semantics.bindings import distinct, joined, term_solutions
from runnel.arrays import Array, offsets_of
from runnel.errors import RunnelError
from runnel.matching.operators.decide.answer_tests import AllTests
from runnel.matching.operators.decide.disjuncts import OperatorDisjuncts
from runnel.matching.operators.decide.questions import Questions
from runnel.matching.operators.orders.batch_arrays import ACCEPTED, UNKNOWN
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.matching.operators.orders.rounds import Rounds
from runnel.matching.operators.plugins.contract import Asker, Failed
from runnel.model.bindings import Binding, Bindings, MatchBindings, bounded
from runnel.model.item import Value
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches
from runnel.plan.gates import FIRST_OPERATOR_DISJUNCT, NO_GATE, query_of, query_of_id

Key = tuple[str, int]
"""An operator by its name and version."""


@dataclass(frozen=True, slots=True)
class UndecidedQuery:
    """A query that could not be decided for the item of a row: which operator failed, and why."""

    row: int
    query: int
    operator: tuple[str, int]
    reason: str
    passing: bool


@dataclass(frozen=True)
class Decisions:
    """What operators decided for a batch.

    `bindings` has for rows and queries (or their ways through gates) what the variables are bound to. `asked` and
    `passed` count for every test how often it was decided, and how often it passed; `calls` counts answered calls,
    `rounds` how often operators were asked.
    """

    matches: Matches
    bindings: Mapping[int, Mapping[int, Sequence[Binding]]] = field(default_factory=dict)
    partial: frozenset[tuple[int, int]] = frozenset()
    """The rows and queries that have more bindings than were looked for."""
    unknown: tuple[UndecidedQuery, ...] = ()
    asked: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    passed: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    calls: int = 0
    rounds: int = 0

    def bindings_by_query(self, sequences: Array) -> MatchBindings:
        """The bindings by the sequences of the items and by queries, also of those that a gate is before."""
        found: dict[int, dict[int, Bindings | list[Binding]]] = {}
        for row, of_row in self.bindings.items():
            of_queries: dict[int, list[Binding]] = {}
            for target, some in of_row.items():
                of_queries.setdefault(query_of_id(target), []).extend(some)
            partial = {query_of_id(target) for target in of_row if (row, target) in self.partial}
            found[int(sequences[row])] = {
                query: bounded(some, is_whole=False) if query in partial else some
                for query, some in of_queries.items()
            }
        return found


def for_queries_alone(sequences: Array, matches: Matches, again: Mapping[int, Sequence[int]]) -> Matches:
    """The matches without those of items that are in the log again, but for the queries that they are there for.

    >>> matches = Matches.of([[1, 2], [1, 2]])
    >>> for_queries_alone(np.array([7, 8]), matches, {8: (2,)}).queries.tolist()
    [1, 2, 2]
    """
    rows = np.repeat(np.arange(len(matches)), np.diff(matches.offsets))
    are_again = np.isin(sequences, np.fromiter(again, dtype=np.int64, count=len(again)))
    wanted = {(row, query) for row in np.flatnonzero(are_again).tolist() for query in again[int(sequences[row])]}
    asked = np.flatnonzero(are_again[rows])
    queries = query_of(matches.queries[asked]).tolist()
    kept = ~are_again[rows]
    kept[asked] = [pair in wanted for pair in zip(rows[asked].tolist(), queries, strict=True)]
    offsets = offsets_of(np.bincount(rows[kept], minlength=len(matches)))
    failures = (one for one in matches.failures if not are_again[one.row] or (one.row, one.query) in wanted)
    return Matches(offsets, matches.queries[kept], tuple(failures))


ChosenOrder = Callable[[Array, Array], Order]
"""The order for items whose active ways are given: offsets, and ways by place."""


@dataclass(frozen=True)
class Decider:
    """The ways of a plan, the order in which their calls are made, and who answers these."""

    ways: OperatorDisjuncts
    problem: OrderProblem
    order: ChosenOrder
    asker: Asker
    gates: Mapping[int, int] = field(default_factory=dict)
    """The gates, by feed, that ways of queries lead through."""

    @property
    def is_needed(self) -> bool:
        """Whether operators take part in the plan at all."""
        return len(self.ways.table) > 0

    @cached_property
    def tests(self) -> AllTests:
        """The tests of all calls."""
        return AllTests(self.ways.call_tests)

    @cached_property
    def numbers(self) -> Mapping[Call, int]:
        """The number of every call that is not given variables of a pattern."""
        return {call: number for number, call in enumerate(self.ways.calls) if not call.given}

    def decide(self, items: ItemBatch, matches: Matches) -> Decisions:
        """The matches with every way replaced by what it decides."""
        rows = np.repeat(np.arange(len(matches)), np.diff(matches.offsets))
        operated = matches.queries >= FIRST_OPERATOR_DISJUNCT
        failures = tuple(_of_query(one) for one in matches.failures)
        if not operated.any():
            return Decisions(Matches(matches.offsets, matches.queries, failures))
        certain = rows[~operated], matches.queries[~operated]
        active = self._active(rows[operated], matches.queries[operated], certain)
        work = _Work(self, items, *active)
        work.run()
        accepted = work.accepted()
        found = _united(len(matches), certain, work.matched(accepted), failures)
        return Decisions(
            found,
            work.bindings(accepted),
            frozenset(work.partial),
            tuple(work.unknown(accepted, certain)),
            work.asked,
            work.passed,
            work.calls,
            work.rounds,
        )

    def _active(self, rows: Array, ids: Array, certain: tuple[Array, Array]) -> tuple[Array, Array]:
        """Rows and ways, by place, that must be decided: without those that could only say again what is known."""
        table = self.ways.table
        places = np.searchsorted(table.disjunct_ids, ids)
        if np.any(places >= len(table)) or np.any(table.disjunct_ids[np.minimum(places, len(table) - 1)] != ids):
            raise RunnelError("a matcher named a way that its plan does not have")
        targets = table.disjunct_targets[places]
        known = np.unique(certain[1])
        # A pair of row and query as one number, for the queries that are certain somewhere.
        certainly = certain[0] * len(known) + np.searchsorted(known, certain[1])
        maybe = rows * len(known) + np.searchsorted(known, targets)
        again = np.isin(targets, known) & np.isin(maybe, certainly) & ~self.ways.binding[places]
        return rows[~again], places[~again]


class _Work:
    """One batch being decided. Items are numbered as far as they have ways to decide."""

    def __init__(self, decider: Decider, items: ItemBatch, rows: Array, ways: Array) -> None:
        self._gates = decider.gates
        self._ways = decider.ways
        self._problem = decider.problem
        self.item_rows, self._pair_items = np.unique(rows, return_inverse=True)
        self._pair_ways = ways
        records = ItemBatch(items.records.take(self.item_rows))
        attributes = list(records.attributes())
        self._questions = Questions(
            decider.ways.calls, decider.ways.call_patterns, decider.asker, attributes, decider.numbers
        )
        self._accepted: list[datetime] = records.records.column("accepted").to_pylist()
        offsets = offsets_of(np.bincount(self._pair_items, minlength=len(self.item_rows)))
        self._rounds = Rounds(decider.problem, decider.order(offsets, ways), offsets, ways)
        self._tests = decider.tests
        self.asked = np.zeros(decider.problem.tests, dtype=np.int64)
        self.passed = np.zeros(decider.problem.tests, dtype=np.int64)
        self.rounds = 0
        self._too_many: list[tuple[int, int, Term]] = []
        self._decided_later: dict[tuple[int, int], bool] = {}
        self.partial: set[tuple[int, int]] = set()

    def run(self) -> None:
        """Ask until nothing is undecided."""
        while not self._rounds.is_done:
            items, calls = self._rounds.next_calls()
            self.rounds += 1
            pairs = list(zip(items.tolist(), calls.tolist(), strict=True))
            answers = self._questions.ask(pairs)
            missing = np.array([one.failure is not None for one in answers], dtype=np.bool_)
            partly = np.array([one.partly for one in answers], dtype=np.bool_)
            passed = self._tests.hold(calls, [one.rows for one in answers], [self._accepted[one] for one, _ in pairs])
            self._count(calls, passed, missing)
            # Where some of a call's questions were answered, whether a term holds is seen when it is checked.
            passed |= np.repeat(partly, np.diff(self._rounds.answer_offsets(calls)))
            self._rounds.settle(items, calls, passed, missing & ~partly)
        self._decide_without_failed()

    def _decide_without_failed(self) -> None:
        """Decide ways that a failed call left unknown, where the other calls may show that they hold all the same.

        That is so where only joins that must not hold need the failed call: one of the others may have no rows.
        """
        pairs = np.flatnonzero(self._rounds.outcomes == UNKNOWN)
        unknown = zip(self._pair_items[pairs].tolist(), self._pair_ways[pairs].tolist(), strict=True)
        waiting = [(item, way) for item, way in unknown if self._may_hold(item, way)]
        if not waiting:
            return
        left = {(item, call) for item, way in waiting for call in self._calls_of(way)}
        missing = sorted(pair for pair in left if not self._questions.was_asked(*pair))
        if missing:
            self.rounds += 1
            self._questions.ask(missing)
        for item, way in waiting:
            truth = self._truth(item, way)
            if truth is not None:
                self._decided_later[item, way] = truth

    def _may_hold(self, item: int, way: int) -> bool:
        """Whether a way may hold although calls of it failed: a test of what such a call must say cannot pass."""
        tests = self._ways.way_tests[way]
        failed = (test for test in tests if self._questions.failure(item, self._ways.test_calls[test]) is not None)
        return all(self._ways.tests[test].term is None for test in failed)

    def _calls_of(self, way: int) -> Iterator[int]:
        return (self._ways.test_calls[test] for test in self._ways.way_tests[way])

    def _truth(self, item: int, way: int) -> bool | None:
        """Whether all literals of a way hold, in three values."""
        unknown = False
        for literal in self._ways.way_literals[way]:
            found = self._solutions(literal.term, item)
            if found is not None and bool(found) == literal.negated:
                return False
            unknown |= found is None
        return None if unknown else True

    @property
    def calls(self) -> int:
        """How many questions were asked."""
        return self._questions.asked

    def _count(self, calls: Array, passed: Array, failed: Array) -> None:
        """Note for the tests of calls that were answered how often they were asked, and passed."""
        begins, lengths = self._problem.call_offsets[calls], np.diff(self._rounds.answer_offsets(calls))
        within = np.arange(len(passed)) - np.repeat(offsets_of(lengths)[:-1], lengths)
        tests = self._problem.call_tests[np.repeat(begins, lengths) + within]
        counts = ~np.repeat(failed, lengths)
        self.asked += np.bincount(tests[counts], minlength=len(self.asked))
        self.passed += np.bincount(tests[counts & passed], minlength=len(self.passed))

    def accepted(self) -> list[tuple[int, int]]:
        """The items and ways, by place, that hold: their tests have passed, and so do their joins."""
        pairs = np.flatnonzero(self._rounds.outcomes == ACCEPTED)
        found = zip(self._pair_items[pairs].tolist(), self._pair_ways[pairs].tolist(), strict=True)
        joined = [(item, way) for item, way in found if self._joins(item, way)]
        return joined + [pair for pair, holds in self._decided_later.items() if holds]

    def _joins(self, item: int, way: int) -> bool:
        unknown: Term | None = None
        for check in self._ways.way_checks[way]:
            found = self._solutions(check.term, item)
            if found is None:
                unknown = unknown or check.term
            elif bool(found) == check.negated:
                return False
        if unknown is not None:
            self._too_many.append((item, way, unknown))
        return unknown is None

    def _solutions(self, term: Term, item: int) -> list[dict[str, Value]] | None:
        """The bindings of a term whose calls were answered; None where that was in part, or there are too many."""
        search = self._questions.searches[item]
        rows = search.rows if term.calls else search.first_rows
        return term_solutions(term, self._questions.answers(item), self._accepted[item], rows)

    def matched(self, accepted: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
        """The rows, and what matches in them."""
        pairs = np.array([(self.row(item), self.target(way)) for item, way in accepted], dtype=np.int64)
        rows, targets = pairs.reshape(-1, 2).T
        return rows, targets

    def row(self, item: int) -> int:
        """The row of an item in its batch."""
        return int(self.item_rows[item])

    def target(self, way: int) -> int:
        """What a way decides."""
        return int(self._ways.table.disjunct_targets[way])

    def bindings(self, accepted: Sequence[tuple[int, int]]) -> Mapping[int, Mapping[int, Sequence[Binding]]]:
        """What the variables of the matches are bound to: of every way that holds."""
        found: dict[int, dict[int, list[Binding]]] = {}
        for item, way in accepted:
            terms = self._ways.way_terms[way]
            if terms:
                of_row = found.setdefault(self.row(item), {})
                rows, is_whole = self._bound(item, terms)
                of_row.setdefault(self.target(way), []).extend(rows)
                if not is_whole:
                    self.partial.add((self.row(item), self.target(way)))
        return {row: {one: distinct(some) for one, some in of.items()} for row, of in found.items()}

    def _bound(self, item: int, terms: Sequence[tuple[Term, tuple[str, ...]]]) -> tuple[list[dict[str, Value]], bool]:
        """The joint bindings of some terms, under the names of the query, of very many the first; and whether these
        are all."""
        bound: list[dict[str, Value]] = [{}]
        is_whole = True
        for term, names in terms:
            rows = self._solutions(term, item) or []
            own = [{names[int(name) - 1]: one for name, one in row.items()} for row in rows[:MOST_BINDINGS]]
            every = joined(bound, own)
            is_whole &= len(rows) <= MOST_BINDINGS and len(every) <= MOST_BINDINGS
            if not term.calls:
                search = self._questions.searches[item]
                is_whole &= all(search.found(pattern).is_whole for pattern in term.patterns)
            bound = every[:MOST_BINDINGS]
        return bound, is_whole

    def unknown(self, accepted: Sequence[tuple[int, int]], certain: tuple[Array, Array]) -> list[UndecidedQuery]:
        """What could not be decided: once for each item, query and operator; not where the query matches anyway."""
        pairs = np.flatnonzero(self._rounds.outcomes == UNKNOWN)
        if not len(pairs) and not self._too_many:
            return []
        known = set(zip(certain[0].tolist(), query_of(certain[1]).tolist(), strict=True))
        known |= {(self.row(item), query_of_id(self.target(way))) for item, way in accepted}
        found: dict[tuple[int, int, Key], UndecidedQuery] = {}
        gates: dict[tuple[int, int, Key], int] = {}
        for item, way in zip(self._pair_items[pairs].tolist(), self._pair_ways[pairs].tolist(), strict=True):
            row, target = self.row(item), self.target(way)
            query = query_of_id(target)
            if (row, query) in known or (item, way) in self._decided_later:
                continue
            for operator, failure in self._failures(item, way):
                key = (row, query, operator)
                found.setdefault(key, UndecidedQuery(row, query, operator, failure.reason, failure.passing))
                gates[key] = self._gates.get(target, NO_GATE)
        for item, way, term in self._too_many:
            row, query = self.row(item), query_of_id(self.target(way))
            if (row, query) in known:
                continue
            asked = (term.calls[0].operator, term.calls[0].version)
            for operator, failure in list(self._failures(item, way)) or [(asked, Failed(_TOO_MANY, passing=False))]:
                key = (row, query, operator)
                found.setdefault(key, UndecidedQuery(row, query, operator, failure.reason, failure.passing))
                gates.setdefault(key, self._gates.get(self.target(way), NO_GATE))
        undecided = {(row, query) for row, query, _ in found}
        return [
            one if gates[key] == NO_GATE or (one.row, gates[key]) in undecided else _for_good(one)
            for key, one in found.items()
        ]

    def _failures(self, item: int, way: int) -> Iterator[tuple[Key, Failed]]:
        """The operators that a way needs and that gave no answer."""
        for test in self._ways.way_tests[way]:
            call = self._ways.test_calls[test]
            failure = self._questions.failure(item, call)
            if failure is not None:
                yield (self._ways.calls[call].operator, self._ways.calls[call].version), failure


def _for_good(one: UndecidedQuery) -> UndecidedQuery:
    """A query behind a gate that has counted the item: the gate would count it again."""
    reason = f"{one.reason}; the item cannot be tried again behind a gate that has counted it"
    return replace(one, reason=reason, passing=False)


_TOO_MANY = "its rows and those of the operators beside it have too many combinations to look at"

MOST_BINDINGS = 300
"""Of so many joint bindings of one match none more are looked for."""


def _of_query(failure: Failure) -> Failure:
    """A failure of a way that operators decide, as one of its query."""
    if failure.query < FIRST_OPERATOR_DISJUNCT:
        return failure
    return Failure(failure.row, query_of_id(failure.query), failure.reason)


def _united(
    rows: int, certain: tuple[Array, Array], added: tuple[Array, Array], failures: Sequence[Failure]
) -> Matches:
    """Matches of rows and ids from two hands, each once."""
    of_rows, ids = (np.concatenate([one, other]) for one, other in zip(certain, added, strict=True))
    order = np.lexsort((ids, of_rows))
    of_rows, ids = of_rows[order], ids[order]
    fresh = np.ones(len(ids), dtype=np.bool_)
    fresh[1:] = (ids[1:] != ids[:-1]) | (of_rows[1:] != of_rows[:-1])
    offsets = offsets_of(np.bincount(of_rows[fresh], minlength=rows))
    return Matches(offsets, ids[fresh], tuple(failures))
