"""Matching outside the stream: compile queries temporarily, and match batches like a run does, including gates.

In: queries, or a selection of declared queries. Out: a matcher of batches that also binds the variables of matches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from runnel.algebra.nodes.gate_rules import Stop
from runnel.algebra.nodes.query import Node
from runnel.arrays import offsets_of
from runnel.catalog.declared import feeds, tags
from runnel.catalog.logs import plan_versions
from runnel.engine.trial.stored_windows import StoredWindows
from runnel.engine.workspace import Workspace
from runnel.matching.compile.temporary_plan import TemporaryPlan
from runnel.matching.contract import Matcher
from runnel.model.annotation import Annotation
from runnel.model.bindings import Bindings, bounded
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load

if TYPE_CHECKING:
    from runnel.matching.gates.ordered_matcher import OrderedMatcher
    from runnel.matching.operators.decide.operators_in_process import DecidingMatcher
    from runnel.matching.patterns.bind_variables import PatternBinder


class TrialMatcher:
    """Matches batches with one plan, in the order of the log, and binds the variables of the last batch's matches.

    `stopped` contains the items that gates have stopped so far, by feed and sequence, and `annotations` those of the
    matches so far, by query and sequence.
    """

    def __init__(
        self,
        plan: Plan,
        matcher: Matcher,
        deciding: DecidingMatcher | None = None,
        ordered: OrderedMatcher | None = None,
        window_keys: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Create a matcher. `deciding` is the matcher inside `matcher` that calls operators, if there is one.

        `ordered` is the matcher that resolves gates, if there is one, and `window_keys` the keys of its windows.
        """
        self.stopped: Mapping[tuple[int, int], Stop] = ordered.stopped if ordered else {}
        self.annotations: Mapping[tuple[int, int], tuple[Annotation, ...]] = ordered.annotations if ordered else {}
        self._ordered = ordered
        self._window_keys = window_keys
        self._matcher = matcher
        self._deciding = deciding
        self._plan = plan
        self._last: tuple[ItemBatch, Matches] | None = None

    @cached_property
    def _binder(self) -> PatternBinder:
        from runnel.matching.patterns.bind_variables import PatternBinder

        return PatternBinder(self._plan)

    def match(self, items: ItemBatch) -> Matches:
        """Return the queries that each item of the batch matches."""
        matches = self._matcher.match(items)
        self._last = items, matches
        return matches

    def window_members(
        self, window: int, sequence: int, accepted: int, extent: timedelta | int
    ) -> npt.NDArray[np.int64]:
        """Return the sequences of the items in a window of an item, by the window's feed, as far as matched here."""
        from runnel.matching.joins.members_before import members_before

        parts = self._ordered.windows if self._ordered else ()
        return members_before(parts, self._window_keys.get(window, window), sequence, accepted, extent)

    def bindings(self, rows: npt.NDArray[np.int64]) -> dict[tuple[int, int], Bindings]:
        """Return the bindings of the last batch's matches in these rows, by row and query."""
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
    """Combines trial matchers of different queries. `definitions` are those of the queries that have gates."""

    def __init__(
        self, matchers: Sequence[TrialMatcher], definitions: Mapping[int, Node] = MappingProxyType({})
    ) -> None:
        self.definitions = definitions
        self._matchers = matchers

    @property
    def annotations(self) -> dict[tuple[int, int], tuple[Annotation, ...]]:
        """The annotations of the matches so far, by query and sequence."""
        return {key: several for matcher in self._matchers for key, several in matcher.annotations.items()}

    def match(self, items: ItemBatch) -> Matches:
        """Return the queries that each item of the batch matches."""
        results = [matcher.match(items) for matcher in self._matchers]
        return results[0] if len(results) == 1 else _join(results, len(items))

    def bindings(self, rows: npt.NDArray[np.int64]) -> dict[tuple[int, int], Bindings]:
        """Return the bindings of the last batch's matches in these rows, by row and query."""
        return {key: bound for matcher in self._matchers for key, bound in matcher.bindings(rows).items()}


@contextmanager
def open_matcher(
    workspace: Workspace,
    queries: Iterable[PlanQuery],
    definitions: Mapping[int, Node],
    stored: StoredWindows | None = None,
) -> Iterator[TrialMatcher]:
    """Compile queries temporarily. Operators are called in this process, and gates keep their state.

    Windows have the `stored` items, if they are given, in addition to those that are matched here.
    """
    from runnel.matching.compile.build_matcher import build_matcher
    from runnel.matching.gates.ordered_matcher import OrderedMatcher

    with ExitStack() as stack:
        plan = stack.enter_context(TemporaryPlan(queries, definitions))
        matcher = build_matcher(plan)
        deciding = None
        if len(plan.operators):
            from runnel.engine.trial.operator_session import open_operator_session

            matcher = deciding = stack.enter_context(open_operator_session(workspace)).matcher(plan, matcher)
        keys = {} if stored is None else stored.keys
        ordered = OrderedMatcher(plan, matcher, keys)
        ordered.windows += () if stored is None else stored.parts
        yield TrialMatcher(plan, ordered, deciding, ordered, keys)


@contextmanager
def open_declared(
    workspace: Workspace, queries: Collection[int], items: int, after: int = 0
) -> Iterator[JoinedMatcher]:
    """Open a matcher of declared queries, with or without subscriptions, for about `items` items after a sequence.

    If that is faster, queries are selected from the current plan, and only the others are compiled. Paused queries
    match too, and so do items from before a query was declared. Gates count only the items that are matched here.
    """
    from runnel.matching.compile import select_queries
    from runnel.matching.compile.build_matcher import build_matcher

    with workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
        planned = _planned(connection, queries)
    matchers: list[TrialMatcher] = []
    if current is None or select_queries.compiling_pays(len(planned), current.queries, items):
        planned = set()
    else:
        plan = load(workspace.storage, PlanVersion.of(current))
        planned -= select_queries.gated_queries(plan)
        if planned:
            selected = select_queries.select_queries(plan, planned, from_start=True)
            matchers.append(TrialMatcher(selected, build_matcher(selected)))
    others = sorted(set(queries) - planned)
    with ExitStack() as stack:
        definitions: Mapping[int, Node] = {}
        if others:
            with workspace.catalog.read() as connection:
                definitions = feeds.definitions(connection, others, with_paused=True)
            compiled = (PlanQuery(query, after) for query in others)
            matchers.append(stack.enter_context(open_matcher(workspace, compiled, definitions)))
        yield JoinedMatcher(matchers, definitions)


def _planned(connection: Connection, queries: Collection[int]) -> set[int]:
    """Return the queries that the current plan contains as declared: neither they nor their sources are paused."""
    live = set(feeds.since_of(connection, queries))
    paused = tags.held_queries(connection)
    return live - feeds.all_readers(connection, paused) if paused else live


def _join(results: Sequence[Matches], count: int) -> Matches:
    """Merge the matches of different queries with the same items."""
    rows = np.concatenate([np.repeat(np.arange(count), np.diff(result.offsets)) for result in results])
    queries = np.concatenate([result.queries for result in results])
    order = np.lexsort((queries, rows))
    failures = sorted(
        (failure for result in results for failure in result.failures),
        key=lambda failure: (failure.row, failure.query),
    )
    return Matches(offsets_of(np.bincount(rows, minlength=count)), queries[order], tuple(failures))
