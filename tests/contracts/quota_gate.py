"""Daily quotas: a kind of gate that exists only in tests.

`limit 2 per day` lets the first two items of each day (in UTC) pass. The whole implementation is in this module, and
`QUOTAS` is its entry in `runnel.families`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from hashlib import blake2b
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa

from runnel.algebra.nodes.gate_rules import GateRule, LoggedItem, Pass, Stop
from runnel.families import GateKind
from runnel.language.syntax.reader import GateSyntax, TokenReader
from runnel.matching.gates.contract import GateArrivals, GateRun, Numbers, SeparateAnswer, SeparateGates
from runnel.model.gate_state import GateState
from runnel.model.item_batch import ItemBatch
from runnel.plan.gates import Gate

QUOTAS = GateKind(
    "quota", rule=f"{__name__}:Quota", resolver=f"{__name__}:RESOLVER", syntax=f"{__name__}:QUOTA_SYNTAX"
)
_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Quota(GateRule):
    """A maximum number of items per day."""

    kind: ClassVar[str] = "quota"

    most: int

    @property
    def lookback(self) -> timedelta:
        """How far back a decision depends on items: no item depends on those of the previous day."""
        return timedelta(days=1)

    def history(self) -> QuotaHistory:
        """Return the history of a gate that no item has reached yet."""
        return QuotaHistory(self.most)

    def encode(self) -> list[Any]:
        """Encode the rule as its number."""
        return [self.most]

    @classmethod
    def decode(cls, values: Sequence[Any]) -> Quota:
        """Decode a rule from its number."""
        (most,) = values
        return Quota(int(most))

    def render(self) -> str:
        """Render the clause."""
        return f"limit {self.most} per day"

    def describe(self) -> str:
        """Describe an item that passes."""
        return f"among the first {self.most} items of the day"


@dataclass
class QuotaHistory:
    """Counts the items of each day."""

    most: int
    counts: Counter[date] = field(default_factory=Counter)

    def add(self, item: LoggedItem, window: Sequence[LoggedItem] = ()) -> Stop | Pass:
        """Stop an item if the quota of its day is used up. No single item is the cause."""
        self.counts[item.accepted.date()] += 1
        return Stop() if self.counts[item.accepted.date()] > self.most else Pass()


class QuotaResolver(SeparateGates):
    """Counts items. The state of a day is the number of items that have reached the gate."""

    def prepare_each(self, items: ItemBatch, rows: Numbers, gates: Sequence[Gate]) -> list[bytes | None]:
        """Return the day of each item. Its first bytes are zero, and must survive encoding."""
        accepted = items.records.column("accepted").cast(pa.int64()).to_numpy(zero_copy_only=False)
        return [int(moment // _DAY).to_bytes(8, "little") for moment in accepted[rows].tolist()]

    def keys_of(self, gate: Gate, arrivals: GateArrivals) -> Iterable[bytes]:
        """Return the keys of the days."""
        return {_key(gate, day) for day in arrivals.data}

    def resolve_gate(self, gate: Gate, arrivals: GateArrivals, run: GateRun) -> SeparateAnswer:
        """Count the items, starting from the stored states."""
        most = cast(Quota, gate.rule).most
        counts: dict[bytes, int] = {}
        passes = np.ones(len(arrivals), dtype=np.bool_)
        for number, day in enumerate(arrivals.data):
            assert day is not None
            if day not in counts:
                state = run.states.get(_key(gate, day))
                counts[day] = 0 if state is None else int.from_bytes(state.value)
            counts[day] += 1
            passes[number] = counts[day] <= most
        remembered = [
            GateState(gate.feed, _key(gate, day), count.to_bytes(4), (int.from_bytes(day, "little") + 1) * _DAY)
            for day, count in counts.items()
        ]
        return SeparateAnswer(passes, remembered, dict.fromkeys(arrivals.sequences[~passes].tolist(), Stop()))


RESOLVER = QuotaResolver()


def _key(gate: Gate, day: bytes | None) -> bytes:
    return blake2b(day or b"", digest_size=16, key=gate.history).digest()


def parse_quota(tokens: TokenReader) -> Quota:
    """Parse `limit 2 per day` after its first word."""
    most = int(tokens.expect_integer().text)
    tokens.expect("per", "day")
    return Quota(most)


QUOTA_SYNTAX = GateSyntax("limit", parse_quota)
