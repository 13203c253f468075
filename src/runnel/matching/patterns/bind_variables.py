"""Bind the variables of matches through item patterns, without operators.

In: a plan, a batch of items and their matches. Out: the bindings by row and query. Only the matches of queries that
bind variables are processed, and a search that several queries of an item share is made once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache

import numpy as np

from runnel.algebra.nodes.item_patterns import ItemPattern
from runnel.algebra.nodes.query import Node
from runnel.algebra.semantics.bindings import joined
from runnel.algebra.semantics.node_bindings import decode_whole, node_solutions
from runnel.arrays import Array
from runnel.errors import CorruptDataError, TooExpensiveError
from runnel.matching.filters.atoms.atom_layout import AtomLayout
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.matching.patterns.contract import PatternMatcher, PatternSolutions
from runnel.matching.patterns.item_search import FamilySearch
from runnel.matching.patterns.plan_patterns import load_patterns, stored_pattern
from runnel.model.bindings import Binding, Bindings, MatchBindings, bounded
from runnel.model.item import Value
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.plan.gates import query_of
from runnel.plan.pattern_bindings import PatternBindings
from runnel.plan.store import Plan, PlanPart

MAX_JOINED_ROWS = 10_000
"""Maximum number of joint bindings that are kept while the patterns of a query are joined."""


@lru_cache(maxsize=1 << 14)
def _decode_pattern(text: str) -> ItemPattern:
    """Decode a stored pattern. The cache is effective because the same patterns match again and again."""
    try:
        pattern = stored_pattern(text)
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise CorruptDataError(f"the plan contains an invalid item pattern: {text[:200]}") from error
    if not isinstance(pattern, ItemPattern):
        raise CorruptDataError(f"the plan contains an invalid item pattern: {text[:200]}")
    return pattern


@lru_cache(maxsize=1 << 10)
def _decode_query(text: str) -> tuple[Node, dict[int, Node]]:
    try:
        return decode_whole(json.loads(text))
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise CorruptDataError(f"the plan contains an invalid query: {text[:200]}") from error


class PatternBinder:
    """Binds the variables of matches, for the queries of a plan that bind variables through item patterns."""

    def __init__(self, plan: Plan) -> None:
        parts = (_PartBinder(part, plan.bound_patterns(part)) for part in plan.parts)
        self._parts = [part for part in parts if len(part.bound)]

    @property
    def is_needed(self) -> bool:
        """Whether any query of the plan binds variables through item patterns."""
        return bool(self._parts)

    def bind(self, items: ItemBatch, matches: Matches) -> dict[int, dict[int, Bindings]]:
        """Return the bindings of matches by row and query, including matches that must still pass a gate."""
        bindings_by_row: dict[int, dict[int, Bindings]] = {}
        if not self._parts or not len(matches.queries):
            return bindings_by_row
        queries = query_of(matches.queries)
        rows = np.repeat(np.arange(len(matches)), np.diff(matches.offsets))
        for part in self._parts:
            matched_rows, first, last = part.select_matches(rows, queries)
            if not len(matched_rows):
                continue
            is_single = (last - first == 1) & (part.bound.atoms[first] >= 0)
            bound = part.bind_single_patterns(items, matched_rows[is_single], first[is_single])
            bound += part.bind_other_queries(items, matched_rows[~is_single], first[~is_single], last[~is_single])
            for row, query, bindings in bound:
                if not bindings.is_empty:
                    bindings_by_row.setdefault(row, {})[query] = bindings
        return bindings_by_row

    def bind_by_query(self, items: ItemBatch, matches: Matches) -> MatchBindings:
        """Return the bindings of matches by the item's sequence and query."""
        return {int(items.sequences[row]): by_query for row, by_query in self.bind(items, matches).items()}


def united_bindings(first: MatchBindings, second: MatchBindings) -> MatchBindings:
    """Merge bindings from two steps of matching. No query has bindings from both.

    >>> united_bindings({7: {1: [{"x": 1.0}]}}, {7: {2: [{"y": 2.0}]}, 8: {2: []}})
    {7: {1: [{'x': 1.0}], 2: [{'y': 2.0}]}, 8: {2: []}}
    """
    if not first or not second:
        return first or second
    return {sequence: {**first.get(sequence, {}), **second.get(sequence, {})} for sequence in {**first, **second}}


@dataclass(frozen=True)
class _PartBinder:
    """Binds variables for the queries of one plan part. `bound` is its table of the patterns of queries."""

    part: PlanPart
    bound: PatternBindings

    @cached_property
    def ids(self) -> Array:
        """The ids of the queries that bind variables, in ascending order."""
        return np.unique(self.bound.queries)

    def select_matches(self, rows: Array, queries: Array) -> tuple[Array, Array, Array]:
        """Select the distinct matches of queries that bind variables.

        Return their rows, and the range of the table that contains the patterns of each query.
        """
        positions = np.minimum(np.searchsorted(self.ids, queries), len(self.ids) - 1)
        selected = np.flatnonzero(self.ids[positions] == queries)
        pairs = np.unique(rows[selected] * len(self.ids) + positions[selected])
        ids = self.ids[pairs % len(self.ids)]
        table = self.bound.queries
        return pairs // len(self.ids), np.searchsorted(table, ids), np.searchsorted(table, ids, side="right")

    @cached_property
    def atoms(self) -> AtomLayout:
        return stored_atoms(self.part)

    @cached_property
    def matchers(self) -> dict[str, PatternMatcher]:
        """The pattern matchers by family."""
        return load_patterns(self.part, self.atoms)

    @cached_property
    def families(self) -> Array:
        """For every atom, the index of its family in `matchers`, or -1 if the atom is not a pattern."""
        families = np.full(len(self.atoms.atom_keys), -1, dtype=np.int64)
        for index, family in enumerate(self.matchers):
            families[self.atoms.atoms_of(family)] = index
        return families

    def bind_single_patterns(self, items: ItemBatch, rows: Array, entries: Array) -> list[tuple[int, int, Bindings]]:
        """Return row, query and bindings of matches of queries that have one pattern each.

        `entries` are the positions of the patterns in the table.
        """
        if not len(rows):
            return []
        families = self.families[self.bound.atoms[entries]]
        if np.any(families < 0):
            raise CorruptDataError(
                f"plan {self.part.manifest.folder} binds variables through atoms that are not item patterns"
            )
        distinct_rows, positions = np.unique(rows, return_inverse=True)
        columns = ItemColumns(ItemBatch(items.records.take(distinct_rows)))
        bound: list[tuple[int, int, Bindings]] = []
        for family, matcher in enumerate(self.matchers.values()):
            selected = np.flatnonzero(families == family)
            if len(selected):
                bound += self._bind_family(matcher, columns, rows[selected], positions[selected], entries[selected])
        return bound

    def _bind_family(
        self, matcher: PatternMatcher, columns: ItemColumns, rows: Array, positions: Array, entries: Array
    ) -> list[tuple[int, int, Bindings]]:
        """Bind the variables of patterns of one family; `positions` are the positions of the rows in the columns."""
        solutions = matcher.solutions(columns, positions, self.bound.atoms[entries], self._named_variables(entries))
        sets_by_pair: list[list[Array]] = [[] for _ in rows]
        is_whole = np.ones(len(rows), dtype=np.bool_)
        np.logical_and.at(is_whole, solutions.pairs, solutions.is_whole)
        for number, pair in enumerate(solutions.pairs.tolist()):
            sets_by_pair[pair].append(solutions.rows(number))
        cache = _BindingsCache(solutions, self.bound)
        queries, names = self.bound.queries[entries].tolist(), self.bound.names[entries].tolist()
        return [
            (row, query, cache.bindings(sets, name, entry, whole))
            for row, query, sets, name, entry, whole in zip(
                rows.tolist(), queries, sets_by_pair, names, entries.tolist(), is_whole.tolist(), strict=True
            )
        ]

    def _named_variables(self, entries: Array) -> Array:
        """Return a bit mask of the named variables for each pattern at these positions of the table."""
        distinct_names, numbers = np.unique(self.bound.names[entries], return_inverse=True)
        examples = [int(np.argmax(self.bound.names == names)) for names in distinct_names.tolist()]
        masks = [
            sum(1 << variable for variable, name in enumerate(self.bound.names_at(entry)) if name)
            for entry in examples
        ]
        return np.array(masks, dtype=np.uint32)[numbers]

    def bind_other_queries(
        self, items: ItemBatch, rows: Array, first: Array, last: Array
    ) -> list[tuple[int, int, Bindings]]:
        """Return row, query and bindings of matches of queries that have several patterns or are stored whole.

        The patterns of each query are the entries from `first` to before `last` of the table.
        """
        if not len(rows):
            return []
        solver = _ItemSolver(items, np.unique(rows))
        queries = self.bound.queries[first].tolist()
        return [
            (row, query, self._bind_within_limits(solver, row, begin, end))
            for row, query, begin, end in zip(rows.tolist(), queries, first.tolist(), last.tolist(), strict=True)
        ]

    def _bind_within_limits(self, solver: _ItemSolver, row: int, begin: int, end: int) -> Bindings:
        """Return the bindings of a match. If the search is too expensive, the match has no bindings."""
        try:
            rows, is_whole = self._join_patterns(solver, row, begin, end)
            return bounded(rows, is_whole=is_whole)
        except TooExpensiveError:
            return Bindings(is_whole=False)

    def _join_patterns(self, solver: _ItemSolver, row: int, begin: int, end: int) -> tuple[Sequence[Binding], bool]:
        """Join the bindings of the patterns of a query. Return the joint bindings and whether they are complete."""
        joint: list[dict[str, Value]] = [{}]
        is_whole = True
        for entry in range(begin, end):
            stored = self.bound.named(entry, self.part.stored.atoms)
            if stored.names:
                rows, is_complete = solver.solve_pattern(row, _decode_pattern(stored.text), stored.names)
            else:
                rows, is_complete = solver.solve_query(row, stored.text)
            joined_rows = joined(joint, rows)
            is_whole &= is_complete and len(joined_rows) <= MAX_JOINED_ROWS
            joint = joined_rows[:MAX_JOINED_ROWS]
        return joint, is_whole


class _BindingsCache:
    """Converts solutions to bindings, and converts equal solutions once.

    Equal solutions are recognized by their numbers, because each value has one number per batch.
    """

    def __init__(self, solutions: PatternSolutions, bound: PatternBindings) -> None:
        self._solutions = solutions
        self._bound = bound
        self._values: dict[int, Value] = {}
        self._named_columns: dict[int, list[tuple[int, str]]] = {}
        self._bindings: dict[tuple[int, tuple[bytes, ...], bool], Bindings] = {}

    def bindings(self, sets: list[Array], names: int, entry: int, is_whole: bool) -> Bindings:
        """Return the bindings of solution sets. `names` is the number of the names of a table entry."""
        key = names, tuple(solutions.tobytes() for solutions in sets), is_whole
        if key not in self._bindings:
            if names not in self._named_columns:
                all_names = enumerate(self._bound.names_at(entry))
                self._named_columns[names] = [(column, name) for column, name in all_names if name]
            columns = self._named_columns[names]
            rows = dict.fromkeys(
                tuple(row[column] for column, _ in columns) for solutions in sets for row in solutions.tolist()
            )
            self._bindings[key] = bounded(
                ({name: self._value(number) for (_, name), number in zip(columns, row, strict=True)} for row in rows),
                is_whole=is_whole,
            )
        return self._bindings[key]

    def _value(self, number: int) -> Value:
        if number not in self._values:
            self._values[number] = self._solutions.value(number)
        return self._values[number]


class _ItemSolver:
    """Solves patterns and whole queries on single items of a batch. Each item is decoded and searched once."""

    def __init__(self, items: ItemBatch, rows: Array) -> None:
        records = items.records.take(rows)
        self._positions = {row: position for position, row in enumerate(rows.tolist())}
        self._attributes = list(ItemBatch(records).attributes())
        self._feeds: list[int] = records.column("feed").to_pylist()
        self._accepted: list[datetime] = records.column("accepted").to_pylist()
        self._searches = [FamilySearch(attributes) for attributes in self._attributes]

    def solve_pattern(
        self, row: int, pattern: ItemPattern, names: Sequence[str]
    ) -> tuple[list[dict[str, Value]], bool]:
        """Return the bindings of a stored pattern on the item of a row, and whether they are complete.

        `names` are the query's names of the variables 1, 2, … of the pattern.
        """
        found_solutions = self._searches[self._positions[row]].find_all(pattern)
        names_by_variable = {str(number): name for number, name in enumerate(names, 1) if name}
        distinct_solutions = dict.fromkeys(
            tuple((variable, solution[variable]) for variable in names_by_variable)
            for solution in found_solutions.solutions
        )
        plain = (pattern.binding(dict(solution)) for solution in distinct_solutions)
        bindings = [{names_by_variable[variable]: value for variable, value in row.items()} for row in plain]
        return bindings, found_solutions.is_whole

    def solve_query(self, row: int, text: str) -> tuple[list[dict[str, Value]], bool]:
        """Return the bindings of a whole query on the item of a row, and whether they are complete."""
        position = self._positions[row]
        node, views = _decode_query(text)
        search, searched = self._searches[position], list[ItemPattern]()

        def solve(pattern: ItemPattern) -> list[dict[str, Value]]:
            searched.append(pattern)
            return search.first_rows(pattern)

        feed, attributes, accepted = self._feeds[position], self._attributes[position], self._accepted[position]
        bindings = node_solutions(node, feed, attributes, views, accepted, solve)
        return bindings, all(search.find_all(pattern).is_whole for pattern in searched)
