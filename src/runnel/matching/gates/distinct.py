"""The resolver of `distinct` gates: workers compute digests of item keys, and the commit compares the digests.

An item is stopped if the last item with the same key that reached the gate, stopped or not, was accepted less than
one window earlier. The gate stores that last item of every key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from struct import Struct
from typing import cast

import numpy as np
import pyarrow as pa

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.gate_rules import Stop
from runnel.algebra.semantics.distinct import Distinct, encode_key, key_digest, key_of
from runnel.matching.gates.contract import GateArrivals, GateRun, Numbers, SeparateAnswer, SeparateGates
from runnel.matching.gates.item_attributes import attributes_named
from runnel.model.gate_state import GateState
from runnel.model.item_batch import ItemBatch
from runnel.plan.gates import Gate

_MICROSECOND = timedelta(microseconds=1)
_LAST_ITEM = Struct(">qq")
"""The value of a state: the sequence and the acceptance time of the last item with the key."""


class DistinctResolver(SeparateGates):
    """Decides which items are duplicates."""

    def prepare_each(self, items: ItemBatch, rows: Numbers, gates: Sequence[Gate]) -> list[bytes | None]:
        """Return the digest of the item's key for every pair, or None if the item has no key."""
        reached, positions = np.unique(rows, return_inverse=True)
        records = items.records.take(pa.array(reached))
        ids = records.column("id").to_pylist()
        rules = {gate.feed: _rule(gate) for gate in gates}.values()
        attributes = attributes_named(records, {attribute.name for rule in rules for attribute in rule.by})
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

    def keys_of(self, gate: Gate, arrivals: GateArrivals) -> Iterable[bytes]:
        """Return the digests of the arrivals' keys, which are the keys of the states."""
        return (digest for digest in arrivals.data if digest is not None)

    def resolve_gate(self, gate: Gate, arrivals: GateArrivals, run: GateRun) -> SeparateAnswer:
        """Stop duplicates, and store the last item of every key."""
        window = _rule(gate).window // _MICROSECOND
        passes = np.ones(len(arrivals), dtype=np.bool_)
        last_items: dict[bytes, tuple[int, int]] = {}
        stopped: dict[int, Stop] = {}
        items = zip(arrivals.sequences.tolist(), arrivals.accepted.tolist(), arrivals.data, strict=True)
        for index, (sequence, accepted, digest) in enumerate(items):
            if digest is None:
                continue
            previous = last_items.get(digest)
            if previous is None and digest in run.states:
                previous = _LAST_ITEM.unpack(run.states[digest].value)
            last_items[digest] = sequence, accepted
            if previous is not None and accepted - previous[1] < window:
                passes[index] = False
                stopped[sequence] = Stop(previous[0])
        new_states = [
            GateState(gate.feed, digest, _LAST_ITEM.pack(sequence, accepted), accepted + window)
            for digest, (sequence, accepted) in last_items.items()
        ]
        return SeparateAnswer(passes, new_states, stopped)


DISTINCT = DistinctResolver()


def _rule(gate: Gate) -> Distinct:
    return cast(Distinct, gate.rule)
