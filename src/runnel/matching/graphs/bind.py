"""What the variables of matches are bound to by graph patterns, without operators.

In: a plan, a batch of items, and their matches. Out: for rows and queries the bindings. Only matches of queries that
bind variables are looked at; what the queries of an item have in common is searched for once.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache

import numpy as np

from runnel.algebra.bindings import joined
from runnel.algebra.encode import decode_graph
from runnel.algebra.graph_solutions import Solution
from runnel.algebra.graphs import Graph
from runnel.algebra.node_bindings import decode_whole, node_solutions
from runnel.algebra.query import Node
from runnel.algebra.rdf import plain_value
from runnel.errors import CorruptData
from runnel.matching.graphs.item_graph import MOST_SOLUTIONS, ItemGraph
from runnel.model.batch import ItemBatch
from runnel.model.bindings import Binding, Bindings, MatchBindings, bounded
from runnel.model.item import Value
from runnel.model.match import Matches
from runnel.plan.arrays import Array
from runnel.plan.bound_graphs import BoundGraphs
from runnel.plan.gates import query_of
from runnel.plan.store import Plan, PlanPart


@lru_cache(maxsize=1 << 14)
def _pattern(text: str) -> Graph:
    """A pattern by its stored form; the same ones match again and again."""
    try:
        tag, *rest = json.loads(text)
        if tag != "graph":
            raise ValueError(tag)
        return decode_graph(rest)
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise CorruptData(f"this is not a graph pattern of a plan: {text[:200]}") from error


@lru_cache(maxsize=1 << 10)
def _whole(text: str) -> tuple[Node, dict[int, Node]]:
    try:
        return decode_whole(json.loads(text))
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise CorruptData(f"this is not a query of a plan: {text[:200]}") from error


class GraphBinder:
    """The queries of a plan that bind variables by graph patterns."""

    def __init__(self, plan: Plan) -> None:
        self._parts = [_Part(part, plan.bound_graphs(part)) for part in plan.parts]
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
        asked = [(part, part.matched(rows, queries)) for part in self._parts]
        known = _Items(items, np.unique(np.concatenate([pairs[0] for _, pairs in asked])))
        for part, (of_rows, first, last) in asked:
            for row, begin, end in zip(of_rows.tolist(), first.tolist(), last.tolist(), strict=True):
                bound = part.bindings(known, row, begin, end)
                if bound.rows:
                    found.setdefault(row, {})[int(part.bound.queries[begin])] = bound
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
    bound: BoundGraphs

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

    def bindings(self, items: _Items, row: int, begin: int, end: int) -> Bindings:
        """The bindings of a query, whose patterns lie there, on the item of a row."""
        if end - begin == 1 and self.bound.atoms[begin] >= 0:
            one = self.bound.named(begin, self.part.stored.atoms)
            return items.alone(row, _pattern(one.text), one.names)
        return bounded(self._rows(items, row, begin, end))

    def _rows(self, items: _Items, row: int, begin: int, end: int) -> Sequence[Binding]:
        found: list[dict[str, Value]] = [{}]
        for place in range(begin, end):
            one = self.bound.named(place, self.part.stored.atoms)
            own = items.named(row, _pattern(one.text), one.names) if one.names else items.solved(row, one.text)
            found = joined(found, own)[:MOST_SOLUTIONS]
        return found


def _named(solutions: Sequence[Solution], names: Sequence[str]) -> list[dict[str, Value]]:
    """Solutions of a stored pattern as plain values, under the names of a query."""
    told = {str(number): name for number, name in enumerate(names, 1) if name}
    rows = dict.fromkeys(tuple(one[number] for number in told) for one in solutions)
    return [dict(zip(told.values(), map(plain_value, one), strict=True)) for one in rows]


class _Items:
    """The items of a batch that are looked at, their graphs, and what was found of them."""

    def __init__(self, items: ItemBatch, rows: Array) -> None:
        records = items.records.take(rows)
        self._places = {row: place for place, row in enumerate(rows.tolist())}
        self._attributes = list(ItemBatch(records).attributes())
        self._feeds: list[int] = records.column("feed").to_pylist()
        self._accepted: list[datetime] = records.column("accepted").to_pylist()
        self._graphs = [ItemGraph(one) for one in self._attributes]
        self._alone: dict[tuple[Hashable, ...], Bindings] = {}

    def alone(self, row: int, pattern: Graph, names: tuple[str, ...]) -> Bindings:
        """The bindings of a query that has one pattern; queries whose filters leave the same solutions share them."""
        solutions = self._graphs[self._places[row]].found(pattern).solutions
        # Solutions are the same objects whatever filter they were found by.
        key = (row, names, *map(id, solutions))
        if key not in self._alone:
            self._alone[key] = bounded(_named(solutions, names))
        return self._alone[key]

    def named(self, row: int, pattern: Graph, names: Sequence[str]) -> list[dict[str, Value]]:
        """The solutions of a stored pattern on the item of a row, under the names of a query."""
        return _named(self._graphs[self._places[row]].found(pattern).solutions, names)

    def solved(self, row: int, text: str) -> list[dict[str, Value]]:
        """The solutions of a whole query on the item of a row."""
        place = self._places[row]
        node, views = _whole(text)
        return node_solutions(
            node,
            self._feeds[place],
            self._attributes[place],
            views,
            self._accepted[place],
            self._graphs[place].first_rows,
        )
