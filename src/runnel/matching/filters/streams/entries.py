"""Which streams there are, and the predicates of each.

In: a logical plan and its anchors. Out: rows of predicates, a row for every stream. The first streams are those of
the keys and, last, of the predicates that no key leads to; they serve the items of all sources. After them come the
*own* streams of sources: where few of many sources ask for a predicate, its entries stand in a stream for each pair
of a source and a key, so that the items of the other sources never pass them.
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
    """What streams may do to save work; answers do not depend on it.

    `trees`: predicates of a stream that share clauses are factored. `most_sources`: a predicate that at most so many
    sources ask for, and at most one in `one_of`, stands in their own streams; with 0, none does.
    """

    trees: bool = True
    most_sources: int = 4
    one_of: int = 2


FLAT = StreamShape(trees=False, most_sources=0)
"""Every predicate by itself, in the streams of all sources."""


@dataclass(frozen=True)
class StreamEntries:
    """`predicates` are those of every stream. `own_keys` are, for every source, the keys of its own streams.

    Sources are numbered in the order of their catalog ids. The own streams are numbered after all keys, in the order
    of `own_keys.values`; the key after the last stands for predicates without an anchor.
    """

    predicates: Rows
    own_keys: Rows

    @property
    def keys(self) -> Array:
        """The key of every stream."""
        general = len(self.predicates) - len(self.own_keys.values)
        return np.concatenate([np.arange(general, dtype=IDENTIFIER), self.own_keys.values])


def sources_of(queries: QueryTable) -> Array:
    """The catalog ids of all sources that a plan part names, ascending."""
    return np.unique(queries.scopes.values)


def enter_predicates(logical: LogicalPlan, anchors: Anchors, keys: int, shape: StreamShape) -> StreamEntries:
    """The streams of a plan with so many keys."""
    sources = sources_of(logical)
    pairs = _own_pairs(logical, len(sources), shape)
    owned, askers = pairs // max(1, len(sources)), pairs % max(1, len(sources))
    leading = _leading(anchors, keys)
    general = np.ones(len(leading), dtype=bool)
    general[owned] = False
    common = np.flatnonzero(general)
    owners, common_keys = leading.expand(common)
    own_owners, own_values = leading.expand(owned)
    codes = askers[own_owners] * (keys + 1) + own_values
    distinct, numbers = np.unique(codes, return_inverse=True)
    streams = np.concatenate([common_keys.astype(np.int64), keys + 1 + numbers])
    predicates = np.concatenate([common[owners], owned[own_owners]]).astype(IDENTIFIER)
    own_sources, own_keys = np.divmod(distinct, keys + 1)
    return StreamEntries(
        _by_stream(streams, predicates, keys + 1 + len(distinct)),
        Rows(offsets_of(np.bincount(own_sources, minlength=len(sources))), own_keys.astype(IDENTIFIER)),
    )


def _leading(anchors: Anchors, keys: int) -> Rows:
    """The keys that lead to every predicate; where there are none, the key after the last."""
    lengths = anchors.keys.lengths
    values = np.full(int(np.maximum(lengths, 1).sum()), keys, dtype=IDENTIFIER)
    offsets = offsets_of(np.maximum(lengths, 1))
    values[np.repeat(lengths > 0, np.maximum(lengths, 1))] = anchors.keys.values
    return Rows(offsets, values)


def _own_pairs(logical: LogicalPlan, sources: int, shape: StreamShape) -> Array:
    """The predicates that few sources ask for, with each of these: predicate times the sources plus source."""
    most = min(shape.most_sources, sources // shape.one_of)
    sizes = logical.scopes.lengths[logical.target_scopes]
    asked = np.bincount(logical.target_predicates, weights=sizes, minlength=len(logical.predicates))
    targets = np.flatnonzero(asked[logical.target_predicates] <= most)
    if not len(targets):
        return np.empty(0, dtype=np.int64)
    owners, found = logical.scopes.expand(logical.target_scopes[targets])
    dense = np.searchsorted(sources_of(logical), found)
    return np.unique(logical.target_predicates[targets][owners].astype(np.int64) * sources + dense)


def _by_stream(streams: Array, predicates: Array, count: int) -> Rows:
    offsets = offsets_of(np.bincount(streams, minlength=count))
    return Rows(offsets, _placed(read_only(streams), read_only(predicates), offsets[:-1].copy()))


@kernel
def _placed(streams: Array, predicates: Array, spots: Array) -> Array:
    """The predicates in the order of their streams; a sort would take longer than all the rest."""
    placed = np.empty_like(predicates)
    for entry in range(len(streams)):
        placed[spots[streams[entry]]] = predicates[entry]
        spots[streams[entry]] += 1
    return placed
