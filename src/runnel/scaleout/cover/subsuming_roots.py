"""Kin: a logical plan in, for every predicate the root that subsumes it out.

An item that satisfies a predicate satisfies the clauses of its root: who asks about the roots first needs to ask the
others only where a root holds (RSS/RDF on a cluster, §4.2, for filters as well as for graph patterns). A predicate a
subsumes b if every clause of a is implied by some clause of b, and a clause implies another if each of its literals
implies one of the other. Candidates come from an index: a predicate that may be a root is listed under one of its
clauses, and b finds it by what its own clauses imply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from runnel.arrays import Array, Rows, read_only
from runnel.matching.filters.atoms.anchors import Anchors
from runnel.matching.filters.atoms.atom_layout import AtomLayout
from runnel.plan.logical_plan import LogicalPlan
from runnel.scaleout.cover.implied_literals import implied_literals
from runnel.scaleout.cover.subsuming_kernels import (
    NOBODY,
    ClauseTable,
    Listed,
    clause_masks,
    find_parents,
    follow,
    literal_bits,
)

WIDEST = 0.5
"""A predicate that more than this part of the items is expected to satisfy takes no others below it."""


@dataclass(frozen=True)
class SubsumingRoots:
    """`roots` gives the root of every predicate: a predicate whose clauses hold wherever it holds, itself or another.

    Of a predicate whose clauses are not exact, the clauses alone are what a root says. A root's root is itself.
    """

    roots: Array
    counters: Mapping[str, int] = field(default_factory=dict)


def find_subsuming_roots(
    logical: LogicalPlan, atoms: AtomLayout, anchors: Anchors, *, widest: float = WIDEST
) -> SubsumingRoots:
    """The roots of all predicates of a plan.

    A predicate that nearly all items satisfy, as one without clauses, would be the root of everything, and every
    item would go wherever one of its kin is. So it takes nothing in, unless `widest` says otherwise (1: all do).

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> from runnel.algebra.nodes.expressions import And, Contains
    >>> from runnel.algebra.nodes.query import Filter, Read
    >>> from runnel.matching.filters.atoms.anchors import choose_anchors
    >>> from runnel.matching.filters.atoms.atom_layout import lay_out_atoms
    >>> from runnel.optimizer.optimize import optimize
    >>> from runnel.plan.logical_plan import PlanQuery
    >>> rock, concert = (Contains(Attribute("title"), (word,)) for word in ("rock", "concert"))
    >>> asked = {7: Filter(Read(1), And((rock, concert))), 8: Filter(Read(1), rock), 9: Filter(Read(1), concert)}
    >>> logical = optimize(map(PlanQuery, asked), asked)
    >>> layout = lay_out_atoms(logical)
    >>> find_subsuming_roots(logical, layout, choose_anchors(logical, layout)).roots.tolist()
    [1, 1, 2]
    """
    found: dict[str, int] = {}
    literals = implied_literals(logical, atoms, found)
    shares = predicate_shares(logical.predicates, anchors.clause_shares)
    able = np.flatnonzero(shares <= widest)
    table = ClauseTable(
        read_only(logical.clauses.offsets),
        read_only(_ascending(logical.clauses)),
        read_only(logical.predicates.offsets),
        read_only(logical.predicates.values),
        read_only(literals.offsets),
        read_only(literals.values),
    )
    masks = clause_masks(table.clause_offsets, table.literals, literal_bits(table.wider_offsets, table.wider))
    parents, looked, given_up = find_parents(table, _list_predicates(logical, able, shares, masks, literals), masks)
    always = able[logical.predicates.lengths[able] == 0]
    if len(always):
        parents[:] = always[0]
        parents[always[0]] = NOBODY
    roots = follow(parents)
    counters = {
        "predicates": len(roots),
        "roots": int(np.count_nonzero(roots == np.arange(len(roots)))),
        "implied_literals": len(literals.values),
        "looked_at": int(looked),
        "given_up": int(given_up),
        "graphs_given_up": found.get("graphs_given_up", 0),
    }
    return SubsumingRoots(roots, counters)


def _ascending(rows: Rows) -> Array:
    """The values of rows, those of each row ascending; most plans have them so."""
    within = np.ones(len(rows.values), dtype=bool)
    within[rows.offsets[:-1][rows.lengths > 0]] = False
    if not np.any(within[1:] & (rows.values[1:] < rows.values[:-1])):
        return rows.values
    owners = np.repeat(np.arange(len(rows)), rows.lengths)
    return np.asarray(rows.values[np.lexsort((rows.values, owners))])


def predicate_shares(predicates: Rows, clause_shares: Array) -> Array:
    """The part of items expected to satisfy every predicate, as if its clauses knew nothing of one another.

    A clause whose share is not known (NaN) is taken to hold of all items.

    >>> predicate_shares(Rows.of([[0, 1], [], [1]]), np.array([0.5, 1.5])).tolist()
    [0.5, 1.0, 1.0]
    """
    # The sums run through all rows: a single share that is no number would be in all behind it.
    known = np.clip(np.nan_to_num(clause_shares, nan=1.0), 1e-300, 1.0)
    logarithms = np.log(known)[predicates.values]
    sums = np.concatenate([np.zeros(1), np.cumsum(logarithms)])
    found = np.exp(sums[predicates.offsets[1:]] - sums[predicates.offsets[:-1]])
    return np.asarray(np.where(predicates.lengths > 0, np.minimum(found, 1.0), 1.0))


def _list_predicates(logical: LogicalPlan, able: Array, shares: Array, masks: Array, literals: Rows) -> Listed:
    """The index of the predicates that may be roots: each under the clause by which the fewest others come to it.

    The most general come first, since the first that is found is taken.
    """
    clauses, predicates = logical.clauses, logical.predicates
    used = np.repeat(np.bincount(predicates.values, minlength=len(clauses)), clauses.lengths)
    popular = np.bincount(clauses.values, weights=used, minlength=len(literals))
    narrower = np.repeat(popular, literals.lengths)
    popular = popular + np.bincount(literals.values, weights=narrower, minlength=len(literals))
    crowds = _sums(popular[clauses.values], clauses)
    listed = able[predicates.lengths[able] > 0]
    listed = listed[np.lexsort((-shares[listed], predicates.lengths[listed]))]
    places, found = predicates.expand(listed)
    order = np.lexsort((crowds[found], places))
    places, found = places[order], found[order]
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    three = np.stack([_masks_at(masks, found, places, starts + behind) for behind in range(3)], axis=1)
    owners, members = clauses.expand(found[starts])
    entries = Rows.grouped(members, owners, len(literals))
    return Listed(entries.offsets, listed[entries.values], three[entries.values])


def _masks_at(masks: Array, clauses: Array, owners: Array, places: Array) -> Array:
    """The masks of clauses at places, or all bits where a place is beyond the clauses of its owner, by number."""
    inside = np.minimum(places, len(owners) - 1)
    own = (places < len(owners)) & (owners[inside] == np.arange(len(places)))
    return np.asarray(np.where(own, masks[clauses[inside]], ~np.uint64(0)))


def _sums(values: Array, rows: Rows) -> Array:
    """The sum of the values of each row."""
    sums = np.concatenate([np.zeros(1), np.cumsum(values)])
    return np.asarray(sums[rows.offsets[1:]] - sums[rows.offsets[:-1]])
