"""Graph patterns as written: `graph { ?page ex:project ?p ; a ex:Page . filter(?y > 2003) }`.

In: the token of a whole block. Out: a `Graph`, its terms canonical, every variable with its place; or an error that
points into the block. The syntax of the edges is SPARQL's (SPARQL 1.1, section 4), the rest as far as a pattern that
holds or not needs it.
"""

from __future__ import annotations

from runnel.algebra.graphs.edges import MOST_EDGES, MOST_VARIABLES, Edge, GraphFilter
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.calls import Variable
from runnel.errors import InvalidConditionError, StatementError, StatementSyntaxError
from runnel.language.graphs.graph_blocks import BlockReader
from runnel.language.graphs.graph_filters import FilterReader, joined
from runnel.language.graphs.graph_terms import TermReader
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.script_tokens import Token

_UNSUPPORTED = {
    "optional": "a pattern holds or not, whatever else is there: leave out what need not be there",
    "union": "write two blocks: graph { … } or graph { … }",
    "minus": "write two blocks: graph { … } and not graph { … }",
    "not": "write it beside the block: graph { … } and not graph { … }",
    "exists": "write it beside the block: graph { … } and not graph { … }",
    "values": "write: filter(?x in (ex:a, ex:b))",
    "bind": "name what an edge leads to, and compare it with filter(…)",
    "base": "write IRIs in full, or say a prefix: prefix ex: <http://muse.example/>",
    "graph": "an item has one graph: write its edges right in the block",
}
_OTHERS = frozenset({"select", "where", "service", "group", "having", "order", "limit", "ask", "construct", "let"})
_PLAIN = "a block has edges, filter(…) and prefix ex: <…>, and nothing else"
_GROUPS = "a block has no inner blocks: write graph { … } or graph { … }"


def read_graph(token: Token, *, is_open: bool = False) -> Graph:
    """The pattern of a block; one that is open, because no brace closes it, is refused where it goes wrong.

    >>> read_graph(Token("graph { ?page rdf:type ?kind ; <urn:year> 2003 }")).edges[1]
    Edge(subject=Variable(name='page'), label='<urn:year>', object='"2003"^^<http://www.w3.org/2001/XMLSchema#integer>')
    """
    return _Pattern(BlockReader(token, is_open=is_open)).read()


class _Pattern:
    """One block that is being read."""

    def __init__(self, reader: BlockReader) -> None:
        self._reader = reader
        self._terms = TermReader(reader)
        self._filters = FilterReader(reader, self._terms)
        self._edges: list[Edge] = []

    def read(self) -> Graph:
        """The whole pattern, up to the closing brace."""
        reader = self._reader
        found: list[GraphFilter] = []
        while not reader.is_sign("}"):
            beginning = reader.word
            match beginning:
                case "filter":
                    reader.take()
                    found.append(self._filters.filter())
                case "prefix":
                    reader.take()
                    self._terms.declare_prefix()
                    continue  # no dot behind it
                case "":
                    self._read_edges()
                    if reader.is_sign("}") or reader.word == "filter":
                        continue
                    if not reader.is_sign("."):
                        raise self._no_dot()
                case word:
                    raise self._strange(word)
            if reader.is_sign("."):
                reader.take()
        self._check()
        place = reader.span(0, len("graph"))
        return Graph(tuple(self._edges), joined(found) if found else None, place=place)

    def _read_edges(self) -> None:
        """A subject with its labels, which `;` separates, and their objects, which `,` separates."""
        reader, terms = self._reader, self._terms
        if reader.is_sign("{"):
            raise reader.unsupported("groups in braces", _GROUPS)
        subject = terms.node("subject")
        while True:
            label = terms.node("label")
            if reader.kind == "sign" and reader.text in "/|*+?^":
                raise terms.refused_path()
            self._add(Edge(subject, label, terms.node("object")))
            while reader.is_sign(","):
                reader.take()
                self._add(Edge(subject, label, terms.node("object")))
            if not reader.is_sign(";"):
                return
            while reader.is_sign(";"):
                reader.take()
            if reader.is_sign(".") or reader.is_sign("}") or reader.word == "filter":
                return

    def _add(self, edge: Edge) -> None:
        self._edges.append(edge)
        if len(self._edges) > MOST_EDGES:
            raise InvalidConditionError(
                f"a graph pattern has at most {MOST_EDGES} edges",
                span=self._reader.here,
                hint="write two blocks that share variables: graph { … } and graph { … }",
            )

    def _check(self) -> None:
        """A pattern has an edge, few variables, and its filters compare only what its edges lead to."""
        if not self._edges:
            raise InvalidConditionError(
                "a graph pattern needs at least one edge",
                span=self._reader.here,
                hint="write a subject, a label and an object: graph { ?page rdf:type ?kind }",
            )
        nodes = [node for edge in self._edges for node in edge.nodes if isinstance(node, Variable)]
        bound = {node.name: node for node in nodes}
        if len(bound) > MOST_VARIABLES:
            raise InvalidConditionError(
                f"a graph pattern has at most {MOST_VARIABLES} variables, blank nodes included",
                span=list(bound.values())[MOST_VARIABLES].place,
                hint="write two blocks that share variables: graph { … } and graph { … }",
            )
        for one in self._filters.used:
            if one.name not in bound:
                near = did_you_mean(f"?{one.name}", [f"?{name}" for name in bound if not name.startswith("_:")])
                hint = near or "an edge of the same block must have it; what operators find is compared beside it"
                raise InvalidConditionError(f"no edge of this block has ?{one.name}", span=one.place, hint=hint)

    def _no_dot(self) -> StatementError:
        """What stands behind an edge and is no dot."""
        reader = self._reader
        hint = None
        match reader.kind:
            case "text" if reader.text[0] == "'":
                hint = "inside graph { … } a quote in a text is written \\'"
            case "text":
                hint = "texts stand in one pair of quotes; a new line is written \\n"
            case "word" if reader.word == "and":
                hint = "edges are separated by a dot"
            case "word" if reader.word in _UNSUPPORTED or reader.word in _OTHERS:
                return self._strange(reader.word)
            case "variable" | "name" | "iri" | "blank":
                hint = "is a dot missing before it?"
            case "sign" if reader.text == "{":
                return reader.unsupported("groups in braces", _GROUPS)
        return reader.expected("`.`, `;`, `,` or `}`", hint)

    def _strange(self, word: str) -> StatementError:
        reader = self._reader
        if word in _UNSUPPORTED or word in _OTHERS:
            return reader.unsupported(word, _UNSUPPORTED.get(word, _PLAIN))
        if word in ("true", "false", "a"):
            return StatementSyntaxError(f"an edge cannot begin with {word}", span=reader.here, hint=_PLAIN)
        near = did_you_mean(word, ("filter", "prefix"))
        hint = near or f"names have a prefix, such as ex:{word}, and variables begin with ?"
        return reader.expected("an edge, `filter`, `prefix` or `}`", hint)
