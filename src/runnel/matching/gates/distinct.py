"""The gate `distinct` at work: workers make the digests of keys, and the commit compares them.

An item is stopped if the last item with its key that reached the gate, stopped or not, was accepted less than the
window before. The gate remembers that last item of every key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from struct import Struct
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.gate_rules import Stop
from runnel.algebra.semantics.distinct import Distinct, encode_key, key_digest, key_of
from runnel.matching.gates.contract import Arrivals, GateAnswer, Numbers
from runnel.model.gate_state import GateState
from runnel.model.item import Attributes
from runnel.model.item_batch import ItemBatch
from runnel.plan.gates import Gate

_MICROSECOND = timedelta(microseconds=1)
_LAST_ITEM = Struct(">qq")
"""The value of a state: the sequence of the last item with the key, and when it was accepted."""


class DistinctResolver:
    """Decides which items are duplicates."""

    def prepare(self, items: ItemBatch, rows: Numbers, gates: Sequence[Gate]) -> list[bytes | None]:
        """The digest of the item's key for every pair; None for an item without a key."""
        reached, positions = np.unique(rows, return_inverse=True)
        records = items.records.take(pa.array(reached))
        ids = records.column("id").to_pylist()
        attributes = _attributes(records, {gate.feed: _rule(gate) for gate in gates}.values())
        encoded: dict[tuple[int, tuple[Attribute, ...]], bytes | None] = {}
        digests: list[bytes | None] = []
        for position, gate in zip(positions.tolist(), gates, strict=True):
            by = _rule(gate).by
            if (position, by) not in encoded:
                key = key_of(by, ids[position], attributes[position])
                encoded[position, by] = None if key is None else encode_key(key)
            text = encoded[position, by]
            digests.append(None if text is None else key_digest(text, gate.history))
        return digests

    def state_keys(self, gate: Gate, arrivals: Arrivals) -> Iterable[bytes]:
        """The digests themselves."""
        return (digest for digest in arrivals.data if digest is not None)

    def resolve(self, gate: Gate, arrivals: Arrivals, states: Mapping[bytes, GateState]) -> GateAnswer:
        """Stop duplicates; the last item of every key is remembered."""
        window = _rule(gate).window // _MICROSECOND
        passes = np.ones(len(arrivals), dtype=np.bool_)
        last: dict[bytes, tuple[int, int]] = {}
        stopped: dict[int, Stop] = {}
        items = zip(arrivals.sequences.tolist(), arrivals.accepted.tolist(), arrivals.data, strict=True)
        for number, (sequence, accepted, digest) in enumerate(items):
            if digest is None:
                continue
            earlier = last.get(digest)
            if earlier is None and digest in states:
                earlier = _LAST_ITEM.unpack(states[digest].value)
            last[digest] = sequence, accepted
            if earlier is not None and accepted - earlier[1] < window:
                passes[number] = False
                stopped[sequence] = Stop(earlier[0])
        remembered = [
            GateState(gate.feed, digest, _LAST_ITEM.pack(sequence, accepted), accepted + window)
            for digest, (sequence, accepted) in last.items()
        ]
        return GateAnswer(passes, remembered, stopped)


DISTINCT = DistinctResolver()


def _rule(gate: Gate) -> Distinct:
    return cast(Distinct, gate.rule)


def _attributes(records: Any, rules: Iterable[Distinct]) -> list[Attributes]:
    """The attributes of items that some rule compares; the others, most of an item, are not decoded."""
    names = sorted({attribute.name for rule in rules for attribute in rule.by})
    lists = records.column("attributes")
    wanted = pc.is_in(pc.struct_field(lists.flatten(), "name"), pa.array(names, pa.string()))
    lengths = np.asarray(pc.list_value_length(lists))
    owners = pa.array(np.repeat(np.arange(len(lengths)), lengths))
    chosen = np.bincount(owners.filter(wanted).to_numpy(), minlength=len(lengths))
    offsets = np.concatenate([[0], np.cumsum(chosen)]).astype(np.int32)
    shorter = pa.ListArray.from_arrays(pa.array(offsets), lists.flatten().filter(wanted), type=lists.type)
    column = records.schema.get_field_index("attributes")
    return list(ItemBatch(records.set_column(column, records.schema.field(column), shorter)).attributes())
