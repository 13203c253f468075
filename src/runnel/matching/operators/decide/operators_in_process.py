"""Operators at work in a process: kept from batch to batch, so that a model is loaded once.

In: a plan, the operators that are declared, and what was learned of them. Out: a decider, which asks in the order
that is expected to cost least; and what was learned and answered meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from runnel.arrays import Array
from runnel.matching.contract import Matcher, MatchStatistics
from runnel.matching.operators.ask.cache_files import write_segment
from runnel.matching.operators.ask.caller import Caller
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.matching.operators.decide.decider import Decider, Decisions, Key
from runnel.matching.operators.decide.disjuncts import OperatorDisjuncts
from runnel.matching.operators.orders.choose_order import choose_order
from runnel.matching.operators.orders.order import Order
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.matching.operators.orders.registry import CANDIDATES
from runnel.model.item_batch import ItemBatch
from runnel.model.learned.operator_statistics import OperatorStatistics, operator_key
from runnel.model.match import Failure, Matches
from runnel.model.operator import OperatorDeclaration
from runnel.model.operator_cache import CacheSegment
from runnel.plan.store import Plan
from runnel.storage.file_storage import Storage

_SAMPLE = 32
"""Items by which an order is chosen."""


class Operators:
    """The operators of a workspace in this process."""

    def __init__(self, storage: Storage, environment: OperatorEnvironment) -> None:
        self._storage = storage
        self._keeps_answers = environment.cache_bytes > 0
        self._candidates = (environment.order,) if environment.order else CANDIDATES
        self._declarations: dict[Key, OperatorDeclaration] = {}
        self.caller = Caller(environment, {})

    def use(self, declarations: Iterable[OperatorDeclaration], segments: Iterable[str] = ()) -> None:
        """Know these operators, and the answers in these files."""
        declared = {(one.name, one.version): one for one in declarations}
        if declared != self._declarations:
            self.caller.use_declarations(declared)
            self._declarations = declared
        self.caller.use_segments(self._storage, segments)

    def new_decider(self, plan: Plan, learned: OperatorStatistics) -> Decider:
        """A decider of a plan, or of a partition of one."""
        ways = OperatorDisjuncts.of(plan.operators)
        problem = order_problem_of(ways, self._declarations, learned)
        return Decider(ways, problem, CheapestOrder(problem, self._candidates), self.caller, _gates_of(plan))

    def note(self, decider: Decider, decided: Decisions) -> None:
        """Note how often tests passed."""
        for test in decided.asked.nonzero()[0].tolist():
            self.caller.notebook.note_test(
                decider.ways.digests[test], asked=int(decided.asked[test]), passed=int(decided.passed[test])
            )

    def new_answers(self) -> CacheSegment | None:
        """Answers that are in no file yet, written into one."""
        draft = self.caller.take_fresh()
        return write_segment(self._storage, draft) if draft and self._keeps_answers else None

    def close(self) -> None:
        """End all processes of operators."""
        self.caller.close()


def order_problem_of(
    ways: OperatorDisjuncts, declarations: Mapping[Key, OperatorDeclaration], learned: OperatorStatistics
) -> OrderProblem:
    """The ways with what was learned of their tests and operators, as far as it was; else with what was declared."""

    def price(operator: Key) -> float:
        declared = declarations[operator].cost.total_seconds() if operator in declarations else 0.0
        return learned.cost(operator_key(*operator), declared)

    return ways.problem(learned.chance, price)


def _gates_of(plan: Plan) -> dict[int, int]:
    return dict(zip(plan.gates.disjuncts.tolist(), plan.gates.gate_feeds.tolist(), strict=True))


class CheapestOrder:
    """The order that is expected to cost least, chosen when it is seen which ways items leave undecided."""

    def __init__(self, problem: OrderProblem, candidates: Sequence[str] = CANDIDATES) -> None:
        self._problem = problem
        self._candidates = candidates
        self._chosen: Order | None = None

    def __call__(self, active_offsets: Array, active_ways: Array) -> Order:
        """The order, for items with these active ways; those of the first batch stand for all that come."""
        if self._chosen is None:
            last = min(_SAMPLE, len(active_offsets) - 1)
            offsets = active_offsets[: last + 1]
            self._chosen = choose_order(
                self._problem, offsets, active_ways[: offsets[-1]], candidates=self._candidates
            ).order
        return self._chosen


class DecidingMatcher:
    """A matcher whose ways are decided, for callers without a log; `decided` has the decisions on the last batch."""

    def __init__(self, matcher: Matcher, decider: Decider) -> None:
        self._matcher = matcher
        self._decider = decider
        self.statistics: MatchStatistics = matcher.statistics
        self.decided: Decisions | None = None

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches; what stays unknown is a failure."""
        decided = self.decided = self._decider.decide(items, self._matcher.match(items))
        unknown = (Failure(one.row, one.query, one.reason, by_operator=True) for one in decided.unknown)
        return replace(decided.matches, failures=(*decided.matches.failures, *unknown))
