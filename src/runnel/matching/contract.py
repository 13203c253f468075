"""The contract of all matchers: exact.

A batch of items in, query ids by item out, ascending and without repetition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from runnel.arrays import Array
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.plan.store import Plan, PlanPart


@dataclass
class MatchStatistics:
    """What a matcher did since it was built, to show what sharing saved.

    `naive_evaluations` is what asking every query about every item would have taken; `candidates` are the pairs of
    item and predicate that an index let through, `clause_checks` the clauses checked for them, `atom_evaluations`
    the atoms that had to be evaluated on an item, `fallbacks` the items that only the slow way could take.
    """

    items: int = 0
    naive_evaluations: int = 0
    candidates: int = 0
    clause_checks: int = 0
    atom_evaluations: int = 0
    matches: int = 0
    failures: int = 0
    fallbacks: int = 0

    def to_json(self) -> dict[str, int]:
        """The counters by name."""
        return asdict(self)


class Matcher(Protocol):
    """Items in, matches out.

    A query that raises on an item becomes a failure; no item and no query stops the rest.
    """

    statistics: MatchStatistics

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        ...


class Explanation(Protocol):
    """How a predicate is matched on some sources, for people and for programs."""

    def lines(self) -> list[str]:
        """The explanation as text."""
        ...

    def to_json(self) -> dict[str, Any]:
        """The explanation as a JSON value."""
        ...


class Explainer(Protocol):
    """Explains how one part of a plan is matched. Sources are given as catalog ids with their names."""

    def explain(self, predicate: int, sources: Mapping[int, str]) -> Sequence[Explanation]:
        """How the predicate of this number is matched on its sources."""
        ...

    def pictures(self, sources: Mapping[int, str]) -> dict[str, str]:
        """Pictures (SVG) of how items of the sources are matched, by title; none if there is nothing to draw."""
        ...


class MatcherClass(Protocol):
    """What an entry point of `runnel.matchers` names."""

    def __call__(self, plan: Plan) -> Matcher:
        """The matcher of a plan."""
        ...

    def explainer(self, part: PlanPart, removed: Array) -> Explainer:
        """What explains how a part is matched; `removed` marks its removed queries, by position."""
        ...
