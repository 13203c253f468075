"""A loaded plan together with the objects that match with it.

In: a loaded plan. Out: its matcher, and its gate keeper and pattern binder, which are built when first used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from runnel.arrays import Array
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.contract import Matcher
from runnel.matching.gates.claims import GateKeeper
from runnel.matching.patterns.bind_variables import PatternBinder
from runnel.plan.store import Plan


@dataclass(frozen=True)
class LoadedPlan:
    """A plan with its matcher."""

    plan: Plan
    matcher: Matcher

    @property
    def bytes(self) -> int:
        """The size of the plan's files in bytes."""
        return sum(part.manifest.size for part in self.plan.parts)

    def mappings(self) -> tuple[object, ...]:
        """Return the owners of the memory of the two large files of each part.

        An owner exists exactly as long as its file is mapped. It is found through any array of the file.
        """
        stored = [part.stored for part in self.plan.parts]
        arrays = (array for logical in stored for array in (logical.query_ids, logical.predicate_formulas))
        return tuple(map(_memory_owner, arrays))

    @cached_property
    def keeper(self) -> GateKeeper:
        """The gate keeper of the plan."""
        return GateKeeper(self.plan)

    @cached_property
    def binder(self) -> PatternBinder:
        """The binder of the plan's queries that bind variables through item patterns."""
        return PatternBinder(self.plan)

    @staticmethod
    def of(plan: Plan) -> LoadedPlan:
        """Build the matcher of a plan."""
        return LoadedPlan(plan, build_matcher(plan))


def _memory_owner(array: Array) -> object:
    """Return the object that owns the memory of an array."""
    owner: object = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner
