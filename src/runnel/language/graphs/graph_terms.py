"""Parsing of the nodes of graph patterns: IRIs, names with prefixes, literals, variables and blank nodes.

In: the next words of a block. Out: a node of the algebra. Its terms are in canonical N-Triples syntax.
"""

from __future__ import annotations

import re

from runnel.algebra.graphs.edges import Node
from runnel.algebra.graphs.rdf_terms import BOOLEAN, DECIMAL, DOUBLE, INTEGER
from runnel.algebra.nodes.calls import Variable
from runnel.errors import InvalidConditionError, StatementSyntaxError, UnknownNameError
from runnel.language.graphs.graph_blocks import BlockReader
from runnel.language.graphs.iri_prefixes import PREDEFINED_PREFIXES, PrefixedName, canonicalize_term, find_iri_problem
from runnel.model.graph import escape_text, unescape_text
from runnel.model.item import MAX_NAME

RDF_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
"""The IRI that the label `a` abbreviates."""

_VALID_ESCAPES = re.compile(r"(?:[^\\]|\\(?:[tbnrf\"'\\]|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}))*+")
_NOUNS = {"subject": "a subject", "label": "a label", "object": "an object", "operand": "a variable or a constant"}
_EXAMPLES = {
    "subject": " (an IRI, a name such as ex:page, or a variable such as ?x)",
    "label": " (an IRI, a name such as ex:year, `a`, or a variable such as ?x)",
    "object": " (an IRI, a name, a variable, a text or a number)",
    "operand": "",
}
_PATH_SIGNS = frozenset("/|*+?^!(")


class TermReader:
    """Reads nodes. It keeps the prefixes of its block and numbers the anonymous blank nodes."""

    def __init__(self, reader: BlockReader) -> None:
        self._reader = reader
        self._prefixes: dict[str, str] = {}
        self._anonymous_nodes = 0

    def declare_prefix(self) -> None:
        """Read the rest of `prefix ex: <http://…>`; the word `prefix` has been read."""
        reader = self._reader
        prefix, _, local = reader.text.partition(":")
        if reader.kind != "name" or local:
            raise reader.expected("a prefix with its colon, such as ex:", "write: prefix ex: <http://muse.example/>")
        reader.take()
        if reader.kind != "iri":
            raise reader.expected("an IRI such as <http://muse.example/>")
        self._prefixes[prefix] = self._read_iri()[1:-1]

    def read_node(self, role: str) -> Node:
        """Read the next node. `role` is subject, label, object, or operand (of a comparison)."""
        reader = self._reader
        match reader.kind:
            case "variable":
                return self._read_variable()
            case "name":
                return self._read_name()
            case "iri":
                return self._read_iri()
            case "blank":
                return self._read_blank(role)
            case "text" | "number":
                self._reject_literal(role)
                return self._read_text() if reader.kind == "text" else self._read_number()
            case "word":
                return self._read_word(role)
            case _:
                return self._read_sign(role)

    def _read_variable(self) -> Variable:
        reader = self._reader
        span = reader.here
        if len(reader.text) > MAX_NAME + 1:
            raise StatementSyntaxError(f"variable names must have at most {MAX_NAME} characters", span=span)
        return Variable(reader.take()[1:], span)

    def _read_name(self, before: str = "") -> str:
        """Read a name with a prefix. Expand the prefix if the block or the language defines it.

        `before` is the part of a typed literal before its type: a text in quotes and `^^`.
        """
        reader = self._reader
        span = reader.here
        prefix, _, local = reader.take().partition(":")
        expansion = self._prefixes.get(prefix) or PREDEFINED_PREFIXES.get(prefix)
        if expansion is None:
            if not prefix:
                hint = "begin the block with: prefix : <http://muse.example/>"
                raise UnknownNameError("this block does not define the empty prefix", span=span, hint=hint)
            return PrefixedName.of(prefix, local, span, before)
        return f"{before}<{expansion}{local}>"

    def _read_iri(self) -> str:
        reader = self._reader
        span = reader.here
        iri = self._unescape(reader.start, reader.take())
        problem = find_iri_problem(iri[1:-1])
        if problem is not None:
            raise InvalidConditionError(
                f"{iri if len(iri) < 40 else iri[:40] + '…'} is not an absolute IRI: {problem}",
                span=span,
                hint="write a full IRI such as <http://muse.example/year>, or a name with a prefix such as ex:year",
            )
        return iri

    def _read_blank(self, role: str) -> Variable:
        reader = self._reader
        if role in ("label", "operand"):
            raise InvalidConditionError(
                f"a blank node cannot be {'a label' if role == 'label' else 'compared'}",
                span=reader.here,
                hint=f"use a variable: ?{re.sub(r'[^A-Za-z0-9]', '_', reader.text[2:])}",
            )
        span = reader.here
        if len(reader.text) > MAX_NAME:
            raise StatementSyntaxError(f"blank node names must have at most {MAX_NAME} characters", span=span)
        return Variable(reader.take(), span)

    def _reject_literal(self, role: str) -> None:
        if role in ("subject", "label"):
            raise InvalidConditionError(
                f"a literal cannot be {_NOUNS[role]}",
                span=self._reader.here,
                hint="only objects can be texts, numbers and truth values: ?page ex:year 2003",
            )

    def _read_text(self) -> str:
        reader = self._reader
        span = reader.here
        literal = f'"{escape_text(self._unescape(reader.start, reader.take())[1:-1])}"'
        if reader.kind == "tag":
            return canonicalize_term(literal + reader.take(), span)
        if not reader.is_sign("^^"):
            return literal
        reader.take()
        match reader.kind:
            case "iri":
                return canonicalize_term(f"{literal}^^{self._read_iri()}", span)
            case "name":
                term = self._read_name(f"{literal}^^")
                return term if isinstance(term, PrefixedName) else canonicalize_term(term, span)
        raise reader.expected("a type such as xsd:date")

    def _unescape(self, start: int, source: str) -> str:
        """Replace the escapes in a text or an IRI, which begins at offset `start` and includes its delimiters."""
        if "\\" not in source:
            return source
        reader = self._reader
        valid = _VALID_ESCAPES.match(source)
        end = valid.end() if valid else 0
        if end < len(source):
            raise StatementSyntaxError(
                f"\\{source[end + 1]} is not a valid escape",
                span=reader.span(start + end, start + end + 2),
                hint="write \\\\ for a backslash; escapes are \\t \\n \\r \\b \\f \\\" \\' \\u00e9 and \\U0001f3b8",
            )
        try:
            return unescape_text(source)
        except ValueError as error:
            raise StatementSyntaxError(str(error), span=reader.span(start, start + len(source))) from None

    def _read_number(self) -> str:
        number = self._reader.take()
        kind = DOUBLE if "e" in number or "E" in number else DECIMAL if "." in number else INTEGER
        return f'"{number}"^^<{kind}>'

    def _read_word(self, role: str) -> Node:
        reader = self._reader
        match reader.text, role:
            case "a", "label":
                reader.take()
                return RDF_TYPE
        match reader.word:
            case "true" | "false" as truth:
                self._reject_literal(role)
                reader.take()
                return f'"{truth}"^^<{BOOLEAN}>'
            case word:
                hint = "names have a prefix, such as ex:year, and variables begin with ?"
                near = f'; did you mean ?{word} or "{word}"?' if role in ("object", "operand") else ""
                raise reader.expected(f"{_NOUNS[role]}{_EXAMPLES[role]}", hint + near)

    def _read_sign(self, role: str) -> Node:
        reader = self._reader
        sign = reader.text
        if role == "label" and sign in _PATH_SIGNS:
            raise self.path_error()
        if sign == "[" and role != "operand":
            return self._read_anonymous(role)
        if sign == "(" and role != "operand":
            raise reader.unsupported("lists", "write the edges of the list one by one, with rdf:first and rdf:rest")
        raise reader.expected(f"{_NOUNS[role]}{_EXAMPLES[role]}")

    def path_error(self) -> InvalidConditionError:
        """Return the error for a property path at the next word."""
        hint = "write each step as a separate edge: ?a ex:knows ?b . ?b ex:knows ?c"
        return self._reader.unsupported("property paths", hint)

    def _read_anonymous(self, role: str) -> Variable:
        """Read `[]`, a blank node without a name."""
        reader = self._reader
        start, span = reader.start, reader.here
        reader.take()
        if not reader.is_sign("]"):
            raise reader.unsupported("edges in brackets", "give the node a name: _:x ex:year ?y", start=start)
        if role == "label":
            raise InvalidConditionError("a blank node cannot be a label", span=span, hint="use a variable: ?label")
        reader.take()
        self._anonymous_nodes += 1
        return Variable(f"_:anonymous{self._anonymous_nodes}", span)
