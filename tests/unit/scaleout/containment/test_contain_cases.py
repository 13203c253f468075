"""Generated patterns and publications over few terms, and a test that many patterns contain one another."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from runnel.algebra.graphs.edges import (
    AllOf,
    AnyOf,
    Certain,
    Comparison,
    Complement,
    Edge,
    GraphFilter,
    Node,
    comparisons,
)
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import matches_graph
from runnel.algebra.graphs.rdf_terms import XSD
from runnel.algebra.nodes.calls import RELATIONS, Variable
from runnel.model.graph import Triple
from runnel.scaleout.containment.definition import contains

IRIS = ["<urn:a>", "<urn:b>"]
LABELS = ["<urn:p>", "<urn:q>"]
VALUES = [f'"{number}"^^<{XSD}integer>' for number in range(4)]
STRANGE = [
    f'"1.0"^^<{XSD}decimal>',
    f'"NaN"^^<{XSD}double>',
    '"a"',
    '"b"',
    '"b é"',
    '"a"@en',
    '"1"^^<urn:unknown>',
    f'"true"^^<{XSD}boolean>',
    f'"2026-11-15"^^<{XSD}date>',
    f'"2026-11-16"^^<{XSD}date>',
    f'"2026-11-15T00:00:00Z"^^<{XSD}dateTime>',
]
VARIABLES = [Variable(name) for name in ("x", "y", "z")]
CONSTANTS = [*VALUES, *VALUES, *STRANGE, *IRIS]


def draw_edge(chance: random.Random) -> Edge:
    subjects: list[Node] = [*IRIS, *VARIABLES[:2]]
    labels: list[Node] = [*LABELS, *LABELS, *LABELS, VARIABLES[2]]
    objects: list[Node] = [*IRIS, *VARIABLES, *VARIABLES, chance.choice(CONSTANTS)]
    return Edge(chance.choice(subjects), chance.choice(labels), chance.choice(objects))


def draw_comparison(chance: random.Random, variables: list[Variable]) -> Comparison:
    variable, other = chance.choice(variables), chance.choice(CONSTANTS)
    if chance.random() < 0.15:
        return Comparison(variable, chance.choice(RELATIONS), chance.choice(variables))
    if chance.random() < 0.2:
        return Comparison(other, chance.choice(RELATIONS), variable)
    return Comparison(variable, chance.choice(RELATIONS), other)


def draw_filter(chance: random.Random, variables: list[Variable]) -> GraphFilter:
    parts: list[GraphFilter] = []
    for _ in range(chance.choice([1, 1, 2, 3])):
        graph_filter: GraphFilter = draw_comparison(chance, variables)
        if chance.random() < 0.15:
            graph_filter = AnyOf((graph_filter, draw_comparison(chance, variables)))
        if chance.random() < 0.1:
            graph_filter = Complement(Certain(graph_filter) if chance.random() < 0.3 else graph_filter)
        parts.append(graph_filter)
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def draw_pattern(chance: random.Random) -> Graph:
    edges = tuple(dict.fromkeys(draw_edge(chance) for _ in range(chance.choice([1, 1, 2, 2, 3, 4]))))
    variables = [node for edge in edges for node in edge.nodes if isinstance(node, Variable)]
    wanted = variables and chance.random() < 0.6
    return Graph(edges, draw_filter(chance, variables) if wanted else None)


def draw_narrower(chance: random.Random, graph: Graph) -> Graph:
    """Return a narrower pattern: with another edge or conjunct, or a constant in place of a variable."""
    match chance.randrange(3):
        case 0:
            return Graph(tuple(dict.fromkeys((*graph.edges, draw_edge(chance)))), graph.filter)
        case 1:
            variables = [node for edge in graph.edges for node in edge.nodes if isinstance(node, Variable)]
            if not variables:
                return graph
            more = draw_comparison(chance, variables)
            return Graph(graph.edges, more if graph.filter is None else AllOf((graph.filter, more)))
        case _:
            edges = tuple(
                Edge(edge.subject, edge.label, chance.choice(IRIS) if edge.object == VARIABLES[2] else edge.object)
                for edge in graph.edges
            )
            left = {node.name for edge in edges for node in edge.nodes if isinstance(node, Variable)}
            asked = {node for comparison in comparisons(graph.filter) for node in (comparison.left, comparison.right)}
            bound = all(node.name in left for node in asked if isinstance(node, Variable))
            return Graph(edges, graph.filter if bound else None)


def draw_publication(chance: random.Random) -> list[Triple]:
    def triple() -> Triple:
        return chance.choice([*IRIS, "_:k"]), chance.choice(LABELS), chance.choice([*IRIS, "_:k", *CONSTANTS])

    return sorted({triple() for _ in range(chance.randrange(2, 18))})


def seeds() -> st.SearchStrategy[random.Random]:
    """Generate random sources that Hypothesis can shrink."""
    return st.randoms(use_true_random=False)


def test_generated_patterns_contain_one_another_often_enough() -> None:
    chance = random.Random(5)
    held = contained = 0
    for _ in range(400):
        wide = draw_pattern(chance)
        narrow = draw_narrower(chance, wide)
        contained += contains(wide, narrow)
        held += matches_graph(wide, draw_publication(chance))
    assert contained > 200
    assert held > 40
