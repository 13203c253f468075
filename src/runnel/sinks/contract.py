"""What a sink is: the contract between the ledger and everything that takes messages.

In: a Delivery. Out: the outcome as a short text; DeliveryFailed where the endpoint did not take it (it is tried
again), StorageFull where there is no room (work pauses).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

from runnel.model.item import Item
from runnel.model.subscription import Subscription

MAX_ENTRIES = 200
"""How many entries a feed file keeps unless told otherwise; readers poll, so they need only the newest."""


@dataclass(frozen=True, slots=True)
class DeliveredItem:
    """An item on its way, with the title of the source feed it came from (its name, where it has none)."""

    item: Item
    feed_title: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message: items that matched, for one subscription.

    `key` stays the same over retries. `out` is the folder for relative targets; absolute ones must lie in one of the
    `allowed` folders.
    """

    key: str
    subscription: Subscription
    feed_name: str
    feed_title: str
    items: Sequence[DeliveredItem]
    sent: datetime
    out: Path
    allowed: tuple[Path, ...] = ()
    max_entries: int = MAX_ENTRIES


@runtime_checkable
class Sink(Protocol):
    """Takes messages. A sink keeps no state of its own between calls."""

    kind: str

    def validate_target(self, target: str | None, root: Path, allowed: Sequence[Path] = ()) -> str | None:
        """The target in its canonical form, or InputError; called when somebody subscribes."""

    def deliver(self, delivery: Delivery) -> str:
        """Hand a message over; doing so again with the same key changes nothing."""
