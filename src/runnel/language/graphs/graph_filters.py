"""Filters of graph patterns: `filter(?x > 2003 and not (?y = "a" or ?z in (ex:a, ex:b)))`.

In: the next words of a block. Out: a filter of the algebra in canonical shape: flat, `in` spelt out, variables on the
left of constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, GraphFilter, Node
from runnel.algebra.nodes.calls import Relation, Variable
from runnel.errors import InvalidConditionError, StatementError
from runnel.language.graphs.graph_blocks import BlockReader
from runnel.language.graphs.graph_terms import TermReader
from runnel.language.syntax.nesting import DEEPEST, too_deep

_TURNED: dict[Relation, Relation] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CALCULATION = frozenset("+-*/")
_FUNCTION_HINT = "a filter compares variables with one another and with constants; computing is for operators"
_EXISTS_HINT = "write it beside the block: graph { … } and not graph { … }"


def joined(parts: Sequence[GraphFilter]) -> GraphFilter:
    """All parts hold.

    >>> one = Comparison(Variable("x"), "=", '"a"')
    >>> joined([one]) == one, joined([one, AllOf((one, one))]) == AllOf((one, one, one))
    (True, True)
    """
    return _flat(AllOf, parts)


def _flat(kind: type[AllOf] | type[AnyOf], parts: Sequence[GraphFilter]) -> GraphFilter:
    flat = [one for part in parts for one in (part.parts if isinstance(part, kind) else (part,))]
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


class FilterReader:
    """Reads filters; `used` are the variables that they compare."""

    def __init__(self, reader: BlockReader, terms: TermReader) -> None:
        self._reader = reader
        self._terms = terms
        self._depth = 0
        self.used: list[Variable] = []

    def filter(self) -> GraphFilter:
        """`( … )` behind the word `filter`."""
        reader = self._reader
        place = reader.here
        if not reader.is_sign("("):
            if reader.word == "not":
                raise reader.unsupported("not exists", _EXISTS_HINT)
            self._refuse_function()
            raise reader.expected("`(`", "write: filter(?x > 2003)")
        found = self._parenthesised()
        # What is printed may have more parentheses than what was written.
        if _nesting(found) > DEEPEST:
            raise too_deep(place)
        return found

    def _parenthesised(self) -> GraphFilter:
        reader = self._reader
        self._depth += 1
        if self._depth > DEEPEST + 1:
            raise too_deep(reader.here)
        opened = reader.here
        reader.take()
        found = self._any()
        if not reader.is_sign(")"):
            hint = f"the ( at line {opened.line}, column {opened.column} is not closed"
            raise reader.expected("`and`, `or` or `)`", hint)
        reader.take()
        self._depth -= 1
        return found

    def _any(self) -> GraphFilter:
        parts = [self._all()]
        while self._reader.word == "or" or self._reader.is_sign("||"):
            self._reader.take()
            parts.append(self._all())
        return _flat(AnyOf, parts)

    def _all(self) -> GraphFilter:
        parts = [self._one()]
        while self._reader.word == "and" or self._reader.is_sign("&&"):
            self._reader.take()
            parts.append(self._one())
        return _flat(AllOf, parts)

    def _one(self) -> GraphFilter:
        """A comparison or a group, with any number of `not` before it."""
        reader = self._reader
        negations = 0
        while reader.word == "not" or reader.is_sign("!"):
            negations += 1
            is_sign = reader.kind == "sign"
            reader.take()
            if is_sign and not (reader.is_sign("(") or reader.is_sign("!")):
                raise reader.expected("`(` after `!`", "put what ! negates into parentheses: !(?x = 2003)")
        self._refuse_function()
        found = self._parenthesised() if reader.is_sign("(") else self._comparison()
        if negations > DEEPEST:
            raise too_deep(reader.here)
        for _ in range(negations):
            found = Complement(found)
        return found

    def _comparison(self) -> GraphFilter:
        reader = self._reader
        start = reader.start
        left = self._operand()
        relation = reader.take_relation()
        match relation:
            case None:
                raise self._no_relation()
            case "in":
                return _flat(AnyOf, [self._compare(left, "=", one, start) for one in self._list()])
            case "not":
                reader.take()
                return _flat(AllOf, [self._compare(left, "!=", one, start) for one in self._list()])
            case sign:
                return self._compare(left, cast(Relation, "!=" if sign == "<>" else sign), self._operand(), start)

    def _compare(self, left: Node, relation: Relation, right: Node, start: int) -> Comparison:
        if isinstance(left, Variable):
            return Comparison(left, relation, right)
        if not isinstance(right, Variable):
            raise InvalidConditionError(
                "a comparison of constants says nothing of the graph",
                span=self._reader.span(start, start + 1),
                hint="compare a variable of an edge: ?page ex:year ?y . filter(?y > 2003)",
            )
        return Comparison(right, _TURNED[relation], left)

    def _list(self) -> list[Node]:
        reader = self._reader
        if not reader.is_sign("("):
            raise reader.expected("`(`", "write: ?x in (2003, 2004)")
        reader.take()
        found = {self._operand(): None}
        while reader.is_sign(","):
            reader.take()
            found[self._operand()] = None
        if not reader.is_sign(")"):
            raise reader.expected("`,` or `)`")
        reader.take()
        return list(found)

    def _operand(self) -> Node:
        reader = self._reader
        if reader.is_sign("="):
            raise reader.expected("a variable or a constant", "write = once")
        self._refuse_function()
        start = reader.start
        found = self._terms.node("operand")
        if reader.is_sign("(") and not isinstance(found, Variable):
            raise reader.unsupported("functions", _FUNCTION_HINT, start=start)
        if isinstance(found, Variable):
            self.used.append(found)
        return found

    def _refuse_function(self) -> None:
        """A word that is no part of a filter is most often the name of a function."""
        reader = self._reader
        if reader.kind == "word" and reader.word not in ("true", "false", "not"):
            if reader.word == "exists":
                raise reader.unsupported("exists", _EXISTS_HINT)
            if reader.is_call():
                raise reader.unsupported(f"functions such as {reader.text}(…)", _FUNCTION_HINT)

    def _no_relation(self) -> StatementError:
        reader = self._reader
        if reader.text[:1] in _CALCULATION:
            return reader.unsupported("calculations", _FUNCTION_HINT)
        hint = None
        match reader.word:
            case "between":
                hint = "write: ?x >= 2003 and ?x <= 2010"
            case "contains" | "like" | "matches":
                hint = "a filter compares whole terms; texts of the item are found with: title contains 'rock'"
        if reader.is_sign("="):
            hint = "write = once"
        return reader.expected("a comparison (= != < <= > >= or in)", hint)


def _nesting(one: GraphFilter) -> int:
    """How many pairs of parentheses lie within each other at most when the filter is printed."""
    match one:
        case AllOf(parts) | AnyOf(parts):
            return 1 + max(map(_nesting, parts))
        case Complement(part) | Certain(part):
            return 1 + _nesting(part)
        case Comparison():
            return 0
