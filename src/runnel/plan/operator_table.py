"""The ways of a plan that operators decide: queries whose filters hold, and which a predicate that costs must settle.

Matchers say which ways an item satisfies as far as filters go, under the ids of ways, as if they were queries. A way
has literals over terms (see `algebra.nodes.calls`), all of which must hold; a literal is `term * 2 + negated`. What
it decides, its *target*, is a query, or a way of one that leads through a gate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runnel.arrays import Array, Arrays, Rows, Texts
from runnel.plan.gates import query_of


@dataclass(frozen=True, slots=True)
class TermLiteral:
    """A term in its stored form that must hold, or must not; `names` are what its variables are called in the query.

    A disjunct may have a term several times, each time with other names. Without names it is a condition of a view
    that the query reads, and its variables are none of the query's.
    """

    term: str
    negated: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorDisjunct:
    """A way: what it decides, and its literals, all of which must hold."""

    target: int
    literals: tuple[TermLiteral, ...]


@dataclass(frozen=True)
class OperatorTable:
    """The ways of a plan part by ascending ids, their targets and literals, and the terms in their stored form.

    The names of a way are a JSON list, or nothing where it has none. For each of its literals it has a list of names,
    or a list of such lists where the query has the term under several names.
    """

    way_ids: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    way_targets: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    literals: Rows = field(default_factory=lambda: Rows.of(()))
    names: Texts = field(default_factory=lambda: Texts.of(()))
    terms: Texts = field(default_factory=lambda: Texts.of(()))

    def __len__(self) -> int:
        return len(self.way_ids)

    def arrays(self) -> dict[str, Array]:
        """The arrays to store; none where no operators take part."""
        if not len(self):
            return {}
        return {
            "operated.ids": self.way_ids,
            "operated.targets": self.way_targets,
            **self.literals.arrays("operated.literals"),
            **self.names.arrays("operated.names"),
            **self.terms.arrays("terms"),
        }

    @staticmethod
    def stored(arrays: Arrays) -> OperatorTable:
        """The table of arrays made by `arrays`."""
        if "operated.ids" not in arrays:
            return OperatorTable()
        return OperatorTable(
            arrays["operated.ids"],
            arrays["operated.targets"],
            Rows.stored(arrays, "operated.literals"),
            Texts.stored(arrays, "operated.names"),
            Texts.stored(arrays, "terms"),
        )

    @staticmethod
    def of(ways: Mapping[int, OperatorDisjunct]) -> OperatorTable:
        """The table of ways by id.

        >>> ways = {9: OperatorDisjunct(7, (TermLiteral("t"), TermLiteral("u", True))), 8: OperatorDisjunct(7,
        ...     (TermLiteral("u"),))}
        >>> table = OperatorTable.of(ways)
        >>> table.way_ids.tolist(), [row for row in table.literals.lists()], table.ways()[8] == ways[8]
        ([8, 9], [[0], [1, 2]], True)
        """
        terms: dict[str, int] = {}
        rows: list[list[int]] = []
        names: list[str] = []
        for way in sorted(ways):
            found: dict[int, dict[tuple[str, ...], None]] = {}
            for one in ways[way].literals:
                own = found.setdefault(2 * terms.setdefault(one.term, len(terms)) + one.negated, {})
                own |= {one.names: None} if one.names else {}
            rows.append(sorted(found))
            told = [next(iter(found[one]), ()) if len(found[one]) < 2 else [*found[one]] for one in sorted(found)]
            names.append(json.dumps(told) if any(told) else "")
        ids = np.array(sorted(ways), dtype=np.int64)
        targets = np.array([ways[way].target for way in ids.tolist()], dtype=np.int64)
        return OperatorTable(ids, targets, Rows.of(rows), Texts.of(names), Texts.of(terms))

    def ways(self) -> dict[int, OperatorDisjunct]:
        """The ways by id."""
        texts = [self.terms.text(number) for number in range(len(self.terms))]
        found: dict[int, OperatorDisjunct] = {}
        for place, (way, target) in enumerate(zip(self.way_ids.tolist(), self.way_targets.tolist(), strict=True)):
            row = self.literals.row(place).tolist()
            literals = (
                TermLiteral(texts[one >> 1], bool(one & 1), own)
                for one, several in zip(row, self.names_of(place, len(row)), strict=True)
                for own in several or ((),)
            )
            found[way] = OperatorDisjunct(target, tuple(literals))
        return found

    def names_of(self, place: int, literals: int) -> list[tuple[tuple[str, ...], ...]]:
        """What the variables of the literals of a way, which has so many, are called in its query: several lists of
        names where the query has the term under several."""
        text = self.names.text(place)
        return [_names_of_literal(one) for one in json.loads(text)] if text else [()] * literals

    def without(self, queries: Array) -> OperatorTable:
        """The table without the ways of these queries."""
        if not len(self) or not len(queries):
            return self
        gone = np.isin(query_of(self.way_ids), queries)
        if not gone.any():
            return self
        kept = {way: one for (way, one), dead in zip(self.ways().items(), gone.tolist(), strict=True) if not dead}
        return OperatorTable.of(kept)

    def with_delta(self, delta: OperatorTable, tombstones: Array) -> OperatorTable:
        """This table, of a base, as it is after a delta: what that has, and what it does not replace or remove."""
        kept = self.without(tombstones)
        if not len(delta):
            return kept
        return OperatorTable.of(kept.ways() | delta.ways()) if len(kept) else delta


def _names_of_literal(stored: list[Any]) -> tuple[tuple[str, ...], ...]:
    if not stored:
        return ()
    return tuple(map(tuple, stored)) if isinstance(stored[0], list) else (tuple(stored),)
