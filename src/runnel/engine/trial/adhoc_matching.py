"""Matching outside the stream: queries compiled for the moment, against items of the past or of the caller."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import Connection

from runnel.algebra.nodes.query import Node
from runnel.arrays import offsets_of
from runnel.catalog.declared import feeds, tags
from runnel.catalog.logs import plan_versions
from runnel.catalog.logs.undecided import supplements_between
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.workspace import Workspace
from runnel.matching.contract import Matcher, MatchStatistics
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

if TYPE_CHECKING:
    from runnel.matching.distinct.settle_gates import OrderedMatcher


@contextmanager
def adhoc_plan(queries: Sequence[PlanQuery], definitions: Mapping[int, Node]) -> Iterator[Plan]:
    """A plan of some queries, compiled into a folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="runnel-") as folder:
        storage = FileStorage(Path(folder).as_uri())
        # Imported here and where else plans are made: the compiler of kernels takes a second to load.
        from runnel.matching.compile.compile_plan import compile_base

        compile_base(storage, "plan", queries, definitions)
        yield load(storage, PlanVersion(0, "plan", None))


def past_matches(
    root: Workspace, feed: int, definitions: Mapping[int, Node], after: int, upto: int, *, start: int | None = None
) -> npt.NDArray[np.int64]:
    """The sequences in (after, upto] of the items that a feed would have had.

    Duplicates are looked for among the items after `start`; without it, among those of the range alone.
    """
    found = [np.empty(0, dtype=np.int64)]
    with adhoc_plan([PlanQuery(feed)], definitions) as plan, whole_matcher(root, plan) as matcher:
        for batch in root.items.read(after if start is None else start, upto):
            matches = matcher.match(batch)
            found.append(batch.sequences[np.diff(matches.offsets) > 0])
    with root.catalog.read() as connection:
        again = [one.sequence for one in supplements_between(connection, after, upto)]
    sequences = np.concatenate(found)
    # An item that is in the log again is no other item, and was asked about under its first sequence.
    return sequences[(sequences > after) & ~np.isin(sequences, again)]


@contextmanager
def whole_matcher(root: Workspace, plan: Plan) -> Iterator[OrderedMatcher]:
    """A matcher of all that a plan says: operators are asked in this process, distinct feeds know what came by."""
    from runnel.matching.compile.build_matcher import build_matcher
    from runnel.matching.distinct.settle_gates import OrderedMatcher

    matcher = build_matcher(plan)
    if not len(plan.operators):
        yield OrderedMatcher(plan, matcher)
        return
    from runnel.engine.trial.operator_session import open_operator_session

    with open_operator_session(root) as asked:
        yield OrderedMatcher(plan, asked.matcher(plan, matcher))


@contextmanager
def chosen_matcher(root: Workspace, queries: Collection[int], items: int) -> Iterator[Matcher]:
    """A matcher of some declared queries, whether somebody subscribes to them or not, for about so many items.

    Where that is faster it is the running plan's, with a selection; what is not in that is compiled beside it. What
    was held is matched too, and every item counts, however early it was accepted. A distinct feed knows only the
    items that it is given here.
    """
    from runnel.matching.compile import select_queries
    from runnel.matching.compile.build_matcher import build_matcher

    with root.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
        running = _running(connection, queries)
        last = last_sequence(connection)
    matchers: list[Matching] = []
    if current is None or select_queries.compiling_pays(len(running), current.queries, items):
        running = set()
    else:
        plan = load(root.storage, PlanVersion.of(current))
        running -= select_queries.gated_queries(plan)
        matchers += [build_matcher(select_queries.select_queries(plan, running))] if running else []
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


class Matching(Protocol):
    """Whatever matches batches."""

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        ...


class TogetherMatcher:
    """Several matchers of different queries as one; to them all items were accepted after the sequence `last`."""

    def __init__(self, matchers: Sequence[Matching], last: int) -> None:
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


def _joined(several: Sequence[Matches], count: int) -> Matches:
    """Answers about the same items as one; no query is in two of them."""
    rows = np.concatenate([np.repeat(np.arange(count), np.diff(one.offsets)) for one in several])
    queries = np.concatenate([one.queries for one in several])
    order = np.lexsort((queries, rows))
    failures = sorted((one for each in several for one in each.failures), key=lambda one: (one.row, one.query))
    return Matches(offsets_of(np.bincount(rows, minlength=count)), queries[order], tuple(failures))
