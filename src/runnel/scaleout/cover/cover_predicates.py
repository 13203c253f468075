"""Derive the router's conditions from the roots of a plan, with a limit for their number.

Without a limit, the conditions are the clauses of the roots. With a limit, roots are merged (RSS/RDF on a cluster,
§4.3): several roots are replaced by one condition, a *merger*, which each of them implies. Mergers that are expected
to let the fewest additional items through come first. Filters that are found by the same clause are replaced by their
common clauses, which include at least that clause. If that is not enough, conditions are reduced to one clause each,
because a router unites those (see `router_plan`). For item patterns see `contract`.
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
    """Conditions that cover all predicates: an item that satisfies a predicate also satisfies its condition.

    `conditions` are rows of clauses. A number beyond the plan's clauses stands for an added clause: added clause i
    consists of the positive literal of the atom with the stored text `added[i]`. `shares` is the expected fraction of
    items that satisfies each condition. `keyed` is a mask of the clauses, including added ones, that are decided by
    keys. `merged` is a mask of the conditions that are mergers.
    """

    conditions: Rows
    added: tuple[str, ...]
    of_predicates: Array
    shares: Array
    keyed: Array
    merged: Array
    subsuming_roots: SubsumingRoots
    most: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Draft:
    """A cover under construction.

    `of_roots` has the condition of each root, and `anchors` the clause that a condition is found by, or NOTHING.
    `clause_shares` continues after the plan's clauses with the added clauses.
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

    def merge(self, groups: Array) -> _Draft:
        """Replace the conditions of each group by their common clauses. A group has a single anchor."""
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
    subsuming_roots: SubsumingRoots,
    *,
    most: int | None = None,
    samples: Samples | None = None,
) -> Cover:
    """Return conditions that cover a plan's predicates, based on their roots, and if possible not more than `most`.

    With samples of values, patterns that often hold for the same values are merged.
    """
    roots, of_predicates = np.unique(subsuming_roots.roots, return_inverse=True)
    draft = _root_conditions(logical, anchors, roots)
    counters = {"predicates": len(subsuming_roots.roots), "roots": len(roots), "distinct_roots": len(draft)}
    if most is not None and len(draft) > most:
        draft = _merge_filters(draft, atoms, logical, most)
        draft, pattern_counters = _merge_patterns(draft, atoms, logical, most, samples or {})
        counters |= pattern_counters
        draft = _reduce_to_anchors(draft, most)
    draft = _without_duplicates(draft)
    merged, false_positives = _find_mergers(draft, len(logical.clauses))
    counters |= {
        "conditions": len(draft),
        "mergers": int(np.count_nonzero(merged)),
        "added_clauses": len(draft.added),
        "one_clause": int(np.count_nonzero(draft.conditions.lengths == 1)),
        "above_most": max(0, len(draft) - most) if most is not None else 0,
        "false_per_million": round(1e6 * false_positives),
    }
    return Cover(
        conditions=draft.conditions,
        added=draft.added,
        of_predicates=draft.of_roots[of_predicates.reshape(-1)],
        shares=draft.shares,
        keyed=np.concatenate([_keyed_clauses(logical, atoms), np.ones(len(draft.added), dtype=bool)]),
        merged=merged,
        subsuming_roots=subsuming_roots,
        most=most,
        counters=counters,
    )


def _root_conditions(logical: LogicalPlan, anchors: Anchors, roots: Array) -> _Draft:
    """Return the distinct sets of clauses of the roots as conditions."""
    rows = chosen(logical.predicates, roots)
    owners = np.repeat(np.arange(len(rows)), rows.lengths)
    values = rows.values[np.lexsort((rows.values, owners))].astype(np.int64)
    conditions, numbers = distinct(Rows(rows.offsets, values))
    condition_anchors = np.full(len(conditions), NOTHING, dtype=np.int64)
    condition_anchors[numbers] = anchors.clauses[roots]
    shares = predicate_shares(rows, anchors.clause_shares)
    clause_shares = np.minimum(anchors.clause_shares, 1.0)
    return _Draft(conditions, condition_anchors, numbers, shares, rows.lengths, clause_shares)


def _merge_filters(draft: _Draft, atoms: AtomLayout, logical: LogicalPlan, most: int) -> _Draft:
    """Merge conditions with the same anchor until there are at most `most` conditions."""
    patterns = np.concatenate([np.empty(0, np.int64), *map(atoms.atoms_of, atoms.families())])
    is_filter = np.append(~_pattern_clauses(logical, patterns), False)  # the last index is that of NOTHING
    candidates = np.flatnonzero(is_filter[draft.anchors])
    numbers, count = renumbered(draft.anchors[candidates])
    sizes = np.bincount(numbers, minlength=count)
    merged_rows = intersected(chosen(draft.conditions, candidates), numbers, count)
    common = predicate_shares(merged_rows, draft.clause_shares)
    apart = np.bincount(numbers, weights=draft.shares[candidates], minlength=count)
    # A merger lets more items through than its members. Mergers with the fewest of these per saved condition come
    # first.
    costs = np.maximum(common - apart, 0.0) / np.maximum(sizes - 1, 1)
    order = np.lexsort((costs, sizes == 1))
    order = order[: np.count_nonzero(sizes > 1)]
    saved = np.cumsum(sizes[order] - 1)
    is_chosen = np.zeros(count, dtype=bool)
    is_chosen[order[: np.searchsorted(saved, len(draft) - most) + 1]] = True
    groups = np.arange(len(draft))
    inside = is_chosen[numbers]
    groups[candidates[inside]] = len(draft) + numbers[inside]
    return draft.merge(groups)


def _merge_patterns(
    draft: _Draft, atoms: AtomLayout, logical: LogicalPlan, most: int, samples: Samples
) -> tuple[_Draft, dict[str, int]]:
    """Replace conditions that are found by a pattern by those of merged patterns, until few enough are left."""
    counters: dict[str, int] = {}
    for family in atoms.families():
        is_pattern = np.append(_pattern_clauses(logical, atoms.atoms_of(family)), False)  # the last is NOTHING
        own = draft.anchors < len(logical.clauses)
        candidates = np.flatnonzero(own)[is_pattern[draft.anchors[own]]]
        if len(draft) <= most or not len(candidates):
            continue
        literals = logical.clauses.values[logical.clauses.offsets[draft.anchors[candidates]]]
        patterns = [stored_pattern(logical.atoms.text(atom)) for atom in (literals >> 1).tolist()]
        lower = max(1, len(candidates) - (len(draft) - most))
        merged = cover_of(family).merged(patterns, lower, samples.get(find_family(family).kind.name, ()))
        counters |= merged.counters
        inside = np.flatnonzero(merged.of_patterns != NOTHING)
        added = len(draft.clause_shares) + merged.of_patterns[inside]
        draft = _replace_anchors(draft, candidates[inside], added, merged.texts)
        groups = np.arange(len(draft))
        groups[candidates[inside]] = len(draft) + merged.of_patterns[inside]
        draft = draft.merge(groups)
    return draft, counters


def _replace_anchors(draft: _Draft, which: Array, clauses: Array, texts: tuple[str, ...]) -> _Draft:
    """Replace the anchors of the conditions `which` by added clauses."""
    conditions = draft.conditions
    owners = np.repeat(np.arange(len(conditions)), conditions.lengths)
    replacements = np.full(len(conditions), NOTHING, dtype=np.int64)
    replacements[which] = clauses
    is_replaced = (conditions.values == draft.anchors[owners]) & (replacements[owners] != NOTHING)
    values = np.where(is_replaced, replacements[owners], conditions.values)
    ordered = Rows(conditions.offsets, values[np.lexsort((values, owners))])
    # A merger holds at least where one of its members does. How often it holds otherwise is unknown.
    own = draft.clause_shares[draft.anchors[which]]
    numbers = clauses - len(draft.clause_shares)
    shares = np.minimum(1.0, np.bincount(numbers, weights=own, minlength=len(texts)))
    anchors = draft.anchors.copy()
    anchors[which] = clauses
    clause_shares = np.concatenate([draft.clause_shares, shares])
    added = (*draft.added, *texts)
    return replace(draft, conditions=ordered, anchors=anchors, clause_shares=clause_shares, added=added)


def _reduce_to_anchors(draft: _Draft, most: int) -> _Draft:
    """Reduce conditions of several clauses to their anchor until few enough conditions have several clauses.

    Conditions of one clause are united for each partition, so they cost little.
    """
    several = (draft.conditions.lengths > 1) & (draft.anchors != NOTHING)
    excess = min(len(draft) - most, int(np.count_nonzero(several)))
    if excess <= 0:
        return draft
    candidates = np.flatnonzero(several)
    costs = draft.clause_shares[draft.anchors[candidates]] - draft.shares[candidates]
    is_chosen = np.zeros(len(draft), dtype=bool)
    is_chosen[candidates[np.argsort(costs, kind="stable")[:excess]]] = True
    owners = np.repeat(np.arange(len(draft)), draft.conditions.lengths)
    kept = ~is_chosen[owners] | (draft.conditions.values == draft.anchors[owners])
    lengths = np.bincount(owners[kept], minlength=len(draft))
    return replace(draft, conditions=Rows(offsets_of(lengths), draft.conditions.values[kept]))


def _without_duplicates(draft: _Draft) -> _Draft:
    conditions, numbers = distinct(draft.conditions)
    return replace(draft, conditions=conditions, of_roots=numbers[draft.of_roots])


def _find_mergers(draft: _Draft, clauses: int) -> tuple[Array, float]:
    """Return a mask of the conditions that are mergers, and the expected false positives per item of all mergers."""
    count = len(draft)
    added = np.repeat(np.arange(count), draft.conditions.lengths)[draft.conditions.values >= clauses]
    merged = np.zeros(count, dtype=bool)
    merged[added] = True
    merged[draft.of_roots[draft.conditions.lengths[draft.of_roots] != draft.root_lengths]] = True
    members = np.bincount(draft.of_roots, weights=draft.root_shares, minlength=count)
    return merged, float(np.maximum(draft.shares - members, 0.0)[merged].sum())


def _pattern_clauses(logical: LogicalPlan, atoms: Array) -> Array:
    """Return a mask of the clauses that consist of a single positive pattern out of `atoms`."""
    is_pattern = np.zeros(len(logical.atoms), dtype=bool)
    is_pattern[atoms] = True
    single = np.flatnonzero(logical.clauses.lengths == 1)
    literals = logical.clauses.values[logical.clauses.offsets[single]]
    mask = np.zeros(len(logical.clauses), dtype=bool)
    mask[single] = is_pattern[literals >> 1] & (literals & 1 == 0)
    return mask


def _keyed_clauses(logical: LogicalPlan, atoms: AtomLayout) -> Array:
    """Return a mask of the clauses that are decided by keys: an item with one of the keys satisfies the clause."""
    literals = logical.clauses.values
    decided = (atoms.atom_kinds == TestKind.KEY)[literals >> 1] & (literals & 1 == 0)
    misses = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(~decided)])
    return np.asarray(misses[logical.clauses.offsets[1:]] == misses[logical.clauses.offsets[:-1]])
