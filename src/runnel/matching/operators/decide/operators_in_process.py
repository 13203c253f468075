"""The operators of a process. They are reused for all batches, so that a model is loaded only once.

In: a plan, the declared operators, and statistics about them. Out: a decider, which makes calls in the order with the
lowest expected cost, and new statistics and answers.
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

_SAMPLE_ITEMS = 32
"""The number of items of the first batch from which an order is chosen."""


class Operators:
    """The operators of a workspace in this process."""

    def __init__(self, storage: Storage, environment: OperatorEnvironment) -> None:
        self._storage = storage
        self._writes_answers = environment.cache_bytes > 0
        self._candidates = (environment.order,) if environment.order else CANDIDATES
        self._declarations: dict[Key, OperatorDeclaration] = {}
        self.caller = Caller(environment, {})

    def use(self, declarations: Iterable[OperatorDeclaration], segments: Iterable[str] = ()) -> None:
        """Use these operators, and the cached answers in these segments, from now on."""
        declared = {(declaration.name, declaration.version): declaration for declaration in declarations}
        if declared != self._declarations:
            self.caller.use_declarations(declared)
            self._declarations = declared
        self.caller.use_segments(self._storage, segments)

    def new_decider(self, plan: Plan, learned: OperatorStatistics) -> Decider:
        """Create the decider of a plan or of a partition."""
        disjuncts = OperatorDisjuncts.of(plan.operators)
        problem = order_problem_of(disjuncts, self._declarations, learned)
        return Decider(disjuncts, problem, CheapestOrder(problem, self._candidates), self.caller, _gates_of(plan))

    def note(self, decider: Decider, decided: Decisions) -> None:
        """Record how often tests passed."""
        for test in decided.asked.nonzero()[0].tolist():
            self.caller.notebook.note_test(
                decider.disjuncts.digests[test], asked=int(decided.asked[test]), passed=int(decided.passed[test])
            )

    def new_answers(self) -> CacheSegment | None:
        """Write the answers that are in no segment yet to a new one. Return None if there are none."""
        draft = self.caller.take_unsaved()
        return write_segment(self._storage, draft) if draft and self._writes_answers else None

    def close(self) -> None:
        """Close all operators and end their processes."""
        self.caller.close()


def order_problem_of(
    disjuncts: OperatorDisjuncts, declarations: Mapping[Key, OperatorDeclaration], learned: OperatorStatistics
) -> OrderProblem:
    """Return the problem for the orders, with learned costs where there are any, and declared costs otherwise."""

    def price(operator: Key) -> float:
        declared = declarations[operator].cost.total_seconds() if operator in declarations else 0.0
        return learned.cost(operator_key(*operator), declared)

    return disjuncts.problem(learned.chance, price)


def _gates_of(plan: Plan) -> dict[int, int]:
    return dict(zip(plan.gates.disjuncts.tolist(), plan.gates.gate_feeds.tolist(), strict=True))


class CheapestOrder:
    """Chooses the order with the lowest expected cost when the first batch shows which disjuncts are undecided."""

    def __init__(self, problem: OrderProblem, candidates: Sequence[str] = CANDIDATES) -> None:
        self._problem = problem
        self._candidates = candidates
        self._chosen: Order | None = None

    def __call__(self, active_offsets: Array, active_disjuncts: Array) -> Order:
        """Return the order, chosen for the active disjuncts of the first batch and kept for all later batches."""
        if self._chosen is None:
            last = min(_SAMPLE_ITEMS, len(active_offsets) - 1)
            offsets = active_offsets[: last + 1]
            self._chosen = choose_order(
                self._problem, offsets, active_disjuncts[: offsets[-1]], candidates=self._candidates
            ).order
        return self._chosen


class DecidingMatcher:
    """A matcher with a decider, for callers without a log. `decided` contains the decisions of the last batch."""

    def __init__(self, matcher: Matcher, decider: Decider) -> None:
        self._matcher = matcher
        self._decider = decider
        self.statistics: MatchStatistics = matcher.statistics
        self.decided: Decisions | None = None

    def match(self, items: ItemBatch) -> Matches:
        """Return the queries that each item matches. Undecided queries are failures."""
        decided = self.decided = self._decider.decide(items, self._matcher.match(items))
        unknown = (
            Failure(undecided.row, undecided.query, undecided.reason, by_operator=True)
            for undecided in decided.unknown
        )
        return replace(decided.matches, failures=(*decided.matches.failures, *unknown))
