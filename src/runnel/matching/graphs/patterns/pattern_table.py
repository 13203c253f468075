"""Graph patterns in arrays: what every matcher over graphs, and containment, works on.

In: canonical patterns (see `Graph.canonical`). Out: a table of their terms, their *shapes*
(patterns with the same edges have one), and for each pattern what its filter asks: *constraints*, which compare a
variable with a term and all of which must hold, and a *program* for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, Edge, GraphFilter, Node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.rdf_terms import known_term
from runnel.algebra.nodes.calls import RELATIONS, Relation, Variable
from runnel.arrays import IDENTIFIER, Array, Arrays, Rows, Texts

EDGE, CONSTRAINT = 3, 3
"""Numbers that an edge and a constraint take in their rows."""

_TURNED: dict[Relation, Relation] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Code(IntEnum):
    """The steps of a program behind the six relations (0 to 5, in the order of RELATIONS, each with two operands)."""

    AND = 6
    OR = 7
    NOT = 8
    CERTAIN = 9


@dataclass(frozen=True)
class PatternTable:
    """Patterns by number.

    A node is the number of a term (0 or more), or a variable: -1 is the first. `shape_edges` has for every shape
    subject, label and object of each edge. `constraints` has for every pattern variable (0 is the first), relation
    (by its place in RELATIONS) and term of each conjunct of its filter that compares a variable with a term;
    `programs` all other conjuncts in postfix order, joined by AND: relation, left and right node, or a Code; empty
    where there are none. `sorts` and `keys` are those of the terms (see `algebra.graphs.rdf_terms`); a text's key
    is 0.
    """

    terms: Texts
    sorts: Array
    keys: Array
    shape_edges: Rows
    shape_variables: Array
    pattern_shapes: Array
    constraints: Rows
    programs: Rows

    def __len__(self) -> int:
        return len(self.pattern_shapes)

    def arrays(self, name: str = "graphs") -> dict[str, Array]:
        """The arrays to store under a name."""
        found = {f"{name}.{one}": getattr(self, one) for one in _PLAIN}
        found |= self.terms.arrays(f"{name}.terms")
        for one in _ROWS:
            found |= getattr(self, one).arrays(f"{name}.{one}")
        return found

    @staticmethod
    def stored(arrays: Arrays, name: str = "graphs") -> PatternTable:
        """The table of arrays made by `arrays`."""
        fields: dict[str, Any] = {one: arrays[f"{name}.{one}"] for one in _PLAIN}
        fields |= {one: Rows.stored(arrays, f"{name}.{one}") for one in _ROWS}
        return PatternTable(terms=Texts.stored(arrays, f"{name}.terms"), **fields)

    @staticmethod
    def of(graphs: Sequence[Graph]) -> PatternTable:
        """The table of canonical patterns.

        >>> year = Edge(Variable("1"), "<urn:year>", Variable("2"))
        >>> table = PatternTable.of([Graph((year,), Comparison(Variable("2"), ">", '"3"')), Graph((year,))])
        >>> table.shape_edges.row(0).tolist(), table.pattern_shapes.tolist(), table.constraints.row(0).tolist()
        ([-1, 0, -2], [0, 0], [1, 4, 1])
        """
        return _Collecting(graphs).done()

    def graph(self, pattern: int) -> Graph:
        """A pattern as it was."""
        nodes = [self._node(node) for node in self.shape_edges.row(int(self.pattern_shapes[pattern])).tolist()]
        edges = tuple(Edge(*nodes[place : place + EDGE]) for place in range(0, len(nodes), EDGE))
        parts: list[GraphFilter] = []
        row = self.constraints.row(pattern).tolist()
        for place in range(0, len(row), CONSTRAINT):
            variable, relation, term = row[place : place + CONSTRAINT]
            parts.append(Comparison(self._node(-1 - variable), RELATIONS[relation], self._node(term)))
        program = self.programs.row(pattern).tolist()
        if program:
            parts.append(self._decoded(program))
        return Graph(edges, AllOf(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None)

    def _node(self, node: int) -> Node:
        return self.terms.text(node) if node >= 0 else Variable(str(-node))

    def _decoded(self, program: list[int]) -> GraphFilter:
        stack: list[GraphFilter] = []
        place = 0
        while place < len(program):
            step = program[place]
            place += 1
            if step == Code.NOT:
                stack.append(Complement(stack.pop()))
            elif step == Code.CERTAIN:
                stack.append(Certain(stack.pop()))
            elif step in (Code.AND, Code.OR):
                right, left = stack.pop(), stack.pop()
                stack.append(AllOf((left, right)) if step == Code.AND else AnyOf((left, right)))
            else:
                left_node, right_node = self._node(program[place]), self._node(program[place + 1])
                stack.append(Comparison(left_node, RELATIONS[step], right_node))
                place += 2
        return stack[0]


_PLAIN = ("sorts", "keys", "shape_variables", "pattern_shapes")
_ROWS = ("shape_edges", "constraints", "programs")


class _Collecting:
    """Numbers terms and shapes while patterns are gone through."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self._graphs = graphs
        self._terms: dict[str, int] = {}
        self._shapes: dict[tuple[int, ...], int] = {}

    def done(self) -> PatternTable:
        shapes: list[int] = []
        constraints: list[list[int]] = []
        programs: list[list[int]] = []
        for graph in self._graphs:
            edges = tuple(self._number(node) for edge in graph.edges for node in edge.nodes)
            shapes.append(self._shapes.setdefault(edges, len(self._shapes)))
            simple, rest = self._parted(graph.filter)
            constraints.append(simple)
            programs.append(rest)
        stand_for = [known_term(term) for term in self._terms]
        counts = [1 + max((-1 - node for node in edges if node < 0), default=-1) for edges in self._shapes]
        return PatternTable(
            terms=Texts.of(self._terms),
            sorts=np.array([one.sort for one in stand_for], dtype=np.uint8),
            keys=np.array([0.0 if isinstance(one.key, str) else one.key for one in stand_for], dtype=np.float64),
            shape_edges=Rows.of(self._shapes),
            shape_variables=np.array(counts, dtype=np.uint8),
            pattern_shapes=np.array(shapes, dtype=IDENTIFIER),
            constraints=Rows.of(constraints),
            programs=Rows.of(programs),
        )

    def _number(self, node: Node) -> int:
        if isinstance(node, Variable):
            return -int(node.name)
        return self._terms.setdefault(node, len(self._terms))

    def _parted(self, filter_: GraphFilter | None) -> tuple[list[int], list[int]]:
        """The constraints of a filter, flat, and the program of what is left."""
        simple: list[int] = []
        program: list[int] = []
        parts = filter_.parts if isinstance(filter_, AllOf) else () if filter_ is None else (filter_,)
        for part in parts:
            match part:
                case Comparison(Variable() as variable, relation, str(term)):
                    simple += [int(variable.name) - 1, RELATIONS.index(relation), self._number(term)]
                case Comparison(str(term), relation, Variable() as variable):
                    simple += [int(variable.name) - 1, RELATIONS.index(_TURNED[relation]), self._number(term)]
                case _:
                    first = not program
                    program += self._program(part)
                    if not first:
                        program.append(Code.AND)
        return simple, program

    def _program(self, part: GraphFilter) -> list[int]:
        match part:
            case Comparison(left, relation, right):
                return [RELATIONS.index(relation), self._number(left), self._number(right)]
            case Complement(inner):
                return [*self._program(inner), Code.NOT]
            case Certain(inner):
                return [*self._program(inner), Code.CERTAIN]
            case AllOf(parts) | AnyOf(parts):
                code = Code.AND if isinstance(part, AllOf) else Code.OR
                found = self._program(parts[0])
                for one in parts[1:]:
                    found += [*self._program(one), code]
                return found
