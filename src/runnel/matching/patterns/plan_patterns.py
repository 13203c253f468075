"""Compile the item patterns of a plan part into one layout per condition family, and load these in workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from runnel.algebra.nodes.encode import decode_expression
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.errors import CorruptDataError
from runnel.matching.filters.atoms.atom_layout import AtomLayout
from runnel.matching.patterns.contract import PatternLayout, PatternMatcher, index_of
from runnel.plan.logical_plan import LogicalPlan
from runnel.plan.store import PlanPart


def compute_pattern_layouts(
    logical: LogicalPlan, atoms: AtomLayout, frequencies: Mapping[str, float] | None = None
) -> dict[str, PatternLayout]:
    """Build the layouts of a plan's patterns, by family."""
    return {family: _lay_out(family, logical, atoms, frequencies) for family in atoms.families()}


def load_patterns(part: PlanPart, atoms: AtomLayout) -> dict[str, PatternMatcher]:
    """Build the pattern matchers of a loaded plan part, by family.

    The layouts are checked first, because kernels do not check array bounds.
    """
    return {family: _load_matcher(family, part, atoms) for family in atoms.families()}


def stored_pattern(text: str) -> ItemPattern:
    """Decode a pattern from its stored form among the atoms of a plan."""
    return cast(ItemPattern, decode_expression(json.loads(text)))


def _lay_out(
    family: str, logical: LogicalPlan, atoms: AtomLayout, frequencies: Mapping[str, float] | None
) -> PatternLayout:
    family_atoms = atoms.atoms_of(family)
    patterns = [stored_pattern(logical.atoms.text(atom)) for atom in family_atoms.tolist()]
    return cast(PatternLayout, index_of(family).compute_layout(patterns, atoms.atom_keys[family_atoms], frequencies))


def _load_matcher(family: str, part: PlanPart, atoms: AtomLayout) -> PatternMatcher:
    index, folder = index_of(family), part.manifest.folder
    try:
        layout = index.stored(part.layout, len(atoms.key_tokens))
    except KeyError as error:
        raise CorruptDataError(f"plan {folder} does not contain the index array {error.args[0]}") from error
    except ValueError as error:
        raise CorruptDataError(f"plan {folder}: index array {error}") from error
    if layout is None:
        layout = _lay_out(family, part.logical, atoms, None)
    return index.matcher(layout, atoms.atom_keys)
