"""Which items the router is expected to send where, what asking costs it, and where it need not ask.

In: the weights of queries, and which roots each partition has. Out: the part of the items that comes to each
partition, what the router costs for an item, and the *open* routes: where nearly all items of a scope go on to a
partition anyway, sending all of them costs less than asking. Words are taken to know nothing of each other. A graph
is taken to be about one topic, where graph patterns fall into topics that have no edge in common.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows
from runnel.scaleout.divide.weigh_queries import EMIT, ENTRY, PATTERN, Weights, per_block

_SELDOM = 0.5
"""Routes on which more of the items are not wanted stay closed, whatever asking costs."""


@dataclass(frozen=True)
class ExpectedRoutes:
    """By partition the part of the items that comes to it; microseconds of the router; and routes that are open.

    Route i is open for the scope `open_scopes[i]` to the partition `open_partitions[i]`.
    """

    shares: Array
    router: float
    open_partitions: Array
    open_scopes: Array

    @property
    def copies(self) -> float:
        """How many copies of an item there are."""
        return float(self.shares.sum())


@dataclass(frozen=True)
class _Pairs:
    """Partitions and scopes: the part of the scope's items that are not wanted there, and what asking costs."""

    partitions: Array
    scopes: Array
    missed: Array
    asking: Array


def expect_routes(weights: Weights, holders: Array, roots: Array, count: int) -> ExpectedRoutes:
    """What the router does, where partition `holders[i]` has the root `roots[i]`."""
    if not len(roots):
        none = np.empty(0, dtype=np.int64)
        return ExpectedRoutes(np.zeros(count), 0.0, none, none)
    pairs = _pairs(weights, *np.divmod(_distinct(holders, roots, len(weights.root_shares)), len(weights.root_shares)))
    parts = weights.scope_parts[pairs.scopes]
    vain = pairs.missed * parts * weights.copy
    often = pairs.missed <= _SELDOM
    opened = often & (pairs.asking >= vain)
    # To ask anything at all the router takes every item apart.
    if often.all() and float((vain - pairs.asking)[~opened].sum()) <= weights.copy:
        opened[:] = True
    with np.errstate(divide="ignore"):
        missed = np.where(opened, -np.inf, np.log(pairs.missed))
    shares = _shares(weights, pairs, missed, count)
    router = EMIT * float(shares.sum()) + float(pairs.asking[~opened].sum())
    if not opened.all():
        router += weights.copy
    return ExpectedRoutes(shares, router, pairs.partitions[opened], pairs.scopes[opened])


def _distinct(left: Array, right: Array, width: int) -> Array:
    return np.unique(left.astype(np.int64) * width + right)


def _pairs(weights: Weights, holders: Array, roots: Array) -> _Pairs:
    scopes = max(1, len(weights.scopes))
    numbers, pair_of = np.unique(holders * scopes + weights.root_scopes[roots], return_inverse=True)
    partitions, own_scopes = np.divmod(numbers, scopes)
    alone = weights.root_topics[roots] < 0
    missed = np.exp(_summed(pair_of[alone], _log_missed(weights.root_shares[roots[alone]]), len(numbers)))
    missed *= 1.0 - np.minimum(1.0, _about_topics(weights, pair_of[~alone], roots[~alone], len(numbers)))
    return _Pairs(partitions, own_scopes, missed, _asking(weights, pair_of, roots, own_scopes))


def _summed(groups: Array, values: Array, count: int) -> Array:
    return np.bincount(groups, weights=values, minlength=count)


def _log_missed(shares: Array) -> Array:
    """The logarithm of the part that is not a share; of everything, nothing is left but for rounding."""
    return np.log1p(-np.minimum(shares, 1.0 - 1e-15))


def _about_topics(weights: Weights, pair_of: Array, roots: Array, count: int) -> Array:
    """For every pair the part of the items that is about one of its topics, and satisfies a root of that."""
    topics = max(1, len(weights.topic_shares))
    found, numbers = np.unique(pair_of * topics + weights.root_topics[roots], return_inverse=True)
    chances = weights.topic_shares[found % topics]
    within = weights.root_shares[roots] / np.maximum(weights.topic_shares[weights.root_topics[roots]], 1e-12)
    missed = np.exp(_summed(numbers, _log_missed(within), len(found)))
    return _summed(found // topics, chances * (1.0 - missed), count)


def _asking(weights: Weights, pair_of: Array, roots: Array, scopes: Array) -> Array:
    """Microseconds that a pair costs the router: its keys, each once, and its part in each item pattern."""
    owners, keys = weights.root_keys.expand(roots)
    width = max(1, len(weights.key_shares))
    found = _distinct(pair_of[owners], keys, width)
    shares = weights.key_shares[found % width] * weights.scope_parts[scopes[found // width]]
    asking = _summed(found // width, ENTRY * per_block(shares), len(scopes))
    asked_by = np.bincount(roots, minlength=len(weights.root_shares))
    patterns = np.where(weights.root_topics[roots] >= 0, PATTERN / asked_by[roots], 0.0)
    return np.asarray(asking + _summed(pair_of, patterns, len(scopes)))


def _shares(weights: Weights, pairs: _Pairs, missed: Array, count: int) -> Array:
    """The part of all items that comes to each partition; an item is of one source, and all are equally frequent."""
    sources, numbers = np.unique(weights.scopes.values, return_inverse=True)
    scopes = Rows(weights.scopes.offsets, numbers)
    found = np.zeros(count)
    bounds = np.searchsorted(pairs.partitions, np.arange(count + 1))
    for one in range(count):
        own = slice(bounds[one], bounds[one + 1])
        of_scopes = np.zeros(len(weights.scopes))
        of_scopes[pairs.scopes[own]] = missed[own]
        touched = np.flatnonzero(of_scopes)
        owners, values = scopes.expand(touched)
        of_sources = np.bincount(values, weights=of_scopes[touched][owners], minlength=len(sources))
        found[one] = float(-np.expm1(of_sources).mean()) if len(sources) else 0.0
    return found
