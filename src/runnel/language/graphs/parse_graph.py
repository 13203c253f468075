"""The grammar rule for graph patterns. In: the current token. Out: a graph pattern."""

from __future__ import annotations

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.language.graphs.iri_prefixes import expand_graph, uses_prefixes
from runnel.language.graphs.read_graph import read_graph
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.reader import ConditionSyntax, PrefixSyntax, TokenReader
from runnel.language.syntax.script_tokens import BLOCK, OPEN_BLOCK, WORD


def parse_graph(tokens: TokenReader) -> Graph:
    """Parse `graph { … }`."""
    if tokens.kind == WORD:
        raise tokens.unexpected(expects.CONDITION)
    is_open = tokens.kind == OPEN_BLOCK
    token = tokens.token()
    graph = read_graph(token, is_open=is_open)
    tokens.advance()
    return graph


GRAPH_SYNTAX = ConditionSyntax(("graph", BLOCK, OPEN_BLOCK), parse_graph, PrefixSyntax(uses_prefixes, expand_graph))
