"""The contract of all matchers: exact.

A batch of items in, query ids by item out, ascending and without repetition.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Protocol

from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches


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
