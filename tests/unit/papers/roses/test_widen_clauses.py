"""Disjunctions are widened: the filters that are found come near the best ones, by trying all on tiny sets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.arrays import Rows
from runnel.optimizer.subsumption.wider_clauses import wider_clauses
from runnel.papers.roses.factoring.factor_filters import factor_filters
from runnel.papers.roses.factoring.filter_table import clause_rates
from runnel.papers.roses.factoring.filter_tree import FilterTree, accepted
from runnel.papers.roses.factoring.filters import Filters
from runnel.papers.roses.factoring.widen_clauses import _MAX_LITERALS, widen_clauses

Clause = frozenset[int]
Predicate = tuple[Clause, ...]


def tree_of(predicates: list[Predicate], shares: np.ndarray, *, widened: bool = True) -> tuple[FilterTree, Rows]:
    numbers: dict[Clause, int] = {}
    rows = [[numbers.setdefault(clause, len(numbers)) for clause in predicate] for predicate in predicates]
    table = Rows.of(sorted(2 * atom for atom in clause) for clause in numbers)
    clauses = widen_clauses(table, shares) if widened else table
    rates = clause_rates(clauses, shares)
    wider = wider_clauses(clauses, Rows.of([[]] * (2 * len(shares))), rates)
    return factor_filters(Filters.of(Rows.of(rows), rates, wider, first_union=len(table))), clauses


def test_a_wider_disjunction_stands_above_two_that_share_a_literal() -> None:
    predicates: list[Predicate] = [(frozenset({0, 1}),), (frozenset({0, 2}),)]
    shares = np.full(3, 0.1)
    tree, clauses = tree_of(predicates, shares)
    assert tree.cost == pytest.approx(1.0 + 2 * (1 - 0.9**3))
    assert [clauses.row(value).tolist() for value in tree.clauses.row(1).tolist()] == [[0, 2, 4]]
    assert tree_of(predicates, shares, widened=False)[0].cost == 2.0


def test_clauses_that_share_nothing_and_unions_without_use_are_not_added() -> None:
    apart, shares = Rows.of([[0, 2], [4, 6], [8]]), np.full(40, 0.1)
    assert len(widen_clauses(apart, shares)) == 3
    assert len(widen_clauses(Rows.of([[0, 2], [0, 4]]), np.full(3, 0.6))) == 2, "nearly every item would pass"
    assert len(widen_clauses(Rows.of([]), shares)) == 0
    rare = np.full(40, 0.001)
    for more, count in ((_MAX_LITERALS - 13, 3), (_MAX_LITERALS - 12, 2)):
        rows = [[0, *range(2, 26, 2)], [0, *range(26, 26 + 2 * more, 2)]]  # 13 literals, and `more` besides the first
        assert len(widen_clauses(Rows.of(rows), rare)) == count, "a union has a greatest length"


CLAUSES = st.frozensets(st.integers(0, 5), min_size=1, max_size=3)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.lists(CLAUSES, min_size=1, max_size=3).map(tuple), min_size=1, max_size=8), st.data())
def test_trees_with_wider_clauses_accept_what_their_predicates_accept(
    predicates: list[Predicate], data: st.DataObject
) -> None:
    tree, clauses = tree_of(predicates, np.full(6, 0.15))
    held = data.draw(st.sets(st.integers(0, 5)))
    truths = np.array([any(literal >> 1 in held for literal in row) for row in clauses.lists()], dtype=bool)
    wanted = {number for number, predicate in enumerate(predicates) if all(clause & held for clause in predicate)}
    assert accepted(tree, truths) == wanted


def best_cost(predicates: list[Predicate], shares: np.ndarray) -> float:
    """The cost of the best tree: every way to put predicates below the tightest filter that they have in common.

    A filter has at most as many clauses as the longest predicate: clauses count as independent, so a filter of very
    many would seem to let nothing through.
    """
    longest = max(map(len, predicates))

    @cache
    def rate(several: frozenset[int]) -> float:
        unions = {frozenset().union(*chosen) for chosen in product(*(predicates[value] for value in sorted(several)))}
        least = [union for union in unions if not any(other < union for other in unions)]
        rates = sorted(1.0 - float(np.prod([1.0 - shares[atom] for atom in value])) for value in least)
        return float(np.prod(rates[:longest]))

    @cache
    def below(several: frozenset[int], above: float, again: bool) -> float:
        """The cost of all below a filter that lets a part through; `again`: all may have one more filter."""
        return min(
            sum(above if len(block) == 1 else above + inside(block) for block in blocks)
            for blocks in partitions(several)
            if all(len(block) == 1 or again or block != several for block in blocks)
        )

    @cache
    def inside(block: frozenset[int]) -> float:
        """The cost below the tightest filter of a block; a predicate that is this filter costs nothing more."""
        equal = {value for value in block if rate(frozenset({value})) == pytest.approx(rate(block), rel=1e-12)}
        left = block - set(sorted(equal)[:1])
        return below(left, rate(block), bool(equal)) if left else 0.0

    return below(frozenset(range(len(predicates))), 1.0, True)


def partitions(several: frozenset[int]) -> Iterator[list[frozenset[int]]]:
    if not several:
        yield []
        return
    first, *rest = sorted(several)
    for size in range(len(rest) + 1):
        for others in combinations(rest, size):
            block = frozenset({first, *others})
            for left in partitions(several - block):
                yield [block, *left]


def measured(clauses: int, *, widened: bool, cases: int = 60) -> list[float]:
    """How many times the best cost trees have, on sets of five predicates over six atoms."""
    ratios = []
    for case in range(cases):
        dice = np.random.default_rng(case)
        shares = 0.2 / np.arange(1, 7) ** 0.5

        def drawn(dice: np.random.Generator = dice) -> Predicate:
            made = {frozenset(dice.choice(6, dice.integers(2, 4), replace=False).tolist()) for _ in range(clauses)}
            return tuple(sorted((value for value in made if not any(other < value for other in made)), key=sorted))

        predicates = list(dict.fromkeys(drawn() for _ in range(5)))
        ratios.append(tree_of(predicates, shares, widened=widened)[0].cost / best_cost(predicates, shares))
    return ratios


@pytest.mark.parametrize(("clauses", "mean", "worst"), [(1, 1.06, 1.3), (2, 1.4, 1.9)])
def test_widened_trees_are_near_the_best_on_tiny_sets(clauses: int, mean: float, worst: float) -> None:
    with_unions, without = measured(clauses, widened=True), measured(clauses, widened=False)
    assert np.mean(with_unions) <= mean
    assert max(with_unions) <= worst
    assert np.mean(without) > np.mean(with_unions) + 0.1
    assert min(with_unions) >= 1.0 - 1e-9, "nothing is cheaper than the best"
