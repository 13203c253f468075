"""Patterns that come and go, in arrays that grow: what the kernels of containment work on.

In: patterns. Out: numbers for them, and the arrays that kernels read (`StoredPatterns`). Unlike a plan's
`PatternTable`, which is made once, a store takes one pattern after another and forgets others; numbers are used
again.
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
"""Instead of a term: a value that differs from graph to graph, and meets every demand (see
`publication_summaries`).
"""


class Encoded(NamedTuple):
    """A pattern in numbers: nodes of its edges, constraints and conjuncts, each end to end; how many variables."""

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
        """How many patterns the arrays have room for; all numbers are below."""
        return len(self.held.places)

    @property
    def size(self) -> int:
        """How many bytes the arrays take."""
        return sum(array.nbytes for array in self.held)

    def add(self, graph: Graph) -> int:
        """The number of a new pattern."""
        edges, constraints, steps, variables = self._encoded(graph)
        pattern = self._free.pop() if self._free else self._count
        if pattern == self._count:
            self._count += 1
        sizes = (len(edges) // 3, len(constraints) // 3, len(steps))
        first, second, third = self._ends
        self._ends = [first + sizes[0], second + sizes[1], third + sizes[2]]
        self._make_room(pattern)
        place = [first, sizes[0], second, sizes[1], third, sizes[2], variables]
        held = self.held
        numbers = np.array([*place, *edges, *constraints, *steps], np.int64)
        take_in(held.places, held.edges, held.constraints, held.steps, pattern, numbers)
        return pattern

    def forget(self, pattern: int) -> None:
        """Give a pattern's number free. Room for its parts comes back when half of all is unused."""
        self._free.append(pattern)
        self._garbage += int(self.held.places[pattern, 1])
        self.held.places[pattern] = 0
        if self._garbage > 1024 and 2 * self._garbage > self._ends[0]:
            self._compact()

    def triples(self, triples: Iterable[Triple]) -> Array:
        """The edges of a publication in numbers, sorted as `lay` asks; valid until the next call or pattern."""
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
        """A pattern as it was, but for the names of its variables and the order of its edges."""
        first_edge, edges, first, constraints, begin, steps, _ = self.held.places[pattern].tolist()
        rows = self.held.edges[first_edge : first_edge + edges, :3].tolist()
        parts: list[GraphFilter] = [
            Comparison(self._node(-1 - variable), RELATIONS[relation], self._node(term))
            for variable, relation, term in self.held.constraints[first : first + constraints].tolist()
        ]
        place = begin
        while place < begin + steps:
            length = int(self.held.steps[place])
            parts.append(self._decoded(self.held.steps[place + 1 : place + 1 + length].tolist()))
            place += 1 + length
        whole = None if not parts else parts[0] if len(parts) == 1 else AllOf(tuple(parts))
        return Graph(tuple(Edge(*(self._node(node) for node in row)) for row in rows), whole)

    def _node(self, node: int) -> Node:
        return self._texts[node] if node >= 0 else Variable(str(-node))

    def _decoded(self, steps: list[int]) -> GraphFilter:
        stack: list[GraphFilter] = []
        place = 0
        while place < len(steps):
            match steps[place]:
                case Code.NOT:
                    stack.append(Complement(stack.pop()))
                case Code.CERTAIN:
                    stack.append(Certain(stack.pop()))
                case Code.AND | Code.OR as code:
                    parts = tuple(stack[-steps[place + 1] :])
                    del stack[-len(parts) :]
                    stack.append(AllOf(parts) if code == Code.AND else AnyOf(parts))
                case relation:
                    left, right = self._node(steps[place + 1]), self._node(steps[place + 2])
                    stack.append(Comparison(left, RELATIONS[relation], right))
            place += STEPS
        return stack[0]

    def _encoded(self, graph: Graph) -> Encoded:
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
            for one in demands.others:
                conjunct = self._steps(one, variables)
                steps += [len(conjunct), *conjunct]
        if len(numbers) > before:
            self._learn(before)
        return Encoded(edges, constraints, steps, len(variables))

    def _steps(self, one: GraphFilter, variables: dict[str, int]) -> list[int]:
        """A conjunct in postfix order, each step with two numbers: nodes, or how many parts are joined."""
        match one:
            case Comparison(left, relation, right):
                return [RELATIONS.index(relation), self._number(left, variables), self._number(right, variables)]
            case Complement(part):
                return [*self._steps(part, variables), Code.NOT, 0, 0]
            case Certain(part):
                return [*self._steps(part, variables), Code.CERTAIN, 0, 0]
            case AllOf(parts) | AnyOf(parts):
                inner = [step for part in parts for step in self._steps(part, variables)]
                return [*inner, Code.AND if isinstance(one, AllOf) else Code.OR, len(parts), 0]

    def _number(self, node: Node, variables: dict[str, int]) -> int:
        return (
            variables[node.name] if isinstance(node, Variable) else self._numbers.setdefault(node, len(self._numbers))
        )

    def _learn(self, before: int) -> None:
        """Take in the terms from a number on."""
        new = list(self._numbers)[before:] if before == 0 else _last(self._numbers, len(self._numbers) - before)
        self._text_end = self._write_terms(new, before, self._text_end)
        self._texts += new

    def _write_terms(self, terms: Iterable[str], first: int, begin: int) -> int:
        """Write what terms stand for from a number on; behind all that is known they last until the next ones."""
        found = [(term, known_term(term) if term != ANY else None) for term in terms]
        texts = [encode_text(one.key) if one is not None and isinstance(one.key, str) else b"" for _, one in found]
        self.held = self.held._replace(
            sorts=grown(self.held.sorts, first + len(found)),
            keys=grown(self.held.keys, first + len(found)),
            begins=grown(self.held.begins, first + len(found) + 1),
            texts=grown(self.held.texts, begin + sum(map(len, texts))),
        )
        held = self.held
        for number, ((_, one), text) in enumerate(zip(found, texts, strict=True), first):
            held.sorts[number] = ANY_SORT if one is None else one.sort
            held.keys[number] = one.key if one is not None and not isinstance(one.key, str) else 0.0
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
        """Move the parts of living patterns together, and forget terms that none of them has."""
        held = self.held
        places = held.places
        ends = [0, 0, 0]
        parts: list[Array] = []
        for which, array in enumerate((held.edges, held.constraints, held.steps)):
            sizes = places[: self._count, 2 * which + 1]
            begins = np.cumsum(sizes) - sizes
            rows = np.repeat(places[: self._count, 2 * which] - begins, sizes) + np.arange(int(sizes.sum()))
            parts.append(array[rows])
            places[: self._count, 2 * which] = begins
            ends[which] = len(rows)
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
        kept = [text for text, stays in zip(self._texts, used.tolist(), strict=True) if stays]
        self._numbers = {text: number for number, text in enumerate(kept)}
        self._texts = []
        self.held = held._replace(edges=_roomy(edges), constraints=_roomy(constraints), steps=_roomy(steps))
        self._text_end = self._write_terms(kept, 0, 0)
        self._texts = kept


def _operands(steps: Array) -> Array:
    """Where in conjuncts end to end the nodes are."""
    found: list[int] = []
    place, count = 0, len(steps)
    values = steps.tolist()
    while place < count:
        stop = place + 1 + values[place]
        place += 1
        while place < stop:
            if values[place] < Code.AND:
                found += (place + 1, place + 2)
            place += STEPS
    return np.array(found, np.int64)


def _last(numbers: dict[str, int], count: int) -> list[str]:
    turned = reversed(numbers)
    return [next(turned) for _ in range(count)][::-1]


def grown(array: Array, needed: int) -> Array:
    """An array with room: twice as long whenever it is too short."""
    if needed <= len(array):
        return array
    found = np.zeros((max(needed, 2 * len(array)), *array.shape[1:]), array.dtype)
    found[: len(array)] = array
    return found


def _roomy(array: Array) -> Array:
    return grown(array, max(64, len(array) + len(array) // 2))
