"""Operators at work in a process: kept from batch to batch, so that a model is loaded once.

In: a plan, the operators that are declared, and what was learned of them. Out: a decider, which asks in the order
that is expected to cost least; and what was learned and answered meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from runnel.log.storage import Storage
from runnel.matching.contract import Matcher, MatchStatistics
from runnel.matching.operators.cache_files import write_segment
from runnel.matching.operators.caller import Caller
from runnel.matching.operators.decide import Decided, Decider
from runnel.matching.operators.means import OperatorMeans
from runnel.matching.operators.orders.registry import ORDERS
from runnel.matching.operators.ways import OperatedWays
from runnel.model.batch import ItemBatch
from runnel.model.match import Matches
from runnel.model.operator import OperatorDeclaration
from runnel.model.operator_cache import CacheSegment
from runnel.model.operator_learning import Learned, operator_key
from runnel.plan.store import Plan

Key = tuple[str, int]


class Operators:
    """The operators of a root in this process."""

    def __init__(self, storage: Storage, means: OperatorMeans, share: float = 1.0) -> None:
        self._storage = storage
        self._keeps = means.cache_bytes > 0
        self._declarations: dict[Key, OperatorDeclaration] = {}
        self.caller = Caller({}, means.place(storage), means.limits(share))
        self._decider: tuple[Hashable, Decider] | None = None

    def use(self, declarations: Iterable[OperatorDeclaration], segments: Iterable[str] = ()) -> None:
        """Know these operators, and the answers in these files."""
        declared = {(one.name, one.version): one for one in declarations}
        if declared != self._declarations:
            self.caller.use_declarations(declared)
            self._declarations = declared
        self.caller.use_segments(self._storage, segments)

    def decider(self, plan: Plan, learned: Learned, state: Hashable = None) -> Decider:
        """The decider of a plan; kept until another plan comes, or another `state` of what was learned."""
        key = (plan.version, state)
        if self._decider is None or self._decider[0] != key:
            ways = OperatedWays.of(plan.operators)
            self._decider = key, decider_of(ways, self._declarations, learned, self.caller)
        return self._decider[1]

    def note(self, decider: Decider, decided: Decided) -> None:
        """Note how often tests passed."""
        for test in decided.asked.nonzero()[0].tolist():
            self.caller.notebook.note_test(
                decider.ways.digests[test], asked=int(decided.asked[test]), passed=int(decided.passed[test])
            )

    def new_answers(self) -> CacheSegment | None:
        """Answers that are in no file yet, written into one."""
        draft = self.caller.take_fresh()
        return write_segment(self._storage, draft) if draft and self._keeps else None

    def close(self) -> None:
        """End all processes of operators."""
        self.caller.close()


def decider_of(
    ways: OperatedWays, declarations: Mapping[Key, OperatorDeclaration], learned: Learned, caller: Caller
) -> Decider:
    """A decider that asks in the order that is expected to cost least."""

    def price(operator: Key) -> float:
        declared = declarations[operator].cost.total_seconds() if operator in declarations else 0.0
        return learned.cost(operator_key(*operator), declared)

    problem = ways.problem(learned.chance, price)
    return Decider(ways, problem, ORDERS["adaptive"](problem), caller)


class DecidingMatcher:
    """A matcher whose ways are decided: for those who have no log, and no bindings to keep."""

    def __init__(self, matcher: Matcher, decider: Decider) -> None:
        self._matcher = matcher
        self._decider = decider
        self.statistics: MatchStatistics = matcher.statistics
        self.calls = 0
        self.unknown = 0

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        decided = self._decider.decide(items, self._matcher.match(items))
        self.calls += decided.calls
        self.unknown += len(decided.unknown)
        return decided.matches
