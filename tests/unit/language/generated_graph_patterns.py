"""Hypothesis strategies for graph patterns as the parser builds them: flat filters, variables left of constants."""

from __future__ import annotations

from hypothesis import strategies as st

from runnel.algebra.graphs.edges import AnyOf, Comparison, Complement, Edge, GraphFilter, Node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.calls import RELATIONS, Variable
from runnel.algebra.nodes.item_patterns import is_local
from runnel.errors import Span
from runnel.language.graphs.graph_filters import join_filters
from runnel.language.graphs.iri_prefixes import PrefixedName
from runnel.model.graph import canonical_term, escape_text

_NOWHERE = Span(1, 1, 2)

iris = st.sampled_from(
    ["<urn:a>", "<urn:b>", "<http://muse.example/it's>", "<http://muse.example/a--b;c#d>", "<urn:é%20>", "<urn:>"]
)
unknown_names = st.sampled_from(["year", "a.b", "1:2", "", "-x", "%20é"]).map(
    lambda local: PrefixedName.of("ex", local, _NOWHERE)
)
insides = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["it's", 'say "hi"', "back\\slash", "a\nb", "}", "{ ;", "-- no comment", "\\", "\t\0"]
)
texts = insides.map(lambda text: f'"{escape_text(text)}"')
literals = st.one_of(
    texts,
    st.builds(lambda text, tag: canonical_term(f"{text}@{tag}"), texts, st.sampled_from(["en", "de-CH-1996"])),
    st.builds(lambda text, kind: canonical_term(f"{text}^^{kind}"), texts, iris),
    st.integers(-9, 3000).map(lambda number: f'"{number}"^^<http://www.w3.org/2001/XMLSchema#integer>'),
    st.builds(lambda text: PrefixedName.of("ex", "type", _NOWHERE, f"{text}^^"), texts),
)
variables = st.sampled_from(["x", "y", "Filter", "a", "_9", "graph"]).map(Variable)
blanks = st.sampled_from(["_:b1", "_:x.y", "_:anonymous1", "_:9-é"]).map(Variable)
nodes: st.SearchStrategy[Node] = iris | unknown_names | variables
edges = st.builds(Edge, nodes | blanks, nodes, nodes | blanks | literals)


def _any_of(parts: list[GraphFilter]) -> GraphFilter:
    flat = [value for part in parts for value in (part.parts if isinstance(part, AnyOf) else (part,))]
    return AnyOf(tuple(flat))


def filters(bound: list[Variable]) -> st.SearchStrategy[GraphFilter]:
    """Generate filters on the variables of edges."""
    constants: st.SearchStrategy[Node] = iris | literals | unknown_names
    compared = st.builds(
        Comparison, st.sampled_from(bound), st.sampled_from(RELATIONS), st.sampled_from(bound) | constants
    )
    return st.recursive(
        compared,
        lambda inner: (
            st.lists(inner, min_size=2, max_size=3).map(join_filters)
            | st.lists(inner, min_size=2, max_size=3).map(_any_of)
            | inner.map(Complement)
        ),
        max_leaves=5,
    )


def _with_filter(edges: list[Edge]) -> st.SearchStrategy[Graph]:
    names = {node.name for edge in edges for node in edge.nodes if isinstance(node, Variable)}
    bound = [Variable(name) for name in sorted(names) if not is_local(name)]
    if not bound:
        return st.just(Graph(tuple(edges)))
    return (st.none() | filters(bound)).map(lambda value: Graph(tuple(edges), value))


graph_patterns: st.SearchStrategy[Graph] = st.lists(edges, min_size=1, max_size=4).flatmap(_with_filter)
