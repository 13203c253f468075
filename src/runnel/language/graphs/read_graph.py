"""Parsing of a graph block: `graph { ?page ex:project ?p ; a ex:Page . filter(?y > 2003) }`.

In: the token of a whole block. Out: a `Graph` with canonical terms and the spans of its variables, or an error that
points into the block. Edges have the syntax of SPARQL 1.1, section 4. Of the rest of SPARQL, only `filter` and
`prefix` are supported.
"""

from __future__ import annotations

from runnel.algebra.graphs.edges import MAX_EDGES, MAX_VARIABLES, Edge, GraphFilter
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.calls import Variable
from runnel.errors import InvalidConditionError, StatementError, StatementSyntaxError
from runnel.language.graphs.graph_blocks import BlockReader
from runnel.language.graphs.graph_filters import FilterReader, join_filters
from runnel.language.graphs.graph_terms import TermReader
from runnel.language.nearest import did_you_mean
from runnel.language.syntax.script_tokens import Token

_UNSUPPORTED_HINTS = {
    "optional": "remove it: an optional edge does not change whether the pattern holds",
    "union": "write two blocks: graph { … } or graph { … }",
    "minus": "write two blocks: graph { … } and not graph { … }",
    "not": "write a second block: graph { … } and not graph { … }",
    "exists": "write a second block: graph { … } and not graph { … }",
    "values": "write: filter(?x in (ex:a, ex:b))",
    "bind": "use a variable as the object of an edge, and compare it in filter(…)",
    "base": "write full IRIs, or define a prefix: prefix ex: <http://muse.example/>",
    "graph": "an item has only one graph: write its edges directly in the block",
}
_OTHER_KEYWORDS = frozenset(
    {"select", "where", "service", "group", "having", "order", "limit", "ask", "construct", "let"}
)
_CONTENTS_HINT = "a block contains only edges, filter(…) and prefix ex: <…>"
_GROUPS_HINT = "blocks cannot be nested: write graph { … } or graph { … }"


def read_graph(token: Token, *, is_open: bool = False) -> Graph:
    """Read the pattern of a block. If `is_open`, the block has no closing brace, and an error is raised.

    >>> read_graph(Token("graph { ?page rdf:type ?kind ; <urn:year> 2003 }")).edges[1]
    Edge(subject=Variable(name='page'), label='<urn:year>', object='"2003"^^<http://www.w3.org/2001/XMLSchema#integer>')
    """
    return _PatternReader(BlockReader(token, is_open=is_open)).read()


class _PatternReader:
    """Reads the pattern of one block."""

    def __init__(self, reader: BlockReader) -> None:
        self._reader = reader
        self._terms = TermReader(reader)
        self._filters = FilterReader(reader, self._terms)
        self._edges: list[Edge] = []

    def read(self) -> Graph:
        """Read the whole pattern, up to the closing brace."""
        reader = self._reader
        filters: list[GraphFilter] = []
        while not reader.is_sign("}"):
            first_word = reader.word
            match first_word:
                case "filter":
                    reader.take()
                    filters.append(self._filters.filter())
                case "prefix":
                    reader.take()
                    self._terms.declare_prefix()
                    continue  # no dot follows
                case "":
                    self._read_edges()
                    if reader.is_sign("}") or reader.word == "filter":
                        continue
                    if not reader.is_sign("."):
                        raise self._missing_dot()
                case word:
                    raise self._unexpected_word(word)
            if reader.is_sign("."):
                reader.take()
        self._check()
        span = reader.span(0, len("graph"))
        return Graph(tuple(self._edges), join_filters(filters) if filters else None, span=span)

    def _read_edges(self) -> None:
        """Read a subject and its edges. `;` separates labels, and `,` separates the objects of a label."""
        reader, terms = self._reader, self._terms
        if reader.is_sign("{"):
            raise reader.unsupported("groups in braces", _GROUPS_HINT)
        subject = terms.read_node("subject")
        while True:
            label = terms.read_node("label")
            if reader.kind == "sign" and reader.text in "/|*+?^":
                raise terms.path_error()
            self._add(Edge(subject, label, terms.read_node("object")))
            while reader.is_sign(","):
                reader.take()
                self._add(Edge(subject, label, terms.read_node("object")))
            if not reader.is_sign(";"):
                return
            while reader.is_sign(";"):
                reader.take()
            if reader.is_sign(".") or reader.is_sign("}") or reader.word == "filter":
                return

    def _add(self, edge: Edge) -> None:
        self._edges.append(edge)
        if len(self._edges) > MAX_EDGES:
            raise InvalidConditionError(
                f"a graph pattern can have at most {MAX_EDGES} edges",
                span=self._reader.here,
                hint="write two blocks that share variables: graph { … } and graph { … }",
            )

    def _check(self) -> None:
        """Check that the pattern has an edge, not too many variables, and filters only on variables of its edges."""
        if not self._edges:
            raise InvalidConditionError(
                "a graph pattern needs at least one edge",
                span=self._reader.here,
                hint="write a subject, a label and an object: graph { ?page rdf:type ?kind }",
            )
        nodes = [node for edge in self._edges for node in edge.nodes if isinstance(node, Variable)]
        bound = {node.name: node for node in nodes}
        if len(bound) > MAX_VARIABLES:
            raise InvalidConditionError(
                f"a graph pattern can have at most {MAX_VARIABLES} variables, including blank nodes",
                span=list(bound.values())[MAX_VARIABLES].span,
                hint="write two blocks that share variables: graph { … } and graph { … }",
            )
        for variable in self._filters.used:
            if variable.name not in bound:
                names = [f"?{name}" for name in bound if not name.startswith("_:")]
                raise InvalidConditionError(
                    f"no edge of this block has ?{variable.name}",
                    span=variable.span,
                    hint=did_you_mean(f"?{variable.name}", names)
                    or "add an edge with this variable; compare results of operators outside the block",
                )

    def _missing_dot(self) -> StatementError:
        """Return the error for a word after an edge that is not a dot."""
        reader = self._reader
        hint = None
        match reader.kind:
            case "text" if reader.text[0] == "'":
                hint = "inside graph { … }, write a quote in a text as \\'"
            case "text":
                hint = "write a text in one pair of quotes, with a line break as \\n"
            case "word" if reader.word == "and":
                hint = "separate edges with a dot"
            case "word" if reader.word in _UNSUPPORTED_HINTS or reader.word in _OTHER_KEYWORDS:
                return self._unexpected_word(reader.word)
            case "variable" | "name" | "iri" | "blank":
                hint = "is a dot missing before it?"
            case "sign" if reader.text == "{":
                return reader.unsupported("groups in braces", _GROUPS_HINT)
        return reader.expected("`.`, `;`, `,` or `}`", hint)

    def _unexpected_word(self, word: str) -> StatementError:
        reader = self._reader
        if word in _UNSUPPORTED_HINTS or word in _OTHER_KEYWORDS:
            return reader.unsupported(word, _UNSUPPORTED_HINTS.get(word, _CONTENTS_HINT))
        if word in ("true", "false", "a"):
            return StatementSyntaxError(f"an edge cannot begin with {word}", span=reader.here, hint=_CONTENTS_HINT)
        near = did_you_mean(word, ("filter", "prefix"))
        hint = near or f"names have a prefix, such as ex:{word}, and variables begin with ?"
        return reader.expected("an edge, `filter`, `prefix` or `}`", hint)
