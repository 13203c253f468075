"""Daily quotas: a kind of gate that exists only in tests.

`limit 2 per day` lets the first two items pass that reach it on a day, in UTC. All of the kind is in this module, and
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
from runnel.matching.gates.contract import Arrivals, GateAnswer, GateRun, Numbers
from runnel.model.gate_state import GateState
from runnel.model.item_batch import ItemBatch
from runnel.plan.gates import Gate

QUOTAS = GateKind(
    "quota", rule=f"{__name__}:Quota", resolver=f"{__name__}:RESOLVER", syntax=f"{__name__}:QUOTA_SYNTAX"
)
_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Quota(GateRule):
    """At most so many items per day."""

    kind: ClassVar[str] = "quota"

    most: int

    @property
    def lookback(self) -> timedelta:
        """No item depends on those of the day before."""
        return timedelta(days=1)

    def history(self) -> QuotaHistory:
        """A gate that no item has reached yet."""
        return QuotaHistory(self.most)

    def encode(self) -> list[Any]:
        """The number."""
        return [self.most]

    @classmethod
    def decode(cls, values: Sequence[Any]) -> Quota:
        """The rule of a number."""
        (most,) = values
        return Quota(int(most))

    def render(self) -> str:
        """The clause."""
        return f"limit {self.most} per day"

    def describe(self) -> str:
        """What holds of an item that passes, in words."""
        return f"among the first {self.most} items of the day"


@dataclass
class QuotaHistory:
    """The number of items on each day."""

    most: int
    counts: Counter[date] = field(default_factory=Counter)

    def add(self, item: LoggedItem, window: Sequence[LoggedItem] = ()) -> Stop | Pass:
        """Whether the quota of the item's day is used up; no single item is the cause."""
        self.counts[item.accepted.date()] += 1
        return Stop() if self.counts[item.accepted.date()] > self.most else Pass()


class QuotaResolver:
    """Counts items; the state of a day is the number of items that have reached the gate."""

    def prepare(self, items: ItemBatch, rows: Numbers, gates: Sequence[Gate]) -> list[bytes | None]:
        """The day of each item; the first of these bytes are zeros, and must survive."""
        accepted = items.records.column("accepted").cast(pa.int64()).to_numpy(zero_copy_only=False)
        return [int(moment // _DAY).to_bytes(8, "little") for moment in accepted[rows].tolist()]

    def state_keys(self, gate: Gate, arrivals: Arrivals) -> Iterable[bytes]:
        """The keys of the days."""
        return {_key(gate, day) for day in arrivals.data}

    def resolve(self, gate: Gate, arrivals: Arrivals, run: GateRun) -> GateAnswer:
        """Count on from what was remembered."""
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
        return GateAnswer(passes, remembered, dict.fromkeys(arrivals.sequences[~passes].tolist(), Stop()))


RESOLVER = QuotaResolver()


def _key(gate: Gate, day: bytes | None) -> bytes:
    return blake2b(day or b"", digest_size=16, key=gate.history).digest()


def parse_quota(tokens: TokenReader) -> Quota:
    """`limit 2 per day`, after its first word."""
    most = int(tokens.expect_integer().text)
    tokens.expect("per", "day")
    return Quota(most)


QUOTA_SYNTAX = GateSyntax("limit", parse_quota)
