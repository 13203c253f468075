"""Claims: what a worker can say of gates. The ways that lead to them are taken out of a matcher's answer.

In: a plan's gates, a batch of items and what it matched. Out: the matches that need no gate, and for each way that an
item satisfies a claim: the item, the query, the gate before it, and, where the query is a distinct feed, the item's
key there. Claims are settled where the batch is committed, see `settle_gates`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.semantics.distinct import encode_key, key_digest, key_of
from runnel.model.item import Attributes
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Failure, Matches
from runnel.plan.gates import FIRST_DISJUNCT, Gate, GateTable, query_of
from runnel.plan.store import Plan

CLAIM_SCHEMA = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("accepted", pa.int64(), nullable=False),
        pa.field("query", pa.int64(), nullable=False),
        pa.field("gate", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
    ]
)
_GATES = b"runnel.gates"

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Claims:
    """Claims, and the gates that they are about.

    A claim without a key is of a query that is no distinct feed, or of an item that is like no other there.
    """

    rows: Any
    gates: tuple[Gate, ...]

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def at_gates(self) -> Claims:
        """Those of distinct feeds themselves: what decides about all others."""
        feeds = pa.array([gate.feed for gate in self.gates], pa.int64())
        return Claims(self.rows.filter(pc.is_in(self.rows.column("query"), feeds)), self.gates)

    def sealed(self) -> bytes:
        """The claims as bytes, with their gates; none where there are no claims."""
        if not len(self):
            return b""
        told = json.dumps([gate.to_json() for gate in self.gates]).encode()
        rows = self.rows.replace_schema_metadata({_GATES: told})
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            writer.write_table(rows)
        return bytes(sink.getvalue().to_pybytes())

    @staticmethod
    def opened(sealed: bytes) -> Claims:
        """The claims of bytes made by `sealed`."""
        if not sealed:
            return Claims.of([])
        with pa.ipc.open_stream(pa.py_buffer(sealed)) as reader:
            told = json.loads((reader.schema.metadata or {})[_GATES])
            return Claims(reader.read_all(), tuple(map(Gate.from_json, told)))

    @staticmethod
    def of(several: Sequence[Claims]) -> Claims:
        """Claims of one plan together."""
        if not several:
            return Claims(CLAIM_SCHEMA.empty_table(), ())
        rows = [one.rows.replace_schema_metadata(None) for one in several]
        gates = {gate.feed: gate for one in several for gate in one.gates}
        return Claims(pa.concat_tables(rows), tuple(gates.values()))


class GateKeeper:
    """The gates of a loaded plan, ready to take claims out of what its matcher answers."""

    def __init__(self, plan: Plan) -> None:
        self._table: GateTable = plan.gates
        self._gates = {gate.feed: gate for gate in self._table.gates()}
        self._feeds = np.array(sorted(self._gates), dtype=np.int64)
        self._names = sorted({one.name for gate in self._gates.values() for one in gate.by})

    @property
    def is_needed(self) -> bool:
        """Whether the plan has gates at all."""
        return bool(self._gates)

    def take_out(self, items: ItemBatch, matches: Matches) -> tuple[Matches, Claims]:
        """What needs no gate, and the claims of what does."""
        ids = matches.queries
        through = ids >= FIRST_DISJUNCT
        failures = _of_queries(matches.failures)
        if not through.any():
            return Matches(matches.offsets, ids, failures), Claims.of([])
        owners = np.repeat(np.arange(len(items)), np.diff(matches.offsets))[through]
        ways = ids[through]
        before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(~through)])
        kept = Matches(before[matches.offsets], ids[~through], failures)
        # A way that the table does not have belongs to a query of the base that a delta has replaced.
        places = np.searchsorted(self._table.way_ids, ways)
        places = np.minimum(places, len(self._table.way_ids) - 1)
        known = self._table.way_ids[places] == ways
        return kept, self._claims(items, owners[known], query_of(ways[known]), self._table.way_gates[places[known]])

    def _claims(self, items: ItemBatch, rows: Numbers, queries: Numbers, gates: Numbers) -> Claims:
        accepted = items.records.column("accepted").cast(pa.int64()).to_numpy(zero_copy_only=False)
        columns = [
            pa.array(items.sequences[rows]),
            pa.array(accepted[rows]),
            pa.array(queries),
            pa.array(gates),
            pa.array(self._keys(items, rows, queries), pa.binary()),
        ]
        told = np.intersect1d(self._feeds, np.concatenate([queries, gates])).tolist()
        rows_of = pa.Table.from_arrays(columns, schema=CLAIM_SCHEMA)
        return Claims(rows_of, tuple(self._gates[feed] for feed in told))

    def _keys(self, items: ItemBatch, rows: Numbers, queries: Numbers) -> Any:
        """The digest of the item's key for every claim at a gate; None for the others."""
        keys = np.full(len(rows), None, dtype=object)
        asked = np.flatnonzero(np.isin(queries, self._feeds))
        distinct, places = np.unique(rows[asked], return_inverse=True)
        some = items.records.take(pa.array(distinct))
        ids, attributes = some.column("id").to_pylist(), self._attributes(some)
        sequences = items.sequences[distinct].tolist()
        encoded: dict[tuple[int, tuple[Attribute, ...]], bytes | None] = {}
        for claim, place, feed in zip(asked.tolist(), places.tolist(), queries[asked].tolist(), strict=True):
            gate = self._gates[feed]
            if sequences[place] <= gate.since:
                continue
            if (place, gate.by) not in encoded:
                key = key_of(gate.by, ids[place], attributes[place])
                encoded[place, gate.by] = None if key is None else encode_key(key)
            told = encoded[place, gate.by]
            keys[claim] = None if told is None else key_digest(told, gate.history)
        return keys

    def _attributes(self, records: Any) -> list[Attributes]:
        """The attributes that some gate compares, item by item: most of an item is never looked at."""
        lists = records.column("attributes")
        wanted = pc.is_in(pc.struct_field(lists.flatten(), "name"), pa.array(self._names, pa.string()))
        lengths = np.asarray(pc.list_value_length(lists))
        owners = pa.array(np.repeat(np.arange(len(lengths)), lengths))
        chosen = np.bincount(owners.filter(wanted).to_numpy(), minlength=len(lengths))
        offsets = np.concatenate([[0], np.cumsum(chosen)]).astype(np.int32)
        shorter = pa.ListArray.from_arrays(pa.array(offsets), lists.flatten().filter(wanted), type=lists.type)
        place = records.schema.get_field_index("attributes")
        return list(ItemBatch(records.set_column(place, records.schema.field(place), shorter)).attributes())


def _of_queries(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """Failures by query: those of several ways of one are one."""
    found: Mapping[tuple[int, int], Failure] = {
        (one.row, query): replace(one, query=query)
        for one in failures
        for query in (int(query_of(np.array(one.query))),)
    }
    return tuple(found.values())
