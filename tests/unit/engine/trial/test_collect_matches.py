"""Collecting matches: which items are kept up to the limit, and which are not counted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.engine.trial.collect_matches import TrialMatches, collect_matches
from runnel.engine.trial.trial_matcher import JoinedMatcher, TrialMatcher
from runnel.model.bindings import Bindings
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches

ODD, ANY = 1, 2


class OddNumbers(TrialMatcher):
    """Query 1 matches items with an odd sequence, and binds it; query 2 matches all but every fifth item."""

    def __init__(self) -> None:
        self.bound: list[int] = []
        self.annotations = {}
        self._sequences: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def match(self, items: ItemBatch) -> Matches:
        self._sequences = items.sequences
        rows = [[ODD] * (number % 2) + [ANY] * (number % 5 > 0) for number in items.sequences.tolist()]
        failures = tuple(Failure(row, ANY, "broken") for row in range(len(rows)))
        matches = Matches.of(rows)
        return Matches(matches.offsets, matches.queries, failures)

    def bindings(self, rows: npt.NDArray[np.int64]) -> dict[tuple[int, int], Bindings]:
        numbers = self._sequences[rows].tolist()
        self.bound += numbers
        return {
            (row, ODD): Bindings(({"n": float(number)},), 1)
            for row, number in zip(rows.tolist(), numbers, strict=True)
            if number % 2
        }


def batches(count: int, size: int) -> list[ItemBatch]:
    items = [Item("Wire", str(number), {}) for number in range(1, count + 1)]
    return [
        ItemBatch.of(items[start : start + size], {"Wire": 9}, first_sequence=start + 1)
        for start in range(0, count, size)
    ]


def collected(limit: int | None, *, newest: bool = True, after: int = 0, count: int = 12) -> TrialMatches:
    return collect_matches(OddNumbers(), batches(count, 5), limit=limit, newest=newest, after=after, repeated=[4, 11])


MATCHING = [1, 2, 3, 5, 6, 7, 8, 9, 12]
"""The sequences of 1 to 12 that match, without 10, which no query matches, and the repeated 4 and 11."""


@pytest.mark.parametrize("limit", [None, 0, 1, 8, 9, 10])
@pytest.mark.parametrize("newest", [True, False])
def test_newest_or_first_items_are_kept_up_to_the_limit(limit: int | None, newest: bool) -> None:
    results = collected(limit, newest=newest)
    most = len(MATCHING) if limit is None else min(limit, len(MATCHING))
    assert list(results.kept) == (MATCHING[len(MATCHING) - most :] if newest else MATCHING[:most])
    assert results.sequences.tolist() == MATCHING, "all matching items are counted, even if they are not kept"
    assert results.counts == {ODD: 5, ANY: 8}


def test_kept_items_have_their_queries_and_bindings() -> None:
    results = collected(None)
    assert {sequence: list(queries) for sequence, queries in results.kept.items()}[5] == [ODD]
    assert results.kept[3][ODD].rows == ({"n": 3.0},)
    assert results.kept[3][ANY].is_empty


def test_items_before_the_range_are_matched_but_not_counted() -> None:
    assert collected(None, after=5).sequences.tolist() == [6, 7, 8, 9, 12]
    assert collected(None, after=12).sequences.tolist() == []
    assert collected(None, count=0).sequences.tolist() == []


def test_bindings_are_computed_only_for_items_that_can_be_shown() -> None:
    matcher = OddNumbers()
    collect_matches(matcher, batches(100, 5), limit=2, newest=False)
    assert matcher.bound == [1, 2]


@pytest.mark.parametrize(("count", "kept"), [(0, 0), (20, 20), (21, 20), (200, 20)])
def test_only_the_first_failures_are_kept(count: int, kept: int) -> None:
    failures = collected(1, count=count).failures
    assert [sequence for sequence, _ in failures] == list(range(1, kept + 1))


@given(st.integers(0, 40), st.integers(1, 50), st.one_of(st.none(), st.integers(0, 40)), st.booleans())
def test_result_does_not_depend_on_the_batches(count: int, size: int, limit: int | None, newest: bool) -> None:
    def answer(size: int) -> tuple[object, ...]:
        matches = collect_matches(OddNumbers(), batches(count, size), limit=limit, newest=newest)
        return matches.counts, matches.sequences.tolist(), matches.kept, matches.failures and len(matches.failures)

    assert answer(size) == answer(1)


def test_joined_matcher_combines_the_matches_of_its_matchers() -> None:
    class Tens(OddNumbers):
        def match(self, items: ItemBatch) -> Matches:
            return Matches.of([[0] if number % 10 == 0 else [] for number in items.sequences.tolist()])

        def bindings(self, rows: npt.NDArray[np.int64]) -> dict[tuple[int, int], Bindings]:
            return {}

    matches = collect_matches(JoinedMatcher([OddNumbers(), Tens()]), batches(10, 10), limit=3)
    assert {sequence: list(queries) for sequence, queries in matches.kept.items()} == {
        8: [ANY],
        9: [ODD, ANY],
        10: [0],
    }
    assert matches.kept[9][ODD].rows == ({"n": 9.0},)
    assert len(matches.failures) == 10
