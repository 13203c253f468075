"""Runnel's windows and joins, as `benchmarks.windows` calls them: the only module of it that knows their classes.

In: definitions with joins, and batches of photos and news. Out: the look-up alone, the resolution of a batch from
claims to matches and annotations, and the file of a window.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks.measuring import private_megabytes, touched_bytes
from benchmarks.windows_contenders import LookUps
from benchmarks.windows_workload import FIRST_QUERY, SIMILAR, Numbers, Workload, one_join

from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.query import Gated, Node
from runnel.algebra.semantics.joins import Join, Window
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.temporary_plan import TemporaryPlan
from runnel.matching.gates.claims import GateKeeper
from runnel.matching.gates.ordered_matcher import OrderedMatcher
from runnel.matching.gates.resolve_gates import resolve_gates
from runnel.matching.joins.find_pairs import JoinItems, PairFinder
from runnel.matching.joins.prepare_items import prepare_joined_items
from runnel.matching.joins.window_items import WindowItems, merge_window_items
from runnel.model.annotation import Annotation
from runnel.model.item_batch import ItemBatch
from runnel.plan.logical_plan import PlanQuery
from runnel.storage.file_storage import FileStorage, Storage
from runnel.streaming.window_store import read_segment, write_segment

_REPEATED = 50
"""How often an item is in the batch that measures it, so that the time of a call does not count."""


@dataclass(frozen=True)
class Resolved:
    """The answer to a batch, and the CPU seconds of its steps.

    `matches` has (sequence, query) in ascending order, and `annotations` those of each query and sequence.
    """

    matches: Numbers
    annotations: Mapping[tuple[int, int], tuple[Annotation, ...]]
    items: int
    claims: int
    verified: int
    matching_seconds: float
    claiming_seconds: float
    resolving_seconds: float

    @property
    def seconds(self) -> float:
        """The CPU seconds of all steps."""
        return self.matching_seconds + self.claiming_seconds + self.resolving_seconds


class OurPlan:
    """A compiled plan with joins, and the items of its windows."""

    def __init__(self, definitions: Mapping[int, Node]) -> None:
        started = time.process_time()
        queries = [PlanQuery(feed) for feed, node in definitions.items() if not _is_window(node)]
        self._temporary = TemporaryPlan(queries, definitions)
        self._plan = self._temporary.plan
        self._matcher = build_matcher(self._plan)
        self._keeper = GateKeeper(self._plan)
        self.windows: WindowItems | None = None
        self.compile_seconds = time.process_time() - started

    def fill(self, batches: Iterable[ItemBatch]) -> float:
        """Match photos, so that they are in the windows. Return the CPU seconds."""
        started = time.process_time()
        matcher = OrderedMatcher(self._plan, self._matcher)
        for batch in batches:
            matcher.match(batch)
        self.windows = merge_window_items(matcher.windows)
        return time.process_time() - started

    def resolve(self, batch: ItemBatch) -> Resolved:
        """Match a batch: first the conditions on each item, then the claims, then the joins."""
        parts = [self._filled()]
        gc.freeze()  # Spark commits a batch in a new process, whose garbage collector has few objects to inspect
        started = time.process_time()
        matches = self._matcher.match(batch)
        matched = time.process_time()
        _, claims = self._keeper.take_out(batch, matches)
        claimed = time.process_time()
        gates = resolve_gates(claims.at_gates(), lambda keys: {}, lambda: parts)
        sequences, queries = gates.matches(claims)
        annotations = gates.annotations_of(claims)
        ended = time.process_time()
        gc.unfreeze()
        return Resolved(
            np.stack([sequences, queries], axis=1),
            {(query, row): noted for row, by_query in annotations.items() for query, noted in by_query.items()},
            len(batch),
            len(claims),
            gates.run.shared[Join.kind].finder.checked,
            matched - started,
            claimed - matched,
            ended - claimed,
        )

    def _filled(self) -> WindowItems:
        assert self.windows is not None, "the windows are not filled"
        return self.windows


def _is_window(node: Node) -> bool:
    return isinstance(node, Gated) and isinstance(node.rule, Window)


def fill_window(condition: Expression, workload: Workload) -> WindowItems:
    """Return all photos as one window, indexed for a condition."""
    ours = OurPlan(one_join(condition, len(workload.photos)))
    ours.fill(workload.photo_batches())
    assert ours.windows is not None
    assert len(ours.windows.members_of(FIRST_QUERY + 1)) == len(workload.photos)
    return ours.windows


def look_up(window: WindowItems, condition: Expression, batch: ItemBatch) -> LookUps:
    """Find the pairs of the items of a batch: all together, and one item after another.

    The items are prepared before, as workers do it.
    """
    items = _items_of(condition, batch)
    finder = PairFinder([window])
    started = time.thread_time_ns()
    pairs = finder.find(condition, items)
    together = time.thread_time_ns() - started
    verified = finder.checked
    alone, repeated = (
        np.array([_time_of(finder, condition, items, np.full(times, item)) for item in range(len(batch))]) // times
        for times in (1, _REPEATED)
    )
    joined = np.stack([pairs.items, pairs.rows], axis=1)
    joined = joined[np.lexsort((joined[:, 1], joined[:, 0]))]
    return LookUps(repeated, joined, verified, verified, together, alone)


def _time_of(finder: PairFinder, condition: Expression, items: JoinItems, chosen: Numbers) -> int:
    """Return the CPU nanoseconds of looking up some items together."""
    some = JoinItems(items.sequences[chosen], items.accepted[chosen], items.table, items.rows[chosen])
    started = time.thread_time_ns()
    finder.find(condition, some)
    return time.thread_time_ns() - started


def _items_of(condition: Expression, batch: ItemBatch) -> JoinItems:
    prepared = prepare_joined_items(batch, np.arange(len(batch)), [condition])
    accepted = batch.records.column("accepted").cast(pa.int64()).to_numpy()
    return JoinItems(batch.sequences, accepted, prepared.table, prepared.positions)


def store_window(storage: Storage, window: WindowItems) -> tuple[str, int]:
    """Write the file of a window as the runner does. Return its path and size."""
    segment = write_segment(storage, window)
    return segment.path, segment.bytes


def map_window(storage: Storage, path: str) -> WindowItems:
    """Map the file of a window into memory."""
    return read_segment(storage, path)


def memory_of_window(
    folder: Path, paths: tuple[str, str], batches: tuple[ItemBatch, ItemBatch]
) -> tuple[float, float]:
    """Look up items in the second file of a folder, and return the shared and the private bytes that this takes.

    It is called in a new process. The first file and its items are for compiling the kernels.
    """
    storage = FileStorage(folder.as_uri())
    warm = map_window(storage, paths[0])
    _find(warm, batches[0])
    before = private_megabytes(), touched_bytes(folder)
    window = map_window(storage, paths[1])
    _find(window, batches[1])
    shared = touched_bytes(folder) - before[1]
    return shared, (private_megabytes() - before[0]) * (1 << 20)


def _find(window: WindowItems, batch: ItemBatch) -> int:
    return len(PairFinder([window]).find(SIMILAR, _items_of(SIMILAR, batch)))
