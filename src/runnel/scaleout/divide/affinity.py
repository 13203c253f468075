"""Which of the router's conditions are near each other: those that the same items tend to satisfy.

In: for every condition a predicate that stands for it. Out: the place of every condition on a line on which near ones
lie together, so that any stretch of the line is asked by few items. Conditions are near where they are found by the
same key or, of item patterns, ask for the same feature (in graphs, an edge); features that few conditions have bring
them nearest.
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
    """By condition: its place on the line, the predicate that stands for it, and its topic, or -1.

    Conditions that ask for item patterns and can be reached from each other by common features have one topic.
    """

    places: Array
    predicates: Array
    topics: Array


def place_conditions(
    logical: LogicalPlan, atoms: AtomLayout, anchors: Anchors, conditions: Array, count: int
) -> Affinity:
    """Where each of so many conditions lies; `conditions` gives that of every predicate."""
    predicates = _standing(logical, conditions, count)
    known = np.flatnonzero(predicates >= 0)
    owners, keys = anchors.keys.expand(predicates[known])
    owners, keys = known[owners], keys.astype(np.int64)
    holders, asked, full = _features(logical.atoms, key_atoms(atoms), owners, keys)
    features = np.concatenate([keys, asked + len(atoms.key_tokens)])
    places = arrange(np.concatenate([owners, holders]), features, count)
    return Affinity(places, predicates, _topics(holders, asked, full, count))


def _topics(owners: Array, features: Array, full: Array, count: int) -> Array:
    """The topic of each condition. Features that say little are common by accident: they count where others lack."""
    has_full = np.zeros(count, dtype=bool)
    has_full[owners[full]] = True
    telling = full | ~has_full[owners]
    tops = components(owners[telling], features[telling] + count, count + int(features.max(initial=-1)) + 1)[:count]
    topics = np.full(count, -1, dtype=np.int64)
    holders = np.unique(owners)
    _, topics[holders] = np.unique(tops[holders], return_inverse=True)
    return topics


def key_atoms(atoms: AtomLayout) -> Array:
    """The item pattern that each key stands for, or -1."""
    found = np.full(len(atoms.key_tokens), -1, dtype=np.int64)
    keys = atoms.keys_of(PATTERN_KEY)
    exact = np.flatnonzero(atoms.atom_keys >= 0)
    found[atoms.atom_keys[exact]] = exact
    wanted = np.zeros(len(found), dtype=bool)
    wanted[keys] = True
    return np.where(wanted, found, -1)


def arrange(owners: Array, features: Array, count: int) -> Array:
    """Places for `count` things of which some have features: those that share one lie together.

    A feature that few have joins first, and joins whole runs later; so there are runs of every size.

    >>> arrange(np.array([0, 1, 2, 3, 0, 1]), np.array([7, 8, 7, 8, 9, 9]), 5).tolist()
    [0, 2, 1, 3, 4]
    """
    _, features, sizes = np.unique(features, return_inverse=True, return_counts=True)
    order = np.lexsort((owners, features, sizes[features]))
    following, first = _join_runs(owners[order].astype(np.int64), features[order].astype(np.int64), count)
    return _follow(following, first)


def _standing(logical: LogicalPlan, conditions: Array, count: int) -> Array:
    """For each condition its predicate of the fewest clauses, which is most like it; -1 where it has none."""
    order = np.lexsort((np.arange(len(conditions)), logical.predicates.lengths))[::-1]
    found = np.full(count, -1, dtype=np.int64)
    found[conditions[order]] = order  # of several that are written, the last stays
    return found


def _features(texts: Texts, patterns: Array, owners: Array, keys: Array) -> tuple[Array, Array, Array]:
    """Features, numbered, of the item patterns among keys: whose, which, and whether they say much alone."""
    numbers: dict[tuple[str, Hashable, bool], int] = {}
    found: list[int] = []
    holders: list[int] = []
    chosen = np.flatnonzero(patterns[keys] >= 0)
    for place, pattern in zip(owners[chosen].tolist(), patterns[keys[chosen]].tolist(), strict=True):
        text = texts.text(pattern)
        family = text[2 : text.index('"', 2)]
        own = [numbers.setdefault((family, *one), len(numbers)) for one in cover_of(family).features(text)]
        found += own
        holders += [place] * len(own)
    full = np.array([is_full for _, _, is_full in numbers], dtype=bool)
    features = np.array(found, dtype=np.int64)
    return np.array(holders, dtype=np.int64), features, full[features] if len(features) else np.empty(0, dtype=bool)


def components(left: Array, right: Array, count: int) -> Array:
    """The set that each of `count` things is in, where `left[i]` and `right[i]` are in one; by its least member.

    >>> components(np.array([0, 3]), np.array([2, 2]), 5).tolist()
    [0, 1, 0, 0, 4]
    """
    return _components(read_only(left.astype(np.int64)), read_only(right.astype(np.int64)), count)


@kernel
def _components(left: Array, right: Array, count: int) -> Array:
    parents = np.arange(count)
    for pair in range(len(left)):
        one, other = _top(parents, left[pair]), _top(parents, right[pair])
        parents[max(one, other)] = min(one, other)
    for place in range(count):
        parents[place] = _top(parents, place)
    return parents


@kernel
def _join_runs(owners: Array, features: Array, count: int) -> tuple[Array, Array]:
    """Join the runs of those that have a feature in common, feature by feature.

    Gives what follows each thing in its run, and the first of each run by any of its members' tops.
    """
    parents, heads, tails = np.arange(count), np.arange(count), np.arange(count)
    following = np.full(count, -1)
    for place in range(1, len(owners)):
        if features[place] != features[place - 1]:
            continue
        one, other = _top(parents, owners[place - 1]), _top(parents, owners[place])
        if one != other:
            following[tails[one]] = heads[other]
            tails[one] = tails[other]
            parents[other] = one
    for place in range(count):
        if _top(parents, place) != place:
            heads[place] = -1
    return following, heads


@step
def _top(parents: Array, place: Number) -> Number:
    while parents[place] != place:
        parents[place] = parents[parents[place]]
        place = parents[place]
    return place


@kernel
def _follow(following: Array, heads: Array) -> Array:
    """The place of each thing, run after run; of runs, the one with the least top first."""
    places = np.zeros(len(following), dtype=np.int64)
    filled = 0
    for run in range(len(heads)):
        spot = heads[run]
        while spot >= 0:
            places[spot] = filled
            filled += 1
            spot = following[spot]
    return places


def scope_order(scopes: Rows) -> Array:
    """The place of each scope, so that those that begin with the same sources lie together.

    >>> scope_order(Rows.of([[4, 9], [2], [4], []])).tolist()
    [3, 1, 2, 0]
    """
    lengths = scopes.lengths
    firsts = np.full(len(scopes), -1, dtype=np.int64)
    firsts[lengths > 0] = scopes.values[scopes.offsets[:-1][lengths > 0]]
    places = np.empty(len(scopes), dtype=np.int64)
    places[np.lexsort((np.arange(len(scopes)), lengths, firsts))] = np.arange(len(scopes))
    return places
