"""Edges and filters of graph patterns as text, with all IRIs in full."""

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
    """The inside of a pattern's braces.

    >>> from runnel.algebra.graphs.edges import Edge
    >>> render_edges(EdgePattern((Edge(Variable("p"), "<urn:year>", Variable("y")),)))
    '?p <urn:year> ?y'
    """
    edges = [" ".join(_render_node(node) for node in edge.nodes) for edge in pattern.edges]
    filters = [] if pattern.filter is None else [f"filter({_render_filter(pattern.filter)})"]
    return " . ".join([*edges, *filters])


def render_term(term: str) -> str:
    """A term as written: numbers and booleans without a type that they have anyway."""
    found = _TYPED.fullmatch(term)
    if found is None:
        return term
    text, name = found.groups()
    return text if _UNQUOTED[name].fullmatch(text) else term


def _render_node(node: Node) -> str:
    if not isinstance(node, Variable):
        return render_term(node)
    return node.name if is_local(node.name) else f"?{node.name}"


def _render_filter(one: GraphFilter, inside: str = "") -> str:
    match one:
        case Comparison(left, relation, right):
            return f"{_render_node(left)} {relation} {_render_node(right)}"
        case AllOf(parts):
            text = " and ".join(_render_filter(part, "and") for part in parts)
        case AnyOf(parts):
            text = " or ".join(_render_filter(part, "or") for part in parts)
        case Complement(part):
            return f"not ({_render_filter(part)})"
        case Certain(part):
            # There is no syntax for it: `explain` shows with it how a comparison outside the braces is evaluated.
            return f"coalesce({_render_filter(part)}, false)"
    return f"({text})" if inside else text
