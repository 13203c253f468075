"""Assign predicates to streams.

In: a logical plan and its anchors. Out: the predicates of every stream. The first streams are common to all sources:
one per key and, last, one for the predicates without an anchor. After them come the *own* streams of sources: if only
few of many sources need a predicate, it is entered in a stream per pair of source and key, so that items of other
sources do not read it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Rows, offsets_of, read_only
from runnel.kernel import kernel
from runnel.matching.filters.atoms.anchors import Anchors
from runnel.plan.logical_plan import LogicalPlan, QueryTable


@dataclass(frozen=True, slots=True)
class StreamShape:
    """Options of the layout of streams. They affect only speed, never the matches.

    With `trees`, predicates of a stream that share clauses are grouped. A predicate that at most `most_sources`
    sources need, and at most one in `one_of` of all sources, is entered in their own streams.
    """

    trees: bool = True
    most_sources: int = 4
    one_of: int = 2


FLAT = StreamShape(trees=False, most_sources=0)
"""Without groups and without own streams of sources."""


@dataclass(frozen=True)
class StreamEntries:
    """The predicates of every stream and, for every source, the keys of its own streams.

    Sources are numbered in the order of their catalog ids. The own streams are numbered after the common streams, in
    the order of `own_keys.values`. The key after the last real one stands for predicates without an anchor.
    """

    predicates: Rows
    own_keys: Rows

    @property
    def keys(self) -> Array:
        """The key of every stream."""
        common = len(self.predicates) - len(self.own_keys.values)
        return np.concatenate([np.arange(common, dtype=IDENTIFIER), self.own_keys.values])


def sources_of(queries: QueryTable) -> Array:
    """Return the catalog ids of all sources that a plan part reads, in ascending order."""
    return np.unique(queries.scopes.values)


def enter_predicates(logical: LogicalPlan, anchors: Anchors, keys: int, shape: StreamShape) -> StreamEntries:
    """Assign the predicates of a plan to streams; `keys` is the number of keys."""
    sources = sources_of(logical)
    pairs = _own_pairs(logical, len(sources), shape)
    own_predicates, pair_sources = pairs // max(1, len(sources)), pairs % max(1, len(sources))
    predicate_keys = _predicate_keys(anchors, keys)
    is_common = np.ones(len(predicate_keys), dtype=bool)
    is_common[own_predicates] = False
    common = np.flatnonzero(is_common)
    owners, common_keys = predicate_keys.expand(common)
    own_owners, own_values = predicate_keys.expand(own_predicates)
    codes = pair_sources[own_owners] * (keys + 1) + own_values
    distinct, numbers = np.unique(codes, return_inverse=True)
    streams = np.concatenate([common_keys.astype(np.int64), keys + 1 + numbers])
    predicates = np.concatenate([common[owners], own_predicates[own_owners]]).astype(IDENTIFIER)
    own_sources, own_keys = np.divmod(distinct, keys + 1)
    return StreamEntries(
        _group_by_stream(streams, predicates, keys + 1 + len(distinct)),
        Rows(offsets_of(np.bincount(own_sources, minlength=len(sources))), own_keys.astype(IDENTIFIER)),
    )


def _predicate_keys(anchors: Anchors, keys: int) -> Rows:
    """Return the keys of every predicate's anchor, or the key after the last for a predicate without an anchor."""
    lengths = anchors.keys.lengths
    values = np.full(int(np.maximum(lengths, 1).sum()), keys, dtype=IDENTIFIER)
    offsets = offsets_of(np.maximum(lengths, 1))
    values[np.repeat(lengths > 0, np.maximum(lengths, 1))] = anchors.keys.values
    return Rows(offsets, values)


def _own_pairs(logical: LogicalPlan, sources: int, shape: StreamShape) -> Array:
    """Return the pairs of predicate and source for own streams, encoded as `predicate * sources + source`."""
    max_sources = min(shape.most_sources, sources // shape.one_of)
    sizes = logical.scopes.lengths[logical.target_scopes]
    source_counts = np.bincount(logical.target_predicates, weights=sizes, minlength=len(logical.predicates))
    targets = np.flatnonzero(source_counts[logical.target_predicates] <= max_sources)
    if not len(targets):
        return np.empty(0, dtype=np.int64)
    owners, target_sources = logical.scopes.expand(logical.target_scopes[targets])
    indices = np.searchsorted(sources_of(logical), target_sources)
    return np.unique(logical.target_predicates[targets][owners].astype(np.int64) * sources + indices)


def _group_by_stream(streams: Array, predicates: Array, count: int) -> Rows:
    offsets = offsets_of(np.bincount(streams, minlength=count))
    return Rows(offsets, _order_by_stream(read_only(streams), read_only(predicates), offsets[:-1].copy()))


@kernel
def _order_by_stream(streams: Array, predicates: Array, next_indices: Array) -> Array:
    """Return the predicates in the order of their streams. Sorting would take longer than all other steps together.

    `next_indices` has the start of each stream in the result, and is overwritten.
    """
    ordered = np.empty_like(predicates)
    for entry in range(len(streams)):
        ordered[next_indices[streams[entry]]] = predicates[entry]
        next_indices[streams[entry]] += 1
    return ordered
