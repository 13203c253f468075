"""The draft: what the passes hand on, from view definitions to the logical plan.

Each pass fills one more field and leaves the others; formulas and nodes live in append-only tables that all drafts
of one run share, so a pass that changes nothing returns the same numbers.
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
    """The items of any of these flat nodes, by number."""

    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlatFilter:
    """The items of a flat node that satisfy a formula."""

    input: int
    formula: int


FlatNode = FlatRead | FlatUnion | FlatFilter


class FlatNodes:
    """An append-only table of nodes that read sources only; equal nodes have equal numbers, inputs come first."""

    def __init__(self) -> None:
        self.nodes: list[FlatNode] = []
        self._numbers: dict[FlatNode, int] = {}

    def number(self, node: FlatNode) -> int:
        """The number of a node."""
        number = self._numbers.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return number

    def reachable(self, roots: Iterable[int]) -> list[int]:
        """The nodes below and including the roots, inputs first."""
        seen = set(roots)
        stack = list(seen)
        while stack:
            match self.nodes[stack.pop()]:
                case FlatUnion(inputs):
                    fresh = [one for one in inputs if one not in seen]
                case FlatFilter(one, _) if one not in seen:
                    fresh = [one]
                case _:
                    fresh = []
            seen.update(fresh)
            stack.extend(fresh)
        return sorted(seen)


@dataclass(frozen=True, slots=True)
class Branch:
    """A query matches the items of these sources that satisfy the formula. `query` is a position in the draft."""

    query: int
    formula: int
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A formula as a conjunction of clauses (sorted sets). Not exact: a match implies the clauses, no more.

    No clauses: always true. An empty clause: never true.
    """

    clauses: tuple[Clause, ...]
    exact: bool = True

    @property
    def unsatisfiable(self) -> bool:
        """Whether nothing can satisfy it."""
        return () in self.clauses


@dataclass(frozen=True)
class Draft:
    """A plan in the making. Flattening adds the disjuncts that have gates to the queries."""

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
    """For the feeds whose own conditions have terms: what the variables of each are called there."""
    bound: Mapping[int, tuple[NamedPattern, ...]] = field(default_factory=dict)
    """For the queries whose own conditions bind variables by graph patterns alone: these, as they are stored."""
