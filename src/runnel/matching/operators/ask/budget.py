"""Budgets and circuit breakers, which decide whether an operator may be called now.

A budget limits the calls, or the seconds of calls, of an operator per minute over all workers. No shared service
counts them: each worker has its `share` of the budget (one divided by the number of workers) in a token bucket, which
holds the amount of one minute and refills steadily. So the budget is kept exactly over a long time. In the first
minute after a pause up to twice the budget may be used, and a restarted worker process begins with a full bucket.

A breaker avoids calls that would probably fail: after several slow failures in a row, calls are paused for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from runnel.model.operator import Budget

Clock = Callable[[], float]
"""A monotonic clock, in seconds."""

MINUTE = 60.0
MAX_FAILURES = 4
"""Consecutive failures that open a breaker."""

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 5.0, 300.0
"""The first pause of a breaker, which doubles with every failed trial, and the longest pause."""


class CallAllowance:
    """A worker's share of an operator's budget.

    >>> seconds = [0.0]
    >>> allowance = CallAllowance(Budget(calls=120), share=0.5, clock=lambda: seconds[0])
    >>> allowance.take(100), allowance.take(1)
    (60, 0)
    >>> seconds[0] = 2.5
    >>> allowance.take(100)
    2
    """

    def __init__(self, budget: Budget, share: float = 1.0, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        # The bucket of calls holds at least one call: a share below one call per minute accumulates until it allows
        # a call, and the budget is still kept.
        self._calls = None if budget.calls is None else _Bucket(budget.calls * share, capacity=1.0, now=clock())
        self._seconds = None if budget.seconds is None else _Bucket(budget.seconds * share, capacity=0.0, now=clock())

    def take(self, calls: int) -> int:
        """Return how many of `calls` calls may be made now, and count them as made."""
        with self._lock:
            now = self._clock()
            if self._seconds is not None and self._seconds.level(now) <= 0.0:
                return 0
            if self._calls is None:
                return calls
            allowed = min(calls, int(self._calls.level(now) + 1e-9))
            self._calls.take(allowed)
            return allowed

    def spend(self, seconds: float) -> None:
        """Subtract the duration of calls. The level may fall below zero; then calls wait until it has refilled."""
        if self._seconds is not None:
            with self._lock:
                self._seconds.level(self._clock())
                self._seconds.take(seconds)


class _Bucket:
    """A token bucket that refills with `per_minute` and holds that amount, but at least `capacity`."""

    def __init__(self, per_minute: float, *, capacity: float, now: float) -> None:
        self._rate = per_minute / MINUTE
        self._capacity = max(per_minute, capacity if per_minute > 0.0 else 0.0)
        self._level = per_minute
        self._updated = now

    def level(self, now: float) -> float:
        self._level = min(self._capacity, self._level + self._rate * max(0.0, now - self._updated))
        self._updated = max(self._updated, now)
        return self._level

    def take(self, amount: float) -> None:
        self._level -= amount


class Breaker:
    """Pauses an operator that failed several times in a row. After the pause, one trial call ends or extends it.

    >>> seconds = [0.0]
    >>> breaker = Breaker(clock=lambda: seconds[0])
    >>> for _ in range(MAX_FAILURES):
    ...     breaker.record(failed=True)
    >>> breaker.allows(), breaker.pause_left
    (False, 5.0)
    >>> seconds[0] = 5.0
    >>> breaker.allows(), breaker.allows()
    (True, False)
    >>> breaker.record(failed=False)
    >>> breaker.allows()
    True
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._failures = 0
        self._pause = 0.0
        self._until = 0.0
        self._is_trial_running = False

    @property
    def pause_left(self) -> float:
        """The remaining seconds of the pause."""
        return max(0.0, self._until - self._clock()) if self._pause else 0.0

    def allows(self) -> bool:
        """Return whether the operator may be called. After a pause one trial call is allowed until its result."""
        with self._lock:
            if not self._pause:
                return True
            if self._clock() < self._until:
                return False
            # If the trial's result is never recorded, another trial is allowed after the same pause.
            self._until = self._clock() + self._pause
            self._is_trial_running = True
            return True

    def record(self, *, failed: bool, open_now: bool = False) -> None:
        """Record the outcome of a call. With `open_now`, the first failure opens the breaker."""
        with self._lock:
            if not failed:
                self._failures, self._pause, self._is_trial_running = 0, 0.0, False
                return
            self._failures += 1
            # Only a failed trial extends the pause, not the failure of a call that began before the pause.
            if self._is_trial_running or (not self._pause and (open_now or self._failures >= MAX_FAILURES)):
                self._pause = min(MAX_PAUSE_SECONDS, 2 * self._pause or FIRST_PAUSE_SECONDS)
                self._until = self._clock() + self._pause
                self._is_trial_running = False
