"""Graph patterns in arrays, for all matchers of graphs and for containment.

In: canonical patterns (see `Graph.canonical`). Out: a table of their terms and their *shapes* (patterns with the same
edges have the same shape). The filter of each pattern is stored as *constraints*, which compare a variable with a
term and must all hold, and a *program* for the other conditions.
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
"""The length of an edge and of a constraint in their rows."""

_SWAPPED: dict[Relation, Relation] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Code(IntEnum):
    """The steps of a program other than relations. Relations have the codes 0 to 5 and are followed by two nodes."""

    AND = 6
    OR = 7
    NOT = 8
    CERTAIN = 9


@dataclass(frozen=True)
class PatternTable:
    """Patterns by number.

    A node is the number of a term (0 or more), or a variable: -1 is the first. `shape_edges` has subject, label and
    object of each edge of a shape. `constraints` has variable (0 is the first), relation (its index in RELATIONS) and
    term of each conjunct of a pattern's filter that compares a variable with a term. `programs` has the other
    conjuncts in postfix order, combined with AND: relation, left node and right node, or a Code. `sorts` and `keys`
    are those of the terms (see `algebra.graphs.rdf_terms`); the key of a text is 0.
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
        """Return the arrays to store. Their names begin with `name`."""
        arrays = {f"{name}.{field}": getattr(self, field) for field in _PLAIN}
        arrays |= self.terms.arrays(f"{name}.terms")
        for field in _ROWS:
            arrays |= getattr(self, field).arrays(f"{name}.{field}")
        return arrays

    @staticmethod
    def stored(arrays: Arrays, name: str = "graphs") -> PatternTable:
        """Build the table from stored arrays."""
        fields: dict[str, Any] = {field: arrays[f"{name}.{field}"] for field in _PLAIN}
        fields |= {field: Rows.stored(arrays, f"{name}.{field}") for field in _ROWS}
        return PatternTable(terms=Texts.stored(arrays, f"{name}.terms"), **fields)

    @staticmethod
    def of(graphs: Sequence[Graph]) -> PatternTable:
        """Build the table of canonical patterns.

        >>> year = Edge(Variable("1"), "<urn:year>", Variable("2"))
        >>> table = PatternTable.of([Graph((year,), Comparison(Variable("2"), ">", '"3"')), Graph((year,))])
        >>> table.shape_edges.row(0).tolist(), table.pattern_shapes.tolist(), table.constraints.row(0).tolist()
        ([-1, 0, -2], [0, 0], [1, 4, 1])
        """
        return _Builder(graphs).build()

    def graph(self, pattern: int) -> Graph:
        """Return a pattern of the table as a `Graph`."""
        nodes = [self._node(node) for node in self.shape_edges.row(int(self.pattern_shapes[pattern])).tolist()]
        edges = tuple(Edge(*nodes[position : position + EDGE]) for position in range(0, len(nodes), EDGE))
        parts: list[GraphFilter] = []
        row = self.constraints.row(pattern).tolist()
        for position in range(0, len(row), CONSTRAINT):
            variable, relation, term = row[position : position + CONSTRAINT]
            parts.append(Comparison(self._node(-1 - variable), RELATIONS[relation], self._node(term)))
        program = self.programs.row(pattern).tolist()
        if program:
            parts.append(self._decode_program(program))
        return Graph(edges, AllOf(tuple(parts)) if len(parts) > 1 else parts[0] if parts else None)

    def _node(self, node: int) -> Node:
        return self.terms.text(node) if node >= 0 else Variable(str(-node))

    def _decode_program(self, program: list[int]) -> GraphFilter:
        stack: list[GraphFilter] = []
        position = 0
        while position < len(program):
            step = program[position]
            position += 1
            if step == Code.NOT:
                stack.append(Complement(stack.pop()))
            elif step == Code.CERTAIN:
                stack.append(Certain(stack.pop()))
            elif step in (Code.AND, Code.OR):
                right, left = stack.pop(), stack.pop()
                stack.append(AllOf((left, right)) if step == Code.AND else AnyOf((left, right)))
            else:
                left_node, right_node = self._node(program[position]), self._node(program[position + 1])
                stack.append(Comparison(left_node, RELATIONS[step], right_node))
                position += 2
        return stack[0]


_PLAIN = ("sorts", "keys", "shape_variables", "pattern_shapes")
_ROWS = ("shape_edges", "constraints", "programs")


class _Builder:
    """Collects and numbers the terms and shapes of patterns."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self._graphs = graphs
        self._terms: dict[str, int] = {}
        self._shapes: dict[tuple[int, ...], int] = {}

    def build(self) -> PatternTable:
        shapes: list[int] = []
        constraints: list[list[int]] = []
        programs: list[list[int]] = []
        for graph in self._graphs:
            edges = tuple(self._number(node) for edge in graph.edges for node in edge.nodes)
            shapes.append(self._shapes.setdefault(edges, len(self._shapes)))
            simple, rest = self._split_filter(graph.filter)
            constraints.append(simple)
            programs.append(rest)
        known_terms = [known_term(term) for term in self._terms]
        counts = [1 + max((-1 - node for node in edges if node < 0), default=-1) for edges in self._shapes]
        return PatternTable(
            terms=Texts.of(self._terms),
            sorts=np.array([term.sort for term in known_terms], dtype=np.uint8),
            keys=np.array([0.0 if isinstance(term.key, str) else term.key for term in known_terms], dtype=np.float64),
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

    def _split_filter(self, filter_: GraphFilter | None) -> tuple[list[int], list[int]]:
        """Return the constraints of a filter as a flat list, and the program of its other conjuncts."""
        simple: list[int] = []
        program: list[int] = []
        parts = filter_.parts if isinstance(filter_, AllOf) else () if filter_ is None else (filter_,)
        for part in parts:
            match part:
                case Comparison(Variable() as variable, relation, str(term)):
                    simple += [int(variable.name) - 1, RELATIONS.index(relation), self._number(term)]
                case Comparison(str(term), relation, Variable() as variable):
                    simple += [int(variable.name) - 1, RELATIONS.index(_SWAPPED[relation]), self._number(term)]
                case _:
                    is_first = not program
                    program += self._program(part)
                    if not is_first:
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
                program = self._program(parts[0])
                for other_part in parts[1:]:
                    program += [*self._program(other_part), code]
                return program
