"""Claims: the matches that depend on gates, as a worker reports them to the commit.

In: a plan's gates, a batch of items and its matches. Out: the matches that need no gate, and a claim for each
disjunct that an item satisfies: the item, the query, the gate of the disjunct and, if the query has a gate itself,
the data that its resolver prepares. Claims are resolved when the batch is committed; see `resolve_gates`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runnel.matching.gates.contract import Numbers, resolver_of
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches
from runnel.plan.gates import FIRST_DISJUNCT, NO_GATE, Gate, GateTable, query_of, query_of_id
from runnel.plan.store import Plan

CLAIM_SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("accepted", pa.int64(), nullable=False),
        pa.field("query", pa.int64(), nullable=False),
        pa.field("gate", pa.int64(), nullable=False),
        pa.field("data", pa.binary()),
    ]
)
_GATES = b"runnel.gates"


@dataclass(frozen=True)
class Claims:
    """Claims as rows of CLAIM_SCHEMA, and the gates that they refer to."""

    rows: Any
    gates: tuple[Gate, ...]

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def at_gates(self) -> Claims:
        """Return the claims of queries that have gates themselves; all other claims depend on these."""
        feeds = pa.array([gate.feed for gate in self.gates], pa.int64())
        return Claims(self.rows.filter(pc.is_in(self.rows.column("query"), feeds)), self.gates)

    def encode(self) -> bytes:
        """Encode the claims and their gates as bytes, which are empty if there are no claims."""
        if not len(self):
            return b""
        gates = json.dumps([gate.to_json() for gate in self.gates]).encode()
        rows = self.rows.replace_schema_metadata({_GATES: gates})
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_table(rows)
        return bytes(sink.getvalue().to_pybytes())

    @staticmethod
    def decode(encoded: bytes) -> Claims:
        """Decode claims from bytes that `encode` returned."""
        if not encoded:
            return Claims.of([])
        with pa.ipc.open_stream(pa.py_buffer(encoded)) as reader:
            gates = json.loads((reader.schema.metadata or {})[_GATES])
            return Claims(reader.read_all(), tuple(map(Gate.from_json, gates)))

    @staticmethod
    def of(several: Sequence[Claims]) -> Claims:
        """Concatenate claims of the same plan."""
        if not several:
            return Claims(CLAIM_SCHEMA.empty_table(), ())
        rows = [claims.rows.replace_schema_metadata(None) for claims in several]
        # The part of a plan with the feed itself knows where its gate starts; others may only read the feed.
        gates = sorted((gate for claims in several for gate in claims.gates), key=lambda gate: gate.shown)
        return Claims(pa.concat_tables(rows), tuple({gate.feed: gate for gate in gates}.values()))


class GateKeeper:
    """Separates the matches of a loaded plan that depend on gates from those that do not."""

    def __init__(self, plan: Plan) -> None:
        self._table: GateTable = plan.gates
        self._gates = sorted(self._table.gates(), key=lambda gate: gate.feed)
        self._feeds = np.array([gate.feed for gate in self._gates], dtype=np.int64)
        self._counts_after = np.array([gate.counts_after for gate in self._gates], dtype=np.int64)
        windows = (NO_GATE if gate.window is None else gate.window for gate in self._gates)
        self._window_feeds = np.fromiter(windows, dtype=np.int64, count=len(self._gates))
        self._kinds = np.array([gate.rule.kind for gate in self._gates], dtype=np.str_)

    @property
    def is_needed(self) -> bool:
        """Whether the plan has gates."""
        return bool(self._gates)

    def take_out(self, items: ItemBatch, matches: Matches) -> tuple[Matches, Claims]:
        """Split matches into those that need no gate and the claims of the others."""
        ids = matches.queries
        is_claim = ids >= FIRST_DISJUNCT
        failures = _failures_by_query(matches.failures)
        if not is_claim.any():
            return Matches(matches.offsets, ids, failures), Claims.of([])
        rows = np.repeat(np.arange(len(items)), np.diff(matches.offsets))[is_claim]
        disjuncts = ids[is_claim]
        before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(~is_claim)])
        kept = Matches(before[matches.offsets], ids[~is_claim], failures)
        # A disjunct that is not in the table belongs to a query of the base that a delta has replaced.
        positions = np.searchsorted(self._table.disjuncts, disjuncts)
        positions = np.minimum(positions, len(self._table.disjuncts) - 1)
        is_current = self._table.disjuncts[positions] == disjuncts
        gates = self._table.gate_feeds[positions[is_current]]
        return kept, self._claims(items, rows[is_current], query_of(disjuncts[is_current]), gates)

    def _claims(self, items: ItemBatch, rows: Numbers, queries: Numbers, gates: Numbers) -> Claims:
        accepted = items.records.column("accepted").cast(pa.int64()).to_numpy(zero_copy_only=False)
        columns = [
            pa.array(items.sequences[rows]),
            pa.array(accepted[rows]),
            pa.array(queries),
            pa.array(gates),
            pa.array(self._prepare_data(items, rows, queries), pa.binary()),
        ]
        used = np.isin(self._feeds, np.concatenate([queries, gates]))
        # A join compares with the items of its window, even if no item of this batch is in it.
        used |= np.isin(self._feeds, self._window_feeds[used])
        table = pa.Table.from_arrays(columns, schema=CLAIM_SCHEMA)
        return Claims(table, tuple(self._gates[position] for position in np.flatnonzero(used).tolist()))

    def _prepare_data(self, items: ItemBatch, rows: Numbers, queries: Numbers) -> list[bytes | None]:
        """Return the data that gate resolvers prepare for each claim.

        The data is None if the query has no gate, or if the item precedes the gate's start.
        """
        data: list[bytes | None] = [None] * len(rows)
        positions = np.minimum(np.searchsorted(self._feeds, queries), len(self._feeds) - 1)
        is_counted = (self._feeds[positions] == queries) & (items.sequences[rows] > self._counts_after[positions])
        for kind in np.unique(self._kinds[positions[is_counted]]).tolist():
            selected = np.flatnonzero(is_counted & (self._kinds[positions] == kind))
            gates = [self._gates[position] for position in positions[selected].tolist()]
            values = resolver_of(kind).prepare(items, rows[selected], gates)
            for claim, value in zip(selected.tolist(), values, strict=True):
                data[claim] = value
        return data


def _failures_by_query(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Replace disjuncts by their queries in failures, and keep one failure per item and query."""
    by_query: Mapping[tuple[int, int], Failure] = {
        (failure.row, query): replace(failure, query=query)
        for failure in failures
        for query in (query_of_id(failure.query),)
    }
    return tuple(by_query.values())
