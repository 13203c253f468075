"""What lies behind predicates: the queries of a plan part, for the item's source and its place in the log."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array, Rows
from runnel.bounded_cache import BoundedCache
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.truth import Atoms
from runnel.plan.logical_plan import LogicalPlan

_MASK_BYTES = 1 << 26


class Reach:
    """The living queries of one plan part; `targets` are the targets of every predicate."""

    def __init__(self, logical: LogicalPlan, targets: Rows, alive: Array) -> None:
        self.logical = logical
        self.atoms = Atoms(logical)
        self._targets = targets
        self._alive = alive
        self._masks = BoundedCache[int, Array](_MASK_BYTES)
        self._scopes_of = _sources_to_scopes(logical.scopes)

    @property
    def living(self) -> int:
        """How many queries live in this part."""
        return int(np.count_nonzero(self._alive))

    def predicates(self, source: int) -> Array:
        """Which predicates some query asks of a source."""
        mask = self._masks.get(source)
        if mask is None:
            mask = np.zeros(len(self.logical.predicates), dtype=bool)
            mask[self.logical.target_predicates[self._scoped(source)[self.logical.target_scopes]]] = True
            self._masks.put(source, mask, min(len(mask), _MASK_BYTES))  # The newest one is kept at any size.
        return mask

    def queries(self, columns: ItemColumns, rows: Array, predicates: Array) -> tuple[Array, Array]:
        """The living queries behind predicates that hold, for the item's source and sequence: rows and queries."""
        owners, targets = self._targets.expand(predicates)
        rows = rows[owners]
        reached = self._in_scope(columns.feeds[rows], self.logical.target_scopes[targets])
        rows, targets = rows[reached], targets[reached]
        owners, positions = self.logical.targets.expand(targets)
        rows = rows[owners]
        wanted = self._alive[positions] & (self.logical.query_since[positions] < columns.sequences[rows])
        return rows[wanted], self.logical.query_ids[positions[wanted]]

    def _scoped(self, source: int) -> Array:
        scoped = np.zeros(len(self.logical.scopes), dtype=bool)
        scoped[self._scopes_of.get(source, [])] = True
        return scoped

    def _in_scope(self, sources: Array, scopes: Array) -> Array:
        inside = np.zeros(len(scopes), dtype=bool)
        for source in np.unique(sources).tolist():
            here = sources == source
            inside[here] = self._scoped(source)[scopes[here]]
        return inside


def _sources_to_scopes(scopes: Rows) -> dict[int, Array]:
    """The scopes that hold a source, by source."""
    owners = np.repeat(np.arange(len(scopes)), scopes.lengths)
    sources, which = np.unique(scopes.values, return_inverse=True)
    grouped = Rows.grouped(which, owners, len(sources))
    return {source: grouped.row(index) for index, source in enumerate(sources.tolist())}
