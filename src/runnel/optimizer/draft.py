"""The draft of a plan, which the passes of the optimizer complete step by step.

Each pass sets further fields. Formulas and nodes are numbers in append-only tables that all drafts of a run share, so
a pass that does not change a formula keeps its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runnel.algebra.nodes.query import Node
from runnel.optimizer.formulas import Formulas
from runnel.plan.gates import GateTable
from runnel.plan.logical_plan import LogicalPlan, PlanQuery
from runnel.plan.operator_table import OperatorTable
from runnel.plan.pattern_bindings import NamedPattern

Clause = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlatRead:
    """All items of a source feed."""

    source: int


@dataclass(frozen=True, slots=True)
class FlatUnion:
    """The union of flat nodes, which are given by number."""

    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlatFilter:
    """The items of a flat node that satisfy a formula."""

    input: int
    formula: int


FlatNode = FlatRead | FlatUnion | FlatFilter


class FlatNodes:
    """An append-only table of nodes that read source feeds. Equal nodes have equal numbers; inputs come first."""

    def __init__(self) -> None:
        self.nodes: list[FlatNode] = []
        self._numbers: dict[FlatNode, int] = {}

    def number(self, node: FlatNode) -> int:
        """Return the number of a node. Add the node if it is new."""
        number = self._numbers.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return number

    def reachable(self, roots: Iterable[int]) -> list[int]:
        """Return the roots and all nodes below them in ascending order, so that inputs come first."""
        seen = set(roots)
        stack = list(seen)
        while stack:
            match self.nodes[stack.pop()]:
                case FlatUnion(inputs):
                    fresh = [number for number in inputs if number not in seen]
                case FlatFilter(number, _) if number not in seen:
                    fresh = [number]
                case _:
                    fresh = []
            seen.update(fresh)
            stack.extend(fresh)
        return sorted(seen)


@dataclass(frozen=True, slots=True)
class Branch:
    """A query matches the items of `sources` that satisfy `formula`. `query` is an index into the draft's queries."""

    query: int
    formula: int
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A formula as a conjunction of clauses, which are sorted tuples of literals.

    If it is not exact, the formula implies the clauses but may be narrower. Without clauses it is always true, with
    an empty clause never.
    """

    clauses: tuple[Clause, ...]
    exact: bool = True

    @property
    def unsatisfiable(self) -> bool:
        """Whether the normal form can never be true."""
        return () in self.clauses


@dataclass(frozen=True)
class Draft:
    """A plan under construction. The passes also add disjuncts that have gates or operators to the queries."""

    queries: tuple[PlanQuery, ...]
    definitions: Mapping[int, Node]
    formulas: Formulas = field(default_factory=Formulas)
    nodes: FlatNodes = field(default_factory=FlatNodes)
    roots: tuple[int, ...] | None = None
    branches: tuple[Branch, ...] | None = None
    normal_forms: Mapping[int, NormalForm] | None = None
    logical: LogicalPlan | None = None
    gates: GateTable = field(default_factory=GateTable)
    operators: OperatorTable = field(default_factory=OperatorTable)
    names: Mapping[int, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)
    """The original names of variables by feed and term, for feeds with terms in their own conditions."""
    bound: Mapping[int, tuple[NamedPattern, ...]] = field(default_factory=dict)
    """The stored patterns by query, for queries whose own conditions bind variables only by item patterns."""
