"""Recipes: how the statement of an outline is built, by the callbacks that the parser would call.

In: a syntax tree and the shape it was made of. Out: a recipe for statements of the same outline, and the makers of
the atoms and groups in it. Names, variables and keywords get tokens with their places, and so does all that operators
are asked; other conditions have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from lark import Token, Tree

from runnel.algebra.nodes.calls import Call, Constraint
from runnel.algebra.nodes.expressions import And, Atom, Expression, Not, Or, Truth
from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.nodes.terms import Term
from runnel.algebra.semantics.close_conditions import leaves
from runnel.language.bulk.outlines import MARK, AtomMaker, GroupMaker, Said
from runnel.language.bulk.positions import token_without_position
from runnel.language.grammar.transformer import StatementTransformer

Node = Tree[Token] | Token | None
Range = tuple[int, int]
"""Lexemes from the first to before the last."""

_Part = Callable[[Sequence[Expression], Sequence[Token]], Any]
_EXPRESSIONS = (*get_args(Atom), Truth, And, Or, Not)


@dataclass(frozen=True, slots=True)
class StatementRecipe:
    """How a statement is built of the expressions of its marks and of tokens.

    `placed` says which lexemes become tokens: how many lexemes and how many marks are before each, and its terminal.
    """

    placed: tuple[tuple[int, int, str], ...]
    build: _Part


@dataclass(frozen=True, slots=True)
class LearnedShapes:
    """What a syntax tree teaches: atoms and groups by shape, the outline, the widths of its marks, and a recipe."""

    atoms: Mapping[str, AtomMaker]
    groups: Mapping[str, GroupMaker]
    outline: str
    widths: list[int]
    recipe: StatementRecipe


class RecipeLearner:
    """Walks the syntax tree of a statement, calling the callbacks to see what they make of it."""

    def __init__(self, tree: Node, shape: str, starts: Sequence[int], ends: Sequence[int]) -> None:
        """`starts` and `ends` are the offsets of the lexemes, each of which has a letter in the shape."""
        self._tree = tree
        self._shape = shape
        self._starts = {offset: number for number, offset in enumerate(starts)}
        self._ends = {offset: number + 1 for number, offset in enumerate(ends)}
        self._atoms: dict[Range, Tree[Token]] = {}
        self._groups: dict[Range, Tree[Token]] = {}
        self._survey(tree)

    def teach(self) -> LearnedShapes:
        """Everything, with a mark for every expression."""
        atoms = {self._shape[start:end]: self._atom((start, end)) for start, end in self._atoms}
        groups = {self._outline(one, self._marks(one)): self._group(one) for one in self._groups}
        marks = self._marks((0, len(self._shape)), whole=True)
        outline = self._outline((0, len(self._shape)), marks)
        return LearnedShapes(atoms, groups, outline, [end - start for start, end in marks], self._recipe(marks))

    def teach_exactly(self) -> StatementRecipe:
        """A recipe for this very shape, without marks."""
        return self._recipe([])

    def _survey(self, node: Node) -> Any:
        """What a node is; notes the expressions below it."""
        if not isinstance(node, Tree):
            return node
        values = [self._survey(child) for child in node.children]
        value = _callback(node.data)(*values)
        if _is_placeless(value):
            if not any(map(_is_placeless, values)):
                self._atoms[self._own(node)] = node
            if self._container(node) != self._own(node):
                self._groups[self._container(node)] = node
        return value

    def _own(self, node: Tree[Token]) -> Range:
        return self._starts[node.meta.start_pos], self._ends[node.meta.end_pos]

    def _container(self, node: Tree[Token]) -> Range:
        """The lexemes of an expression with the parentheses around it."""
        meta = node.meta
        start = getattr(meta, "container_start_pos", meta.start_pos)
        return self._starts[start], self._ends[getattr(meta, "container_end_pos", meta.end_pos)]

    def _marks(self, within: Range, *, whole: bool = False) -> list[Range]:
        """The largest atoms and groups inside a range, in order."""
        inside = [
            one
            for one in {*self._atoms, *self._groups}
            if within[0] <= one[0] and one[1] <= within[1] and (whole or one != within)
        ]
        found: list[Range] = []
        for one in sorted(inside, key=lambda one: (one[0], -one[1])):
            if not found or one[0] >= found[-1][1]:
                found.append(one)
        return found

    def _outline(self, within: Range, marks: list[Range]) -> str:
        pieces: list[str] = []
        at = within[0]
        for start, end in marks:
            pieces.append(self._shape[at:start])
            at = end
        return MARK.join([*pieces, self._shape[at : within[1]]])

    def _recipe(self, marks: list[Range]) -> StatementRecipe:
        placed: list[tuple[int, int, str]] = []
        build = self._part(self._tree, marks, placed)
        return StatementRecipe(tuple(placed), build)

    def _group(self, container: Range) -> GroupMaker:
        build = self._content(self._groups[container], self._marks(container), [])
        return lambda values: build(values, ())

    def _part(self, node: Node, marks: list[Range], placed: list[tuple[int, int, str]]) -> _Part:
        """How to build what a node stands for, where some ranges are marks."""
        if node is None:
            return lambda values, tokens: None
        if isinstance(node, Token):
            number = self._starts[node.start_pos or 0]
            before = [one for one in marks if one[1] <= number]
            placed.append((number - sum(end - start for start, end in before), len(before), node.type))
            at = len(placed) - 1
            return lambda values, tokens: tokens[at]
        if not node.meta.empty and self._container(node) in marks and self._container(node) in self._groups:
            mark = marks.index(self._container(node))
            return lambda values, tokens: values[mark]
        return self._content(node, marks, placed)

    def _content(self, node: Tree[Token], marks: list[Range], placed: list[tuple[int, int, str]]) -> _Part:
        if not node.meta.empty and self._own(node) in marks and self._own(node) in self._atoms:
            mark = marks.index(self._own(node))
            return lambda values, tokens: values[mark]
        callback = _callback(node.data)
        parts = [self._part(child, marks, placed) for child in node.children]
        return lambda values, tokens: callback(*[part(values, tokens) for part in parts])

    def _atom(self, own: Range) -> AtomMaker:
        """What makes an atom of its lexemes.

        Its tokens have no places: a callback that needs one refuses, and then the parser itself is asked.
        """

        def make(node: Node) -> Callable[[Said], Any]:
            if node is None:
                return lambda said: None
            if isinstance(node, Token):
                token, place = token_without_position(node.type), self._starts[node.start_pos or 0] - own[0]
                return lambda said: token(said[place])
            callback, parts = _callback(node.data), [make(child) for child in node.children]
            return lambda said: callback(*[part(said) for part in parts])

        return make(self._atoms[own])


def _is_placeless(value: object) -> bool:
    """Whether something is a condition that holds no places; calls of operators, variables and graphs know theirs."""
    if not isinstance(value, _EXPRESSIONS):
        return False
    return not any(isinstance(leaf, Call | Constraint | Term | ItemPattern) for leaf in leaves(value))


@cache
def _callback(name: str) -> Callable[..., Any]:
    """The function of the builder that makes something of a rule."""
    method = getattr(StatementTransformer(), name)
    return getattr(method, "base_func", method)  # type: ignore[no-any-return]  # without lark's wrapper around it
