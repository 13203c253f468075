"""The pulse of a run: its state, what holds it up, what it counted, and when each of its parts last got on.

Many threads write here and some read; every change is one assignment or goes through the lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from runnel.engine.run.health import Health

_SLACK_SECONDS = 120.0
"""By how many seconds a turn of a runner loop may be late; a loop with a longer period may be late by that."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """When a runner loop is due to make progress, and by how many seconds it may be overdue."""

    due: float
    slack: float


class RunState:
    """What a run says of itself. `now` is a clock that never goes back."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._counts: dict[str, float] = {}
        self._held_up: dict[str, str] = {}
        self._turns: dict[str, _Turn] = {}
        self.state = "starting"

    def count(self, what: str, number: float = 1) -> None:
        """Count something that this run did."""
        with self._lock:
            self._counts[what] = self._counts.get(what, 0) + number

    def counted(self, what: str) -> int:
        """How much of something this run did."""
        return int(self._counts.get(what, 0))

    def turned(self, part: str, *, period: float = 0.0, rests: float = 0.0) -> None:
        """A runner loop with a period begins a turn, or ends one and rests for `rests` seconds before the next."""
        self._turns[part] = _Turn(self._now() + rests, max(_SLACK_SECONDS, period))

    def progressed(self, part: str) -> None:
        """A part made progress within a long turn; only runner loops are watched."""
        turn = self._turns.get(part)
        if turn is not None:
            self._turns[part] = replace(turn, due=self._now())

    def ended(self, part: str) -> None:
        """A runner loop has ended as it should, and is not watched any more."""
        self._turns.pop(part, None)

    def hold_up(self, part: str, reason: str) -> bool:
        """A part cannot go on for a reason; True if that is new."""
        with self._lock:
            fresh = part not in self._held_up
            self._held_up[part] = reason
            return fresh

    def release(self, part: str) -> bool:
        """A part goes on; True if it was held up."""
        with self._lock:
            return self._held_up.pop(part, None) is not None

    def told_state(self) -> str:
        """The state in a few words, and what holds the run up, if anything does.

        >>> pulse = RunState()
        >>> pulse.hold_up("matching", "no room left"), pulse.told_state()
        (True, 'paused: no room left')
        """
        with self._lock:
            held_up = next(iter(self._held_up.values()), None)
        return f"paused: {held_up}" if held_up else self.state

    def health(self, *, matching: bool, lag: int | None, lag_limit: int) -> Health:
        """How the run is: `matching` says whether the query is active, `lag` is None if the catalog is away."""
        now = self._now()
        stuck = [
            f"{name} is stuck: its turn is overdue by {now - turn.due:.0f} seconds"
            for name, turn in dict(self._turns).items()
            if now - turn.due > turn.slack
        ]
        with self._lock:
            held_up = [f"{part} is held up: {reason}" for part, reason in self._held_up.items()]
            counts: Mapping[str, float] = dict(self._counts)
        waits = [] if matching else [f"matching is not under way: {self.state}"]
        if lag is None:
            waits.append("the catalog does not answer")
        elif lag >= lag_limit:
            waits.append(f"{lag} items wait for matching")
        reasons = (*stuck, *held_up, *waits)
        return Health(live=not stuck, ready=not reasons, reasons=reasons, counts=counts)
