"""The queries of a plan part that use a predicate, filtered by an item's source and sequence."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array, Rows
from runnel.bounded_cache import BoundedCache
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.atoms.truth import Atoms
from runnel.plan.logical_plan import LogicalPlan

_MASK_BYTES = 1 << 26


class PartQueries:
    """The queries of one plan part that were not removed.

    `targets` are the targets of every predicate. `alive` is a mask of the queries, by position.
    """

    def __init__(self, logical: LogicalPlan, targets: Rows, alive: Array) -> None:
        self.logical = logical
        self.atoms = Atoms(logical)
        self._targets = targets
        self._alive = alive
        self._masks = BoundedCache[int, Array](_MASK_BYTES)
        self._scopes_by_source = _group_by_source(logical.scopes)

    @property
    def living(self) -> int:
        """The number of queries of this part that were not removed."""
        return int(np.count_nonzero(self._alive))

    def predicates(self, source: int) -> Array:
        """Return a mask of the predicates that queries on a source use."""
        mask = self._masks.get(source)
        if mask is None:
            mask = np.zeros(len(self.logical.predicates), dtype=bool)
            mask[self.logical.target_predicates[self._scopes_with(source)[self.logical.target_scopes]]] = True
            self._masks.put(source, mask, min(len(mask), _MASK_BYTES))  # the newest mask is cached whatever its size
        return mask

    def queries(self, columns: ItemColumns, rows: Array, predicates: Array) -> tuple[Array, Array]:
        """Return the queries that items match because they satisfy predicates, as rows and query ids.

        Only queries that read the item's source and start before its sequence are included.
        """
        owners, targets = self._targets.expand(predicates)
        rows = rows[owners]
        is_in_scope = self._in_scope(columns.feeds[rows], self.logical.target_scopes[targets])
        rows, targets = rows[is_in_scope], targets[is_in_scope]
        owners, positions = self.logical.targets.expand(targets)
        rows = rows[owners]
        is_match = self._alive[positions] & (self.logical.query_since[positions] < columns.sequences[rows])
        return rows[is_match], self.logical.query_ids[positions[is_match]]

    def _scopes_with(self, source: int) -> Array:
        """Return a mask of the scopes that contain a source."""
        contains_source = np.zeros(len(self.logical.scopes), dtype=bool)
        contains_source[self._scopes_by_source.get(source, [])] = True
        return contains_source

    def _in_scope(self, sources: Array, scopes: Array) -> Array:
        """Return for each pair whether the scope contains the source."""
        is_in_scope = np.zeros(len(scopes), dtype=bool)
        for source in np.unique(sources).tolist():
            selected = sources == source
            is_in_scope[selected] = self._scopes_with(source)[scopes[selected]]
        return is_in_scope


def _group_by_source(scopes: Rows) -> dict[int, Array]:
    """Return the scopes that contain each source, by source."""
    owners = np.repeat(np.arange(len(scopes)), scopes.lengths)
    sources, source_indices = np.unique(scopes.values, return_inverse=True)
    grouped = Rows.grouped(source_indices, owners, len(sources))
    return {source: grouped.row(index) for index, source in enumerate(sources.tolist())}
