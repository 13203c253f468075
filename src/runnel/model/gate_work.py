"""The work of a gate that compares items with those of a window."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GateWork:
    """What a gate did for some items.

    `items` reached the gate, and `passed` of them passed. `candidates` are the window items that they were compared
    with, and `joined` those that they joined. If gates share comparisons, each counts them, but only the first spends
    the `nanoseconds`.
    """

    items: int = 0
    passed: int = 0
    candidates: int = 0
    joined: int = 0
    nanoseconds: int = 0
