"""Estimate where the router sends items, what routing costs, and which routes should be open.

In: the weights of queries, and the roots in each partition. Out: the fraction of items that each partition receives,
the cost of the router per item, and the *open* routes. A route from a scope to a partition is open if all items take
it without a check, which costs less if nearly all of them would go there anyway. Words are assumed to be independent.
If graph patterns fall into topics without common edges, each graph is assumed to be about one topic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows
from runnel.scaleout.divide.weigh_queries import EMIT, ENTRY, PATTERN, Weights, per_block

_MAX_MISSED = 0.5
"""A route stays closed if more than this fraction of the items is not wanted there, whatever the checks cost."""


@dataclass(frozen=True)
class ExpectedRoutes:
    """The fraction of items that each partition receives, the router's microseconds per item, and the open routes.

    Route i is open for the scope `open_scopes[i]` to the partition `open_partitions[i]`.
    """

    shares: Array
    router: float
    open_partitions: Array
    open_scopes: Array

    @property
    def copies(self) -> float:
        """The expected copies per item."""
        return float(self.shares.sum())


@dataclass(frozen=True)
class _Pairs:
    """Pairs of partition and scope: the fraction of unwanted items of the scope, and the cost of checking."""

    partitions: Array
    scopes: Array
    missed: Array
    checking: Array


def expect_routes(weights: Weights, holders: Array, roots: Array, count: int) -> ExpectedRoutes:
    """Estimate the work of the router if partition `holders[i]` has the root `roots[i]`."""
    if not len(roots):
        none = np.empty(0, dtype=np.int64)
        return ExpectedRoutes(np.zeros(count), 0.0, none, none)
    pairs = _pairs(weights, *np.divmod(_distinct(holders, roots, len(weights.root_shares)), len(weights.root_shares)))
    parts = weights.scope_parts[pairs.scopes]
    wasted = pairs.missed * parts * weights.copy
    is_frequent = pairs.missed <= _MAX_MISSED
    opened = is_frequent & (pairs.checking >= wasted)
    # The router has to parse every item if at least one route is checked.
    if is_frequent.all() and float((wasted - pairs.checking)[~opened].sum()) <= weights.copy:
        opened[:] = True
    with np.errstate(divide="ignore"):
        missed = np.where(opened, -np.inf, np.log(pairs.missed))
    shares = _shares(weights, pairs, missed, count)
    router = EMIT * float(shares.sum()) + float(pairs.checking[~opened].sum())
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
    return _Pairs(partitions, own_scopes, missed, _check_costs(weights, pair_of, roots, own_scopes))


def _summed(groups: Array, values: Array, count: int) -> Array:
    return np.bincount(groups, weights=values, minlength=count)


def _log_missed(shares: Array) -> Array:
    """Return the logarithm of one minus a share. A share of 1 counts as slightly less."""
    return np.log1p(-np.minimum(shares, 1.0 - 1e-15))


def _about_topics(weights: Weights, pair_of: Array, roots: Array, count: int) -> Array:
    """Return for every pair the fraction of items that are about one of its topics and satisfy one of its roots."""
    topics = max(1, len(weights.topic_shares))
    topic_pairs, numbers = np.unique(pair_of * topics + weights.root_topics[roots], return_inverse=True)
    chances = weights.topic_shares[topic_pairs % topics]
    within = weights.root_shares[roots] / np.maximum(weights.topic_shares[weights.root_topics[roots]], 1e-12)
    missed = np.exp(_summed(numbers, _log_missed(within), len(topic_pairs)))
    return _summed(topic_pairs // topics, chances * (1.0 - missed), count)


def _check_costs(weights: Weights, pair_of: Array, roots: Array, scopes: Array) -> Array:
    """Return the router's microseconds for each pair: for its distinct keys, and its part of each item pattern."""
    owners, keys = weights.root_keys.expand(roots)
    width = max(1, len(weights.key_shares))
    key_pairs = _distinct(pair_of[owners], keys, width)
    shares = weights.key_shares[key_pairs % width] * weights.scope_parts[scopes[key_pairs // width]]
    checking = _summed(key_pairs // width, ENTRY * per_block(shares), len(scopes))
    root_counts = np.bincount(roots, minlength=len(weights.root_shares))
    patterns = np.where(weights.root_topics[roots] >= 0, PATTERN / root_counts[roots], 0.0)
    return np.asarray(checking + _summed(pair_of, patterns, len(scopes)))


def _shares(weights: Weights, pairs: _Pairs, missed: Array, count: int) -> Array:
    """Return the fraction of items that each partition receives. All sources are assumed to be equally frequent."""
    sources, numbers = np.unique(weights.scopes.values, return_inverse=True)
    scopes = Rows(weights.scopes.offsets, numbers)
    result = np.zeros(count)
    bounds = np.searchsorted(pairs.partitions, np.arange(count + 1))
    for partition in range(count):
        own = slice(bounds[partition], bounds[partition + 1])
        of_scopes = np.zeros(len(weights.scopes))
        of_scopes[pairs.scopes[own]] = missed[own]
        touched = np.flatnonzero(of_scopes)
        owners, values = scopes.expand(touched)
        of_sources = np.bincount(values, weights=of_scopes[touched][owners], minlength=len(sources))
        result[partition] = float(-np.expm1(of_sources).mean()) if len(sources) else 0.0
    return result
