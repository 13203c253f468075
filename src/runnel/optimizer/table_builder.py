"""Construction of the predicate table. Equal atoms, clauses, predicates and scopes get the same dense ID."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from runnel.arrays import Rows, Texts
from runnel.plan.logical_plan import EXACT, CostRecord, LogicalPlan, PlanQuery, identifiers
from runnel.plan.pattern_bindings import NamedPattern, PatternBindings

Key = TypeVar("Key", bound=Hashable)


class Numbered(Generic[Key]):
    """Numbers different values from 0 on, in the order of their first use.

    >>> numbered = Numbered[str]()
    >>> numbered.number("a"), numbered.number("b"), numbered.number("a")
    (0, 1, 0)
    """

    def __init__(self) -> None:
        self.numbers: dict[Key, int] = {}

    def number(self, value: Key) -> int:
        """Return the number of a value. A new value gets the next number."""
        return self.numbers.setdefault(value, len(self.numbers))


class TableBuilder:
    """Collects targets and builds the logical plan. All IDs except those of queries and sources are dense."""

    def __init__(self) -> None:
        self._atoms = Numbered[str]()
        self._clauses = Numbered[tuple[int, ...]]()
        self._formulas = Numbered[tuple[int, tuple[int, ...]]]()
        self._predicates = Numbered[tuple[tuple[int, ...], int]]()
        self._scopes = Numbered[tuple[int, ...]]()
        self._targets: dict[tuple[int, int], list[int]] = {}

    def atom(self, text: str) -> int:
        """Return the ID of an atom by its stored form."""
        return self._atoms.number(text)

    def clause(self, literals: Iterable[int]) -> int:
        """Return the ID of a disjunction of literals."""
        return self._clauses.number(tuple(sorted(literals)))

    def formula(self, kind: int, children: Iterable[int]) -> int:
        """Return the ID of a formula by its kind and children, which are formulas, a literal, or a constant."""
        return self._formulas.number((kind, tuple(children)))

    def predicate(self, clauses: Iterable[int], formula: int = EXACT) -> int:
        """Return the ID of a conjunction of clauses. If these are not exact, `formula` decides."""
        return self._predicates.number((tuple(sorted(clauses)), formula))

    def scope(self, sources: Iterable[int]) -> int:
        """Return the ID of a set of source feeds."""
        return self._scopes.number(tuple(sorted(sources)))

    def add(self, predicate: int, scope: int, query: int) -> None:
        """Add a query, by its catalog ID, that matches the items of the scope that satisfy the predicate."""
        self._targets.setdefault((predicate, scope), []).append(query)

    def bound_patterns(self, patterns: Mapping[int, Sequence[NamedPattern]]) -> PatternBindings:
        """Return the patterns by which queries bind variables. Patterns that no predicate uses get an ID, too."""
        named = (pattern for of_query in patterns.values() for pattern in of_query if pattern.names)
        texts = {pattern.text: self.atom(pattern.text) for pattern in named}
        return PatternBindings.of(patterns, texts)

    def finish(self, queries: Iterable[PlanQuery], costs: tuple[CostRecord, ...] = ()) -> LogicalPlan:
        """Return the logical plan of all added targets."""
        ordered = sorted(queries, key=lambda query: query.id)
        positions = {query.id: position for position, query in enumerate(ordered)}
        targets = list(self._targets.items())
        return LogicalPlan(
            atoms=Texts.of(self._atoms.numbers),
            clauses=Rows.of(self._clauses.numbers),
            predicates=Rows.of(clauses for clauses, _ in self._predicates.numbers),
            predicate_formulas=identifiers([formula for _, formula in self._predicates.numbers]),
            formula_kinds=np.array([int(kind) for kind, _ in self._formulas.numbers], dtype=np.uint8),
            formulas=Rows.of(children for _, children in self._formulas.numbers),
            scopes=Rows.of(self._scopes.numbers, np.int64),
            target_predicates=identifiers([predicate for (predicate, _), _ in targets]),
            target_scopes=identifiers([scope for (_, scope), _ in targets]),
            targets=Rows.of(sorted({positions[query] for query in members}) for _, members in targets),
            query_ids=np.array([query.id for query in ordered], dtype=np.int64),
            query_since=np.array([query.since for query in ordered], dtype=np.int64),
            costs=costs,
        )
