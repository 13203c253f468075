"""What the variables of matches are bound to by item patterns, without operators.

In: a plan, a batch of items, and their matches. Out: for rows and queries the bindings. Only matches of queries that
bind variables are looked at; what the queries of an item have in common is searched for once.
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

MOST_JOINED = 10_000
"""Joint bindings of a query's patterns that are kept while they are joined."""


@lru_cache(maxsize=1 << 14)
def _pattern(text: str) -> ItemPattern:
    """A pattern by its stored form; the same ones match again and again."""
    try:
        found = stored_pattern(text)
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise CorruptDataError(f"this is not a pattern of a plan: {text[:200]}") from error
    if not isinstance(found, ItemPattern):
        raise CorruptDataError(f"this is not a pattern of a plan: {text[:200]}")
    return found


@lru_cache(maxsize=1 << 10)
def _whole(text: str) -> tuple[Node, dict[int, Node]]:
    try:
        return decode_whole(json.loads(text))
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise CorruptDataError(f"this is not a query of a plan: {text[:200]}") from error


class PatternBinder:
    """The queries of a plan that bind variables by item patterns."""

    def __init__(self, plan: Plan) -> None:
        self._parts = [_Part(part, plan.bound_patterns(part)) for part in plan.parts]
        self._parts = [one for one in self._parts if len(one.bound)]

    @property
    def is_needed(self) -> bool:
        """Whether any query does."""
        return bool(self._parts)

    def bind(self, items: ItemBatch, matches: Matches) -> dict[int, dict[int, Bindings]]:
        """The bindings of matches by row and query, also of those that a gate is before."""
        found: dict[int, dict[int, Bindings]] = {}
        if not self._parts or not len(matches.queries):
            return found
        queries = query_of(matches.queries)
        rows = np.repeat(np.arange(len(matches)), np.diff(matches.offsets))
        for part in self._parts:
            of_rows, first, last = part.matched(rows, queries)
            if not len(of_rows):
                continue
            alone = (last - first == 1) & (part.bound.atoms[first] >= 0)
            told = part.bind_alone(items, of_rows[alone], first[alone])
            told += part.bind_others(items, of_rows[~alone], first[~alone], last[~alone])
            for row, query, bound in told:
                if not bound.is_empty:
                    found.setdefault(row, {})[query] = bound
        return found

    def bind_by_query(self, items: ItemBatch, matches: Matches) -> MatchBindings:
        """The same by the sequences of the items."""
        return {int(items.sequences[row]): of_row for row, of_row in self.bind(items, matches).items()}


def united_bindings(first: MatchBindings, second: MatchBindings) -> MatchBindings:
    """Bindings from two hands; no query has some from both.

    >>> united_bindings({7: {1: [{"x": 1.0}]}}, {7: {2: [{"y": 2.0}]}, 8: {2: []}})
    {7: {1: [{'x': 1.0}], 2: [{'y': 2.0}]}, 8: {2: []}}
    """
    if not first or not second:
        return first or second
    return {sequence: {**first.get(sequence, {}), **second.get(sequence, {})} for sequence in {**first, **second}}


@dataclass(frozen=True)
class _Part:
    """One folder of the plan, and the patterns of its queries."""

    part: PlanPart
    bound: PatternBindings

    @cached_property
    def ids(self) -> Array:
        return np.unique(self.bound.queries)

    def matched(self, rows: Array, queries: Array) -> tuple[Array, Array, Array]:
        """The rows of matches of queries with patterns, each pair once, and where their patterns begin and end."""
        places = np.minimum(np.searchsorted(self.ids, queries), len(self.ids) - 1)
        chosen = np.flatnonzero(self.ids[places] == queries)
        pairs = np.unique(rows[chosen] * len(self.ids) + places[chosen])
        ids = self.ids[pairs % len(self.ids)]
        table = self.bound.queries
        return pairs // len(self.ids), np.searchsorted(table, ids), np.searchsorted(table, ids, side="right")

    @cached_property
    def atoms(self) -> AtomLayout:
        return stored_atoms(self.part)

    @cached_property
    def matchers(self) -> dict[str, PatternMatcher]:
        """The patterns at work, by family."""
        return load_patterns(self.part, self.atoms)

    @cached_property
    def families(self) -> Array:
        """For every atom the place of its family among the matchers; -1 for atoms that are no patterns."""
        found = np.full(len(self.atoms.atom_keys), -1, dtype=np.int64)
        for place, family in enumerate(self.matchers):
            found[self.atoms.atoms_of(family)] = place
        return found

    def bind_alone(self, items: ItemBatch, rows: Array, places: Array) -> list[tuple[int, int, Bindings]]:
        """Row, query and bindings, of queries that have one pattern each, at these places of the table."""
        if not len(rows):
            return []
        families = self.families[self.bound.atoms[places]]
        if np.any(families < 0):
            raise CorruptDataError(f"{self.part.manifest.folder} binds variables by patterns that it does not have")
        chosen, numbers = np.unique(rows, return_inverse=True)
        columns = ItemColumns(ItemBatch(items.records.take(chosen)))
        told: list[tuple[int, int, Bindings]] = []
        for family, matcher in enumerate(self.matchers.values()):
            own = np.flatnonzero(families == family)
            if len(own):
                told += self._bind_by(matcher, columns, rows[own], numbers[own], places[own])
        return told

    def _bind_by(
        self, matcher: PatternMatcher, columns: ItemColumns, rows: Array, numbers: Array, places: Array
    ) -> list[tuple[int, int, Bindings]]:
        """The same for patterns of one family; `numbers` are the places of the rows in the columns."""
        found = matcher.solutions(columns, numbers, self.bound.atoms[places], self._named(places))
        sets: list[list[Array]] = [[] for _ in rows]
        whole = np.ones(len(rows), dtype=np.bool_)
        np.logical_and.at(whole, found.pairs, found.is_whole)
        for number, pair in enumerate(found.pairs.tolist()):
            sets[pair].append(found.rows(number))
        tell = _Telling(found, self.bound)
        queries, names = self.bound.queries[places].tolist(), self.bound.names[places].tolist()
        return [
            (row, query, tell.bindings(own, name, place, is_whole))
            for row, query, own, name, place, is_whole in zip(
                rows.tolist(), queries, sets, names, places.tolist(), whole.tolist(), strict=True
            )
        ]

    def _named(self, places: Array) -> Array:
        """The variables that have names, as bits, of the patterns at these places of the table."""
        used, numbers = np.unique(self.bound.names[places], return_inverse=True)
        first = [int(np.argmax(self.bound.names == one)) for one in used.tolist()]
        bits = [sum(1 << at for at, name in enumerate(self.bound.names_at(place)) if name) for place in first]
        return np.array(bits, dtype=np.uint32)[numbers]

    def bind_others(
        self, items: ItemBatch, rows: Array, first: Array, last: Array
    ) -> list[tuple[int, int, Bindings]]:
        """The same of queries that have several patterns, or are not that simple."""
        if not len(rows):
            return []
        known = _Items(items, np.unique(rows))
        queries = self.bound.queries[first].tolist()
        return [
            (row, query, self._bounded(known, row, begin, end))
            for row, query, begin, end in zip(rows.tolist(), queries, first.tolist(), last.tolist(), strict=True)
        ]

    def _bounded(self, items: _Items, row: int, begin: int, end: int) -> Bindings:
        """The bindings of a match; none where finding them takes too long: it is a match all the same."""
        try:
            rows, is_whole = self._rows(items, row, begin, end)
            return bounded(rows, is_whole=is_whole)
        except TooExpensiveError:
            return Bindings(is_whole=False)

    def _rows(self, items: _Items, row: int, begin: int, end: int) -> tuple[Sequence[Binding], bool]:
        """The rows, and whether these are all."""
        found: list[dict[str, Value]] = [{}]
        is_whole = True
        for place in range(begin, end):
            one = self.bound.named(place, self.part.stored.atoms)
            own, is_known = (
                items.named(row, _pattern(one.text), one.names) if one.names else items.solved(row, one.text)
            )
            every = joined(found, own)
            is_whole &= is_known and len(every) <= MOST_JOINED
            found = every[:MOST_JOINED]
        return found, is_whole


class _Telling:
    """Solutions as bindings. A value has one number in a batch, so equal solutions are listed once."""

    def __init__(self, found: PatternSolutions, bound: PatternBindings) -> None:
        self._found = found
        self._bound = bound
        self._values: dict[int, Value] = {}
        self._names: dict[int, list[tuple[int, str]]] = {}
        self._told: dict[tuple[int, tuple[bytes, ...], bool], Bindings] = {}

    def bindings(self, sets: list[Array], names: int, place: int, is_whole: bool) -> Bindings:
        """The bindings of solution sets, whose columns have the names at a place of the table."""
        key = names, tuple(one.tobytes() for one in sets), is_whole
        if key not in self._told:
            if names not in self._names:
                self._names[names] = [(at, name) for at, name in enumerate(self._bound.names_at(place)) if name]
            told = self._names[names]
            rows = dict.fromkeys(tuple(row[at] for at, _ in told) for one in sets for row in one.tolist())
            self._told[key] = bounded(
                ({name: self._value(number) for (_, name), number in zip(told, row, strict=True)} for row in rows),
                is_whole=is_whole,
            )
        return self._told[key]

    def _value(self, number: int) -> Value:
        if number not in self._values:
            self._values[number] = self._found.value(number)
        return self._values[number]


class _Items:
    """The items of a batch that are read, and what was found of them."""

    def __init__(self, items: ItemBatch, rows: Array) -> None:
        records = items.records.take(rows)
        self._places = {row: place for place, row in enumerate(rows.tolist())}
        self._attributes = list(ItemBatch(records).attributes())
        self._feeds: list[int] = records.column("feed").to_pylist()
        self._accepted: list[datetime] = records.column("accepted").to_pylist()
        self._searches = [FamilySearch(one) for one in self._attributes]

    def named(self, row: int, pattern: ItemPattern, names: Sequence[str]) -> tuple[list[dict[str, Value]], bool]:
        """The bindings of a stored pattern on the item of a row, under the names of a query, and whether these are
        all."""
        found = self._searches[self._places[row]].found(pattern)
        told = {str(number): name for number, name in enumerate(names, 1) if name}
        rows = dict.fromkeys(tuple((number, one[number]) for number in told) for one in found.solutions)
        plain = (pattern.binding(dict(row)) for row in rows)
        return [{told[number]: value for number, value in row.items()} for row in plain], found.is_whole

    def solved(self, row: int, text: str) -> tuple[list[dict[str, Value]], bool]:
        """The solutions of a whole query on the item of a row, and whether these are all."""
        place = self._places[row]
        node, views = _whole(text)
        search, asked = self._searches[place], list[ItemPattern]()

        def rows(pattern: ItemPattern) -> list[dict[str, Value]]:
            asked.append(pattern)
            return search.first_rows(pattern)

        found = node_solutions(node, self._feeds[place], self._attributes[place], views, self._accepted[place], rows)
        return found, all(search.found(one).is_whole for one in asked)
