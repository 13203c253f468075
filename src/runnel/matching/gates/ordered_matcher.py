"""A matcher that resolves gates itself, for use without an item log. Batches must be passed in the items' order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runnel.algebra.nodes.gate_rules import Stop
from runnel.matching.contract import Matcher
from runnel.matching.gates.claims import Claims, GateKeeper
from runnel.matching.gates.contract import Numbers
from runnel.matching.gates.resolve_gates import resolve_gates, unique_pairs
from runnel.model.annotation import Annotation
from runnel.model.gate_state import GateState
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.plan.store import Plan

if TYPE_CHECKING:
    from runnel.matching.joins.window_items import WindowItems

_MAX_PARTS = 32
"""The number of parts of window items that are kept before they are merged."""

_MIN_STATES = 100_000
"""Expired states are removed only when there are more states than this."""


class OrderedMatcher:
    """A matcher that keeps the states of gates in memory from batch to batch.

    `stopped` contains the items that gates have stopped so far, by feed and sequence, and `annotations` those of
    the matches so far, by query and sequence. `windows` are the items of windows.
    """

    def __init__(self, plan: Plan, matcher: Matcher, window_keys: Mapping[int, int] = MappingProxyType({})) -> None:
        """Create a matcher. It stores the items of windows under `window_keys`, by the feeds of the windows."""
        self._matcher = matcher
        self._window_keys = window_keys
        self.statistics = matcher.statistics
        self._keeper = GateKeeper(plan)
        self._states: dict[bytes, GateState] = {}
        self._max_states = _MIN_STATES
        self.windows: list[WindowItems] = []
        self.stopped: dict[tuple[int, int], Stop] = {}
        self.annotations: dict[tuple[int, int], tuple[Annotation, ...]] = {}

    def match(self, items: ItemBatch) -> Matches:
        """Return the queries that each item of the batch matches, without the items that gates stop."""
        matches = self._matcher.match(items)
        if not self._keeper.is_needed:
            return matches
        kept, claims = self._keeper.take_out(items, matches)
        sequences, passed = self._resolve(items, claims)
        kept_rows = np.repeat(np.arange(len(items)), np.diff(kept.offsets))
        passed_rows = np.searchsorted(items.sequences, sequences)
        rows, queries = unique_pairs(np.concatenate([kept_rows, passed_rows]), np.concatenate([kept.queries, passed]))
        offsets = np.searchsorted(rows, np.arange(len(items) + 1))
        return Matches(offsets.astype(np.int64), queries, kept.failures)

    def _resolve(self, items: ItemBatch, claims: Claims) -> tuple[Numbers, Numbers]:
        resolved = resolve_gates(
            claims.at_gates(), lambda keys: self._states, lambda: self.windows, self._window_keys
        )
        self._states |= {state.key: state for state in resolved.states}
        self.stopped |= resolved.stopped
        for sequence, by_query in resolved.annotations_of(claims).items():
            self.annotations |= {(query, sequence): annotations for query, annotations in by_query.items()}
        self._remember_windows(resolved.new_window_items())
        if len(self._states) > self._max_states:
            newest = int(pc.max(items.records.column("accepted").cast(pa.int64())).as_py())
            self._states = {key: state for key, state in self._states.items() if state.expires > newest}
            self._max_states = max(_MIN_STATES, 2 * len(self._states))
        return resolved.matches(claims)

    def _remember_windows(self, added: WindowItems | None) -> None:
        """Keep the items of windows for later batches, in few parts."""
        if added is None:
            return
        self.windows.append(added)
        if len(self.windows) > _MAX_PARTS:
            from runnel.matching.joins.window_items import merge_window_items

            self.windows = [merge_window_items(self.windows)]
