"""The scan matcher: every query on every item, by the reference evaluator.

The baseline, and the oracle of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from runnel.algebra.nodes.query import Node, Read
from runnel.algebra.semantics.evaluate import accepts
from runnel.matching.contract import MatchStatistics
from runnel.model.item import Attributes
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches
from runnel.plan.logical_plan import PlanQuery


class ScanMatcher:
    """Matches queries over feeds whose definitions it is given; it needs no plan."""

    def __init__(self, queries: Iterable[PlanQuery], definitions: Mapping[int, Node]) -> None:
        self.statistics = MatchStatistics()
        self._queries = tuple(queries)
        self._definitions = definitions

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        rows: list[list[int]] = []
        failures: list[Failure] = []
        feeds, sequences = items.feeds.tolist(), items.sequences.tolist()
        moments = items.records.column("accepted").to_pylist()
        for row, attributes in enumerate(items.attributes()):
            matched = []
            for query in self._queries:
                if sequences[row] > query.since:
                    verdict = self._ask(row, query.id, feeds[row], attributes, moments[row])
                    if isinstance(verdict, Failure):
                        failures.append(verdict)
                    elif verdict:
                        matched.append(query.id)
            rows.append(matched)
        matches = Matches.of(rows, failures)
        self._count(len(rows), matches)
        return matches

    def _ask(self, row: int, query: int, feed: int, attributes: Attributes, accepted: datetime) -> bool | Failure:
        try:
            return accepts(Read(query), feed, attributes, self._definitions, accepted)
        except Exception as error:  # a query that fails on an item is quarantined; the others continue
            return Failure(row, query, f"{type(error).__name__}: {error}"[:500])

    def _count(self, items: int, matches: Matches) -> None:
        pairs = items * len(self._queries)
        self.statistics.items += items
        self.statistics.naive_evaluations += pairs
        self.statistics.candidates += pairs
        self.statistics.matches += matches.total
        self.statistics.failures += len(matches.failures)
