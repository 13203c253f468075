"""The part of a plan that says which queries bind variables by item patterns, and the names of these variables.

In: for each query the patterns that its own condition asks for, all of which must hold, with the names of their
variables; or, where it is not that simple, all of the query. Out: arrays, sixteen bytes for a pattern of a query.
What the variables are bound to is looked for only where a query matches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Arrays, Texts


@dataclass(frozen=True, slots=True)
class NamedPattern:
    """A pattern by its stored form, with what its variables are called in the query; the first is named 1 in it.

    Where there are no names it is no pattern, but all that the query asks (see `algebra.semantics.node_bindings`).
    """

    text: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class PatternBindings:
    """The patterns of queries, in ascending order of the queries.

    `atoms` are the numbers of patterns among the atoms of the plan part, or -1 - n for the n-th of `wholes`; `names`
    are numbers of texts, each a JSON list.
    """

    queries: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    atoms: Array = field(default_factory=lambda: np.empty(0, dtype=IDENTIFIER))
    names: Array = field(default_factory=lambda: np.empty(0, dtype=IDENTIFIER))
    name_texts: Texts = field(default_factory=lambda: Texts.of(()))
    wholes: Texts = field(default_factory=lambda: Texts.of(()))

    def __len__(self) -> int:
        return len(self.queries)

    def arrays(self) -> dict[str, Array]:
        """The arrays to store; none where no query binds variables by patterns."""
        if not len(self):
            return {}
        return {
            "bound.queries": self.queries,
            "bound.atoms": self.atoms,
            "bound.names": self.names,
            **self.name_texts.arrays("bound.name_texts"),
            **self.wholes.arrays("bound.wholes"),
        }

    @staticmethod
    def stored(arrays: Arrays) -> PatternBindings:
        """The table of arrays made by `arrays`."""
        if "bound.queries" not in arrays:
            return PatternBindings()
        return PatternBindings(
            arrays["bound.queries"],
            arrays["bound.atoms"],
            arrays["bound.names"],
            Texts.stored(arrays, "bound.name_texts"),
            Texts.stored(arrays, "bound.wholes"),
        )

    @staticmethod
    def of(patterns: Mapping[int, Sequence[NamedPattern]], atoms: Mapping[str, int]) -> PatternBindings:
        """The table of the patterns of queries, where atoms have these numbers by their stored form.

        >>> table = PatternBindings.of({8: [NamedPattern("g", ("p", "y"))], 7: [NamedPattern("all")]}, {"g": 3})
        >>> table.queries.tolist(), table.atoms.tolist(), table.named(1, Texts.of(["", "", "", "g"]))
        ([7, 8], [-1, 3], NamedPattern(text='g', names=('p', 'y')))
        """
        names: dict[str, int] = {}
        wholes: dict[str, int] = {}
        rows: list[tuple[int, int, int]] = []
        for query in sorted(patterns):
            for one in patterns[query]:
                atom = atoms[one.text] if one.names else -1 - wholes.setdefault(one.text, len(wholes))
                rows.append((query, atom, names.setdefault(json.dumps(one.names), len(names))))
        columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
        return PatternBindings(
            np.array(columns[0], dtype=np.int64),
            np.array(columns[1], dtype=IDENTIFIER),
            np.array(columns[2], dtype=IDENTIFIER),
            Texts.of(names),
            Texts.of(wholes),
        )

    def named(self, place: int, atoms: Texts) -> NamedPattern:
        """The pattern at a place of the table, of a plan part with these atoms."""
        atom = int(self.atoms[place])
        text = atoms.text(atom) if atom >= 0 else self.wholes.text(-1 - atom)
        return NamedPattern(text, self.names_at(place))

    def names_at(self, place: int) -> tuple[str, ...]:
        """What the variables of the pattern at a place are called."""
        return tuple(json.loads(self.name_texts.text(int(self.names[place]))))

    def without(self, gone: Array) -> PatternBindings:
        """The table without the patterns of some queries."""
        if not len(self) or not len(gone):
            return self
        kept = ~np.isin(self.queries, gone)
        return replace(self, queries=self.queries[kept], atoms=self.atoms[kept], names=self.names[kept])

    def patterns(self, atoms: Texts, queries: Iterable[int] | None = None) -> dict[int, list[NamedPattern]]:
        """The patterns by query, of a plan part with these atoms."""
        wanted = None if queries is None else set(queries)
        found: dict[int, list[NamedPattern]] = {}
        for place, query in enumerate(self.queries.tolist()):
            if wanted is None or query in wanted:
                found.setdefault(query, []).append(self.named(place, atoms))
        return found
