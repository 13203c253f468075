"""Routing items to the matcher that was chosen for their source: one contract over several matchers.

In: a loaded plan whose sources have different matchers, and batches of items. Out: matches. Each matcher knows the
whole plan, so a query over several sources is found by each; an item goes to one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from runnel.arrays import Array, Rows, offsets_of
from runnel.matching.contract import Matcher, MatchStatistics
from runnel.matching.filters.index.index_matcher import IndexMatcher
from runnel.matching.filters.streams.stream_matcher import StreamMatcher
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches
from runnel.optimizer.matcher_costs import MATCHERS, MatcherName
from runnel.papers.roses.tree_matcher import TreeMatcher
from runnel.plan.store import Plan

MAKERS: Mapping[MatcherName, Callable[[Plan], Matcher]] = {
    "streams": StreamMatcher,
    "tree": TreeMatcher,
    "index": IndexMatcher,
}


class RoutedMatcher:
    """The matcher of a plan whose sources have several. `routes` are the sources of each; streams take all others."""

    def __init__(self, plan: Plan, routes: Mapping[MatcherName, Array]) -> None:
        self.statistics = MatchStatistics()
        self._plan = plan
        self._matchers: dict[int, Matcher] = {}
        sources = np.concatenate([np.empty(0, np.int64), *(routes.get(name, ()) for name in MATCHERS)])
        numbers = np.repeat(np.arange(len(MATCHERS)), [len(routes.get(name, ())) for name in MATCHERS])
        order = np.argsort(sources, kind="stable")
        self._sources, self._numbers = sources[order], numbers[order]

    def match(self, items: ItemBatch) -> Matches:
        """The queries that each item of the batch matches."""
        numbers = self._route(items.feeds)
        present = np.unique(numbers).tolist()
        if len(present) <= 1:
            return self._matcher(present[0] if present else 0).match(items)
        rows = [np.flatnonzero(numbers == number) for number in present]
        answers = [
            self._matcher(number).match(ItemBatch(items.records.take(chosen)))
            for number, chosen in zip(present, rows, strict=True)
        ]
        return _joined(answers, rows)

    def _route(self, feeds: Array) -> Array:
        """The number of the matcher of each item's source."""
        places = np.minimum(np.searchsorted(self._sources, feeds), len(self._sources) - 1)
        known = self._sources[places] == feeds
        return np.where(known, self._numbers[places], 0)

    def _matcher(self, number: int) -> Matcher:
        """A matcher, made when an item first needs it; all count into the same statistics."""
        if number not in self._matchers:
            self._matchers[number] = MAKERS[MATCHERS[number]](self._plan)
        self._matchers[number].statistics = self.statistics
        return self._matchers[number]


def _joined(answers: list[Matches], rows: list[Array]) -> Matches:
    """The answers about some rows each as one about all of them, in the order of the rows."""
    lengths = [np.diff(answer.offsets) for answer in answers]
    every = Rows(offsets_of(np.concatenate(lengths)), np.concatenate([answer.queries for answer in answers]))
    order = np.argsort(np.concatenate(rows), kind="stable")
    _, queries = every.expand(order)
    failures = sorted(
        (
            Failure(int(chosen[one.row]), one.query, one.reason)
            for answer, chosen in zip(answers, rows, strict=True)
            for one in answer.failures
        ),
        key=lambda failure: (failure.row, failure.query),
    )
    return Matches(offsets_of(every.lengths[order]), queries, tuple(failures))
