"""Matching of past items in the driver, as workers matched them when they were new.

In: a feed, its definition and those of the feeds that it reads. Out: a matcher of past items. It calls operators.
Items that were logged again match only the queries for which they were, and `distinct` starts where its feed does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from runnel.algebra.nodes.query import Gated, Node
from runnel.catalog.declared import feeds
from runnel.catalog.declared.operators import callable_operators
from runnel.catalog.learned.operator_cache import live_segments
from runnel.catalog.logs.undecided import supplements_between
from runnel.catalog.store.connection import Catalog
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.temporary_plan import TemporaryPlan
from runnel.matching.contract import MatchStatistics
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.matching.operators.decide.decider import Decider, for_queries_alone
from runnel.matching.operators.decide.operators_in_process import Operators
from runnel.model.item_batch import ItemBatch
from runnel.model.learned.operator_statistics import OperatorStatistics
from runnel.model.match import Matches
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan
from runnel.storage.file_storage import Storage

if TYPE_CHECKING:
    from sqlalchemy import Connection


class PastMatcher:
    """Matches past items."""

    def __init__(self, plan: Plan, decider: Decider | None, again: Mapping[int, tuple[int, ...]]) -> None:
        """Create a matcher. `again` has the queries for which items were logged again, by sequence."""
        self.plan = plan
        self._matcher = build_matcher(plan)
        self._decider = decider
        self._again = again
        self.statistics: MatchStatistics = self._matcher.statistics

    def match(self, items: ItemBatch) -> Matches:
        """Return the queries that each item matches. Items that operators leave undecided do not match."""
        matches = self._matcher.match(items)
        if self._again:
            matches = for_queries_alone(items.sequences, matches, self._again)
        return matches if self._decider is None else self._decider.decide(items, matches).matches


@contextmanager
def open_past_matcher(
    catalog: Catalog, storage: Storage, feed: int, definitions: Mapping[int, Node], past: tuple[int, int]
) -> Iterator[PastMatcher]:
    """Open a matcher of the items in (after, upto] with a feed. `past` are these two sequences."""
    with ExitStack() as stack:
        with catalog.read() as connection:
            again = {each.sequence: each.queries for each in supplements_between(connection, *past)}
            queries = [PlanQuery(feed), *_started_gates(connection, definitions)]
        plan = stack.enter_context(TemporaryPlan(queries, definitions))
        decider = _open_decider(catalog, storage, plan, stack) if len(plan.operators) else None
        yield PastMatcher(plan, decider, again)


def _started_gates(connection: Connection, definitions: Mapping[int, Node]) -> Iterator[PlanQuery]:
    """Yield the feeds with gates that do not decide about the items before the start of their feed."""
    started = [feed for feed, node in definitions.items() if isinstance(node, Gated) and not node.rule.reaches_back]
    yield from (PlanQuery(feed, since) for feed, since in feeds.since_of(connection, started).items())


def _open_decider(catalog: Catalog, storage: Storage, plan: Plan, stack: ExitStack) -> Decider:
    """Start the operators of a plan in this process, until the end of a `with` block."""
    with catalog.read() as connection:
        declarations = callable_operators(connection)
        segments = [segment.path for segment in live_segments(connection)]
    operators = Operators(storage, OperatorEnvironment.kept(storage, 1.0))
    stack.callback(operators.close)
    operators.use(declarations, segments)
    return operators.new_decider(plan, OperatorStatistics())
