"""The contenders by name: each is made from patterns and the index of their terms."""

from __future__ import annotations

from collections.abc import Callable

from runnel.matching.graphs.contenders.alone import AloneMatcher
from runnel.matching.graphs.contenders.contract import GraphMatcher
from runnel.matching.graphs.contenders.counting import CountingMatcher
from runnel.matching.graphs.contenders.scan import ScanMatcher
from runnel.matching.graphs.contenders.shapes import ShapeMatcher
from runnel.matching.graphs.patterns import PatternTable
from runnel.matching.graphs.terms import TermIndex


def shapes(table: PatternTable, terms: TermIndex) -> GraphMatcher:
    """What Runnel runs."""
    return ShapeMatcher(table)


def scan(table: PatternTable, terms: TermIndex) -> GraphMatcher:
    """Every pattern on every graph, by the definition."""
    return ScanMatcher(table)


def alone(table: PatternTable, terms: TermIndex) -> GraphMatcher:
    """Every pattern on every graph, compiled."""
    return AloneMatcher(table)


def joined(table: PatternTable, terms: TermIndex) -> GraphMatcher:
    """Edges are counted, then joined, then constraints are asked (G-ToPSS)."""
    return CountingMatcher(table, terms, constraint_tables=False)


def union_graph(table: PatternTable, terms: TermIndex) -> GraphMatcher:
    """The paper's match with constraint tables, made sound."""
    return CountingMatcher(table, terms, constraint_tables=True)


CONTENDERS: dict[str, Callable[[PatternTable, TermIndex], GraphMatcher]] = {
    "shapes": shapes,
    "union_graph": union_graph,
    "joined": joined,
    "alone": alone,
    "scan": scan,
}
