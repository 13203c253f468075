"""Subsumption between clauses of a table: sound, without cycles, and complete for near clauses."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.arrays import Rows
from runnel.optimizer.subsumption.wider_clauses import wider_clauses
from runnel.papers.roses.factoring.filters import Filters, reduced

LITERALS = 8
_clauses = st.lists(
    st.sets(st.integers(0, LITERALS - 1), min_size=1, max_size=4).map(sorted).map(tuple),
    min_size=1,
    max_size=12,
    unique=True,
)


def chain(length: int) -> Rows:
    """Return the wider literals of a chain of `length` literals, each of which implies the previous ones."""
    return Rows.of([list(range(number - 1, -1, -1)) if number <= length else [] for number in range(LITERALS)])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(_clauses, st.integers(0, 4), st.lists(st.sets(st.integers(0, LITERALS - 1)), min_size=1, max_size=12))
def test_a_wider_clause_holds_wherever_the_narrow_one_does(
    clauses: list[tuple[int, ...]], length: int, items: list[set[int]]
) -> None:
    literals = chain(length)
    rows = wider_clauses(Rows.of(clauses), literals, np.linspace(0.1, 0.9, len(clauses)))
    for item in items:
        true = {below for value in item for below in (value, *literals.row(value).tolist())}
        for narrow, wider in enumerate(rows.lists()):
            if not true.isdisjoint(clauses[narrow]):
                assert all(not true.isdisjoint(clauses[value]) for value in wider)
    for narrow, wider in enumerate(rows.lists()):
        assert len(set(wider)) == len(wider)
        assert all(narrow not in rows.row(value) for value in wider)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(_clauses)
def test_every_clause_that_contains_another_is_found(clauses: list[tuple[int, ...]]) -> None:
    rows = wider_clauses(Rows.of(clauses), chain(0), np.linspace(0.1, 0.9, len(clauses)))
    for narrow, clause in enumerate(clauses):
        wanted = {wide for wide, other in enumerate(clauses) if set(clause) < set(other)}
        assert set(rows.row(narrow).tolist()) == wanted


def test_most_selective_clauses_are_kept() -> None:
    clauses = Rows.of([[0], *([0, number] for number in range(1, 40))])
    rates = np.concatenate([[0.01], np.linspace(0.9, 0.1, 39)])
    rows = wider_clauses(clauses, Rows.of([[]] * 40), rates, most=3)
    assert rows.row(0).tolist() == [39, 38, 37]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=6, max_size=6), st.sets(st.integers(0, 5), min_size=1)
)
def test_of_two_equivalent_clauses_only_one_subsumes_the_other(wider: list[list[int]], predicate: set[int]) -> None:
    # Even if the relation of literals has cycles, which `wider_literals` does not produce, one clause must remain.
    filters = Filters.of(Rows.of([sorted(predicate)]), np.full(6, 0.5), Rows.of(wider))
    kept = set(reduced(filters).row(0).tolist())
    assert kept
    assert kept <= predicate
    reached = set(kept)
    waiting = list(kept)
    while waiting:
        fresh = set(wider[waiting.pop()]) - reached
        reached |= fresh
        waiting += fresh
    assert predicate <= reached
