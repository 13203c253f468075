"""The interface of matchers.

In: a batch of items. Out: for each item exactly the queries that it matches, as ascending ids without duplicates.
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
    """Counters of the work a matcher has done since it was built, which show how much sharing saved.

    `naive_evaluations` is the number of pairs of item and query, which a matcher without an index would evaluate;
    `candidates` are the pairs of item and predicate that the index found, `clause_checks` the clauses checked for
    them, `atom_evaluations` the atoms evaluated on single items, and `fallbacks` the items on which the index failed,
    so that the reference evaluator matched them.
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
        """Return the counters by name."""
        return asdict(self)


class Matcher(Protocol):
    """Matches batches of items.

    If a query raises an error on an item, the result contains a failure; other queries and items are still matched.
    """

    statistics: MatchStatistics

    def match(self, items: ItemBatch) -> Matches:
        """Return the queries that each item of the batch matches."""
        ...


class Explanation(Protocol):
    """An explanation of how a predicate is matched on some sources, as text and as JSON."""

    def lines(self) -> list[str]:
        """Return the explanation as lines of text."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as a JSON value."""
        ...


class Explainer(Protocol):
    """Explains how one part of a plan is matched. `sources` maps the catalog ids of sources to their names."""

    def explain(self, predicate: int, sources: Mapping[int, str]) -> Sequence[Explanation]:
        """Explain how the predicate with this id is matched on these sources."""
        ...

    def pictures(self, sources: Mapping[int, str]) -> dict[str, str]:
        """Return drawings (SVG) of how items of the sources are matched, by title; the dict may be empty."""
        ...


class MatcherClass(Protocol):
    """The interface of the classes that entry points of the group `runnel.matchers` refer to."""

    def __call__(self, plan: Plan) -> Matcher:
        """Build the matcher of a plan."""
        ...

    def explainer(self, part: PlanPart, removed: Array) -> Explainer:
        """Build the explainer of a plan part. `removed` is a mask of its removed queries, by position."""
        ...
