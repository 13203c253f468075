"""Prefixes: which names stand for the beginnings of IRIs. In: queries as parsed. Out: the same, all IRIs in full.

What a block says itself and what is known from the start is written out while it is read. All other names wait, as a
`PrefixedName`, until it is known what is registered: a script may register a prefix and use it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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
from runnel.algebra.nodes.expressions import And, Expression, Not, Or, conjunction, disjunction, negation
from runnel.errors import InvalidConditionError, Span, UnknownNameError
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.statements import QueryText
from runnel.model.graph import canonical_term

KNOWN_PREFIXES: Mapping[str, str] = MappingProxyType(
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
"""Prefixes that are known from the start, in every root."""

MAX_IRI = 2_000

_PREFIX = re.compile(r"[A-Za-z](?:[\w.-]*[\w-])?\Z")
_WRITABLE = re.compile(r'[^\x00-\x20<>"{}|^`\\]*+\Z')
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*+:")


class PrefixedName(str):
    """A term that is not written out yet: `ex:year`, or a literal with such a type; it stands at a place."""

    __slots__ = ("before", "local", "place", "prefix")

    before: str
    prefix: str
    local: str
    place: Span

    @staticmethod
    def of(prefix: str, local: str, place: Span, before: str = "") -> PrefixedName:
        """The name as it is written, behind `before`: nothing, or a text in quotes and `^^`."""
        made = PrefixedName(f"{before}{prefix}:{local}")
        made.before, made.prefix, made.local, made.place = before, prefix, local, place
        return made

    def written_out(self, prefixes: Mapping[str, str]) -> str:
        """The term with its IRI in full."""
        beginning = prefixes.get(self.prefix)
        if beginning is None:
            hint = did_you_mean(self.prefix, [*KNOWN_PREFIXES, *prefixes])
            say = f"say it in the block: graph {{ prefix {self.prefix}: <http://…> … }}"
            raise UnknownNameError(f"there is no prefix {self.prefix}:", span=self.place, hint=hint or say)
        return checked_term(f"{self.before}<{beginning}{self.local}>", self.place)


def checked_term(term: str, place: Span) -> str:
    """A term as canonical N-Triples writes it; refused at its place where it stands for nothing.

    >>> checked_term('"caf\\u00e9"@FR', Span(1, 1, 2))
    '"café"@fr'
    """
    try:
        return canonical_term(term)
    except ValueError as error:
        raise InvalidConditionError(str(error), span=place) from None


def is_prefix(name: str) -> bool:
    """Whether a name can be written before a colon.

    >>> is_prefix("ex"), is_prefix("my-terms"), is_prefix("2nd"), is_prefix("a--b")
    (True, True, False, False)
    """
    return _PREFIX.match(name) is not None and "--" not in name


def problem_of_iri(iri: str) -> str | None:
    """Why a text is no IRI in full, or None.

    >>> problem_of_iri("http://muse.example/"), problem_of_iri("/people")
    (None, 'it does not begin with a scheme such as http:')
    """
    if not _SCHEME.match(iri):
        return "it does not begin with a scheme such as http:"
    if not _WRITABLE.match(iri):
        return 'it holds blanks or one of < > " { } | ^ ` \\'
    return f"it has more than {MAX_IRI:,} characters" if len(iri) > MAX_IRI else None


def write_out(query: QueryText, registered: Callable[[], Mapping[str, str]] = dict) -> QueryText:
    """A query with all IRIs in full; the same object where they are already. UnknownName at a prefix nobody knows.

    `registered` gives prefixes and what they stand for; it is called only where there is something to write out.
    """
    if not any(_waits(one.expression) for one in query.conditions):
        return query
    prefixes = registered()
    written = (replace(one, expression=_written(one.expression, prefixes)) for one in query.conditions)
    return replace(query, conditions=tuple(written))


def _waits(expression: Expression) -> bool:
    """Whether a condition has names that are not written out; asked of every condition of very many."""
    kind = type(expression)
    if kind is And or kind is Or:
        return any(map(_waits, expression.parts))  # type: ignore[union-attr]
    if kind is Not:
        return _waits(expression.part)  # type: ignore[union-attr]
    return isinstance(expression, Graph) and any(isinstance(node, PrefixedName) for node in _nodes(expression))


def _nodes(graph: Graph) -> list[Node]:
    compared = [node for one in comparisons(graph.filter) for node in (one.left, one.right)]
    return [*(node for edge in graph.edges for node in edge.nodes), *compared]


def _written(expression: Expression, prefixes: Mapping[str, str]) -> Expression:
    match expression:
        case And(parts):
            return conjunction([_written(part, prefixes) for part in parts])
        case Or(parts):
            return disjunction([_written(part, prefixes) for part in parts])
        case Not(part):
            return negation(_written(part, prefixes))
        case Graph(edges, held):
            full = tuple(Edge(*(_full(node, prefixes) for node in edge.nodes)) for edge in edges)
            return replace(expression, edges=full, filter=None if held is None else _full_filter(held, prefixes))
        case _:
            return expression


def _full(node: Node, prefixes: Mapping[str, str]) -> Node:
    return node.written_out(prefixes) if isinstance(node, PrefixedName) else node


def _full_filter(one: GraphFilter, prefixes: Mapping[str, str]) -> GraphFilter:
    match one:
        case Comparison(left, relation, right):
            return Comparison(_full(left, prefixes), relation, _full(right, prefixes))
        case AllOf(parts):
            return AllOf(tuple(_full_filter(part, prefixes) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(_full_filter(part, prefixes) for part in parts))
        case Complement(part) | Certain(part):
            return type(one)(_full_filter(part, prefixes))
