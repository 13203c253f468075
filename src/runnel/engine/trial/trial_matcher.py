"""Matching outside the stream: compile queries for the moment and match batches as a run would, gates included.

In: queries, or a selection of declared ones. Out: a matcher of batches that also binds the variables of its matches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from runnel.algebra.nodes.gate_rules import Stop
from runnel.algebra.nodes.query import Node
from runnel.arrays import offsets_of
from runnel.catalog.declared import feeds, tags
from runnel.catalog.logs import plan_versions
from runnel.engine.workspace import Workspace
from runnel.matching.compile.temporary_plan import TemporaryPlan
from runnel.matching.contract import Matcher
from runnel.model.bindings import Bindings, bounded
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load

if TYPE_CHECKING:
    from runnel.matching.operators.decide.operators_in_process import DecidingMatcher
    from runnel.matching.patterns.bind_variables import PatternBinder


class TrialMatcher:
    """The matcher of one plan for a trial: batches in the order of the log, and the bindings of the last batch."""

    def __init__(
        self,
        plan: Plan,
        matcher: Matcher,
        deciding: DecidingMatcher | None = None,
        stopped: Mapping[tuple[int, int], Stop] | None = None,
    ) -> None:
        """`deciding` is the matcher below `matcher` that asks operators, if any does.

        `stopped` has the items that gates have stopped so far, by feed and sequence.
        """
        self.stopped = {} if stopped is None else stopped
        self._matcher = matcher
        self._deciding = deciding
        self._plan = plan
        self._last: tuple[ItemBatch, Matches] | None = None

    @cached_property
    def _binder(self) -> PatternBinder:
        from runnel.matching.patterns.bind_variables import PatternBinder

        return PatternBinder(self._plan)

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        matches = self._matcher.match(items)
        self._last = items, matches
        return matches

    def bindings(self, rows: npt.NDArray[np.int64]) -> dict[tuple[int, int], Bindings]:
        """By row and query, the bindings of the last batch's matches in these rows."""
        if self._last is None or not len(rows):
            return {}
        items, matches = self._last
        bindings: dict[tuple[int, int], Bindings] = {}
        if self._deciding is not None and self._deciding.decided is not None:
            decided = self._deciding.decided.bindings_by_query(np.arange(len(items)))
            for row in rows.tolist():
                bindings |= {(row, query): bounded(bound) for query, bound in decided.get(row, {}).items()}
        if self._binder.is_needed:
            own_items = ItemBatch(items.records.take(rows))
            own_matches = Matches.of([matches.row(row).tolist() for row in rows.tolist()])
            for position, of_row in self._binder.bind(own_items, own_matches).items():
                bindings |= {(int(rows[position]), query): bound for query, bound in of_row.items()}
        matched = {row: set(matches.row(row).tolist()) for row in rows.tolist()}
        return {
            (row, query): bound
            for (row, query), bound in bindings.items()
            if query in matched[row] and not bound.is_empty
        }


class JoinedMatcher:
    """Trial matchers of different queries as one."""

    def __init__(self, matchers: Sequence[TrialMatcher]) -> None:
        self._matchers = matchers

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        answers = [matcher.match(items) for matcher in self._matchers]
        return answers[0] if len(answers) == 1 else _joined(answers, len(items))

    def bindings(self, rows: npt.NDArray[np.int64]) -> dict[tuple[int, int], Bindings]:
        """By row and query, the bindings of the last batch's matches in these rows."""
        return {key: bound for matcher in self._matchers for key, bound in matcher.bindings(rows).items()}


@contextmanager
def open_matcher(
    workspace: Workspace, queries: Iterable[PlanQuery], definitions: Mapping[int, Node]
) -> Iterator[TrialMatcher]:
    """Compile queries and match with all that they say: operators are asked in this process, gates remember keys."""
    from runnel.matching.compile.build_matcher import build_matcher
    from runnel.matching.gates.ordered_matcher import OrderedMatcher

    with ExitStack() as stack:
        plan = stack.enter_context(TemporaryPlan(queries, definitions))
        matcher = build_matcher(plan)
        deciding = None
        if len(plan.operators):
            from runnel.engine.trial.operator_session import open_operator_session

            matcher = deciding = stack.enter_context(open_operator_session(workspace)).matcher(plan, matcher)
        ordered = OrderedMatcher(plan, matcher)
        yield TrialMatcher(plan, ordered, deciding, ordered.stopped)


@contextmanager
def open_declared(workspace: Workspace, queries: Collection[int], items: int) -> Iterator[JoinedMatcher]:
    """A matcher of declared queries, subscribed to or not, for about `items` items.

    Where that is faster, queries are selected from the running plan; the others are compiled for the moment. Paused
    queries match too, and every item counts, however early it was accepted. A gate knows only the items that it is
    given here.
    """
    from runnel.matching.compile import select_queries
    from runnel.matching.compile.build_matcher import build_matcher

    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
        running = _running(connection, queries)
    matchers: list[TrialMatcher] = []
    if current is None or select_queries.compiling_pays(len(running), current.queries, items):
        running = set()
    else:
        plan = load(workspace.storage, PlanVersion.of(current))
        running -= select_queries.gated_queries(plan)
        if running:
            selected = select_queries.select_queries(plan, running, from_start=True)
            matchers.append(TrialMatcher(selected, build_matcher(selected)))
    alone = sorted(set(queries) - running)
    with ExitStack() as stack:
        if alone:
            with workspace.catalog.read() as connection:
                definitions = feeds.definitions(connection, alone, with_paused=True)
            matchers.append(stack.enter_context(open_matcher(workspace, map(PlanQuery, alone), definitions)))
        yield JoinedMatcher(matchers)


def _running(connection: Connection, queries: Collection[int]) -> set[int]:
    """The queries that the running plan has as they were declared: nothing that they read is paused."""
    live = set(feeds.since_of(connection, queries))
    held = tags.held_queries(connection)
    return live - feeds.all_readers(connection, held) if held else live


def _joined(answers: Sequence[Matches], count: int) -> Matches:
    """Answers about the same items as one; no query is in two of them."""
    rows = np.concatenate([np.repeat(np.arange(count), np.diff(answer.offsets)) for answer in answers])
    queries = np.concatenate([answer.queries for answer in answers])
    order = np.lexsort((queries, rows))
    failures = sorted(
        (failure for answer in answers for failure in answer.failures),
        key=lambda failure: (failure.row, failure.query),
    )
    return Matches(offsets_of(np.bincount(rows, minlength=count)), queries[order], tuple(failures))
