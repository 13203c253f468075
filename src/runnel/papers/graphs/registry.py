"""The compared graph matchers by name. Each is created from patterns and the index of their terms."""

from __future__ import annotations

from collections.abc import Callable

from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.patterns.term_index import TermIndex
from runnel.papers.graphs.contract import GraphContender
from runnel.papers.graphs.counting_matcher import CountingMatcher
from runnel.papers.graphs.join_each_pattern import EachPatternMatcher
from runnel.papers.graphs.scan_graphs import GraphScanMatcher
from runnel.papers.graphs.shape_matcher import ShapeMatcher


def shapes(table: PatternTable, terms: TermIndex) -> GraphContender:
    """Create Runnel's own matcher."""
    return ShapeMatcher(table)


def scan(table: PatternTable, terms: TermIndex) -> GraphContender:
    """Create the matcher that evaluates every pattern on every graph by the definition."""
    return GraphScanMatcher(table)


def alone(table: PatternTable, terms: TermIndex) -> GraphContender:
    """Create the matcher that joins every pattern with every graph in compiled code."""
    return EachPatternMatcher(table)


def joined(table: PatternTable, terms: TermIndex) -> GraphContender:
    """Create the matcher that counts edges, joins them, and checks constraints last (G-ToPSS)."""
    return CountingMatcher(table, terms, constraint_tables=False)


def union_graph(table: PatternTable, terms: TermIndex) -> GraphContender:
    """Create the paper's matcher with constraint tables, corrected to return only matches."""
    return CountingMatcher(table, terms, constraint_tables=True)


CONTENDERS: dict[str, Callable[[PatternTable, TermIndex], GraphContender]] = {
    "shapes": shapes,
    "union_graph": union_graph,
    "joined": joined,
    "alone": alone,
    "scan": scan,
}
