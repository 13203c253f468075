"""Find for every predicate of a logical plan a root that subsumes it.

An item that satisfies a predicate also satisfies the clauses of its root. A router that evaluates the roots needs to
send an item on only where a root holds (RSS/RDF on a cluster, §4.2, for filters as well as for graph patterns). A
predicate a subsumes b if every clause of a is implied by some clause of b, and a clause implies another if each of
its literals implies a literal of the other. Candidates come from an index, which lists each predicate that may be a
root under one of its clauses. b looks up the literals that its own clauses imply.
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
"""A predicate that more than this fraction of the items is expected to satisfy does not become the root of others."""


@dataclass(frozen=True)
class SubsumingRoots:
    """`roots` has the root of every predicate: a predicate, possibly itself, whose clauses it implies.

    If the clauses of a root are not exact, only its clauses are implied. The root of a root is itself.
    """

    roots: Array
    counters: Mapping[str, int] = field(default_factory=dict)


def find_subsuming_roots(
    logical: LogicalPlan, atoms: AtomLayout, anchors: Anchors, *, widest: float = WIDEST
) -> SubsumingRoots:
    """Return the roots of all predicates of a plan.

    A predicate that nearly all items satisfy, such as one without clauses, would be the root of everything, and every
    item would go to all partitions with one of its queries. So predicates with a larger fraction of items than
    `widest` do not become roots of others.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> from runnel.algebra.nodes.expressions import And, Contains
    >>> from runnel.algebra.nodes.query import Filter, Read
    >>> from runnel.matching.filters.atoms.anchors import choose_anchors
    >>> from runnel.matching.filters.atoms.atom_layout import compute_atom_layout
    >>> from runnel.optimizer.optimize import optimize
    >>> from runnel.plan.logical_plan import PlanQuery
    >>> rock, concert = (Contains(Attribute("title"), (word,)) for word in ("rock", "concert"))
    >>> definitions = {
    ...     7: Filter(Read(1), And((rock, concert))), 8: Filter(Read(1), rock), 9: Filter(Read(1), concert)
    ... }
    >>> logical = optimize(map(PlanQuery, definitions), definitions)
    >>> layout = compute_atom_layout(logical)
    >>> find_subsuming_roots(logical, layout, choose_anchors(logical, layout)).roots.tolist()
    [1, 1, 2]
    """
    pattern_counters: dict[str, int] = {}
    literals = implied_literals(logical, atoms, pattern_counters)
    shares = predicate_shares(logical.predicates, anchors.clause_shares)
    candidates = np.flatnonzero(shares <= widest)
    table = ClauseTable(
        read_only(logical.clauses.offsets),
        read_only(_ascending(logical.clauses)),
        read_only(logical.predicates.offsets),
        read_only(logical.predicates.values),
        read_only(literals.offsets),
        read_only(literals.values),
    )
    masks = clause_masks(table.clause_offsets, table.literals, literal_bits(table.wider_offsets, table.wider))
    index = _index_predicates(logical, candidates, shares, masks, literals)
    parents, entries, limited = find_parents(table, index, masks)
    always = candidates[logical.predicates.lengths[candidates] == 0]
    if len(always):
        parents[:] = always[0]
        parents[always[0]] = NOBODY
    roots = follow(parents)
    counters = {
        "predicates": len(roots),
        "roots": int(np.count_nonzero(roots == np.arange(len(roots)))),
        "implied_literals": len(literals.values),
        "looked_at": int(entries),
        "given_up": int(limited),
        "graphs_given_up": pattern_counters.get("graphs_given_up", 0),
    }
    return SubsumingRoots(roots, counters)


def _ascending(rows: Rows) -> Array:
    """Return the values of rows, sorted within each row. In most plans they are sorted already."""
    has_previous = np.ones(len(rows.values), dtype=bool)
    has_previous[rows.offsets[:-1][rows.lengths > 0]] = False
    if not np.any(has_previous[1:] & (rows.values[1:] < rows.values[:-1])):
        return rows.values
    owners = np.repeat(np.arange(len(rows)), rows.lengths)
    return np.asarray(rows.values[np.lexsort((rows.values, owners))])


def predicate_shares(predicates: Rows, clause_shares: Array) -> Array:
    """Return the expected fraction of items that satisfies each predicate, if its clauses are independent.

    A clause with an unknown fraction (NaN) counts as satisfied by all items.

    >>> predicate_shares(Rows.of([[0, 1], [], [1]]), np.array([0.5, 1.5])).tolist()
    [0.5, 1.0, 1.0]
    """
    # The sums run over all rows, so a single NaN would affect all rows after it.
    known = np.clip(np.nan_to_num(clause_shares, nan=1.0), 1e-300, 1.0)
    logarithms = np.log(known)[predicates.values]
    sums = np.concatenate([np.zeros(1), np.cumsum(logarithms)])
    shares = np.exp(sums[predicates.offsets[1:]] - sums[predicates.offsets[:-1]])
    return np.asarray(np.where(predicates.lengths > 0, np.minimum(shares, 1.0), 1.0))


def _index_predicates(logical: LogicalPlan, candidates: Array, shares: Array, masks: Array, literals: Rows) -> Listed:
    """Build the index of the predicates that may be roots. Each is listed under the clause with the fewest lookups.

    The most general predicates come first, because the first one found is taken.
    """
    clauses, predicates = logical.clauses, logical.predicates
    used = np.repeat(np.bincount(predicates.values, minlength=len(clauses)), clauses.lengths)
    lookups = np.bincount(clauses.values, weights=used, minlength=len(literals))
    narrower = np.repeat(lookups, literals.lengths)
    lookups = lookups + np.bincount(literals.values, weights=narrower, minlength=len(literals))
    clause_lookups = _sums(lookups[clauses.values], clauses)
    listed = candidates[predicates.lengths[candidates] > 0]
    listed = listed[np.lexsort((-shares[listed], predicates.lengths[listed]))]
    owners, own_clauses = predicates.expand(listed)
    order = np.lexsort((clause_lookups[own_clauses], owners))
    owners, own_clauses = owners[order], own_clauses[order]
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    three = np.stack([_masks_at(masks, own_clauses, owners, starts + offset) for offset in range(3)], axis=1)
    listed_numbers, members = clauses.expand(own_clauses[starts])
    entries = Rows.grouped(members, listed_numbers, len(literals))
    return Listed(entries.offsets, listed[entries.values], three[entries.values])


def _masks_at(masks: Array, clauses: Array, owners: Array, positions: Array) -> Array:
    """Return the masks of clauses at positions, or all bits if position i is beyond the clauses of owner i."""
    inside = np.minimum(positions, len(owners) - 1)
    is_own = (positions < len(owners)) & (owners[inside] == np.arange(len(positions)))
    return np.asarray(np.where(is_own, masks[clauses[inside]], ~np.uint64(0)))


def _sums(values: Array, rows: Rows) -> Array:
    """Return the sum of the values of each row."""
    sums = np.concatenate([np.zeros(1), np.cumsum(values)])
    return np.asarray(sums[rows.offsets[1:]] - sums[rows.offsets[:-1]])
