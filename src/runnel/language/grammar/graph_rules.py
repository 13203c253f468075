"""The callbacks of the grammar's rules about graphs: patterns, and the prefixes of their names."""

from __future__ import annotations

from lark import Token, v_args

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.errors import StatementSyntaxError
from runnel.language.grammar.operator_rules import OperatorRules
from runnel.language.syntax.iri_prefixes import KNOWN_PREFIXES, is_prefix, problem_of_iri
from runnel.language.syntax.literals import read_exact, span_of
from runnel.language.syntax.read_graph import read_graph
from runnel.language.syntax.statements import DropPrefix, Name, Parsed, RegisterPrefix


@v_args(inline=True)
class GraphRules(OperatorRules):
    """One method per rule or alias of grammar.lark that graphs need; those that operators need are inherited."""

    def register_prefix(self, keyword: Token, name: Name, text: Token) -> Parsed:
        if not is_prefix(name.text):
            raise StatementSyntaxError(
                f"{name.text} cannot be a prefix",
                span=name.span,
                hint="a prefix begins with a letter and has letters, digits and _-. behind it",
            )
        if name.text in KNOWN_PREFIXES:
            raise StatementSyntaxError(
                f"the prefix {name.text} is known from the start: it stands for {KNOWN_PREFIXES[name.text]}",
                span=name.span,
                hint="give yours another name, or say it in the block: graph { prefix … }",
            )
        iri = read_exact(text, "what a prefix stands for")
        problem = problem_of_iri(iri)
        if problem is not None:
            hint = "write the beginning of IRIs in full, such as 'http://muse.example/'"
            raise StatementSyntaxError(f"this is not an IRI in full: {problem}", span=span_of(text), hint=hint)
        return Parsed(RegisterPrefix(name, iri), span_of(keyword))

    def drop_prefix(self, keyword: Token, name: Name) -> Parsed:
        return Parsed(DropPrefix(name), span_of(keyword))

    def graph(self, token: Token) -> Graph:
        return read_graph(token)
