"""The interface that a kind of gate implements: a `GateResolver`, registered in `runnel.families`.

In: the items that reach a gate, in the order of the item log, and the stored states of the gate. Out: the items that
pass, and the states to store. The result must depend only on the log, not on its division into batches or on repeated
batches, and must agree with the `history` method of the gate's rule.
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
from runnel.model.gate_work import GateWork
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
class Arrivals:
    """Items that reach a gate, in ascending order of sequences: their acceptance times and prepared data."""

    sequences: Numbers
    accepted: Numbers
    data: Sequence[bytes | None]

    def __len__(self) -> int:
        return len(self.sequences)

    def select(self, mask: Booleans) -> Arrivals:
        """Return the items that the mask selects."""
        return Arrivals(self.sequences[mask], self.accepted[mask], list(compress(self.data, mask.tolist())))


@dataclass(frozen=True, slots=True)
class Joined:
    """The items with which a gate annotates an item: their number, and the sequences of the newest, newest first."""

    newest: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """The result of a gate: a mask of the arrivals that pass, and the states to store.

    `stopped` maps the sequence of a stopped item to the reason, `annotations` that of an item that passes to the
    items it joins, and `failures` that of an item on which the gate failed to the reason. Such an item does not pass.
    `work` counts comparisons, if the gate compares items with those of a window.
    """

    passes: Booleans
    states: Sequence[GateState] = ()
    stopped: Mapping[int, Stop] = field(default_factory=dict)
    annotations: Mapping[int, Joined] = field(default_factory=dict)
    failures: Mapping[int, str] = field(default_factory=dict)
    work: GateWork | None = None


@dataclass(frozen=True)
class GateRun:
    """What the gates of one run of items share while they are resolved, one after another.

    `states` are the states stored before the first item. `arrivals` are all items that may reach each gate, and
    `passed` the sequences of those that passed the gates resolved so far. `read_windows` reads the window items
    before the run, which are stored under `window_keys`, by the feeds of the windows; without a key, under the feed.
    """

    states: Mapping[bytes, GateState]
    arrivals: Mapping[int, Arrivals]
    passed: Mapping[int, Numbers]
    gates: Mapping[int, Gate]
    read_windows: ReadWindows
    window_keys: Mapping[int, int] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    """Data that a kind of gate shares among its gates, by the name of the kind."""


class GateResolver(Protocol):
    """Decides which items pass the gates of one kind."""

    def prepare(self, items: ItemBatch, rows: Numbers, gates: Sequence[Gate], /) -> Sequence[bytes | None]:
        """Return the data that the commit needs for each pair of an item's row and a gate that the item reaches.

        Called in workers, once for all gates of the kind, so that the gates can share work.
        """

    def state_keys(self, gate: Gate, arrivals: Arrivals, /) -> Iterable[bytes]:
        """Return the keys of the states that may be needed to resolve the gate. Called in the commit."""

    def resolve(self, gate: Gate, arrivals: Arrivals, run: GateRun, /) -> GateAnswer:
        """Decide which arrivals pass. They come after the gate's start. Called in the commit."""


def resolver_of(kind: str) -> GateResolver:
    """Load the resolver of a kind of gate."""
    return cast(GateResolver, load_part(registry().gates[kind].resolver))
