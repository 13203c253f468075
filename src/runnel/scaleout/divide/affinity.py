"""Order the router's conditions so that conditions which the same items tend to satisfy are adjacent.

In: for every condition a predicate that represents it. Out: the position of every condition in the order. An item
then satisfies conditions in few runs of the order. Conditions are related if they are found by the same key or, for
item patterns, have a feature in common (in graphs, an edge). Features that few conditions have relate them most
closely.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows, Texts, read_only
from runnel.kernel import Number, kernel, step
from runnel.matching.filters.atoms.anchors import Anchors
from runnel.matching.filters.atoms.atom_layout import AtomLayout
from runnel.matching.filters.atoms.atom_tests import PATTERN_KEY
from runnel.plan.logical_plan import LogicalPlan
from runnel.scaleout.cover.contract import cover_of


@dataclass(frozen=True)
class Affinity:
    """By condition: its position in the order, the predicate that represents it, and its topic, or -1.

    Conditions with item patterns have the same topic if they are connected by common features.
    """

    positions: Array
    predicates: Array
    topics: Array


def order_conditions(
    logical: LogicalPlan, atoms: AtomLayout, anchors: Anchors, conditions: Array, count: int
) -> Affinity:
    """Order `count` conditions; `conditions` has the condition of every predicate."""
    predicates = _representatives(logical, conditions, count)
    represented = np.flatnonzero(predicates >= 0)
    owners, keys = anchors.keys.expand(predicates[represented])
    owners, keys = represented[owners], keys.astype(np.int64)
    holders, pattern_features, specific = _features(logical.atoms, key_atoms(atoms), owners, keys)
    features = np.concatenate([keys, pattern_features + len(atoms.key_tokens)])
    positions = arrange(np.concatenate([owners, holders]), features, count)
    return Affinity(positions, predicates, _topics(holders, pattern_features, specific, count))


def _topics(owners: Array, features: Array, specific: Array, count: int) -> Array:
    """Return the topic of each condition. Unspecific features are used only for conditions without specific ones."""
    has_specific = np.zeros(count, dtype=bool)
    has_specific[owners[specific]] = True
    is_used = specific | ~has_specific[owners]
    roots = components(owners[is_used], features[is_used] + count, count + int(features.max(initial=-1)) + 1)[:count]
    topics = np.full(count, -1, dtype=np.int64)
    holders = np.unique(owners)
    _, topics[holders] = np.unique(roots[holders], return_inverse=True)
    return topics


def key_atoms(atoms: AtomLayout) -> Array:
    """Return the item pattern that each key stands for, or -1."""
    patterns = np.full(len(atoms.key_tokens), -1, dtype=np.int64)
    keys = atoms.keys_of(PATTERN_KEY)
    exact = np.flatnonzero(atoms.atom_keys >= 0)
    patterns[atoms.atom_keys[exact]] = exact
    is_pattern = np.zeros(len(patterns), dtype=bool)
    is_pattern[keys] = True
    return np.where(is_pattern, patterns, -1)


def arrange(owners: Array, features: Array, count: int) -> Array:
    """Return positions for `count` elements, so that elements with a common feature are adjacent.

    The rarest feature joins elements first. More frequent ones join whole runs, so there are runs of every size.

    >>> arrange(np.array([0, 1, 2, 3, 0, 1]), np.array([7, 8, 7, 8, 9, 9]), 5).tolist()
    [0, 2, 1, 3, 4]
    """
    _, features, sizes = np.unique(features, return_inverse=True, return_counts=True)
    order = np.lexsort((owners, features, sizes[features]))
    following, first = _join_runs(owners[order].astype(np.int64), features[order].astype(np.int64), count)
    return _number_runs(following, first)


def _representatives(logical: LogicalPlan, conditions: Array, count: int) -> Array:
    """Return for each condition its predicate with the fewest clauses, which is most similar to it, or -1."""
    order = np.lexsort((np.arange(len(conditions)), logical.predicates.lengths))[::-1]
    chosen = np.full(count, -1, dtype=np.int64)
    chosen[conditions[order]] = order  # the last of several assignments remains
    return chosen


def _features(texts: Texts, patterns: Array, owners: Array, keys: Array) -> tuple[Array, Array, Array]:
    """Return the features of the item patterns among keys: owners, numbers, and whether they are specific."""
    numbers: dict[tuple[str, Hashable, bool], int] = {}
    feature_list: list[int] = []
    holders: list[int] = []
    chosen = np.flatnonzero(patterns[keys] >= 0)
    for owner, pattern in zip(owners[chosen].tolist(), patterns[keys[chosen]].tolist(), strict=True):
        text = texts.text(pattern)
        family = text[2 : text.index('"', 2)]
        own = [numbers.setdefault((family, *feature), len(numbers)) for feature in cover_of(family).features(text)]
        feature_list += own
        holders += [owner] * len(own)
    specific = np.array([is_specific for _, _, is_specific in numbers], dtype=bool)
    features = np.array(feature_list, dtype=np.int64)
    return (
        np.array(holders, dtype=np.int64),
        features,
        specific[features] if len(features) else np.empty(0, dtype=bool),
    )


def components(left: Array, right: Array, count: int) -> Array:
    """Return the least member of the component of each of `count` elements that edges from `left` to `right` connect.

    >>> components(np.array([0, 3]), np.array([2, 2]), 5).tolist()
    [0, 1, 0, 0, 4]
    """
    return _components(read_only(left.astype(np.int64)), read_only(right.astype(np.int64)), count)


@kernel
def _components(left: Array, right: Array, count: int) -> Array:
    parents = np.arange(count)
    for pair in range(len(left)):
        first, second = _find(parents, left[pair]), _find(parents, right[pair])
        parents[max(first, second)] = min(first, second)
    for element in range(count):
        parents[element] = _find(parents, element)
    return parents


@kernel
def _join_runs(owners: Array, features: Array, count: int) -> tuple[Array, Array]:
    """Join the runs of elements with a common feature, feature by feature.

    Return the element that follows each element in its run, and the first element of each run, indexed by its root.
    """
    parents, heads, tails = np.arange(count), np.arange(count), np.arange(count)
    following = np.full(count, -1)
    for index in range(1, len(owners)):
        if features[index] != features[index - 1]:
            continue
        first, second = _find(parents, owners[index - 1]), _find(parents, owners[index])
        if first != second:
            following[tails[first]] = heads[second]
            tails[first] = tails[second]
            parents[second] = first
    for element in range(count):
        if _find(parents, element) != element:
            heads[element] = -1
    return following, heads


@step
def _find(parents: Array, element: Number) -> Number:
    while parents[element] != element:
        parents[element] = parents[parents[element]]
        element = parents[element]
    return element


@kernel
def _number_runs(following: Array, heads: Array) -> Array:
    """Return the position of each element: run after run, in the order of the roots of the runs."""
    positions = np.zeros(len(following), dtype=np.int64)
    filled = 0
    for run in range(len(heads)):
        element = heads[run]
        while element >= 0:
            positions[element] = filled
            filled += 1
            element = following[element]
    return positions


def scope_order(scopes: Rows) -> Array:
    """Return the position of each scope in an order in which scopes with the same first source are adjacent.

    >>> scope_order(Rows.of([[4, 9], [2], [4], []])).tolist()
    [3, 1, 2, 0]
    """
    lengths = scopes.lengths
    firsts = np.full(len(scopes), -1, dtype=np.int64)
    firsts[lengths > 0] = scopes.values[scopes.offsets[:-1][lengths > 0]]
    positions = np.empty(len(scopes), dtype=np.int64)
    positions[np.lexsort((np.arange(len(scopes)), lengths, firsts))] = np.arange(len(scopes))
    return positions
