"""Matching outside the stream: queries compiled for the moment, against items of the past or of the caller."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import Connection

from runnel.algebra.nodes.gate_rules import Stop
from runnel.algebra.nodes.query import Node
from runnel.arrays import offsets_of
from runnel.catalog.declared import feeds, tags
from runnel.catalog.logs import plan_versions
from runnel.catalog.logs.undecided import supplements_between
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.workspace import Workspace
from runnel.matching.contract import Matcher, MatchStatistics
from runnel.model.bindings import Bindings, bounded
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

if TYPE_CHECKING:
    from runnel.matching.gates.ordered_matcher import OrderedMatcher
    from runnel.matching.operators.decide.operators_in_process import DecidingMatcher
    from runnel.matching.patterns.bind_variables import PatternBinder


@contextmanager
def adhoc_plan(
    queries: Sequence[PlanQuery], definitions: Mapping[int, Node], *, matcher: str = "streams"
) -> Iterator[Plan]:
    """A plan of some queries, compiled into a folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="runnel-") as folder:
        storage = FileStorage(Path(folder).as_uri())
        # Imported here and where else plans are made: the compiler of kernels takes a second to load.
        from runnel.matching.compile.compile_plan import compile_base

        compile_base(storage, "plan", queries, definitions, matcher=matcher)
        yield load(storage, PlanVersion(0, "plan", None))


@dataclass(frozen=True)
class PastMatches:
    """The sequences of the items that a feed would have had, and the bindings of its query by sequence."""

    sequences: npt.NDArray[np.int64]
    bindings: Mapping[int, Bindings] = field(default_factory=dict)


def past_matches(
    root: Workspace,
    feed: int,
    definitions: Mapping[int, Node],
    after: int,
    upto: int,
    *,
    start: int | None = None,
    bound: int | None = 0,
) -> PastMatches:
    """The items in (after, upto] that a feed would have had, the newest `bound` of them (None: all) with bindings.

    Duplicates are looked for among the items after `start`; without it, among those of the range alone.
    """
    found = [np.empty(0, dtype=np.int64)]
    bindings: dict[int, Bindings] = {}
    with adhoc_plan([PlanQuery(feed)], definitions) as plan, whole_matcher(root, plan) as matcher:
        for batch in root.items.read(after if start is None else start, upto):
            matches = matcher.match(batch)
            rows = np.flatnonzero((np.diff(matches.offsets) > 0) & (batch.sequences > after))
            found.append(batch.sequences[rows])
            wanted = rows if bound is None else rows[max(0, len(rows) - bound) :]
            bindings |= {int(batch.sequences[row]): one for (row, _), one in matcher.bindings(wanted).items()}
    with root.catalog.read() as connection:
        again = [one.sequence for one in supplements_between(connection, after, upto)]
    sequences = np.concatenate(found)
    # An item that is in the log again is no other item, and was asked about under its first sequence.
    return PastMatches(sequences[~np.isin(sequences, again)], bindings)


def past_bindings(
    root: Workspace, feed: int, definitions: Mapping[int, Node], sequences: Sequence[int]
) -> dict[int, Bindings]:
    """The bindings of a feed's query on items that it matches, by sequence."""
    found: dict[int, Bindings] = {}
    with adhoc_plan([PlanQuery(feed)], definitions) as plan, whole_matcher(root, plan) as matcher:
        for batch in root.items.get(sequences):
            matcher.match(batch)
            every = matcher.bindings(np.arange(len(batch)))
            found |= {int(batch.sequences[row]): one for (row, _), one in every.items()}
    return found


class BindingMatcher:
    """A matcher that also tells the bindings of the matches in the batch before, as far as they are asked for."""

    def __init__(
        self,
        plan: Plan,
        matcher: Matcher | OrderedMatcher,
        deciding: DecidingMatcher | None = None,
        stopped: Mapping[tuple[int, int], Stop] | None = None,
    ) -> None:
        """`deciding` is the matcher below `matcher` that asks operators, if any does.

        `stopped` has the items that gates have stopped so far, by feed and sequence.
        """
        self.stopped = {} if stopped is None else stopped
        self.statistics = matcher.statistics
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
        found: dict[tuple[int, int], Bindings] = {}
        if self._deciding is not None and self._deciding.decided is not None:
            decided = self._deciding.decided.bindings_by_query(np.arange(len(items)))
            for row in rows.tolist():
                found |= {(row, query): bounded(one) for query, one in decided.get(row, {}).items()}
        if self._binder.is_needed:
            some = ItemBatch(items.records.take(rows))
            own = Matches.of([matches.row(row).tolist() for row in rows.tolist()])
            for place, of_row in self._binder.bind(some, own).items():
                found |= {(int(rows[place]), query): one for query, one in of_row.items()}
        held = {row: set(matches.row(row).tolist()) for row in rows.tolist()}
        return {(row, query): one for (row, query), one in found.items() if query in held[row] and not one.is_empty}


@contextmanager
def whole_matcher(root: Workspace, plan: Plan) -> Iterator[BindingMatcher]:
    """A matcher of all that a plan says: operators are asked in this process, gates know what came by."""
    from runnel.matching.compile.build_matcher import build_matcher
    from runnel.matching.gates.ordered_matcher import OrderedMatcher

    matcher = build_matcher(plan)
    if not len(plan.operators):
        ordered = OrderedMatcher(plan, matcher)
        yield BindingMatcher(plan, ordered, stopped=ordered.stopped)
        return
    from runnel.engine.trial.operator_session import open_operator_session

    with open_operator_session(root) as asked:
        deciding = asked.matcher(plan, matcher)
        ordered = OrderedMatcher(plan, deciding)
        yield BindingMatcher(plan, ordered, deciding, ordered.stopped)


@contextmanager
def chosen_matcher(root: Workspace, queries: Collection[int], items: int) -> Iterator[TogetherMatcher]:
    """A matcher of some declared queries, whether somebody subscribes to them or not, for about so many items.

    Where that is faster it is the running plan's, with a selection; what is not in that is compiled beside it. What
    was held is matched too, and every item counts, however early it was accepted. A gate knows only the items
    that it is given here.
    """
    from runnel.matching.compile import select_queries
    from runnel.matching.compile.build_matcher import build_matcher

    with root.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
        running = _running(connection, queries)
        last = last_sequence(connection)
    matchers: list[BindingMatcher] = []
    if current is None or select_queries.compiling_pays(len(running), current.queries, items):
        running = set()
    else:
        plan = load(root.storage, PlanVersion.of(current))
        running -= select_queries.gated_queries(plan)
        if running:
            selected = select_queries.select_queries(plan, running)
            matchers.append(BindingMatcher(selected, build_matcher(selected)))
    alone = set(queries) - running
    with root.catalog.read() as connection:
        definitions = feeds.definitions(connection, alone, with_paused=True)
    with ExitStack() as stack:
        if alone:
            plan = stack.enter_context(adhoc_plan([PlanQuery(one) for one in sorted(alone)], definitions))
            matchers.append(stack.enter_context(whole_matcher(root, plan)))
        yield TogetherMatcher(matchers, last)


def _running(connection: Connection, queries: Collection[int]) -> set[int]:
    """Those of some queries that the running plan has as they were declared: nothing that they read is held."""
    live = set(feeds.since_of(connection, queries))
    held = tags.held_queries(connection)
    return live - feeds.all_readers(connection, held) if held else live


class TogetherMatcher:
    """Several matchers of different queries as one; to them all items were accepted after the sequence `last`."""

    def __init__(self, matchers: Sequence[BindingMatcher], last: int) -> None:
        self.statistics = MatchStatistics()
        self._matchers = matchers
        self._last = last

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        place = items.records.schema.get_field_index("sequence")
        later = pa.array(items.sequences + self._last, type=pa.int64())
        batch = ItemBatch(items.records.set_column(place, items.records.schema.field(place), later))
        found = [matcher.match(batch) for matcher in self._matchers]
        matches = found[0] if len(found) == 1 else _joined(found, len(items))
        self.statistics.items += len(items)
        self.statistics.matches += matches.total
        self.statistics.failures += len(matches.failures)
        return matches

    def bindings(self, rows: npt.NDArray[np.int64]) -> dict[tuple[int, int], Bindings]:
        """By row and query, the bindings of the last batch's matches in these rows."""
        return {key: one for matcher in self._matchers for key, one in matcher.bindings(rows).items()}


def _joined(several: Sequence[Matches], count: int) -> Matches:
    """Answers about the same items as one; no query is in two of them."""
    rows = np.concatenate([np.repeat(np.arange(count), np.diff(one.offsets)) for one in several])
    queries = np.concatenate([one.queries for one in several])
    order = np.lexsort((queries, rows))
    failures = sorted((one for each in several for one in each.failures), key=lambda one: (one.row, one.query))
    return Matches(offsets_of(np.bincount(rows, minlength=count)), queries[order], tuple(failures))
