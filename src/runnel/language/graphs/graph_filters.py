"""Parsing of the filters of graph patterns: `filter(?x > 2003 and not (?y = "a" or ?z in (ex:a, ex:b)))`.

In: the next words of a block. Out: a filter of the algebra in canonical form: nested `and` and `or` are flattened,
`in` is expanded into comparisons, and variables are on the left of constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, GraphFilter, Node
from runnel.algebra.nodes.calls import Relation, Variable
from runnel.errors import InvalidConditionError, StatementError
from runnel.language.graphs.graph_blocks import BlockReader
from runnel.language.graphs.graph_terms import TermReader
from runnel.language.syntax.nesting import MAX_NESTING, nesting_error

_MIRRORED: dict[Relation, Relation] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CALCULATION_SIGNS = frozenset("+-*/")
_FUNCTION_HINT = "a filter can only compare variables and constants; use an operator for calculations"
_EXISTS_HINT = "write a second block: graph { … } and not graph { … }"


def join_filters(parts: Sequence[GraphFilter]) -> GraphFilter:
    """Return the conjunction of filters, flattened.

    >>> one = Comparison(Variable("x"), "=", '"a"')
    >>> join_filters([one]) == one, join_filters([one, AllOf((one, one))]) == AllOf((one, one, one))
    (True, True)
    """
    return _flatten(AllOf, parts)


def _flatten(kind: type[AllOf] | type[AnyOf], parts: Sequence[GraphFilter]) -> GraphFilter:
    flat = [member for part in parts for member in (part.parts if isinstance(part, kind) else (part,))]
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


class FilterReader:
    """Reads filters. `used` collects the variables that they compare."""

    def __init__(self, reader: BlockReader, terms: TermReader) -> None:
        self._reader = reader
        self._terms = terms
        self._depth = 0
        self.used: list[Variable] = []

    def filter(self) -> GraphFilter:
        """Read the `( … )` after the word `filter`."""
        reader = self._reader
        span = reader.here
        if not reader.is_sign("("):
            if reader.word == "not":
                raise reader.unsupported("not exists", _EXISTS_HINT)
            self._reject_function()
            raise reader.expected("`(`", "write: filter(?x > 2003)")
        group = self._read_group()
        # The canonical text can have more parentheses than the source.
        if _nesting(group) > MAX_NESTING:
            raise nesting_error(span)
        return group

    def _read_group(self) -> GraphFilter:
        reader = self._reader
        self._depth += 1
        if self._depth > MAX_NESTING + 1:
            raise nesting_error(reader.here)
        opened = reader.here
        reader.take()
        group = self._read_disjunction()
        if not reader.is_sign(")"):
            hint = f"the ( at line {opened.line}, column {opened.column} is not closed"
            raise reader.expected("`and`, `or` or `)`", hint)
        reader.take()
        self._depth -= 1
        return group

    def _read_disjunction(self) -> GraphFilter:
        parts = [self._read_conjunction()]
        while self._reader.word == "or" or self._reader.is_sign("||"):
            self._reader.take()
            parts.append(self._read_conjunction())
        return _flatten(AnyOf, parts)

    def _read_conjunction(self) -> GraphFilter:
        parts = [self._read_negation()]
        while self._reader.word == "and" or self._reader.is_sign("&&"):
            self._reader.take()
            parts.append(self._read_negation())
        return _flatten(AllOf, parts)

    def _read_negation(self) -> GraphFilter:
        """Read a comparison or a group, with any number of `not` before it."""
        reader = self._reader
        negations = 0
        while reader.word == "not" or reader.is_sign("!"):
            negations += 1
            is_sign = reader.kind == "sign"
            reader.take()
            if is_sign and not (reader.is_sign("(") or reader.is_sign("!")):
                raise reader.expected("`(` after `!`", "write the negated comparison in parentheses: !(?x = 2003)")
        self._reject_function()
        negated = self._read_group() if reader.is_sign("(") else self._read_comparison()
        if negations > MAX_NESTING:
            raise nesting_error(reader.here)
        for _ in range(negations):
            negated = Complement(negated)
        return negated

    def _read_comparison(self) -> GraphFilter:
        reader = self._reader
        start = reader.start
        left = self._read_operand()
        relation = reader.take_relation()
        match relation:
            case None:
                raise self._missing_relation()
            case "in":
                return _flatten(AnyOf, [self._compare(left, "=", option, start) for option in self._read_list()])
            case "not":
                reader.take()
                options = self._read_list()
                return _flatten(AllOf, [self._compare(left, "!=", option, start) for option in options])
            case sign:
                return self._compare(
                    left, cast(Relation, "!=" if sign == "<>" else sign), self._read_operand(), start
                )

    def _compare(self, left: Node, relation: Relation, right: Node, start: int) -> Comparison:
        if isinstance(left, Variable):
            return Comparison(left, relation, right)
        if not isinstance(right, Variable):
            raise InvalidConditionError(
                "a comparison of two constants does not depend on the graph",
                span=self._reader.span(start, start + 1),
                hint="compare a variable of an edge: ?page ex:year ?y . filter(?y > 2003)",
            )
        return Comparison(right, _MIRRORED[relation], left)

    def _read_list(self) -> list[Node]:
        reader = self._reader
        if not reader.is_sign("("):
            raise reader.expected("`(`", "write: ?x in (2003, 2004)")
        reader.take()
        operands = {self._read_operand(): None}
        while reader.is_sign(","):
            reader.take()
            operands[self._read_operand()] = None
        if not reader.is_sign(")"):
            raise reader.expected("`,` or `)`")
        reader.take()
        return list(operands)

    def _read_operand(self) -> Node:
        reader = self._reader
        if reader.is_sign("="):
            raise reader.expected("a variable or a constant", "write = once")
        self._reject_function()
        start = reader.start
        operand = self._terms.read_node("operand")
        if reader.is_sign("(") and not isinstance(operand, Variable):
            raise reader.unsupported("functions", _FUNCTION_HINT, start=start)
        if isinstance(operand, Variable):
            self.used.append(operand)
        return operand

    def _reject_function(self) -> None:
        """Raise an error if the next word is `exists` or the name of a function."""
        reader = self._reader
        if reader.kind == "word" and reader.word not in ("true", "false", "not"):
            if reader.word == "exists":
                raise reader.unsupported("exists", _EXISTS_HINT)
            if reader.is_call():
                raise reader.unsupported(f"functions such as {reader.text}(…)", _FUNCTION_HINT)

    def _missing_relation(self) -> StatementError:
        reader = self._reader
        if reader.text[:1] in _CALCULATION_SIGNS:
            return reader.unsupported("calculations", _FUNCTION_HINT)
        hint = None
        match reader.word:
            case "between":
                hint = "write: ?x >= 2003 and ?x <= 2010"
            case "contains" | "like" | "matches":
                hint = "a filter compares whole terms; to find words in an attribute write: title contains 'rock'"
        if reader.is_sign("="):
            hint = "write = once"
        return reader.expected("a comparison (= != < <= > >= or in)", hint)


def _nesting(graph_filter: GraphFilter) -> int:
    """Return how deeply parentheses are nested when the filter is printed."""
    match graph_filter:
        case AllOf(parts) | AnyOf(parts):
            return 1 + max(map(_nesting, parts))
        case Complement(part) | Certain(part):
            return 1 + _nesting(part)
        case Comparison():
            return 0
