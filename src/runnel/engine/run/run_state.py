"""The state of a run: what holds it up, what it counted, and when each of its parts last made progress.

Many threads write here and some read; every change is one assignment or goes through the lock.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

from runnel.engine.run.health import Health

_SLACK_SECONDS = 120.0
"""By how many seconds a turn of a runner loop may be late; a loop with a longer period may be late by that."""


@dataclass(frozen=True, slots=True)
class _Position:
    """How far matching has come, since when it is there, and how many items wait for it."""

    mark: Hashable
    since: float
    waiting: int


@dataclass(frozen=True, slots=True)
class _Turn:
    """When a runner loop is due to make progress, and by how many seconds it may be overdue."""

    due: float
    slack: float


class RunState:
    """The state of a run. `now` is a monotonic clock.

    Matching is stuck if items wait and it makes no progress for more than `stall_seconds`.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, *, stall_seconds: float = math.inf) -> None:
        self._now = now
        self._stall_seconds = stall_seconds
        self._position: _Position | None = None
        self._lock = threading.Lock()
        self._counts: dict[str, float] = {}
        self._held_up: dict[str, str] = {}
        self._turns: dict[str, _Turn] = {}
        self._is_stuck = False
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
            was_held_up = self._held_up.pop(part, None) is not None
        if was_held_up and part not in self._turns:
            self._position = None
        return was_held_up

    def start_matching(self) -> None:
        """A query starts, so that the time without progress is counted from now on."""
        self._position = None

    def note_matching(self, mark: Hashable, waiting: int) -> bool:
        """Note how far matching has come and how many items wait; True if it has just been found to be stuck.

        `mark` is any value that changes with each progress.
        """
        before, now = self._position, self._now()
        rests = waiting == 0 or self._matching_is_held_up()
        if before is None or rests or before.mark != mark:
            self._position = _Position(mark, now, waiting)
            self._is_stuck = False
            return False
        self._position = replace(before, waiting=waiting)
        was_stuck, self._is_stuck = self._is_stuck, self._stall(waiting) is not None
        return self._is_stuck and not was_stuck

    def _matching_is_held_up(self) -> bool:
        """Whether something else than a runner loop is held up: loops go on without matching, and it without them."""
        with self._lock:
            return any(part not in self._turns for part in self._held_up)

    def _stall(self, waiting: int) -> str | None:
        """Why matching is stuck, or None if it is not: while it is held up for a known reason, it is not stuck."""
        position = self._position
        if position is None or not waiting or self._matching_is_held_up():
            return None
        seconds = self._now() - position.since
        if seconds <= self._stall_seconds:
            return None
        return f"matching is stuck: {waiting} items wait, and there was no progress for {seconds:.0f} seconds"

    def told_state(self) -> str:
        """The state in a few words, and what holds the run up, if anything does.

        >>> pulse = RunState()
        >>> pulse.hold_up("matching", "no room left"), pulse.told_state()
        (True, 'paused: no room left')
        """
        with self._lock:
            held_up = next(iter(self._held_up.values()), None)
        if held_up:
            return f"paused: {held_up}"
        return self._stall(0 if self._position is None else self._position.waiting) or self.state

    def health(self, *, matching: bool, lag: int | None, lag_limit: int) -> Health:
        """How the run is: `matching` says whether the query is active, `lag` is None if the catalog is away."""
        now = self._now()
        stuck = [
            f"{name} is stuck: its turn is overdue by {now - turn.due:.0f} seconds"
            for name, turn in dict(self._turns).items()
            if now - turn.due > turn.slack
        ]
        stall = self._stall(lag or 0) if matching else None
        if stall is not None:
            stuck.append(stall)
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
