"""The disjuncts of a plan that operators decide once an item satisfies their filters.

Matchers evaluate the filters of these disjuncts and report those that an item satisfies, as if they were queries. A
disjunct also has literals over terms (see `algebra.nodes.calls`), all of which must hold; a literal is
`term * 2 + negated`. The *target* of a disjunct is what it decides: a query, or a disjunct of a query with a gate.
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
    """A term in its stored form that must hold or, if negated, must not hold.

    `names` are the names of its variables in the query. A disjunct may contain a term several times with different
    names. Without names, the term is a condition of a view that the query reads, and binds no variables of the query.
    """

    term: str
    negated: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorDisjunct:
    """A disjunct that operators decide: its target, and its literals, all of which must hold."""

    target: int
    literals: tuple[TermLiteral, ...]


@dataclass(frozen=True)
class OperatorTable:
    """The disjuncts of a plan part in ascending order of ids, their targets and literals, and the stored terms.

    `names` has one text per disjunct: empty if no variable has a name, otherwise a JSON list with one entry per
    literal. An entry is a list of names, or a list of such lists if the query uses the term with different names.
    """

    disjunct_ids: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    disjunct_targets: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    literals: Rows = field(default_factory=lambda: Rows.of(()))
    names: Texts = field(default_factory=lambda: Texts.of(()))
    terms: Texts = field(default_factory=lambda: Texts.of(()))

    def __len__(self) -> int:
        return len(self.disjunct_ids)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to store by name; there are none if no query calls operators."""
        if not len(self):
            return {}
        return {
            "operated.ids": self.disjunct_ids,
            "operated.targets": self.disjunct_targets,
            **self.literals.arrays("operated.literals"),
            **self.names.arrays("operated.names"),
            **self.terms.arrays("terms"),
        }

    @staticmethod
    def stored(arrays: Arrays) -> OperatorTable:
        """Build the table from the arrays that `arrays` returned."""
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
    def of(disjuncts: Mapping[int, OperatorDisjunct]) -> OperatorTable:
        """Build the table from disjuncts by id.

        >>> disjuncts = {
        ...     9: OperatorDisjunct(7, (TermLiteral("t"), TermLiteral("u", True))),
        ...     8: OperatorDisjunct(7, (TermLiteral("u"),)),
        ... }
        >>> table = OperatorTable.of(disjuncts)
        >>> table.disjunct_ids.tolist(), list(table.literals.lists()), table.disjuncts()[8] == disjuncts[8]
        ([8, 9], [[0], [1, 2]], True)
        """
        terms: dict[str, int] = {}
        rows: list[list[int]] = []
        names: list[str] = []
        for disjunct in sorted(disjuncts):
            names_by_literal: dict[int, dict[tuple[str, ...], None]] = {}
            for literal in disjuncts[disjunct].literals:
                code = 2 * terms.setdefault(literal.term, len(terms)) + literal.negated
                distinct_names = names_by_literal.setdefault(code, {})
                distinct_names |= {literal.names: None} if literal.names else {}
            rows.append(sorted(names_by_literal))
            entries = [_encode_names(names_by_literal[code]) for code in sorted(names_by_literal)]
            names.append(json.dumps(entries) if any(entries) else "")
        ids = np.array(sorted(disjuncts), dtype=np.int64)
        targets = np.array([disjuncts[disjunct].target for disjunct in ids.tolist()], dtype=np.int64)
        return OperatorTable(ids, targets, Rows.of(rows), Texts.of(names), Texts.of(terms))

    def disjuncts(self) -> dict[int, OperatorDisjunct]:
        """Return the disjuncts by id."""
        terms = [self.terms.text(number) for number in range(len(self.terms))]
        disjuncts: dict[int, OperatorDisjunct] = {}
        ids, targets = self.disjunct_ids.tolist(), self.disjunct_targets.tolist()
        for index, (disjunct, target) in enumerate(zip(ids, targets, strict=True)):
            codes = self.literals.row(index).tolist()
            literals = (
                TermLiteral(terms[code >> 1], bool(code & 1), names)
                for code, alternatives in zip(codes, self.names_of(index, len(codes)), strict=True)
                for names in alternatives or ((),)
            )
            disjuncts[disjunct] = OperatorDisjunct(target, tuple(literals))
        return disjuncts

    def names_of(self, index: int, literals: int) -> list[tuple[tuple[str, ...], ...]]:
        """Return the names of the variables of each literal of a disjunct; `literals` is the number of its literals.

        A literal has several lists of names if the query uses its term with different names.
        """
        text = self.names.text(index)
        return [_decode_names(entry) for entry in json.loads(text)] if text else [()] * literals

    def without(self, queries: Array) -> OperatorTable:
        """Return the table without the disjuncts of these queries."""
        if not len(self) or not len(queries):
            return self
        is_removed = np.isin(query_of(self.disjunct_ids), queries)
        if not is_removed.any():
            return self
        disjuncts = zip(self.disjuncts().items(), is_removed.tolist(), strict=True)
        return OperatorTable.of(
            {identifier: disjunct for (identifier, disjunct), removed in disjuncts if not removed}
        )

    def with_delta(self, delta: OperatorTable, tombstones: Array) -> OperatorTable:
        """Return this table of a base with a delta applied: without the tombstones, with the table of the delta."""
        kept = self.without(tombstones)
        if not len(delta):
            return kept
        return OperatorTable.of(kept.disjuncts() | delta.disjuncts()) if len(kept) else delta


def _encode_names(alternatives: Mapping[tuple[str, ...], None]) -> Any:
    """Encode the lists of names of a literal: a single list directly, several as a list of lists."""
    return next(iter(alternatives), ()) if len(alternatives) < 2 else [*alternatives]


def _decode_names(entry: list[Any]) -> tuple[tuple[str, ...], ...]:
    if not entry:
        return ()
    return tuple(map(tuple, entry)) if isinstance(entry[0], list) else (tuple(entry),)
