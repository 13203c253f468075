"""Decide the disjuncts that need operators.

In: a batch of items and the matches of its matcher, which may be disjuncts instead of queries. Out: matched queries,
the bindings of their variables, and the queries that stay undecided because an operator failed. Evaluation proceeds
in rounds: the order names the next call of every item, and all these calls are made together, so that operators get
large batches.
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
from runnel.matching.operators.plugins.contract import Asker, FailedCall
from runnel.model.bindings import Binding, Bindings, MatchBindings, bounded
from runnel.model.item import Value
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches
from runnel.plan.gates import FIRST_OPERATOR_DISJUNCT, NO_GATE, query_of, query_of_id

Key = tuple[str, int]
"""The name and version of an operator."""


@dataclass(frozen=True, slots=True)
class UndecidedQuery:
    """A query that could not be decided for the item of a row, with the operator that failed and the reason."""

    row: int
    query: int
    operator: tuple[str, int]
    reason: str
    passing: bool


@dataclass(frozen=True)
class Decisions:
    """The decisions for a batch.

    `bindings` maps rows and queries (or their disjuncts that lead through gates) to the bindings of their variables.
    `asked` and `passed` count for every test how often it was evaluated and how often it passed. `calls` is the
    number of questions that were sent, `rounds` the number of rounds.
    """

    matches: Matches
    bindings: Mapping[int, Mapping[int, Sequence[Binding]]] = field(default_factory=dict)
    partial: frozenset[tuple[int, int]] = frozenset()
    """The rows and queries whose bindings are incomplete because there are too many."""
    unknown: tuple[UndecidedQuery, ...] = ()
    asked: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    passed: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    calls: int = 0
    rounds: int = 0

    def bindings_by_query(self, sequences: Array) -> MatchBindings:
        """Return the bindings by item sequence and query, including queries with a gate."""
        by_sequence: dict[int, dict[int, Bindings | list[Binding]]] = {}
        for row, by_target in self.bindings.items():
            by_query: dict[int, list[Binding]] = {}
            for target, bindings in by_target.items():
                by_query.setdefault(query_of_id(target), []).extend(bindings)
            partial = {query_of_id(target) for target in by_target if (row, target) in self.partial}
            by_sequence[int(sequences[row])] = {
                query: bounded(bindings, is_whole=False) if query in partial else bindings
                for query, bindings in by_query.items()
            }
        return by_sequence


def for_queries_alone(sequences: Array, matches: Matches, again: Mapping[int, Sequence[int]]) -> Matches:
    """Drop matches of repeated items, except those of the queries for which an item was repeated.

    `again` maps the sequence of an item that is in the log again to these queries.

    >>> matches = Matches.of([[1, 2], [1, 2]])
    >>> for_queries_alone(np.array([7, 8]), matches, {8: (2,)}).queries.tolist()
    [1, 2, 2]
    """
    rows = np.repeat(np.arange(len(matches)), np.diff(matches.offsets))
    is_repeated = np.isin(sequences, np.fromiter(again, dtype=np.int64, count=len(again)))
    wanted = {(row, query) for row in np.flatnonzero(is_repeated).tolist() for query in again[int(sequences[row])]}
    repeated = np.flatnonzero(is_repeated[rows])
    queries = query_of(matches.queries[repeated]).tolist()
    is_kept = ~is_repeated[rows]
    is_kept[repeated] = [pair in wanted for pair in zip(rows[repeated].tolist(), queries, strict=True)]
    offsets = offsets_of(np.bincount(rows[is_kept], minlength=len(matches)))
    failures = (
        failure
        for failure in matches.failures
        if not is_repeated[failure.row] or (failure.row, failure.query) in wanted
    )
    return Matches(offsets, matches.queries[is_kept], tuple(failures))


ChosenOrder = Callable[[Array, Array], Order]
"""Returns the order for a batch whose active disjuncts are given as offsets per item and indexes of disjuncts."""


@dataclass(frozen=True)
class Decider:
    """Decides the disjuncts of a plan: `order` orders the calls, and `asker` makes them."""

    disjuncts: OperatorDisjuncts
    problem: OrderProblem
    order: ChosenOrder
    asker: Asker
    gates: Mapping[int, int] = field(default_factory=dict)
    """The gate's feed by the ID of a disjunct that leads through a gate."""

    @property
    def is_needed(self) -> bool:
        """Whether the plan uses operators."""
        return len(self.disjuncts.table) > 0

    @cached_property
    def tests(self) -> AllTests:
        """The tests of all calls."""
        return AllTests(self.disjuncts.call_tests)

    @cached_property
    def numbers(self) -> Mapping[Call, int]:
        """The number of every call that takes no variables of a pattern as inputs."""
        return {call: number for number, call in enumerate(self.disjuncts.calls) if not call.given}

    def decide(self, items: ItemBatch, matches: Matches) -> Decisions:
        """Decide the disjuncts in `matches`, and replace those that hold by their queries."""
        rows = np.repeat(np.arange(len(matches)), np.diff(matches.offsets))
        needs_operators = matches.queries >= FIRST_OPERATOR_DISJUNCT
        failures = tuple(_query_failure(failure) for failure in matches.failures)
        if not needs_operators.any():
            return Decisions(Matches(matches.offsets, matches.queries, failures))
        certain = rows[~needs_operators], matches.queries[~needs_operators]
        active = self._active(rows[needs_operators], matches.queries[needs_operators], certain)
        work = _BatchDecision(self, items, *active)
        work.run()
        accepted = work.accepted()
        all_matches = _merge_matches(len(matches), certain, work.matched(accepted), failures)
        return Decisions(
            all_matches,
            work.bindings(accepted),
            frozenset(work.partial),
            tuple(work.unknown(accepted, certain)),
            work.asked,
            work.passed,
            work.calls,
            work.rounds,
        )

    def _active(self, rows: Array, ids: Array, certain: tuple[Array, Array]) -> tuple[Array, Array]:
        """Return the rows and the indexes of the disjuncts that must be decided.

        A disjunct without bindings is left out if its query matches the row anyway.
        """
        table = self.disjuncts.table
        indexes = np.searchsorted(table.disjunct_ids, ids)
        if np.any(indexes >= len(table)) or np.any(table.disjunct_ids[np.minimum(indexes, len(table) - 1)] != ids):
            raise RunnelError("the matcher returned a disjunct that is not in its plan")
        targets = table.disjunct_targets[indexes]
        matched = np.unique(certain[1])
        # Encode each pair of a row and a query as one number, for the queries that match at least one row.
        certain_pairs = certain[0] * len(matched) + np.searchsorted(matched, certain[1])
        pairs = rows * len(matched) + np.searchsorted(matched, targets)
        is_redundant = np.isin(targets, matched) & np.isin(pairs, certain_pairs) & ~self.disjuncts.binding[indexes]
        return rows[~is_redundant], indexes[~is_redundant]


class _BatchDecision:
    """The decision of one batch. Its items are numbered; items without disjuncts to decide are left out."""

    def __init__(self, decider: Decider, items: ItemBatch, rows: Array, disjuncts: Array) -> None:
        self._gates = decider.gates
        self._disjuncts = decider.disjuncts
        self._problem = decider.problem
        self.item_rows, self._pair_items = np.unique(rows, return_inverse=True)
        self._pair_disjuncts = disjuncts
        records = ItemBatch(items.records.take(self.item_rows))
        attributes = list(records.attributes())
        self._questions = Questions(
            decider.disjuncts.calls, decider.disjuncts.call_patterns, decider.asker, attributes, decider.numbers
        )
        self._accepted: list[datetime] = records.records.column("accepted").to_pylist()
        offsets = offsets_of(np.bincount(self._pair_items, minlength=len(self.item_rows)))
        self._rounds = Rounds(decider.problem, decider.order(offsets, disjuncts), offsets, disjuncts)
        self._tests = decider.tests
        self.asked = np.zeros(decider.problem.tests, dtype=np.int64)
        self.passed = np.zeros(decider.problem.tests, dtype=np.int64)
        self.rounds = 0
        self._too_many: list[tuple[int, int, Term]] = []
        self._decided_later: dict[tuple[int, int], bool] = {}
        self.partial: set[tuple[int, int]] = set()

    def run(self) -> None:
        """Call operators in rounds until all disjuncts are decided."""
        while not self._rounds.is_done:
            items, calls = self._rounds.next_calls()
            self.rounds += 1
            pairs = list(zip(items.tolist(), calls.tolist(), strict=True))
            answers = self._questions.ask(pairs)
            missing = np.array([answer.failure is not None for answer in answers], dtype=np.bool_)
            partly = np.array([answer.partly for answer in answers], dtype=np.bool_)
            accepted = [self._accepted[item] for item, _ in pairs]
            passed = self._tests.hold(calls, [answer.rows for answer in answers], accepted)
            self._count(calls, passed, missing)
            # If only some questions of a call were answered, let its tests pass; its terms are checked at the end.
            passed |= np.repeat(partly, np.diff(self._rounds.answer_offsets(calls)))
            self._rounds.settle(items, calls, passed, missing & ~partly)
        self._decide_without_failed()

    def _decide_without_failed(self) -> None:
        """Decide disjuncts that are unknown because of a failed call, if the other calls suffice.

        This is possible if only negated joins need the failed call: another call of the join may have no rows.
        """
        pairs = np.flatnonzero(self._rounds.outcomes == UNKNOWN)
        unknown = zip(self._pair_items[pairs].tolist(), self._pair_disjuncts[pairs].tolist(), strict=True)
        waiting = [(item, disjunct) for item, disjunct in unknown if self._may_hold(item, disjunct)]
        if not waiting:
            return
        needed = {(item, call) for item, disjunct in waiting for call in self._calls_of(disjunct)}
        missing = sorted(pair for pair in needed if not self._questions.was_asked(*pair))
        if missing:
            self.rounds += 1
            self._questions.ask(missing)
        for item, disjunct in waiting:
            truth = self._truth(item, disjunct)
            if truth is not None:
                self._decided_later[item, disjunct] = truth

    def _may_hold(self, item: int, disjunct: int) -> bool:
        """Return whether a disjunct may hold although calls failed: no test of a failed call requires rows."""
        tests = self._disjuncts.disjunct_tests[disjunct]
        failed = (
            test for test in tests if self._questions.failure(item, self._disjuncts.test_calls[test]) is not None
        )
        return all(self._disjuncts.tests[test].term is None for test in failed)

    def _calls_of(self, disjunct: int) -> Iterator[int]:
        return (self._disjuncts.test_calls[test] for test in self._disjuncts.disjunct_tests[disjunct])

    def _truth(self, item: int, disjunct: int) -> bool | None:
        """Return whether all literals of a disjunct hold, or None if that is unknown."""
        is_unknown = False
        for literal in self._disjuncts.disjunct_literals[disjunct]:
            solutions = self._solutions(literal.term, item)
            if solutions is not None and bool(solutions) == literal.negated:
                return False
            is_unknown |= solutions is None
        return None if is_unknown else True

    @property
    def calls(self) -> int:
        """The number of questions that were sent to operators."""
        return self._questions.asked

    def _count(self, calls: Array, passed: Array, failed: Array) -> None:
        """Count the evaluated and passed tests of the calls that were answered."""
        begins, lengths = self._problem.call_offsets[calls], np.diff(self._rounds.answer_offsets(calls))
        within = np.arange(len(passed)) - np.repeat(offsets_of(lengths)[:-1], lengths)
        tests = self._problem.call_tests[np.repeat(begins, lengths) + within]
        counts = ~np.repeat(failed, lengths)
        self.asked += np.bincount(tests[counts], minlength=len(self.asked))
        self.passed += np.bincount(tests[counts & passed], minlength=len(self.passed))

    def accepted(self) -> list[tuple[int, int]]:
        """Return the items and the indexes of disjuncts that hold: their tests passed, and their joins hold."""
        pairs = np.flatnonzero(self._rounds.outcomes == ACCEPTED)
        passed = zip(self._pair_items[pairs].tolist(), self._pair_disjuncts[pairs].tolist(), strict=True)
        holding = [(item, disjunct) for item, disjunct in passed if self._joins_hold(item, disjunct)]
        return holding + [pair for pair, holds in self._decided_later.items() if holds]

    def _joins_hold(self, item: int, disjunct: int) -> bool:
        unknown: Term | None = None
        for check in self._disjuncts.disjunct_checks[disjunct]:
            solutions = self._solutions(check.term, item)
            if solutions is None:
                unknown = unknown or check.term
            elif bool(solutions) == check.negated:
                return False
        if unknown is not None:
            self._too_many.append((item, disjunct, unknown))
        return unknown is None

    def _solutions(self, term: Term, item: int) -> list[dict[str, Value]] | None:
        """Return the bindings of a term, or None if a call has no complete answer or there are too many bindings."""
        search = self._questions.searches[item]
        rows = search.rows if term.calls else search.first_rows
        return term_solutions(term, self._questions.answers(item), self._accepted[item], rows)

    def matched(self, accepted: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
        """Return the rows and the targets of the accepted disjuncts."""
        pairs = np.array([(self.row(item), self.target(disjunct)) for item, disjunct in accepted], dtype=np.int64)
        rows, targets = pairs.reshape(-1, 2).T
        return rows, targets

    def row(self, item: int) -> int:
        """Return the row of an item in its batch."""
        return int(self.item_rows[item])

    def target(self, disjunct: int) -> int:
        """Return the query (or its disjunct behind a gate) that a disjunct decides."""
        return int(self._disjuncts.table.disjunct_targets[disjunct])

    def bindings(self, accepted: Sequence[tuple[int, int]]) -> Mapping[int, Mapping[int, Sequence[Binding]]]:
        """Return the bindings of all accepted disjuncts, by row and target."""
        by_row: dict[int, dict[int, list[Binding]]] = {}
        for item, disjunct in accepted:
            terms = self._disjuncts.disjunct_terms[disjunct]
            if terms:
                by_target = by_row.setdefault(self.row(item), {})
                bindings, is_complete = self._join_bindings(item, terms)
                by_target.setdefault(self.target(disjunct), []).extend(bindings)
                if not is_complete:
                    self.partial.add((self.row(item), self.target(disjunct)))
        return {
            row: {target: distinct(bindings) for target, bindings in by_target.items()}
            for row, by_target in by_row.items()
        }

    def _join_bindings(
        self, item: int, terms: Sequence[tuple[Term, tuple[str, ...]]]
    ) -> tuple[list[dict[str, Value]], bool]:
        """Return the joint bindings of terms, with the query's variable names, and whether they are complete.

        There are at most `MAX_BINDINGS`.
        """
        bindings: list[dict[str, Value]] = [{}]
        is_complete = True
        for term, names in terms:
            rows = self._solutions(term, item) or []
            renamed = [{names[int(name) - 1]: value for name, value in row.items()} for row in rows[:MAX_BINDINGS]]
            combined = joined(bindings, renamed)
            is_complete &= len(rows) <= MAX_BINDINGS and len(combined) <= MAX_BINDINGS
            if not term.calls:
                search = self._questions.searches[item]
                is_complete &= all(search.find_all(pattern).is_whole for pattern in term.patterns)
            bindings = combined[:MAX_BINDINGS]
        return bindings, is_complete

    def unknown(self, accepted: Sequence[tuple[int, int]], certain: tuple[Array, Array]) -> list[UndecidedQuery]:
        """Return the undecided queries, once per item, query and operator, except queries that match anyway."""
        pairs = np.flatnonzero(self._rounds.outcomes == UNKNOWN)
        if not len(pairs) and not self._too_many:
            return []
        matched = set(zip(certain[0].tolist(), query_of(certain[1]).tolist(), strict=True))
        matched |= {(self.row(item), query_of_id(self.target(disjunct))) for item, disjunct in accepted}
        undecided: dict[tuple[int, int, Key], UndecidedQuery] = {}
        gates: dict[tuple[int, int, Key], int] = {}
        for item, disjunct in zip(
            self._pair_items[pairs].tolist(), self._pair_disjuncts[pairs].tolist(), strict=True
        ):
            row, target = self.row(item), self.target(disjunct)
            query = query_of_id(target)
            if (row, query) in matched or (item, disjunct) in self._decided_later:
                continue
            for operator, failure in self._failures(item, disjunct):
                key = (row, query, operator)
                undecided.setdefault(key, UndecidedQuery(row, query, operator, failure.reason, failure.passing))
                gates[key] = self._gates.get(target, NO_GATE)
        for item, disjunct, term in self._too_many:
            row, query = self.row(item), query_of_id(self.target(disjunct))
            if (row, query) in matched:
                continue
            first = (term.calls[0].operator, term.calls[0].version)
            for operator, failure in list(self._failures(item, disjunct)) or [
                (first, FailedCall(_TOO_MANY, passing=False))
            ]:
                key = (row, query, operator)
                undecided.setdefault(key, UndecidedQuery(row, query, operator, failure.reason, failure.passing))
                gates.setdefault(key, self._gates.get(self.target(disjunct), NO_GATE))
        undecided_pairs = {(row, query) for row, query, _ in undecided}
        return [
            query if gates[key] == NO_GATE or (query.row, gates[key]) in undecided_pairs else _without_retry(query)
            for key, query in undecided.items()
        ]

    def _failures(self, item: int, disjunct: int) -> Iterator[tuple[Key, FailedCall]]:
        """Yield the operators of a disjunct whose calls failed, with the failures."""
        for test in self._disjuncts.disjunct_tests[disjunct]:
            call = self._disjuncts.test_calls[test]
            failure = self._questions.failure(item, call)
            if failure is not None:
                yield (self._disjuncts.calls[call].operator, self._disjuncts.calls[call].version), failure


def _without_retry(query: UndecidedQuery) -> UndecidedQuery:
    """Return the query as not retryable, because its gate has counted the item and would count it again."""
    reason = f"{query.reason}; it is not retried because the gate of the query has already counted the item"
    return replace(query, reason=reason, passing=False)


_TOO_MANY = "the rows of its operators have too many combinations to join"

MAX_BINDINGS = 300
"""Maximum number of joint bindings per disjunct and item."""


def _query_failure(failure: Failure) -> Failure:
    """Return the failure of a disjunct as a failure of its query."""
    if failure.query < FIRST_OPERATOR_DISJUNCT:
        return failure
    return Failure(failure.row, query_of_id(failure.query), failure.reason)


def _merge_matches(
    rows: int, certain: tuple[Array, Array], added: tuple[Array, Array], failures: Sequence[Failure]
) -> Matches:
    """Merge two lists of rows and matched IDs, sorted and without duplicates."""
    match_rows, ids = (np.concatenate(columns) for columns in zip(certain, added, strict=True))
    order = np.lexsort((ids, match_rows))
    match_rows, ids = match_rows[order], ids[order]
    is_first = np.ones(len(ids), dtype=np.bool_)
    is_first[1:] = (ids[1:] != ids[:-1]) | (match_rows[1:] != match_rows[:-1])
    offsets = offsets_of(np.bincount(match_rows[is_first], minlength=rows))
    return Matches(offsets, ids[is_first], tuple(failures))
