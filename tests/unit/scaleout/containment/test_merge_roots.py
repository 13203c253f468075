"""Mergers contain their members, summaries keep the common edges of publications, and both are limited in number."""

from __future__ import annotations

import random

from hypothesis import given, settings
from tests.unit.scaleout.containment.test_contain_cases import draw_narrower, draw_pattern, draw_publication, seeds

from runnel.algebra.graphs.edges import AllOf, Comparison, Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.rdf_terms import XSD
from runnel.algebra.nodes.calls import Variable
from runnel.model.graph import Triple
from runnel.scaleout.containment.definition import contains
from runnel.scaleout.containment.intersect_patterns import intersect_patterns
from runnel.scaleout.containment.merge_roots import group_patterns
from runnel.scaleout.containment.pattern_store import ANY
from runnel.scaleout.containment.publication_summaries import PublicationSummaries

YEAR = Edge(Variable("p"), "<urn:year>", Variable("y"))
BY_ANN, BY_BOB = (Edge(Variable("p"), "<urn:by>", f"<urn:{name}>") for name in ("ann", "bob"))


def number(value: object) -> str:
    return f'"{value}"^^<{XSD}integer>'


def above(value: int) -> Comparison:
    return Comparison(Variable("y"), ">", number(value))


def triple(value: int, of: int = 0) -> Triple:
    return f"<urn:{of}>", f"<urn:p{value}>", "<urn:o>"


@settings(max_examples=150, deadline=None)
@given(seeds())
def test_a_merger_contains_both_patterns(chance: random.Random) -> None:
    first = draw_pattern(chance)
    second = draw_narrower(chance, first) if chance.random() < 0.5 else draw_pattern(chance)
    merger = intersect_patterns(first, second)
    if merger is not None:
        assert merger.edges
        assert contains(merger, first)
        assert contains(merger, second)


def test_merger_keeps_common_edges_and_demands() -> None:
    first = Graph((YEAR, BY_ANN), above(5))
    second = Graph((BY_BOB, YEAR), AllOf((above(3), Comparison(Variable("p"), "!=", "<urn:x>"))))
    assert intersect_patterns(first, second) == Graph((YEAR,), above(3))
    assert intersect_patterns(second, first) == Graph((YEAR,), above(3))


def test_variables_of_a_merger_stay_consistent() -> None:
    apart = Graph((YEAR, Edge(Variable("q"), "<urn:by>", "<urn:ann>")))
    merger = intersect_patterns(Graph((YEAR, BY_ANN)), apart)
    assert merger is not None
    assert len(merger.edges) == 1


def test_patterns_without_a_common_edge_have_no_merger() -> None:
    assert intersect_patterns(Graph((BY_ANN,)), Graph((BY_BOB,))) is None


@settings(max_examples=60, deadline=None)
@given(seeds())
def test_groups_are_disjoint_and_mergers_contain_their_members(chance: random.Random) -> None:
    patterns = dict(enumerate(draw_pattern(chance) for _ in range(8)))
    groups = group_patterns(patterns.items(), chance.choice([0.0, 0.5, 1.0]), most=chance.choice([2, 9]))
    members = [member for group in groups for member in group.members]
    assert len(members) == len(set(members))
    for group in groups:
        assert len(group.members) > 1
        assert all(contains(group.common, patterns[member]) for member in group.members)


def test_groups_with_share_one_have_the_same_edges() -> None:
    patterns = [(1, Graph((YEAR,), above(5))), (2, Graph((YEAR, BY_ANN))), (3, Graph((YEAR,), above(7)))]
    (group,) = group_patterns(patterns, 1.0, 9)
    assert group.members == [1, 3]
    assert group.common == Graph((YEAR,), above(5))


def test_merger_must_have_an_edge_with_two_terms() -> None:
    assert group_patterns([(1, Graph((YEAR, BY_ANN))), (2, Graph((YEAR, BY_BOB)))], 0.5, 9) == []
    first, second = (Graph((Edge("<urn:a>", "<urn:year>", Variable("y")), value)) for value in (BY_ANN, BY_BOB))
    (group,) = group_patterns([(1, first), (2, second)], 0.5, 9)
    assert group.members == [1, 2]


def test_only_similar_publications_share_a_summary() -> None:
    summaries = PublicationSummaries(threshold=0.5, share=1.0)
    summaries.observe([triple(1), triple(2), triple(3)], matched=2)
    summaries.observe([triple(1, of=7)], matched=4)
    summaries.observe([triple(1), triple(2), triple(4)], matched=3)
    assert summaries.by_frequency() == [{triple(1), triple(2)}, {triple(1, of=7)}]


def test_merged_summary_is_compared_again() -> None:
    """The paper's loop compares the publication itself again and never ends. Here the merged summary is compared."""
    summaries = PublicationSummaries(threshold=0.3, share=1.0)
    summaries.observe([triple(1), triple(2), triple(3), triple(4)], matched=1)
    summaries.observe([triple(1), triple(5), triple(6), triple(7)], matched=1)
    assert len(summaries) == 2
    summaries.observe([triple(1), triple(2), triple(5)], matched=1)
    assert len(summaries) == 2
    summaries.observe([triple(1), triple(5), triple(6)], matched=5)
    assert summaries.by_frequency()[0] == {triple(1), triple(5), triple(6)}


def test_edge_of_half_the_publications_is_kept() -> None:
    summaries = PublicationSummaries(threshold=0.3, share=0.5)
    for left_out in range(4):
        summaries.observe([triple(value) for value in range(4) if value != left_out], matched=1)
    assert summaries.by_frequency() == [{triple(0), triple(1), triple(2), triple(3)}]


def test_values_count_as_equal_and_texts_do_not() -> None:
    summaries = PublicationSummaries()
    for value in (3, 4):
        summaries.observe([("<urn:a>", "<urn:year>", number(value)), ("<urn:a>", "<urn:name>", '"A"')], matched=1)
    assert summaries.by_frequency() == [{("<urn:a>", "<urn:year>", ANY), ("<urn:a>", "<urn:name>", '"A"')}]


@settings(max_examples=40, deadline=None)
@given(seeds())
def test_number_of_summaries_is_limited_and_all_matches_are_counted(chance: random.Random) -> None:
    bounded, free = PublicationSummaries(most=3), PublicationSummaries(threshold=0.3)
    total = 0
    for _ in range(12):
        publication = draw_publication(chance)
        bounded.observe(publication, matched=1)
        free.observe(publication, matched=2)
        total += 2
        assert len(bounded) <= 3
    assert len(free.by_frequency()) == len(free) <= 12
    assert free.frequency == total
