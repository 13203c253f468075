"""Candidates: the sets of clauses that subsume at least two predicates, each with the predicates that it subsumes.

They are the nodes of the predicate subsumption graph (RoSeS §4.3) that can be useful filters. They are found without
building the graph. Within one predicate a set of clauses is a mask over the predicate's elements. A set is listed
only if none of its clauses implies another, so that equivalent sets are one candidate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Rows, offsets_of
from runnel.papers.roses.factoring.candidate_kernels import (
    Shape,
    group_entries,
    list_entries,
    raise_rates,
    rate_groups,
    weigh_entries,
)
from runnel.papers.roses.factoring.elements import Elements, find_elements
from runnel.papers.roses.factoring.filters import Filters, set_rates

NO_PREDICATE = -1
_MIN_ANCHORED = 3
"""The minimum number of clauses of an anchored predicate. Smaller ones are listed as single clauses and as pairs."""


@dataclass(frozen=True)
class FactoringSettings:
    """Limits of the search for candidates. They bound time and memory, and never change the matches.

    `subsets` limits the sets per predicate, `entries` the sets of all predicates, `rounds` the rounds of refinement.
    """

    subsets: int = 192
    entries: int = 24_000_000
    rounds: int = 12


@dataclass(frozen=True)
class Candidates:
    """Candidates in ascending order of selectivity, so that a candidate comes after all that it subsumes.

    An *entry* is a pair (candidate, predicate that it subsumes) with the candidate's mask over the predicate's
    elements. `members` has the entries of every candidate: its values are predicates, and `masks` and `candidate_of`
    are parallel to them. `listed` has the numbers of the entries of every predicate. `owners` is the predicate that a
    candidate equals, or NO_PREDICATE. A set is never estimated to be more selective than a set that it subsumes.
    """

    elements: Elements
    members: Rows
    masks: Array
    candidate_of: Array
    listed: Rows
    selectivities: Array
    owners: Array
    predicate_selectivities: Array

    def __len__(self) -> int:
        return len(self.selectivities)

    def clauses(self, candidate: int) -> Array:
        """Return the clauses of a candidate."""
        return self.sets(np.array([candidate])).row(0)

    def sets(self, candidates: Array) -> Rows:
        """Return the clauses of each of these candidates."""
        entries = self.members.offsets[candidates]
        holders, masks = self.members.values[entries], self.masks[entries]
        owners, clauses = self.elements.rows.expand(holders)
        starts = offsets_of(self.elements.rows.lengths[holders])
        positions = np.arange(len(owners)) - starts[owners]
        is_member = (masks[owners] >> positions.astype(np.uint64) & np.uint64(1)) == 1
        return Rows(offsets_of(np.bincount(owners[is_member], minlength=len(holders))), clauses[is_member])


def find_candidates(predicates: Rows, filters: Filters, settings: FactoringSettings | None = None) -> Candidates:
    """Return the candidates of distinct, reduced predicates.

    >>> predicates = Rows.of([[0, 1], [0, 1, 2], [0, 3]])
    >>> sets = find_candidates(predicates, Filters.of(predicates, np.array([0.5, 0.1, 0.1, 0.1])))
    >>> [(sets.clauses(number).tolist(), sets.members.row(number).tolist()) for number in range(len(sets))]
    [([0, 1], [0, 1]), ([1], [0, 1]), ([0], [0, 1, 2])]
    """
    limits = settings or FactoringSettings()
    elements = find_elements(predicates, filters)
    budget = max(15, min(limits.subsets, limits.entries // max(1, len(predicates))))
    listed = list_entries(_shape(predicates, elements, filters), budget, limits.entries)
    return _Entries(elements, *listed).group(predicates, filters)


def _shape(predicates: Rows, elements: Elements, filters: Filters) -> Shape:
    """Return the input of the kernels. A predicate is anchored at the clause that the fewest predicates have."""
    clauses = len(filters.selectivities)
    support = np.bincount(elements.rows.values, minlength=clauses)
    long = np.flatnonzero(predicates.lengths >= _MIN_ANCHORED)
    owners, values = predicates.expand(long)
    order = np.lexsort((values, support[values], owners))
    anchors = values[order][offsets_of(predicates.lengths[long])[:-1]] if len(long) else values
    anchored = Rows.grouped(anchors, long, clauses)
    return Shape(
        elements.rows.offsets,
        elements.rows.values,
        elements.ranked,
        elements.closures,
        elements.own,
        predicates.offsets,
        predicates.values,
        anchored.offsets,
        anchored.values,
        filters.first_union,
    )


@dataclass(frozen=True)
class _Entries:
    """Masks over the elements of predicates (`holders`), not grouped yet."""

    elements: Elements
    masks: Array
    holders: Array

    def group(self, predicates: Rows, filters: Filters) -> Candidates:
        """Return the sets that at least two predicates have, by selectivity."""
        sets = (self.masks, self.holders, self.elements.rows.offsets, self.elements.rows.values)
        keys = weigh_entries(*sets, _hash_clauses(len(filters.selectivities)))
        order = np.argsort(keys, kind="stable")
        groups, count = group_entries(order, keys, *sets)
        order, groups = order[groups >= 0], groups[groups >= 0]
        firsts = order[np.searchsorted(groups, np.arange(count))]
        rates = rate_groups(firsts, *sets, filters.selectivities, filters.sample, filters.sampled)
        predicate_rates = set_rates(predicates, filters)
        self._raise_rates(order, groups, rates, predicate_rates)
        # Ties: the larger set first, so that what a set subsumes always comes before it.
        closed = self.elements.closed(self.holders[firsts], self.masks[firsts])
        by_rate = np.lexsort((np.arange(count), -np.bitwise_count(closed).astype(np.int64), rates))
        ranks = np.empty(count, dtype=np.int64)
        ranks[by_rate] = np.arange(count)
        by_rank = np.argsort(ranks[groups], kind="stable")
        return self._build(predicates, order[by_rank], ranks[groups[by_rank]], rates[by_rate], predicate_rates)

    def _raise_rates(self, order: Array, groups: Array, rates: Array, predicate_rates: Array) -> None:
        """Raise the rate of a set that is estimated to be more selective than a set that it subsumes.

        The estimate assumes independent clauses. If a clause implies two others, those two are not independent.
        """
        np.maximum.at(rates, groups, predicate_rates[self.holders[order]])
        if (np.bitwise_count(self.elements.closures) > 1).any():
            closed = self.elements.closed(self.holders[order], self.masks[order])
            sizes = -np.bitwise_count(closed).astype(np.int64)
            by_holder = np.lexsort((sizes, self.holders[order]))
            offsets = offsets_of(np.bincount(self.holders[order], minlength=len(predicate_rates)))
            raise_rates(offsets, groups[by_holder], self.masks[order][by_holder], closed[by_holder], rates)

    def _build(
        self, predicates: Rows, order: Array, groups: Array, rates: Array, predicate_rates: Array
    ) -> Candidates:
        members = Rows(offsets_of(np.bincount(groups, minlength=len(rates))), self.holders[order])
        masks = self.masks[order]
        owners = np.full(len(rates), NO_PREDICATE, dtype=np.int64)
        equal = masks == self.elements.own_masks(predicates)[members.values]
        owners[groups[equal]] = members.values[equal]
        predicate_rates[members.values[equal]] = rates[groups[equal]]
        return Candidates(
            elements=self.elements,
            members=members,
            masks=masks,
            candidate_of=groups,
            listed=Rows.grouped(members.values, np.arange(len(order), dtype=np.int64), len(predicates)),
            selectivities=rates,
            owners=owners,
            predicate_selectivities=predicate_rates,
        )


def _hash_clauses(count: int) -> Array:
    """Return a number for every clause so that different sets rarely have equal sums.

    The caller compares equal sums.
    """
    with np.errstate(over="ignore"):
        hashes = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(hashes ^ (hashes >> np.uint64(31)))
