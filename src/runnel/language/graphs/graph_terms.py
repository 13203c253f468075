"""The nodes of graph patterns: IRIs, names with prefixes, literals, variables and blank nodes.

In: the next words of a block. Out: a node of the algebra, its terms as canonical N-Triples writes them.
"""

from __future__ import annotations

import re

from runnel.algebra.graphs.edges import Node
from runnel.algebra.graphs.rdf_terms import BOOLEAN, DECIMAL, DOUBLE, INTEGER
from runnel.algebra.nodes.calls import Variable
from runnel.errors import InvalidConditionError, StatementSyntaxError, UnknownNameError
from runnel.language.graphs.graph_blocks import BlockReader
from runnel.language.graphs.iri_prefixes import KNOWN_PREFIXES, PrefixedName, checked_term, problem_of_iri
from runnel.model.graph import escape_text, unescape_text
from runnel.model.item import MAX_NAME

TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
"""What `a` stands for between a subject and an object."""

_ESCAPED = re.compile(r"(?:[^\\]|\\(?:[tbnrf\"'\\]|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}))*+")
_NOUNS = {"subject": "a subject", "label": "a label", "object": "an object", "operand": "a variable or a constant"}
_EXAMPLES = {
    "subject": " (an IRI, a name such as ex:page, or a variable such as ?x)",
    "label": " (an IRI, a name such as ex:year, `a`, or a variable such as ?x)",
    "object": " (an IRI, a name, a variable, a text or a number)",
    "operand": "",
}
_PATHS = frozenset("/|*+?^!(")


class TermReader:
    """Reads nodes, and knows the prefixes and blank nodes of its block."""

    def __init__(self, reader: BlockReader) -> None:
        self._reader = reader
        self._prefixes: dict[str, str] = {}
        self._fresh = 0

    def declare_prefix(self) -> None:
        """`prefix ex: <http://…>`, of which the first word is taken already."""
        reader = self._reader
        prefix, _, local = reader.text.partition(":")
        if reader.kind != "name" or local:
            raise reader.expected("a prefix with its colon, such as ex:", "write: prefix ex: <http://muse.example/>")
        reader.take()
        if reader.kind != "iri":
            raise reader.expected("an IRI such as <http://muse.example/>")
        self._prefixes[prefix] = self._iri()[1:-1]

    def node(self, role: str) -> Node:
        """The next node, as a subject, label, object, or operand of a comparison."""
        reader = self._reader
        match reader.kind:
            case "variable":
                return self._variable()
            case "name":
                return self._name()
            case "iri":
                return self._iri()
            case "blank":
                return self._blank(role)
            case "text" | "number":
                self._refuse_literal(role)
                return self._text() if reader.kind == "text" else self._number()
            case "word":
                return self._word(role)
            case _:
                return self._sign(role)

    def _variable(self) -> Variable:
        reader = self._reader
        place = reader.here
        if len(reader.text) > MAX_NAME + 1:
            raise StatementSyntaxError(f"a variable's name has at most {MAX_NAME} characters", span=place)
        return Variable(reader.take()[1:], place)

    def _name(self, before: str = "") -> str:
        """A name with its prefix, in full if the prefix is known here."""
        reader = self._reader
        place = reader.here
        prefix, _, local = reader.take().partition(":")
        beginning = self._prefixes.get(prefix) or KNOWN_PREFIXES.get(prefix)
        if beginning is None:
            if not prefix:
                hint = "begin the block with: prefix : <http://muse.example/>"
                raise UnknownNameError("the empty prefix stands for nothing here", span=place, hint=hint)
            return PrefixedName.of(prefix, local, place, before)
        return f"{before}<{beginning}{local}>"

    def _iri(self) -> str:
        reader = self._reader
        place = reader.here
        iri = self._unescaped(reader.start, reader.take())
        problem = problem_of_iri(iri[1:-1])
        if problem is not None:
            raise InvalidConditionError(
                f"{iri if len(iri) < 40 else iri[:40] + '…'} is not an IRI in full: {problem}",
                span=place,
                hint="write all of it, such as <http://muse.example/year>, or a name with a prefix, such as ex:year",
            )
        return iri

    def _blank(self, role: str) -> Variable:
        reader = self._reader
        if role in ("label", "operand"):
            raise InvalidConditionError(
                f"a blank node cannot be {'a label' if role == 'label' else 'compared'}",
                span=reader.here,
                hint=f"give it a name: ?{re.sub(r'[^A-Za-z0-9]', '_', reader.text[2:])}",
            )
        place = reader.here
        if len(reader.text) > MAX_NAME:
            raise StatementSyntaxError(f"a blank node's name has at most {MAX_NAME} characters", span=place)
        return Variable(reader.take(), place)

    def _refuse_literal(self, role: str) -> None:
        if role in ("subject", "label"):
            raise InvalidConditionError(
                f"a literal cannot be {_NOUNS[role]}",
                span=self._reader.here,
                hint="only objects can be texts, numbers and truths, as in ?page ex:year 2003",
            )

    def _text(self) -> str:
        reader = self._reader
        place = reader.here
        literal = f'"{escape_text(self._unescaped(reader.start, reader.take())[1:-1])}"'
        if reader.kind == "tag":
            return checked_term(literal + reader.take(), place)
        if not reader.is_sign("^^"):
            return literal
        reader.take()
        match reader.kind:
            case "iri":
                return checked_term(f"{literal}^^{self._iri()}", place)
            case "name":
                found = self._name(f"{literal}^^")
                return found if isinstance(found, PrefixedName) else checked_term(found, place)
        raise reader.expected("a type such as xsd:date")

    def _unescaped(self, start: int, written: str) -> str:
        """A text or an IRI, as it is written in its quotes or brackets, without escapes."""
        if "\\" not in written:
            return written
        reader = self._reader
        right = _ESCAPED.match(written)
        end = right.end() if right else 0
        if end < len(written):
            raise StatementSyntaxError(
                f"\\{written[end + 1]} stands for nothing in a text",
                span=reader.span(start + end, start + end + 2),
                hint="write \\\\ for a backslash; there are \\t \\n \\r \\b \\f \\\" \\' \\u00e9 and \\U0001f3b8",
            )
        try:
            return unescape_text(written)
        except ValueError as error:
            raise StatementSyntaxError(str(error), span=reader.span(start, start + len(written))) from None

    def _number(self) -> str:
        number = self._reader.take()
        kind = DOUBLE if "e" in number or "E" in number else DECIMAL if "." in number else INTEGER
        return f'"{number}"^^<{kind}>'

    def _word(self, role: str) -> Node:
        reader = self._reader
        match reader.text, role:
            case "a", "label":
                reader.take()
                return TYPE
        match reader.word:
            case "true" | "false" as truth:
                self._refuse_literal(role)
                reader.take()
                return f'"{truth}"^^<{BOOLEAN}>'
            case word:
                hint = "names have a prefix, such as ex:year, and variables begin with ?"
                near = f'; did you mean ?{word} or "{word}"?' if role in ("object", "operand") else ""
                raise reader.expected(f"{_NOUNS[role]}{_EXAMPLES[role]}", hint + near)

    def _sign(self, role: str) -> Node:
        reader = self._reader
        sign = reader.text
        if role == "label" and sign in _PATHS:
            raise self.refused_path()
        if sign == "[" and role != "operand":
            return self._anonymous(role)
        if sign == "(" and role != "operand":
            raise reader.unsupported("lists", "write the edges of the list one by one, with rdf:first and rdf:rest")
        raise reader.expected(f"{_NOUNS[role]}{_EXAMPLES[role]}")

    def refused_path(self) -> InvalidConditionError:
        """The refusal of a property path at the next word."""
        hint = "write every step as an edge of its own: ?a ex:knows ?b . ?b ex:knows ?c"
        return self._reader.unsupported("property paths", hint)

    def _anonymous(self, role: str) -> Variable:
        """`[]`: a blank node that is named nowhere else."""
        reader = self._reader
        start, place = reader.start, reader.here
        reader.take()
        if not reader.is_sign("]"):
            raise reader.unsupported("edges in brackets", "give the node a name: _:x ex:year ?y", start=start)
        if role == "label":
            raise InvalidConditionError("a blank node cannot be a label", span=place, hint="give it a name: ?label")
        reader.take()
        self._fresh += 1
        return Variable(f"_:anonymous{self._fresh}", place)
