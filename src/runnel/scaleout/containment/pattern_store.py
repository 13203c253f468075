"""A mutable store of graph patterns in growing arrays, on which the kernels of containment work.

In: patterns. Out: a number for each pattern, and the arrays that kernels read (`StoredPatterns`). Unlike a plan's
`PatternTable`, which is built once, patterns can be added and removed one by one, and numbers are reused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from runnel.algebra.graphs.edges import AllOf, AnyOf, Certain, Comparison, Complement, Edge, GraphFilter, Node
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.rdf_terms import known_term
from runnel.algebra.nodes.calls import RELATIONS, Variable
from runnel.arrays import Array, encode_text
from runnel.matching.graphs.patterns.pattern_table import Code
from runnel.model.graph import Triple
from runnel.scaleout.containment.compare_demands import ANY_SORT
from runnel.scaleout.containment.definition import demands_of
from runnel.scaleout.containment.homomorphism import EDGES, PLACES, STEPS, StoredPatterns, take_in

ANY = "\x00any"
"""A placeholder for values that differ between graphs. It meets every demand (see `publication_summaries`)."""


class EncodedPattern(NamedTuple):
    """An encoded pattern: its edges, constraints and conjuncts as flat lists, and the number of its variables."""

    edges: list[int]
    constraints: list[int]
    steps: list[int]
    variables: int


class PatternStore:
    """Patterns by number, in growing arrays."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        self._text_end = 0
        self._count = 0
        self._free: list[int] = []
        self._ends = [0, 0, 0]
        self._garbage = 0
        self.generation = 0
        self.held = StoredPatterns(
            sorts=np.zeros(64, np.uint8),
            keys=np.zeros(64, np.float64),
            begins=np.zeros(65, np.int64),
            texts=np.zeros(1024, np.uint8),
            places=np.zeros((64, PLACES), np.int64),
            edges=np.zeros((256, EDGES), np.int32),
            constraints=np.zeros((64, 3), np.int32),
            steps=np.zeros(64, np.int32),
        )

    @property
    def room(self) -> int:
        """The number of patterns that the arrays have room for. All pattern numbers are below it."""
        return len(self.held.places)

    @property
    def size(self) -> int:
        """The size of the arrays in bytes."""
        return sum(array.nbytes for array in self.held)

    def add(self, graph: Graph) -> int:
        """Add a pattern, and return its number."""
        edges, constraints, steps, variables = self._encode(graph)
        pattern = self._free.pop() if self._free else self._count
        if pattern == self._count:
            self._count += 1
        sizes = (len(edges) // 3, len(constraints) // 3, len(steps))
        first, second, third = self._ends
        self._ends = [first + sizes[0], second + sizes[1], third + sizes[2]]
        self._make_room(pattern)
        row = [first, sizes[0], second, sizes[1], third, sizes[2], variables]
        held = self.held
        numbers = np.array([*row, *edges, *constraints, *steps], np.int64)
        take_in(held.places, held.edges, held.constraints, held.steps, pattern, numbers)
        return pattern

    def forget(self, pattern: int) -> None:
        """Remove a pattern, whose number can then be reused. Compact the arrays when half of them is unused."""
        self._free.append(pattern)
        self._garbage += int(self.held.places[pattern, 1])
        self.held.places[pattern] = 0
        if self._garbage > 1024 and 2 * self._garbage > self._ends[0]:
            self._compact()

    def triples(self, triples: Iterable[Triple]) -> Array:
        """Encode the edges of a publication, sorted as the search requires. Valid until the next call or `add`."""
        numbers = self._numbers
        local: dict[str, int] = {}
        count = len(self._texts)
        flat: list[int] = []
        for triple in triples:
            for term in triple:
                number = numbers.get(term)
                if number is None:
                    number = local.setdefault(term, count + len(local))
                flat.append(number)
        self._write_terms(local, count, self._text_end)
        edges = np.array(flat, np.int32).reshape(-1, 3)
        return np.ascontiguousarray(edges[np.lexsort((edges[:, 2], edges[:, 0], edges[:, 1]))])

    def graph(self, pattern: int) -> Graph:
        """Decode a pattern. The names of its variables and the order of its edges may differ from the original."""
        first_edge, edges, first, constraints, begin, steps, _ = self.held.places[pattern].tolist()
        rows = self.held.edges[first_edge : first_edge + edges, :3].tolist()
        parts: list[GraphFilter] = [
            Comparison(self._node(-1 - variable), RELATIONS[relation], self._node(term))
            for variable, relation, term in self.held.constraints[first : first + constraints].tolist()
        ]
        index = begin
        while index < begin + steps:
            length = int(self.held.steps[index])
            parts.append(self._decode(self.held.steps[index + 1 : index + 1 + length].tolist()))
            index += 1 + length
        conjunction = None if not parts else parts[0] if len(parts) == 1 else AllOf(tuple(parts))
        return Graph(tuple(Edge(*(self._node(node) for node in row)) for row in rows), conjunction)

    def _node(self, node: int) -> Node:
        return self._texts[node] if node >= 0 else Variable(str(-node))

    def _decode(self, steps: list[int]) -> GraphFilter:
        stack: list[GraphFilter] = []
        index = 0
        while index < len(steps):
            match steps[index]:
                case Code.NOT:
                    stack.append(Complement(stack.pop()))
                case Code.CERTAIN:
                    stack.append(Certain(stack.pop()))
                case Code.AND | Code.OR as code:
                    parts = tuple(stack[-steps[index + 1] :])
                    del stack[-len(parts) :]
                    stack.append(AllOf(parts) if code == Code.AND else AnyOf(parts))
                case relation:
                    left, right = self._node(steps[index + 1]), self._node(steps[index + 2])
                    stack.append(Comparison(left, RELATIONS[relation], right))
            index += STEPS
        return stack[0]

    def _encode(self, graph: Graph) -> EncodedPattern:
        numbers, variables = self._numbers, dict[str, int]()
        before = len(numbers)
        edges: list[int] = []
        for edge in graph.edges:
            for node in (edge.subject, edge.label, edge.object):
                if isinstance(node, str):
                    number = numbers.get(node)
                    edges.append(numbers.setdefault(node, len(numbers)) if number is None else number)
                else:
                    edges.append(variables.setdefault(node.name, -1 - len(variables)))
        constraints: list[int] = []
        steps: list[int] = []
        if graph.filter is not None:
            demands = demands_of(graph.filter)
            for name, asked in demands.of_variables.items():
                for relation, term in asked:
                    number = numbers.setdefault(term, len(numbers))
                    constraints += (-1 - variables[name], RELATIONS.index(relation), number)
            for condition in demands.others:
                conjunct = self._steps(condition, variables)
                steps += [len(conjunct), *conjunct]
        if len(numbers) > before:
            self._add_terms(before)
        return EncodedPattern(edges, constraints, steps, len(variables))

    def _steps(self, condition: GraphFilter, variables: dict[str, int]) -> list[int]:
        """Encode a conjunct in postfix order. Each step has two operands: nodes, or the number of joined parts."""
        match condition:
            case Comparison(left, relation, right):
                return [RELATIONS.index(relation), self._number(left, variables), self._number(right, variables)]
            case Complement(part):
                return [*self._steps(part, variables), Code.NOT, 0, 0]
            case Certain(part):
                return [*self._steps(part, variables), Code.CERTAIN, 0, 0]
            case AllOf(parts) | AnyOf(parts):
                inner = [step for part in parts for step in self._steps(part, variables)]
                return [*inner, Code.AND if isinstance(condition, AllOf) else Code.OR, len(parts), 0]

    def _number(self, node: Node, variables: dict[str, int]) -> int:
        return (
            variables[node.name] if isinstance(node, Variable) else self._numbers.setdefault(node, len(self._numbers))
        )

    def _add_terms(self, before: int) -> None:
        """Store the terms with numbers from `before` on."""
        new = list(self._numbers)[before:] if before == 0 else _last(self._numbers, len(self._numbers) - before)
        self._text_end = self._write_terms(new, before, self._text_end)
        self._texts += new

    def _write_terms(self, terms: Iterable[str], first: int, begin: int) -> int:
        """Write the values of terms, numbered from `first` on. Return the end of their texts.

        Terms of a publication are written after all stored terms, and are overwritten by the next ones.
        """
        values = [(term, known_term(term) if term != ANY else None) for term in terms]
        texts = [
            encode_text(value.key) if value is not None and isinstance(value.key, str) else b"" for _, value in values
        ]
        self.held = self.held._replace(
            sorts=grown(self.held.sorts, first + len(values)),
            keys=grown(self.held.keys, first + len(values)),
            begins=grown(self.held.begins, first + len(values) + 1),
            texts=grown(self.held.texts, begin + sum(map(len, texts))),
        )
        held = self.held
        for number, ((_, value), text) in enumerate(zip(values, texts, strict=True), first):
            held.sorts[number] = ANY_SORT if value is None else value.sort
            held.keys[number] = value.key if value is not None and not isinstance(value.key, str) else 0.0
            held.texts[begin : begin + len(text)] = np.frombuffer(text, np.uint8)
            begin += len(text)
            held.begins[number + 1] = begin
        return begin

    def _make_room(self, pattern: int) -> None:
        held, (edges, constraints, steps) = self.held, self._ends
        if (
            pattern >= len(held.places)
            or edges > len(held.edges)
            or constraints > len(held.constraints)
            or steps > len(held.steps)
        ):
            self.held = held._replace(
                places=grown(held.places, pattern + 1),
                edges=grown(held.edges, edges),
                constraints=grown(held.constraints, constraints),
                steps=grown(held.steps, steps),
            )

    def _compact(self) -> None:
        """Move the parts of the remaining patterns together, and drop terms that none of them uses."""
        held = self.held
        places = held.places
        ends = [0, 0, 0]
        parts: list[Array] = []
        for kind, array in enumerate((held.edges, held.constraints, held.steps)):
            sizes = places[: self._count, 2 * kind + 1]
            begins = np.cumsum(sizes) - sizes
            rows = np.repeat(places[: self._count, 2 * kind] - begins, sizes) + np.arange(int(sizes.sum()))
            parts.append(array[rows])
            places[: self._count, 2 * kind] = begins
            ends[kind] = len(rows)
        self._ends, self._garbage = ends, 0
        self.generation += 1
        edges, constraints, steps = parts
        operands = _operands(steps)
        used = np.zeros(len(self._texts), bool)
        for numbers in (edges[:, :3], constraints[:, 2], steps[operands]):
            used[numbers[numbers >= 0]] = True
        new = np.cumsum(used, dtype=np.int32) - 1
        edges[:, :3] = np.where(edges[:, :3] >= 0, new[edges[:, :3]], edges[:, :3])
        constraints[:, 2] = new[constraints[:, 2]]
        steps[operands] = np.where(steps[operands] >= 0, new[steps[operands]], steps[operands])
        kept = [text for text, is_used in zip(self._texts, used.tolist(), strict=True) if is_used]
        self._numbers = {text: number for number, text in enumerate(kept)}
        self._texts = []
        self.held = held._replace(
            edges=_with_room(edges), constraints=_with_room(constraints), steps=_with_room(steps)
        )
        self._text_end = self._write_terms(kept, 0, 0)
        self._texts = kept


def _operands(steps: Array) -> Array:
    """Return the indexes of the nodes in a flat list of conjuncts."""
    operands: list[int] = []
    index, count = 0, len(steps)
    values = steps.tolist()
    while index < count:
        stop = index + 1 + values[index]
        index += 1
        while index < stop:
            if values[index] < Code.AND:
                operands += (index + 1, index + 2)
            index += STEPS
    return np.array(operands, np.int64)


def _last(numbers: dict[str, int], count: int) -> list[str]:
    from_end = reversed(numbers)
    return [next(from_end) for _ in range(count)][::-1]


def grown(array: Array, needed: int) -> Array:
    """Return an array with at least `needed` rows. If it has to grow, its length is at least doubled."""
    if needed <= len(array):
        return array
    result = np.zeros((max(needed, 2 * len(array)), *array.shape[1:]), array.dtype)
    result[: len(array)] = array
    return result


def _with_room(array: Array) -> Array:
    return grown(array, max(64, len(array) + len(array) // 2))
