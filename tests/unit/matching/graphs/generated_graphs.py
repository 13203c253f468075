"""Small generated graphs and patterns with few terms, so that they often match, and unusual ones."""

from __future__ import annotations

from hypothesis import strategies as st

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, Edge, GraphFilter, Node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.rdf_terms import XSD
from runnel.algebra.nodes.calls import RELATIONS, Variable
from runnel.model.graph import RdfGraph

RESOURCES = ("<urn:a>", "<urn:b>", "<urn:c>")
LABELS = ("<urn:p>", "<urn:q>", "<urn:r>")
LITERALS = (
    *(f'"{number}"^^<{XSD}integer>' for number in (1, 2, 3, 7)),
    f'"2.0"^^<{XSD}double>',
    f'"2.5"^^<{XSD}decimal>',
    f'"NaN"^^<{XSD}double>',
    f'"INF"^^<{XSD}double>',
    f'"-INF"^^<{XSD}double>',
    f'"x"^^<{XSD}integer>',
    f'"true"^^<{XSD}boolean>',
    f'"2026-11-16T00:00:00Z"^^<{XSD}dateTime>',
    f'"2026-11-16"^^<{XSD}date>',
    '"a"',
    '"b"',
    '"c d"',
    '"b"@en',
    '"say \\"b\\""',
    '"odd"^^<urn:type>',
    '"even"^^<urn:type>',
)
_nodes = st.sampled_from((*RESOURCES, "_:x", "_:y"))
_triples = st.tuples(_nodes, st.sampled_from(LABELS), st.one_of(_nodes, st.sampled_from(LITERALS)))
graphs = st.lists(_triples, min_size=1, max_size=14).map(RdfGraph.of)

_variables = st.sampled_from(["p", "q", "y", "_:z"]).map(Variable)
_subjects: st.SearchStrategy[Node] = st.one_of(_variables, _variables, st.sampled_from(RESOURCES))
_labels: st.SearchStrategy[Node] = st.one_of(st.sampled_from(LABELS), st.sampled_from(LABELS), _variables)
_objects: st.SearchStrategy[Node] = st.one_of(
    _variables, _variables, st.sampled_from(RESOURCES), st.sampled_from(LITERALS)
)
_edges = st.builds(Edge, _subjects, _labels, _objects)


@st.composite
def filters(draw: st.DrawFn, names: list[str], depth: int = 2) -> GraphFilter:
    """A filter over variables of these names."""
    if depth and draw(st.integers(0, 2)) == 0:
        parts = draw(st.lists(filters(names, depth - 1), min_size=1, max_size=3))
        several: list[GraphFilter] = [
            AnyOf(tuple(parts)),
            AllOf(tuple(parts)),
            Complement(parts[0]),
            Certain(parts[0]),
        ]
        return draw(st.sampled_from(several))
    variables = st.sampled_from(names).map(Variable)
    terms = st.sampled_from((*LITERALS, *LITERALS, *RESOURCES))
    left = draw(variables)
    right = draw(st.one_of(terms, terms, terms, variables))
    relation = draw(st.sampled_from(RELATIONS))
    return Comparison(right, relation, left) if draw(st.booleans()) else Comparison(left, relation, right)


@st.composite
def patterns(draw: st.DrawFn) -> Graph:
    """A pattern, as written."""
    edges = tuple(dict.fromkeys(draw(st.lists(_edges, min_size=1, max_size=4))))
    names = Graph(edges).variables()
    results = draw(st.lists(filters(names), max_size=3)) if names else []
    return Graph(edges, AllOf(tuple(results)) if len(results) > 1 else results[0] if results else None)
