"""Generated filters: clauses over a few literals, some of which imply others, and truths that respect it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from runnel.arrays import Array, Rows
from runnel.optimizer.subsumption.wider_clauses import wider_clauses
from runnel.papers.roses.factoring.filters import Filters
from runnel.papers.roses.subsumption_graph import SubsumptionGraph

LITERALS = 8


@dataclass(frozen=True)
class GeneratedFilters:
    """Filters, and for some items the truth of every clause."""

    filters: Filters
    truths: list[Array]

    def expected(self, item: int) -> set[int]:
        """The predicates that hold, each asked by itself."""
        truths = self.truths[item]
        return {number for number, row in enumerate(self.filters.predicates.lists()) if truths[row].all()}


@st.composite
def generated_filters(draw: st.DrawFn, most: int = 12) -> GeneratedFilters:
    """Predicates of one to four clauses of one to three literals; the literals 0 to `chain` imply the one before."""
    chain = draw(st.integers(0, 4))
    literals = Rows.of([list(range(number - 1, -1, -1)) if number <= chain else [] for number in range(LITERALS)])
    clause = st.sets(st.integers(0, LITERALS - 1), min_size=1, max_size=3).map(sorted).map(tuple)
    clauses = draw(st.lists(clause, min_size=1, max_size=10, unique=True))
    rates = np.array(draw(st.lists(st.integers(0, 20), min_size=len(clauses), max_size=len(clauses)))) / 20
    rows = Rows.of(clauses)
    wider = wider_clauses(rows, literals, rates)
    predicate = st.sets(st.integers(0, len(clauses) - 1), max_size=4).map(sorted)
    predicates = Rows.of(draw(st.lists(predicate, min_size=1, max_size=most)))
    items = draw(st.lists(st.sets(st.integers(0, LITERALS - 1)), min_size=1, max_size=6))
    truths = [
        _truths(clauses, {below for value in item for below in (value, *literals.row(value))}) for item in items
    ]
    return GeneratedFilters(Filters.of(predicates, rates, wider), truths)


def _truths(clauses: list[tuple[int, ...]], item: set[int]) -> Array:
    return np.array([not item.isdisjoint(clause) for clause in clauses])


def random_filters(seed: int, predicates: int, clauses: int, longest: int = 3) -> Filters:
    """Conjunctions drawn at random, clauses by their selectivity."""
    dice = np.random.default_rng(seed)
    rates = 0.3 / np.arange(1, clauses + 1) ** 0.7
    lengths = dice.integers(1, longest + 1, predicates)
    rows = [dice.choice(clauses, size, replace=False, p=rates / rates.sum()).tolist() for size in lengths]
    return Filters.of(Rows.of(rows), rates)


def cheapest_cost(graph: SubsumptionGraph) -> float:
    """The cost of the best tree, by trying every choice of inserted filters."""
    count = len(graph.problem.predicates)
    inserted = range(count, len(graph.rates))
    assert len(inserted) <= 14, "too many to try them all"
    above = [
        [other for other in range(len(graph.rates)) if graph.below[other] >> node & 1]
        for node in range(len(graph.rates))
    ]
    best = float(count)
    for size in range(len(inserted) + 1):
        for chosen in combinations(inserted, size):
            present = {*range(count), *chosen}
            cost = sum(
                min((graph.rates[value] for value in above[node] if value in present), default=1.0)
                for node in present
            )
            best = min(best, cost)
    return best
