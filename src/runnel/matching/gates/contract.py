"""The interface that a kind of gate implements: a `GateResolver`, registered in `runnel.families`.

In: the items that reach gates, in the order of the item log, and the stored states of the gates. Out: the items that
pass, and the states to store. The result must depend only on the log, not on its division into batches or on repeated
batches, and must agree with the `history` method of the gate's rule. All gates of a kind that do not depend on one
another are resolved together; `SeparateGates` is for kinds whose gates are resolved one at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from runnel.algebra.nodes.gate_rules import Stop
from runnel.arrays import Rows
from runnel.families import load_part, registry
from runnel.matching.gates.gate_columns import GateColumns
from runnel.model.gate_state import GateState
from runnel.model.item_batch import ItemBatch
from runnel.plan.gates import Gate

if TYPE_CHECKING:
    from runnel.matching.joins.window_items import WindowItems

Numbers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

ReadStates = Callable[[Collection[bytes]], Mapping[bytes, GateState]]
"""Reads the stored states with these keys."""

ReadWindows = Callable[[], Sequence["WindowItems"]]
"""Reads the window items before a run of items, in order."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The data of items for the gates of a kind: rows of a table, and the row of each claim, or -1."""

    table: Any
    positions: Numbers


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Pairs of an item and a gate that it reaches, by ascending items and gates.

    `items` are positions in `sequences` and `accepted`, which are the same for all arrivals of a run, `gates` are
    positions in `columns`, and `data` rows of `table`, or -1.
    """

    items: Numbers
    gates: Numbers
    data: npt.NDArray[np.integer]
    sequences: Numbers
    accepted: Numbers
    columns: GateColumns
    table: Any

    def __len__(self) -> int:
        return len(self.items)

    def select(self, chosen: Booleans | Numbers) -> Arrivals:
        """Return the arrivals at some distinct, ascending positions, or those that a mask selects."""
        if len(chosen) == len(self) and (chosen.dtype != np.bool_ or chosen.all()):
            return self
        return Arrivals(
            self.items[chosen],
            self.gates[chosen],
            self.data[chosen],
            self.sequences,
            self.accepted,
            self.columns,
            self.table,
        )

    def by_gate(self) -> Iterator[tuple[Gate, Numbers]]:
        """Yield each gate with the positions of its arrivals."""
        order = np.argsort(self.gates, kind="stable")
        gates, starts = np.unique(self.gates[order], return_index=True)
        for gate, positions in zip(gates.tolist(), np.split(order, starts[1:]), strict=False):
            yield self.columns.gate(gate), positions


@dataclass(frozen=True, slots=True)
class AnnotatedArrivals:
    """The annotations of arrivals at `positions`: the sequences of the newest joined items, and their number."""

    positions: Numbers
    newest: Rows
    counts: Numbers


@dataclass(frozen=True, slots=True)
class Comparisons:
    """The number of window items compared with each arrival, and the total time of all arrivals."""

    candidates: Numbers
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """The result of gates: a mask of the arrivals that pass, and the states to store.

    `causes` maps the position of a stopped arrival to its `Stop`, if an earlier item is the reason. `failures`
    maps the position of an arrival at which the gate failed, and which does not pass, to the reason. `comparisons`
    counts comparisons with window items, if the gates make any.
    """

    passes: Booleans
    states: Sequence[GateState] = ()
    causes: Mapping[int, Stop] = field(default_factory=dict)
    annotations: AnnotatedArrivals | None = None
    failures: Mapping[int, str] = field(default_factory=dict)
    comparisons: Comparisons | None = None


@dataclass(frozen=True)
class GateRun:
    """What the gates of one run of items share while they are resolved, level by level.

    `states` are the states stored before the first item. `arrivals` are all arrivals that are possible, by kind, and
    `passed` masks those that passed so far. `read_windows` reads the window items before the run, which are stored
    under `window_keys`, by the feeds of the windows; without a key, under the feed.
    """

    states: Mapping[bytes, GateState]
    arrivals: Mapping[str, Arrivals]
    passed: Mapping[str, Booleans]
    read_windows: ReadWindows
    window_keys: Mapping[int, int] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    """Data that a kind of gate keeps from level to level, by the name of the kind."""


class GateResolver(Protocol):
    """Decides which items pass the gates of one kind."""

    def prepare(self, items: ItemBatch, rows: Numbers, gates: GateColumns, positions: Numbers, /) -> Prepared:
        """Return the data that the commit needs for each pair of an item's row and the position of a gate.

        Called in workers, once for all gates of the kind, so that the gates can share work.
        """

    def state_keys(self, arrivals: Arrivals, /) -> Iterable[bytes]:
        """Return the keys of the states that may be needed to resolve the gates. Called in the commit."""

    def resolve(self, arrivals: Arrivals, run: GateRun, /) -> GateAnswer:
        """Decide which arrivals pass. They come after the starts of their gates. Called in the commit.

        The gates do not depend on one another, and all gates that they depend on are resolved.
        """


@dataclass(frozen=True, slots=True)
class GateArrivals:
    """Items that reach one gate, in ascending order of sequences: their acceptance times and prepared data."""

    sequences: Numbers
    accepted: Numbers
    data: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.sequences)


@dataclass(frozen=True, slots=True)
class SeparateAnswer:
    """The result of one gate. `stopped` maps the sequence of a stopped item to the reason."""

    passes: Booleans
    states: Sequence[GateState] = ()
    stopped: Mapping[int, Stop] = field(default_factory=dict)


class SeparateGates(ABC):
    """A resolver that decides about one gate after the other, and whose data are bytes."""

    @abstractmethod
    def prepare_each(self, items: ItemBatch, rows: Numbers, gates: Sequence[Gate]) -> Sequence[bytes | None]:
        """Return the data of each pair of an item's row and a gate."""

    @abstractmethod
    def keys_of(self, gate: Gate, arrivals: GateArrivals) -> Iterable[bytes]:
        """Return the keys of the states that may be needed to resolve a gate."""

    @abstractmethod
    def resolve_gate(self, gate: Gate, arrivals: GateArrivals, run: GateRun) -> SeparateAnswer:
        """Decide which items pass a gate."""

    def prepare(self, items: ItemBatch, rows: Numbers, gates: GateColumns, positions: Numbers) -> Prepared:
        """Return the data of each pair as a row of its own."""
        objects = list(gates)
        data = self.prepare_each(items, rows, [objects[position] for position in positions.tolist()])
        return Prepared(pa.table({"data": pa.array(data, pa.large_binary())}), np.arange(len(rows)))

    def state_keys(self, arrivals: Arrivals) -> Iterable[bytes]:
        """Return the keys of all gates."""
        for gate, positions in arrivals.by_gate():
            yield from self.keys_of(gate, _arrivals_of(arrivals, positions))

    def resolve(self, arrivals: Arrivals, run: GateRun) -> GateAnswer:
        """Resolve one gate after the other."""
        passes = np.zeros(len(arrivals), dtype=np.bool_)
        states: list[GateState] = []
        causes: dict[int, Stop] = {}
        for gate, positions in arrivals.by_gate():
            own = _arrivals_of(arrivals, positions)
            answer = self.resolve_gate(gate, own, run)
            passes[positions] = answer.passes
            states += answer.states
            by_sequence = dict(zip(own.sequences.tolist(), positions.tolist(), strict=True))
            causes |= {by_sequence[sequence]: stop for sequence, stop in answer.stopped.items()}
        return GateAnswer(passes, states, causes)


def _arrivals_of(arrivals: Arrivals, positions: Numbers) -> GateArrivals:
    items, data = arrivals.items[positions], arrivals.data[positions]
    values: list[bytes | None] = [None] * len(data)
    if arrivals.table is not None:
        values = arrivals.table.column("data").take(pa.array(data, mask=data < 0)).to_pylist()
    return GateArrivals(arrivals.sequences[items], arrivals.accepted[items], values)


def resolver_of(kind: str) -> GateResolver:
    """Load the resolver of a kind of gate."""
    return cast(GateResolver, load_part(registry().gates[kind].resolver))
