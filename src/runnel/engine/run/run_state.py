"""The state of a run: which parts are paused and why, its counters, and when each part last made progress.

Several threads read and write the state. Every change is a single assignment or is made under the lock.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace

from runnel.engine.run.health import Health

_SLACK_SECONDS = 120.0
"""The seconds by which a turn of a runner loop may be overdue. For a loop with a longer period, the period counts."""


@dataclass(frozen=True, slots=True)
class _Position:
    """A progress mark of matching, the time since when it has not changed, and the number of waiting items."""

    mark: Hashable
    since: float
    waiting: int


@dataclass(frozen=True, slots=True)
class _Turn:
    """The time at which a runner loop is due to make progress, and the seconds by which it may be overdue."""

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
        self._paused: dict[str, str] = {}
        self._turns: dict[str, _Turn] = {}
        self._is_stuck = False
        self.state = "starting"

    def count(self, name: str, number: float = 1) -> None:
        """Add to a counter of this run."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + number

    def total(self, name: str) -> int:
        """Return the value of a counter of this run."""
        return int(self._counts.get(name, 0))

    def note_turn(self, part: str, *, period: float = 0.0, rests: float = 0.0) -> None:
        """Record that a runner loop begins a turn, or that its next turn begins in `rests` seconds."""
        self._turns[part] = _Turn(self._now() + rests, max(_SLACK_SECONDS, period))

    def note_progress(self, part: str) -> None:
        """Record that a runner loop made progress within a long turn. Other parts are ignored."""
        turn = self._turns.get(part)
        if turn is not None:
            self._turns[part] = replace(turn, due=self._now())

    def end_loop(self, part: str) -> None:
        """Record that a runner loop has ended regularly, so that it is no longer watched."""
        self._turns.pop(part, None)

    def pause_part(self, part: str, reason: str) -> bool:
        """Record that a part is paused, with the reason. Return whether it was not paused before."""
        with self._lock:
            is_new = part not in self._paused
            self._paused[part] = reason
            return is_new

    def resume_part(self, part: str) -> bool:
        """Record that a part continues. Return whether it was paused."""
        with self._lock:
            was_paused = self._paused.pop(part, None) is not None
        if was_paused and part not in self._turns:
            self._position = None
        return was_paused

    def start_matching(self) -> None:
        """Record that a streaming query starts, so that the time without progress is measured from now on."""
        self._position = None

    def note_matching(self, mark: Hashable, waiting: int) -> bool:
        """Record a progress mark of matching and the number of waiting items.

        Return True the first time that matching is found to be stuck. `mark` is any value that changes with progress.
        """
        before, now = self._position, self._now()
        is_idle = waiting == 0 or self._matching_is_paused()
        if before is None or is_idle or before.mark != mark:
            self._position = _Position(mark, now, waiting)
            self._is_stuck = False
            return False
        self._position = replace(before, waiting=waiting)
        was_stuck, self._is_stuck = self._is_stuck, self._stall(waiting) is not None
        return self._is_stuck and not was_stuck

    def _matching_is_paused(self) -> bool:
        """Return whether a part other than a runner loop is paused. Matching does not depend on the loops."""
        with self._lock:
            return any(part not in self._turns for part in self._paused)

    def _stall(self, waiting: int) -> str | None:
        """Return a text if matching is stuck, or None. While it is paused for a known reason, it is not stuck."""
        position = self._position
        if position is None or not waiting or self._matching_is_paused():
            return None
        seconds = self._now() - position.since
        if seconds <= self._stall_seconds:
            return None
        return f"matching is stuck: {waiting} items wait, and there was no progress for {seconds:.0f} seconds"

    def describe_state(self) -> str:
        """Return the state in a few words, with the reason if a part is paused or stuck.

        >>> run_state = RunState()
        >>> run_state.pause_part("matching", "the disk is full"), run_state.describe_state()
        (True, 'paused: the disk is full')
        """
        with self._lock:
            reason = next(iter(self._paused.values()), None)
        if reason:
            return f"paused: {reason}"
        return self._stall(0 if self._position is None else self._position.waiting) or self.state

    def health(self, *, matching: bool, lag: int | None, lag_limit: int) -> Health:
        """Return the health of the run. `matching`: the query is active. `lag` is None without a catalog."""
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
            paused = [f"{part} is paused: {reason}" for part, reason in self._paused.items()]
            counts: Mapping[str, float] = dict(self._counts)
        not_ready = [] if matching else [f"matching is not running: {self.state}"]
        if lag is None:
            not_ready.append("the catalog is unavailable")
        elif lag >= lag_limit:
            not_ready.append(f"{lag} items wait for matching")
        reasons = (*stuck, *paused, *not_ready)
        return Health(live=not stuck, ready=not reasons, reasons=reasons, counts=counts)
