"""The root index agrees with brute force after any sequence of subscriptions, removals and merges."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.unit.scaleout.containment.test_contain_cases import draw_narrower, draw_pattern, draw_publication
from tests.unit.scaleout.containment.test_containment_index import check_trees

from runnel.algebra.graphs.edges import Comparison, Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import matches_graph
from runnel.algebra.graphs.rdf_terms import XSD
from runnel.algebra.nodes.calls import Variable
from runnel.model.graph import Triple
from runnel.scaleout.containment.publication_summaries import PublicationSummaries
from runnel.scaleout.containment.root_index import RootIndex

SEEN: Counter[str] = Counter()
"""What happened over a whole run."""


def draw_subscription(chance: random.Random) -> Graph:
    """Draw a pattern, mostly with constants. A pattern without any contains all others, and nothing is merged."""
    while True:
        graph = draw_pattern(chance)
        constants = sum(isinstance(node, str) for edge in graph.edges for node in (edge.subject, edge.object))
        if constants > 1 or chance.random() < 0.02:
            return graph


class ChangingSubscriptions(RuleBasedStateMachine):
    """A state machine: subscriptions come and go, publications arrive, and roots are merged."""

    @initialize(seed=st.integers(0, 10**6), upper=st.sampled_from([None, 4, 8]))
    def begin(self, seed: int, upper: int | None) -> None:
        self.chance = random.Random(seed)
        self.index = RootIndex(upper=upper, summaries=PublicationSummaries(threshold=0.2, most=5))
        self.living: dict[int, Graph] = {}
        self.next = 1

    @rule(count=st.integers(1, 12))
    def subscribe(self, count: int) -> None:
        for _ in range(count):
            graph = draw_subscription(self.chance)
            if self.living and self.chance.random() < 0.5:
                graph = draw_narrower(self.chance, self.chance.choice(list(self.living.values())))
            before = self.index.root_count
            self.index.subscribe(self.next, graph)
            self.living[self.next] = graph
            self.next += 1
            SEEN["contained"] += self.index.root_count <= before

    @precondition(lambda self: self.living)
    @rule(count=st.integers(1, 4))
    def unsubscribe(self, count: int) -> None:
        for _ in range(min(count, len(self.living))):
            gone = self.chance.choice(list(self.living))
            SEEN["merged members gone"] += any(gone in self.merged(merger) for merger in self.index.index.mergers())
            self.index.unsubscribe(gone)
            del self.living[gone]

    def merged(self, merger: int) -> list[int]:
        return self.index.index.subscriptions_below(merger)

    @rule(count=st.integers(1, 4))
    def observe(self, count: int) -> None:
        for _ in range(count):
            parts = [draw_publication(self.chance) for _ in range(4)]
            self.index.observe(sorted({triple for part in parts for triple in part}))

    @rule()
    def merge(self) -> None:
        self.subscribe(8)
        self.observe(2)
        self.index.merge(self.index.root_count // 3)
        SEEN["merged"] += len(self.index.index.mergers())
        self.publish(3)

    @rule(count=st.integers(1, 3))
    def publish(self, count: int) -> None:
        for _ in range(count):
            publication = draw_publication(self.chance)
            expected = [key for key, graph in self.living.items() if matches_graph(graph, publication)]
            results = self.index.match(publication)
            assert results.subscriptions == expected
            assert results.undecided == []
            SEEN["matched"] += len(expected)

    @invariant()
    def every_subscription_is_in_a_tree(self) -> None:
        if hasattr(self, "living"):
            check_trees(self.index.index, self.living, most=8)
            SEEN["false positives"] += self.index.counters.false_positives


def test_matching_agrees_with_brute_force() -> None:
    SEEN.clear()
    run_state_machine_as_test(
        ChangingSubscriptions,
        settings=settings(max_examples=80, stateful_step_count=12, deadline=None, derandomize=True),
    )
    assert (
        min(SEEN[text] for text in ("contained", "merged", "merged members gone", "matched", "false positives")) > 5
    )


YEAR = Edge("<urn:page>", "<urn:year>", Variable("y"))


def year_above(value: int, *others: Edge) -> Graph:
    return Graph((YEAR, *others), Comparison(Variable("y"), ">", f'"{value}"^^<{XSD}integer>'))


def by(name: str) -> Edge:
    return Edge(Variable("p"), "<urn:by>", f"<urn:{name}>")


def page(year: int, *names: str) -> list[Triple]:
    triples: list[Triple] = [("<urn:page>", "<urn:year>", f'"{year}"^^<{XSD}integer>')]
    return triples + [("<urn:page>", "<urn:by>", f"<urn:{name}>") for name in names]


def test_holding_root_and_patterns_below_it_are_found() -> None:
    """The paper's `filtering` delivers a root only if nothing is below it."""
    index = RootIndex()
    index.subscribe(1, year_above(2000))
    index.subscribe(2, year_above(2005))
    index.subscribe(3, year_above(2010))
    assert index.root_count == 1
    assert index.match(page(2007)).subscriptions == [1, 2]
    assert index.counters.roots_checked == index.counters.roots_held == 1
    assert index.counters.members_checked == 2


@pytest.fixture
def merged() -> RootIndex:
    index = RootIndex()
    names = ["ann", "bob", "cid"]
    for number, name in enumerate(names, 1):
        index.subscribe(number, year_above(2000 + number, by(name)))
    for year in (2010, 2011):
        index.observe(page(year, *names))
    assert index.merge(1) == 2
    assert index.root_count == 1
    return index


def test_merger_covers_its_members_and_counts_false_positives(merged: RootIndex) -> None:
    assert merged.match(page(2010, "bob")).subscriptions == [2]
    assert merged.counters.false_positives == 0
    assert merged.match(page(2010, "dora")).subscriptions == []
    assert merged.counters.false_positives == 1
    assert merged.counters.mergers_held == 2
    assert merged.match(page(1999, "bob")).subscriptions == []
    assert merged.counters.mergers_held == 2, "the merger keeps the weakest of its members' constraints"


def test_merger_is_computed_again_after_removals(merged: RootIndex) -> None:
    merged.unsubscribe(1)
    assert merged.root_count == 1
    assert merged.match(page(2002, "bob")).subscriptions == []
    assert merged.counters.mergers_held == 0, "without its weakest member the merger is more specific"
    merged.unsubscribe(2)
    assert merged.index.mergers() == []
    assert merged.index.roots() == [3]
    assert merged.match(page(2010, "cid")).subscriptions == [3]
    merged.unsubscribe(3)
    assert merged.root_count == len(merged) == 0


def test_merger_takes_contained_roots_and_gives_members_to_a_container(merged: RootIndex) -> None:
    merged.subscribe(4, year_above(2005, by("dora")))
    assert merged.root_count == 1
    merged.subscribe(5, Graph((YEAR,)))
    assert merged.index.roots() == [5]
    assert merged.index.below(5) == [1, 2, 3, 4]
    assert merged.index.mergers() == []


def test_too_many_roots_are_merged_automatically() -> None:
    index = RootIndex(upper=12, lower=5)
    names = [f"n{number}" for number in range(30)]
    index.observe(page(2010, *names))
    for number, name in enumerate(names):
        index.subscribe(number, year_above(2000, by(name)))
        assert index.root_count <= 12
    assert index.match(page(2010, "n3", "n20")).subscriptions == [3, 20]


def test_both_stages_can_be_called_separately(merged: RootIndex) -> None:
    publication = merged.encoded(page(2010, "ann", "cid"))
    roots = merged.roots_of(publication)
    assert [merged.index.subscriptions_below(value) for value in roots.tolist()] == [[1, 2, 3]]
    below = merged.members_of(publication, roots)
    assert sorted(merged.index.owners[below].tolist()) == [1, 3]


def test_undecided_root_is_reported_and_patterns_below_it_are_checked() -> None:
    """Mapping a complete graph of ten nodes onto nine requires a search through all orders of the nine."""
    names = [f"<urn:{number}>" for number in range(9)]
    dense: list[Triple] = [(name, "<urn:p>", other) for name in names for other in names if name != other]
    nodes = [Variable(f"v{number}") for number in range(10)]
    clique = tuple(Edge(node, "<urn:p>", other) for node in nodes for other in nodes if node != other)
    index = RootIndex()
    index.subscribe(1, Graph(clique))
    index.subscribe(2, Graph((*clique, Edge("<urn:0>", "<urn:q>", "<urn:1>"))))
    index.subscribe(3, Graph((Edge("<urn:0>", "<urn:p>", Variable("x")),)))
    assert index.index.below(1) == [2]
    results = index.match(dense)
    assert (results.subscriptions, results.undecided) == ([3], [1])
    results = index.match([*dense, ("<urn:0>", "<urn:q>", "<urn:1>")])
    assert (results.subscriptions, results.undecided) == ([3], [1, 2])
