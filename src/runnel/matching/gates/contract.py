"""What a kind of gate provides for workers and commits: a `GateResolver`, which `runnel.families` names.

In: the items that reach a gate, in the order of the log, and what the gate remembers. Out: which of them pass, and
what to remember. The answer must depend on the log alone: however the log is cut into batches, and however often a
batch is run again, it is the answer of the rule's own `history`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from runnel.algebra.nodes.gate_rules import Stop
from runnel.families import load_part, registry
from runnel.model.gate_state import GateState
from runnel.model.item_batch import ItemBatch
from runnel.plan.gates import Gate

if TYPE_CHECKING:
    from runnel.matching.joins.window_items import WindowItems

Numbers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

ReadStates = Callable[[Collection[bytes]], Mapping[bytes, GateState]]
"""Reads the states that are stored under some keys."""

ReadWindows = Callable[[], Sequence["WindowItems"]]
"""Reads the items of windows that precede a run of items, in order."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Items that reach a gate, by ascending sequences: when each was accepted, and what the worker prepared."""

    sequences: Numbers
    accepted: Numbers
    data: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.sequences)

    def select(self, mask: Booleans) -> Arrivals:
        """Some of the items."""
        return Arrivals(self.sequences[mask], self.accepted[mask], list(compress(self.data, mask.tolist())))


@dataclass(frozen=True, slots=True)
class Joined:
    """The items with which a gate annotates an item: their number, and the sequences of the newest, newest first."""

    newest: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """Which of the arrivals pass, the states to store, why the others were stopped, and the annotations.

    Stops, annotations and failures are given by sequence. An item on which the gate failed does not pass.
    """

    passes: Booleans
    states: Sequence[GateState] = ()
    stopped: Mapping[int, Stop] = field(default_factory=dict)
    annotations: Mapping[int, Joined] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GateRun:
    """What the gates of one run of items share while they are resolved, one after another.

    `states` precede all of the items. `arrivals` are all items that may reach each gate, and `passed` the sequences
    of those that passed the gates resolved so far. `read_windows` reads the window items before the run.
    """

    states: Mapping[bytes, GateState]
    arrivals: Mapping[int, Arrivals]
    passed: Mapping[int, Numbers]
    gates: Mapping[int, Gate]
    read_windows: ReadWindows
    shared: dict[str, Any] = field(default_factory=dict)
    """What a kind keeps for its other gates, by the name of the kind."""


class GateResolver(Protocol):
    """Decides about the items that reach the gates of one kind."""

    def prepare(self, items: ItemBatch, rows: Numbers, gates: Sequence[Gate], /) -> Sequence[bytes | None]:
        """In a worker: for each pair of an item's row and a gate that it reaches, the data that the commit needs.

        All gates of the kind are prepared in one call, so that they can share work.
        """

    def state_keys(self, gate: Gate, arrivals: Arrivals, /) -> Iterable[bytes]:
        """In the commit: the keys of the states that may be needed to resolve the gate."""

    def resolve(self, gate: Gate, arrivals: Arrivals, run: GateRun, /) -> GateAnswer:
        """In the commit: decide about items that reach the gate after its start."""


def resolver_of(kind: str) -> GateResolver:
    """The resolver of a kind of gate."""
    return cast(GateResolver, load_part(registry().gates[kind].resolver))
