"""A plan and all that is made of it for matching.

In: a loaded plan. Out: its matcher; its gates and bindings when they are first needed.
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
        """The bytes of the files that it maps."""
        return sum(part.manifest.size for part in self.plan.parts)

    def mappings(self) -> tuple[object, ...]:
        """Objects that exist for exactly as long as the files are mapped: an array of each file leads to one."""
        stored = [part.stored for part in self.plan.parts]
        return tuple(_origin(one) for each in stored for one in (each.query_ids, each.predicate_formulas))

    @cached_property
    def keeper(self) -> GateKeeper:
        """The gates of its distinct feeds."""
        return GateKeeper(self.plan)

    @cached_property
    def binder(self) -> PatternBinder:
        """The queries that bind variables by patterns."""
        return PatternBinder(self.plan)

    @staticmethod
    def of(plan: Plan) -> LoadedPlan:
        """Build the matcher of a plan."""
        return LoadedPlan(plan, build_matcher(plan))


def _origin(array: Array) -> object:
    """The object that owns the memory of an array."""
    found: object = array
    while isinstance(found, np.ndarray) and found.base is not None:
        found = found.base
    return found
