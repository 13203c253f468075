"""The text of the edges and filters of graph patterns, with full IRIs."""

from __future__ import annotations

import re

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, EdgePattern, GraphFilter, Node
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.item_patterns import is_local

_TYPED = re.compile(r'"([^"]*)"\^\^<http://www\.w3\.org/2001/XMLSchema#(integer|decimal|double|boolean)>')
_UNQUOTED = {
    "integer": re.compile(r"-?[0-9]+", re.ASCII),
    "decimal": re.compile(r"-?[0-9]+\.[0-9]+", re.ASCII),
    "double": re.compile(r"-?[0-9]+(?:\.[0-9]+)?[eE]-?[0-9]+", re.ASCII),
    "boolean": re.compile("true|false"),
}
"""Numbers and booleans that need no quotes, because SPARQL reads them with these types."""


def render_edges(pattern: EdgePattern) -> str:
    """Return the text of a pattern inside its braces.

    >>> from runnel.algebra.graphs.edges import Edge
    >>> render_edges(EdgePattern((Edge(Variable("p"), "<urn:year>", Variable("y")),)))
    '?p <urn:year> ?y'
    """
    edges = [" ".join(_render_node(node) for node in edge.nodes) for edge in pattern.edges]
    filters = [] if pattern.filter is None else [f"filter({_render_filter(pattern.filter)})"]
    return " . ".join([*edges, *filters])


def render_term(term: str) -> str:
    """Return the text of a term. Numbers and booleans need no type if SPARQL infers it."""
    match = _TYPED.fullmatch(term)
    if match is None:
        return term
    text, name = match.groups()
    return text if _UNQUOTED[name].fullmatch(text) else term


def _render_node(node: Node) -> str:
    if not isinstance(node, Variable):
        return render_term(node)
    return node.name if is_local(node.name) else f"?{node.name}"


def _render_filter(graph_filter: GraphFilter, inside: str = "") -> str:
    match graph_filter:
        case Comparison(left, relation, right):
            return f"{_render_node(left)} {relation} {_render_node(right)}"
        case AllOf(parts):
            text = " and ".join(_render_filter(part, "and") for part in parts)
        case AnyOf(parts):
            text = " or ".join(_render_filter(part, "or") for part in parts)
        case Complement(part):
            return f"not ({_render_filter(part)})"
        case Certain(part):
            # This has no syntax. `explain` shows it for comparisons outside the braces that became filters.
            return f"coalesce({_render_filter(part)}, false)"
    return f"({text})" if inside else text
