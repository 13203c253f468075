"""Claims: the matches that depend on gates, as a worker reports them to the commit.

In: a plan's gates, a batch of items and its matches. Out: the matches that need no gate, and a claim for each
disjunct that an item satisfies: the item, the query, the gate of the disjunct and, if the query has a gate itself,
the data that its resolver prepares. Claims are resolved when the batch is committed; see `resolve_gates`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.matching.gates.contract import Numbers, resolver_of
from runnel.matching.gates.gate_columns import GateColumns
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches
from runnel.plan.gates import FIRST_DISJUNCT, GateTable, query_of, query_of_id
from runnel.plan.store import Plan

CLAIM_SCHEMA = pa.schema([pa.field(name, pa.int32(), nullable=False) for name in ("item", "route", "datum")])
ITEM_SCHEMA = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("sequence", "accepted")])
ROUTE_SCHEMA = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("query", "gate")])
_NO_ITEMS, _NO_ROUTES, _NO_CLAIMS = ITEM_SCHEMA.empty_table(), ROUTE_SCHEMA.empty_table(), CLAIM_SCHEMA.empty_table()
_NO_DATUM = -1
_KIND = b"runnel.kind"


@dataclass(frozen=True)
class Claims:
    """Claims as rows of CLAIM_SCHEMA: an item, a route, and the item's datum for the gate of the route's query.

    An item is a row of `items`, and a route one of `routes`: a query, and the feed of the gate that its disjunct
    depends on. A datum is a row of the table in `data` for the kind of the query's gate, or -1. So an item's data are
    stored once for all claims. `gates` are those that the claims refer to.
    """

    rows: Any = field(default_factory=lambda: _NO_CLAIMS)
    items: Any = field(default_factory=lambda: _NO_ITEMS)
    routes: Any = field(default_factory=lambda: _NO_ROUTES)
    gates: GateColumns = field(default_factory=lambda: GateColumns.of(()))
    data: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def nbytes(self) -> int:
        """The size of the claims in memory."""
        return sum(int(table.nbytes) for table in (self.rows, self.items, self.routes, *self.data.values()))

    @cached_property
    def item_numbers(self) -> npt.NDArray[np.int32]:
        """The row of each claim's item in `items`."""
        return np.asarray(self.rows.column("item").to_numpy())

    @cached_property
    def route_numbers(self) -> npt.NDArray[np.int32]:
        """The row of each claim's route in `routes`."""
        return np.asarray(self.rows.column("route").to_numpy())

    @cached_property
    def datum_numbers(self) -> npt.NDArray[np.int32]:
        """The row of each claim's datum in the data of its kind, or -1."""
        return np.asarray(self.rows.column("datum").to_numpy())

    @property
    def sequences(self) -> Numbers:
        """The sequence of each item."""
        return np.asarray(self.items.column("sequence").to_numpy())

    @cached_property
    def route_gates(self) -> tuple[Numbers, Numbers]:
        """The position in `gates` of each route's query and of its gate, or -1."""
        queries, feeds = (self.routes.column(name).to_numpy() for name in ("query", "gate"))
        return self.gates.positions(queries), self.gates.positions(feeds)

    def at_gates(self) -> Claims:
        """Return the claims of queries that have gates themselves; all other claims depend on these."""
        is_gated = (self.route_gates[0] >= 0)[self.route_numbers]
        return self if is_gated.all() else replace(self, rows=self.rows.filter(pa.array(is_gated)))

    def encode(self) -> bytes:
        """Encode the claims and their gates as bytes, which are empty if there are no claims."""
        if not len(self):
            return b""
        data = [table.replace_schema_metadata({_KIND: kind.encode()}) for kind, table in self.data.items()]
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        for table in (self.gates.to_table(), self.items, self.routes, self.rows, *data):
            with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
                writer.write_table(table)
        return bytes(sink.getvalue().to_pybytes())

    @staticmethod
    def decode(encoded: bytes) -> Claims:
        """Decode claims from bytes that `encode` returned."""
        if not encoded:
            return Claims()
        source = pa.BufferReader(encoded)
        tables = []
        while source.tell() < len(encoded):
            with pa.ipc.open_stream(source) as reader:
                tables.append(reader.read_all().combine_chunks())
        gates, items, routes, rows, *data = tables
        by_kind = {table.schema.metadata[_KIND].decode(): table.replace_schema_metadata(None) for table in data}
        return Claims(rows, items, routes, GateColumns.from_table(gates), by_kind)

    @staticmethod
    def of(several: Sequence[Claims]) -> Claims:
        """Concatenate claims of the same plan."""
        kept = [claims for claims in several if len(claims)]
        if len(kept) <= 1:
            return kept[0] if kept else Claims()
        rows = []
        first_item = first_route = 0
        first_datum: dict[str, int] = {}
        for claims in kept:
            starts = np.array([first_datum.get(kind, 0) for kind in claims.gates.kind_names], dtype=np.int32)
            datum = claims.datum_numbers
            if len(starts):
                # Only claims of queries with gates have data.
                kinds = claims.gates.kinds[claims.route_gates[0]][claims.route_numbers]
                datum = np.where(datum < 0, datum, datum + starts[kinds])
            columns = [claims.item_numbers + first_item, claims.route_numbers + first_route, datum]
            rows.append(pa.table([column.astype(np.int32) for column in columns], schema=CLAIM_SCHEMA))
            first_item += claims.items.num_rows
            first_route += claims.routes.num_rows
            for kind, table in claims.data.items():
                first_datum[kind] = first_datum.get(kind, 0) + table.num_rows
        data = {
            kind: pa.concat_tables(
                [claims.data[kind] for claims in kept if kind in claims.data], promote_options="default"
            ).combine_chunks()
            for kind in first_datum
        }
        return Claims(
            pa.concat_tables(rows).combine_chunks(),
            pa.concat_tables([claims.items for claims in kept]).combine_chunks(),
            pa.concat_tables([claims.routes for claims in kept]).combine_chunks(),
            GateColumns.merge([claims.gates for claims in kept]),
            data,
        )


class GateKeeper:
    """Separates the matches of a loaded plan that depend on gates from those that do not."""

    def __init__(self, plan: Plan) -> None:
        table: GateTable = plan.gates
        self._gates = GateColumns.of(table.gates())
        self._disjuncts = table.disjuncts
        queries = query_of(table.disjuncts)
        self._routes = pa.table([queries, table.gate_feeds], schema=ROUTE_SCHEMA)
        self._query_gates = self._gates.positions(queries)
        self._needed_gates = self._gates.positions(table.gate_feeds)
        self._windows = self._gates.window_positions

    @property
    def is_needed(self) -> bool:
        """Whether the plan has gates."""
        return len(self._gates) > 0

    def take_out(self, items: ItemBatch, matches: Matches) -> tuple[Matches, Claims]:
        """Split matches into those that need no gate and the claims of the others."""
        ids = matches.queries
        is_claim = ids >= FIRST_DISJUNCT
        failures = _failures_by_query(matches.failures)
        if not is_claim.any():
            return Matches(matches.offsets, ids, failures), Claims()
        disjuncts = ids[is_claim]
        before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(~is_claim)])
        kept = Matches(before[matches.offsets], ids[~is_claim], failures)
        rows = np.repeat(np.arange(len(items)), np.diff(matches.offsets - before[matches.offsets]))
        # A disjunct that is not in the table belongs to a query of the base that a delta has replaced.
        routes = np.minimum(np.searchsorted(self._disjuncts, disjuncts), len(self._disjuncts) - 1)
        is_current = self._disjuncts[routes] == disjuncts
        if not is_current.all():
            rows, routes = rows[is_current], routes[is_current]
        return kept, self._claims(items, rows, routes)

    def _claims(self, items: ItemBatch, rows: Numbers, routes: Numbers) -> Claims:
        reached, item_numbers = _renumber(rows, len(items))
        used, route_numbers = _renumber(routes, len(self._disjuncts))
        is_used = np.zeros(len(self._gates) + 1, dtype=np.bool_)  # the last one stands for no gate
        is_used[self._query_gates[used]] = is_used[self._needed_gates[used]] = True
        # A join compares with the items of its window, even if no item of this batch is in it.
        is_used[self._windows[is_used[:-1]]] = True
        data, datum_numbers = self._prepare_data(items, rows, routes)
        accepted = items.records.column("accepted").cast(pa.int64()).to_numpy(zero_copy_only=False)
        columns = [numbers.astype(np.int32, copy=False) for numbers in (item_numbers, route_numbers)]
        return Claims(
            pa.table([*columns, datum_numbers], schema=CLAIM_SCHEMA),
            pa.table([items.sequences[reached], accepted[reached]], schema=ITEM_SCHEMA),
            self._routes.take(pa.array(used)),
            self._gates.select(np.flatnonzero(is_used[:-1])),
            data,
        )

    def _prepare_data(
        self, items: ItemBatch, rows: Numbers, routes: Numbers
    ) -> tuple[dict[str, Any], npt.NDArray[np.int32]]:
        """Return the data that gate resolvers prepare, by kind, and the datum of each claim.

        A claim has none if the query has no gate, or if the item precedes the gate's start.
        """
        numbers = np.full(len(rows), _NO_DATUM, dtype=np.int32)
        data: dict[str, Any] = {}
        if not self.is_needed:
            return data, numbers
        gates = self._query_gates[routes]
        # For claims of queries without gates, the last gate is read instead of none.
        is_counted = (gates >= 0) & (items.sequences[rows] > self._gates.counts_after[gates])
        for number, kind in enumerate(self._gates.kind_names):
            chosen = np.flatnonzero(is_counted & (self._gates.kinds[gates] == number))
            if len(chosen):
                reached, positions = _renumber(gates[chosen], len(self._gates))
                prepared = resolver_of(kind).prepare(items, rows[chosen], self._gates.select(reached), positions)
                data[kind] = prepared.table
                numbers[chosen] = prepared.positions
        return data, numbers


def _renumber(numbers: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """Return the distinct numbers, which are below `count`, and the position of each number among them.

    >>> [column.tolist() for column in _renumber(np.array([7, 2, 7]), 9)]
    [[2, 7], [1, 0, 1]]
    """
    is_used = np.zeros(count, dtype=np.bool_)
    is_used[numbers] = True
    return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[numbers]


def _failures_by_query(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Replace disjuncts by their queries in failures, and keep one failure per item and query."""
    by_query: Mapping[tuple[int, int], Failure] = {
        (failure.row, query): replace(failure, query=query)
        for failure in failures
        for query in (query_of_id(failure.query),)
    }
    return tuple(by_query.values())
