"""The table of the queries that bind variables through item patterns, with the names of the variables.

In: for each query the patterns of its own condition, if all of them must hold, with the names of their variables;
otherwise the whole query. Out: arrays, with sixteen bytes per pattern of a query. The values of the variables are
computed only when a query matches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from runnel.arrays import IDENTIFIER, Array, Arrays, Texts


@dataclass(frozen=True, slots=True)
class NamedPattern:
    """A pattern in its stored form, with the names that the query gives to its variables, in the order 1, 2, ….

    A variable that only the pattern uses has an empty name. Without any names, `text` is not a pattern but a whole
    query (see `algebra.semantics.node_bindings`).
    """

    text: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class PatternBindings:
    """The patterns of queries, one row per pattern, in ascending order of the query ids.

    `atoms` are the ids of the patterns among the atoms of the plan part, or -1 - n for the n-th entry of `wholes`,
    the queries that are stored whole. `names` are indices into `name_texts`, each a JSON list of variable names.
    """

    queries: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    atoms: Array = field(default_factory=lambda: np.empty(0, dtype=IDENTIFIER))
    names: Array = field(default_factory=lambda: np.empty(0, dtype=IDENTIFIER))
    name_texts: Texts = field(default_factory=lambda: Texts.of(()))
    wholes: Texts = field(default_factory=lambda: Texts.of(()))

    def __len__(self) -> int:
        return len(self.queries)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays to store by name; there are none if no query binds variables through patterns."""
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
        """Build the table from the arrays that `arrays` returned."""
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
        """Build the table from the patterns of each query. `atoms` maps the stored form of an atom to its id.

        >>> table = PatternBindings.of({8: [NamedPattern("g", ("p", "y"))], 7: [NamedPattern("all")]}, {"g": 3})
        >>> table.queries.tolist(), table.atoms.tolist(), table.named(1, Texts.of(["", "", "", "g"]))
        ([7, 8], [-1, 3], NamedPattern(text='g', names=('p', 'y')))
        """
        names: dict[str, int] = {}
        wholes: dict[str, int] = {}
        rows: list[tuple[int, int, int]] = []
        for query in sorted(patterns):
            for pattern in patterns[query]:
                atom = atoms[pattern.text] if pattern.names else -1 - wholes.setdefault(pattern.text, len(wholes))
                rows.append((query, atom, names.setdefault(json.dumps(pattern.names), len(names))))
        columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
        return PatternBindings(
            np.array(columns[0], dtype=np.int64),
            np.array(columns[1], dtype=IDENTIFIER),
            np.array(columns[2], dtype=IDENTIFIER),
            Texts.of(names),
            Texts.of(wholes),
        )

    def named(self, row: int, atoms: Texts) -> NamedPattern:
        """Return the pattern in a row of the table. `atoms` are the atoms of the plan part."""
        atom = int(self.atoms[row])
        text = atoms.text(atom) if atom >= 0 else self.wholes.text(-1 - atom)
        return NamedPattern(text, self.names_at(row))

    def names_at(self, row: int) -> tuple[str, ...]:
        """Return the names of the variables of the pattern in a row."""
        return tuple(json.loads(self.name_texts.text(int(self.names[row]))))

    def without(self, removed: Array) -> PatternBindings:
        """Return the table without the patterns of the removed queries."""
        if not len(self) or not len(removed):
            return self
        is_kept = ~np.isin(self.queries, removed)
        return replace(self, queries=self.queries[is_kept], atoms=self.atoms[is_kept], names=self.names[is_kept])

    def patterns(self, atoms: Texts, queries: Iterable[int] | None = None) -> dict[int, list[NamedPattern]]:
        """Return the patterns by query, of all queries or only of those in `queries`.

        `atoms` are the atoms of the plan part.
        """
        selected = None if queries is None else set(queries)
        patterns: dict[int, list[NamedPattern]] = {}
        for row, query in enumerate(self.queries.tolist()):
            if selected is None or query in selected:
                patterns.setdefault(query, []).append(self.named(row, atoms))
        return patterns
