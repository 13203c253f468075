"""Mergers: the roots of a plan in, the conditions that a router asks about every item out, as few as it may have.

Without a limit the conditions are the clauses of the roots. With one, roots are merged (RSS/RDF on a cluster, §4.3):
several become one condition that each of them implies and nobody asked for, those first that are expected to let the
fewest items through in vain. Filters that are found by the same clause keep what they have in common, that clause at
least; what then is too many becomes conditions of one clause, which a router unites (see `router_plan`). For item
patterns see `contract`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from runnel.arrays import Array, Rows, offsets_of
from runnel.families import find_family
from runnel.matching.filters.atoms.anchors import Anchors
from runnel.matching.filters.atoms.atom_layout import NOTHING, AtomLayout
from runnel.matching.filters.atoms.atom_tests import TestKind
from runnel.matching.patterns.plan_patterns import stored_pattern
from runnel.plan.logical_plan import LogicalPlan
from runnel.scaleout.cover.condition_rows import chosen, distinct, intersected, renumbered
from runnel.scaleout.cover.contract import Samples, cover_of
from runnel.scaleout.cover.subsuming_roots import SubsumingRoots, predicate_shares


@dataclass(frozen=True)
class Cover:
    """Conditions that cover all predicates: an item that satisfies a predicate satisfies its condition.

    `conditions` are rows of clauses; a number from the plan's count of clauses on is an added clause, and added
    clause i is the one positive literal of the atom whose stored text is `added[i]`. `shares` is the part of items
    expected to satisfy each condition, `keyed` says of each clause, added ones included, whether keys decide it.
    `merged` says which conditions are no root's own.
    """

    conditions: Rows
    added: tuple[str, ...]
    of_predicates: Array
    shares: Array
    keyed: Array
    merged: Array
    kin: SubsumingRoots
    most: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Draft:
    """A cover in the making.

    `of_roots` gives the condition of each root; `anchors` the clause that a condition is found by, or NOTHING; and
    `clause_shares` goes on behind the plan's clauses with those of added ones.
    """

    conditions: Rows
    anchors: Array
    of_roots: Array
    root_shares: Array
    root_lengths: Array
    clause_shares: Array
    added: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.conditions)

    @property
    def shares(self) -> Array:
        return predicate_shares(self.conditions, self.clause_shares)

    def united(self, groups: Array) -> _Draft:
        """With one condition for each group: what all of the group have in common. All have one anchor."""
        numbers, count = renumbered(groups)
        anchors = np.full(count, NOTHING, dtype=np.int64)
        anchors[numbers] = self.anchors
        return replace(
            self,
            conditions=intersected(self.conditions, numbers, count),
            anchors=anchors,
            of_roots=numbers[self.of_roots],
        )


def cover_predicates(
    logical: LogicalPlan,
    atoms: AtomLayout,
    anchors: Anchors,
    kin: SubsumingRoots,
    *,
    most: int | None = None,
    samples: Samples | None = None,
) -> Cover:
    """The conditions that cover a plan's predicates, by their roots; not more than `most`, as far as that can be.

    With samples of values, patterns are merged that often hold of the same ones.
    """
    roots, of_predicates = np.unique(kin.roots, return_inverse=True)
    draft = _own_conditions(logical, anchors, roots)
    counters = {"predicates": len(kin.roots), "roots": len(roots), "distinct_roots": len(draft)}
    if most is not None and len(draft) > most:
        draft = _merge_filters(draft, atoms, logical, most)
        draft, found = _merge_patterns(draft, atoms, logical, most, samples or {})
        counters |= found
        draft = _leave_anchors(draft, most)
    draft = _distinct(draft)
    merged, false = _merged(draft, len(logical.clauses))
    counters |= {
        "conditions": len(draft),
        "mergers": int(np.count_nonzero(merged)),
        "added_clauses": len(draft.added),
        "one_clause": int(np.count_nonzero(draft.conditions.lengths == 1)),
        "above_most": max(0, len(draft) - most) if most is not None else 0,
        "false_per_million": round(1e6 * false),
    }
    return Cover(
        conditions=draft.conditions,
        added=draft.added,
        of_predicates=draft.of_roots[of_predicates.reshape(-1)],
        shares=draft.shares,
        keyed=np.concatenate([_keyed(logical, atoms), np.ones(len(draft.added), dtype=bool)]),
        merged=merged,
        kin=kin,
        most=most,
        counters=counters,
    )


def _own_conditions(logical: LogicalPlan, anchors: Anchors, roots: Array) -> _Draft:
    """The clauses of roots, each set of clauses once."""
    rows = chosen(logical.predicates, roots)
    owners = np.repeat(np.arange(len(rows)), rows.lengths)
    values = rows.values[np.lexsort((rows.values, owners))].astype(np.int64)
    conditions, numbers = distinct(Rows(rows.offsets, values))
    found = np.full(len(conditions), NOTHING, dtype=np.int64)
    found[numbers] = anchors.clauses[roots]
    shares = predicate_shares(rows, anchors.clause_shares)
    return _Draft(conditions, found, numbers, shares, rows.lengths, np.minimum(anchors.clause_shares, 1.0))


def _merge_filters(draft: _Draft, atoms: AtomLayout, logical: LogicalPlan, most: int) -> _Draft:
    """Conditions with the same anchor become one, until there are few enough."""
    patterns = np.concatenate([np.empty(0, np.int64), *map(atoms.atoms_of, atoms.families())])
    clauses = np.append(~_pattern_clauses(logical, patterns), False)  # the last place is NOTHING's
    able = np.flatnonzero(clauses[draft.anchors])
    numbers, count = renumbered(draft.anchors[able])
    sizes = np.bincount(numbers, minlength=count)
    common = predicate_shares(intersected(chosen(draft.conditions, able), numbers, count), draft.clause_shares)
    apart = np.bincount(numbers, weights=draft.shares[able], minlength=count)
    # What becomes one lets more items through; the fewest for each condition that is saved come first.
    costs = np.maximum(common - apart, 0.0) / np.maximum(sizes - 1, 1)
    order = np.lexsort((costs, sizes == 1))
    order = order[: np.count_nonzero(sizes > 1)]
    saved = np.cumsum(sizes[order] - 1)
    taken = np.zeros(count, dtype=bool)
    taken[order[: np.searchsorted(saved, len(draft) - most) + 1]] = True
    groups = np.arange(len(draft))
    inside = taken[numbers]
    groups[able[inside]] = len(draft) + numbers[inside]
    return draft.united(groups)


def _merge_patterns(
    draft: _Draft, atoms: AtomLayout, logical: LogicalPlan, most: int, samples: Samples
) -> tuple[_Draft, dict[str, int]]:
    """Conditions that are found by a pattern become those of patterns that stand for several, until few are left."""
    counters: dict[str, int] = {}
    for family in atoms.families():
        clauses = np.append(_pattern_clauses(logical, atoms.atoms_of(family)), False)  # the last place is NOTHING's
        own = draft.anchors < len(logical.clauses)
        able = np.flatnonzero(own)[clauses[draft.anchors[own]]]
        if len(draft) <= most or not len(able):
            continue
        literals = logical.clauses.values[logical.clauses.offsets[draft.anchors[able]]]
        patterns = [stored_pattern(logical.atoms.text(atom)) for atom in (literals >> 1).tolist()]
        lower = max(1, len(able) - (len(draft) - most))
        found = cover_of(family).merged(patterns, lower, samples.get(find_family(family).kind.name, ()))
        counters |= found.counters
        inside = np.flatnonzero(found.of_patterns != NOTHING)
        added = len(draft.clause_shares) + found.of_patterns[inside]
        draft = _with_added(draft, able[inside], added, found.texts)
        groups = np.arange(len(draft))
        groups[able[inside]] = len(draft) + found.of_patterns[inside]
        draft = draft.united(groups)
    return draft, counters


def _with_added(draft: _Draft, which: Array, clauses: Array, texts: tuple[str, ...]) -> _Draft:
    """With added clauses in place of the anchors of some conditions."""
    conditions = draft.conditions
    owners = np.repeat(np.arange(len(conditions)), conditions.lengths)
    instead = np.full(len(conditions), NOTHING, dtype=np.int64)
    instead[which] = clauses
    found = (conditions.values == draft.anchors[owners]) & (instead[owners] != NOTHING)
    values = np.where(found, instead[owners], conditions.values)
    ordered = Rows(conditions.offsets, values[np.lexsort((values, owners))])
    # A merger holds at least where one of its members does; how often it holds besides is not known.
    own = draft.clause_shares[draft.anchors[which]]
    numbers = clauses - len(draft.clause_shares)
    shares = np.minimum(1.0, np.bincount(numbers, weights=own, minlength=len(texts)))
    anchors = draft.anchors.copy()
    anchors[which] = clauses
    together = np.concatenate([draft.clause_shares, shares])
    added = (*draft.added, *texts)
    return replace(draft, conditions=ordered, anchors=anchors, clause_shares=together, added=added)


def _leave_anchors(draft: _Draft, most: int) -> _Draft:
    """Conditions of several clauses become that of their anchor alone, until few enough of these are left.

    Conditions of one clause are united for each partition, so they count for little.
    """
    several = (draft.conditions.lengths > 1) & (draft.anchors != NOTHING)
    excess = min(len(draft) - most, int(np.count_nonzero(several)))
    if excess <= 0:
        return draft
    able = np.flatnonzero(several)
    costs = draft.clause_shares[draft.anchors[able]] - draft.shares[able]
    taken = np.zeros(len(draft), dtype=bool)
    taken[able[np.argsort(costs, kind="stable")[:excess]]] = True
    owners = np.repeat(np.arange(len(draft)), draft.conditions.lengths)
    kept = ~taken[owners] | (draft.conditions.values == draft.anchors[owners])
    lengths = np.bincount(owners[kept], minlength=len(draft))
    return replace(draft, conditions=Rows(offsets_of(lengths), draft.conditions.values[kept]))


def _distinct(draft: _Draft) -> _Draft:
    conditions, numbers = distinct(draft.conditions)
    return replace(draft, conditions=conditions, of_roots=numbers[draft.of_roots])


def _merged(draft: _Draft, clauses: int) -> tuple[Array, float]:
    """Which conditions are no root's own; and the part of items that is expected to satisfy these in vain, summed."""
    count = len(draft)
    added = np.repeat(np.arange(count), draft.conditions.lengths)[draft.conditions.values >= clauses]
    merged = np.zeros(count, dtype=bool)
    merged[added] = True
    merged[draft.of_roots[draft.conditions.lengths[draft.of_roots] != draft.root_lengths]] = True
    members = np.bincount(draft.of_roots, weights=draft.root_shares, minlength=count)
    return merged, float(np.maximum(draft.shares - members, 0.0)[merged].sum())


def _pattern_clauses(logical: LogicalPlan, atoms: Array) -> Array:
    """Which clauses are one pattern, of those that are given as atoms."""
    chosen = np.zeros(len(logical.atoms), dtype=bool)
    chosen[atoms] = True
    alone = np.flatnonzero(logical.clauses.lengths == 1)
    literals = logical.clauses.values[logical.clauses.offsets[alone]]
    found = np.zeros(len(logical.clauses), dtype=bool)
    found[alone] = chosen[literals >> 1] & (literals & 1 == 0)
    return found


def _keyed(logical: LogicalPlan, atoms: AtomLayout) -> Array:
    """Which clauses are decided by keys: an item that has one of them satisfies the clause."""
    literals = logical.clauses.values
    decided = (atoms.atom_kinds == TestKind.KEY)[literals >> 1] & (literals & 1 == 0)
    misses = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(~decided)])
    return np.asarray(misses[logical.clauses.offsets[1:]] == misses[logical.clauses.offsets[:-1]])
