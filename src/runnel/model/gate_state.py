"""The stored state of a gate, such as the keys that `distinct` has seen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GateState:
    """A value that the gate of a feed has stored under a key.

    Keys of all gates share one table, so a key is made with the history of its gate. From `expires` on, in
    microseconds since 1970, the value affects no item.
    """

    feed: int
    key: bytes
    value: bytes
    expires: int
