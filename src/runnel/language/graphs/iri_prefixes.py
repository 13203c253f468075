"""Expansion of IRI prefixes in graph patterns. In: parsed patterns. Out: the same patterns with full IRIs.

The parser expands predefined prefixes and those that a block defines itself. Other names become a `PrefixedName`.
They are expanded when the statement is bound, because a script may register a prefix and then use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

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
from runnel.errors import InvalidConditionError, Span, UnknownNameError
from runnel.language.nearest import did_you_mean
from runnel.model.graph import canonical_term

PREDEFINED_PREFIXES: Mapping[str, str] = MappingProxyType(
    {
        "dc": "http://purl.org/dc/elements/1.1/",
        "dcterms": "http://purl.org/dc/terms/",
        "foaf": "http://xmlns.com/foaf/0.1/",
        "owl": "http://www.w3.org/2002/07/owl#",
        "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
        "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
        "rss": "http://purl.org/rss/1.0/",
        "schema": "http://schema.org/",
        "skos": "http://www.w3.org/2004/02/skos/core#",
        "xsd": "http://www.w3.org/2001/XMLSchema#",
    }
)
"""Prefixes that every workspace has without registering them."""

MAX_IRI = 2_000

_PREFIX = re.compile(r"[A-Za-z](?:[\w.-]*[\w-])?\Z")
_VALID_CHARACTERS = re.compile(r'[^\x00-\x20<>"{}|^`\\]*+\Z')
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:")


class PrefixedName(str):
    """A term whose prefix is not expanded yet: a name such as `ex:year`, or a literal with such a type."""

    __slots__ = ("before", "local", "prefix", "span")

    before: str
    prefix: str
    local: str
    span: Span

    @staticmethod
    def of(prefix: str, local: str, span: Span, before: str = "") -> PrefixedName:
        """Create a name. For the type of a literal, `before` is the text in quotes and `^^`."""
        name = PrefixedName(f"{before}{prefix}:{local}")
        name.before, name.prefix, name.local, name.span = before, prefix, local, span
        return name

    def expand(self, prefixes: Mapping[str, str]) -> str:
        """Return the term with its full IRI. Raise UnknownNameError if the prefix is not defined."""
        expansion = prefixes.get(self.prefix)
        if expansion is None:
            hint = did_you_mean(self.prefix, [*PREDEFINED_PREFIXES, *prefixes])
            definition = f"define it in the block: graph {{ prefix {self.prefix}: <http://…> … }}"
            raise UnknownNameError(f"there is no prefix {self.prefix}:", span=self.span, hint=hint or definition)
        return canonicalize_term(f"{self.before}<{expansion}{self.local}>", self.span)


def canonicalize_term(term: str, span: Span) -> str:
    """Return a term in canonical N-Triples syntax. Raise InvalidConditionError at `span` if it is invalid.

    >>> canonicalize_term('"caf\\u00e9"@FR', Span(1, 1, 2))
    '"café"@fr'
    """
    try:
        return canonical_term(term)
    except ValueError as error:
        raise InvalidConditionError(str(error), span=span) from None


def is_prefix(name: str) -> bool:
    """Return whether a name is a valid prefix.

    >>> is_prefix("ex"), is_prefix("my-terms"), is_prefix("2nd"), is_prefix("a--b")
    (True, True, False, False)
    """
    return _PREFIX.match(name) is not None and "--" not in name


def find_iri_problem(iri: str) -> str | None:
    """Return why a text is not an absolute IRI, or None if it is one.

    >>> find_iri_problem("http://muse.example/"), find_iri_problem("/people")
    (None, 'it does not begin with a scheme such as http:')
    """
    if not _SCHEME.match(iri):
        return "it does not begin with a scheme such as http:"
    if not _VALID_CHARACTERS.match(iri):
        return 'it contains whitespace, a control character or one of < > " { } | ^ ` \\'
    return f"it has more than {MAX_IRI:,} characters" if len(iri) > MAX_IRI else None


def uses_prefixes(graph: Graph) -> bool:
    """Return whether a pattern has prefixes to expand."""
    compared = [node for comparison in comparisons(graph.filter) for node in (comparison.left, comparison.right)]
    nodes = [*(node for edge in graph.edges for node in edge.nodes), *compared]
    return any(isinstance(node, PrefixedName) for node in nodes)


def expand_graph(graph: Graph, prefixes: Mapping[str, str]) -> Graph:
    """Return a pattern with full IRIs. Raise UnknownNameError if a prefix is not defined."""
    expanded = tuple(Edge(*(_expand_node(node, prefixes) for node in edge.nodes)) for edge in graph.edges)
    expanded_filter = None if graph.filter is None else _expand_filter(graph.filter, prefixes)
    return replace(graph, edges=expanded, filter=expanded_filter)


def _expand_node(node: Node, prefixes: Mapping[str, str]) -> Node:
    return node.expand(prefixes) if isinstance(node, PrefixedName) else node


def _expand_filter(graph_filter: GraphFilter, prefixes: Mapping[str, str]) -> GraphFilter:
    match graph_filter:
        case Comparison(left, relation, right):
            return Comparison(_expand_node(left, prefixes), relation, _expand_node(right, prefixes))
        case AllOf(parts):
            return AllOf(tuple(_expand_filter(part, prefixes) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(_expand_filter(part, prefixes) for part in parts))
        case Complement(part) | Certain(part):
            return type(graph_filter)(_expand_filter(part, prefixes))
