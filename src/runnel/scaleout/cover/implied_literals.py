"""What the literals of a plan imply: a logical plan in, for every literal those that hold wherever it does out.

Subsumption as the optimiser has it (`optimizer.subsumption`), over the atoms of a finished plan: words in phrases,
ranges in wider ranges. Between item patterns their family decides. Sound; it may miss cases.
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
from runnel.optimizer.subsumption.wider_literals import MOST, wider_literals
from runnel.plan.logical_plan import LogicalPlan
from runnel.scaleout.cover.contract import cover_of


def implied_literals(logical: LogicalPlan, atoms: AtomLayout, counters: dict[str, int] | None = None) -> Rows:
    """For every literal of a plan some others that it implies, at most so many.

    `counters` gets how many patterns were given up because comparing them took too long.

    >>> from runnel.algebra.nodes.attributes import Attribute
    >>> from runnel.algebra.nodes.expressions import Compare
    >>> from runnel.algebra.nodes.query import Filter, Read
    >>> from runnel.matching.filters.atoms.atom_layout import lay_out_atoms
    >>> from runnel.optimizer.optimize import optimize
    >>> from runnel.plan.logical_plan import PlanQuery
    >>> dear = [Filter(Read(1), Compare(Attribute("price"), ">", bound)) for bound in (10.0, 20.0)]
    >>> logical = optimize([PlanQuery(7), PlanQuery(8)], dict(enumerate(dear, 7)))
    >>> implied_literals(logical, lay_out_atoms(logical)).row(2).tolist()  # above 20 is above 10
    [0]
    """
    count = len(logical.atoms)
    patterns = {family: atoms.atoms_of(family) for family in atoms.families()}
    others = np.setdiff1d(np.arange(count), np.concatenate([*patterns.values(), np.empty(0, np.int64)]))
    texts = list(logical.atoms.texts())
    rows = wider_literals([cast(Atom, decode_expression(json.loads(texts[one]))) for one in others.tolist()])
    if not patterns:
        return rows
    narrow, wide = _containing(patterns, texts, counters)
    owners = np.repeat(_literals_of(others), rows.lengths)
    found = _literals_of(others)[rows.values]
    # If a contains b, then not a holds only where not b does.
    groups = np.concatenate([owners, 2 * narrow, 2 * wide + 1])
    values = np.concatenate([found, 2 * wide, 2 * narrow + 1])
    return _first_of_each(Rows.grouped(groups, values.astype(np.int32), 2 * count), MOST)


def _containing(
    patterns: Mapping[str, Array], texts: Sequence[str], counters: dict[str, int] | None
) -> tuple[Array, Array]:
    """Atoms that are patterns, and those of the same family that contain them."""
    narrow, wide = [], []
    for family, own in patterns.items():
        found = cover_of(family).containing_pairs([stored_pattern(texts[one]) for one in own.tolist()], counters)
        narrow.append(own[found[0]])
        wide.append(own[found[1]])
    return np.concatenate(narrow), np.concatenate(wide)


def _literals_of(atoms: Array) -> Array:
    """The literals of atoms, one after the other."""
    return np.stack([2 * atoms, 2 * atoms + 1], axis=1).reshape(-1)


def _first_of_each(rows: Rows, most: int) -> Rows:
    """Rows with at most so many values, the first ones."""
    kept = np.arange(len(rows.values)) - np.repeat(rows.offsets[:-1], rows.lengths) < most
    owners = np.repeat(np.arange(len(rows)), rows.lengths)
    return Rows.grouped(owners[kept], rows.values[kept], len(rows))
