"""Determine for every literal of a logical plan which other literals it implies.

The rules are those of the optimizer (`optimizer.subsumption`), applied to the atoms of a finished plan: a phrase
implies its words, a range implies wider ranges. For item patterns, their family decides. Every implication found is
correct, but some may be missed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from runnel.algebra.nodes.encode import decode_expression
from runnel.algebra.nodes.expressions import Atom
from runnel.arrays import Array, Rows
from runnel.matching.filters.atoms.atom_layout import AtomLayout
from runnel.matching.patterns.plan_patterns import stored_pattern
from runnel.optimizer.subsumption.wider_literals import MAX_WIDER, wider_literals
from runnel.plan.logical_plan import LogicalPlan
from runnel.scaleout.cover.contract import cover_of


def implied_literals(logical: LogicalPlan, atoms: AtomLayout, counters: dict[str, int] | None = None) -> Rows:
    """Return for every literal of a plan up to `MAX_WIDER` other literals that it implies.

    Set in `counters` the number of patterns that were skipped because comparing them took too long.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> from runnel.algebra.nodes.expressions import Compare
    >>> from runnel.algebra.nodes.query import Filter, Read
    >>> from runnel.matching.filters.atoms.atom_layout import compute_atom_layout
    >>> from runnel.optimizer.optimize import optimize
    >>> from runnel.plan.logical_plan import PlanQuery
    >>> queries = [Filter(Read(1), Compare(Attribute("price"), ">", bound)) for bound in (10.0, 20.0)]
    >>> logical = optimize([PlanQuery(7), PlanQuery(8)], dict(enumerate(queries, 7)))
    >>> implied_literals(logical, compute_atom_layout(logical)).row(2).tolist()  # above 20 implies above 10
    [0]
    """
    count = len(logical.atoms)
    patterns = {family: atoms.atoms_of(family) for family in atoms.families()}
    others = np.setdiff1d(np.arange(count), np.concatenate([*patterns.values(), np.empty(0, np.int64)]))
    texts = list(logical.atoms.texts())
    rows = wider_literals([cast(Atom, decode_expression(json.loads(texts[atom]))) for atom in others.tolist()])
    if not patterns:
        return rows
    narrow, wide = _containing_pairs(patterns, texts, counters)
    owners = np.repeat(_literals_of(others), rows.lengths)
    implied = _literals_of(others)[rows.values]
    # If a contains b, then `not a` implies `not b`.
    groups = np.concatenate([owners, 2 * narrow, 2 * wide + 1])
    values = np.concatenate([implied, 2 * wide, 2 * narrow + 1])
    return _truncate_rows(Rows.grouped(groups, values.astype(np.int32), 2 * count), MAX_WIDER)


def _containing_pairs(
    patterns: Mapping[str, Array], texts: Sequence[str], counters: dict[str, int] | None
) -> tuple[Array, Array]:
    """Return pairs of atoms of the same family of patterns, of which the second contains the first."""
    narrow, wide = [], []
    for family, own in patterns.items():
        pairs = cover_of(family).containing_pairs([stored_pattern(texts[atom]) for atom in own.tolist()], counters)
        narrow.append(own[pairs[0]])
        wide.append(own[pairs[1]])
    return np.concatenate(narrow), np.concatenate(wide)


def _literals_of(atoms: Array) -> Array:
    """Return the positive and the negative literal of each atom."""
    return np.stack([2 * atoms, 2 * atoms + 1], axis=1).reshape(-1)


def _truncate_rows(rows: Rows, length: int) -> Rows:
    """Truncate rows to at most `length` values."""
    kept = np.arange(len(rows.values)) - np.repeat(rows.offsets[:-1], rows.lengths) < length
    owners = np.repeat(np.arange(len(rows)), rows.lengths)
    return Rows.grouped(owners[kept], rows.values[kept], len(rows))
