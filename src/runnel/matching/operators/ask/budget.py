"""Budgets and breakers: whether an operator may be asked now.

A budget is what an operator may use in a minute over all workers. There is no shared service that counts: each
worker has its `share` of it (one divided by the number of workers) in a token bucket, which holds a minute's worth
and fills steadily. So over a long time the budget holds exactly. In a single minute after a pause up to twice as much
may be used, and a worker's process that is started anew begins with a full bucket.

A breaker saves time: after some failures in a row that each took long, an operator rests for some seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from runnel.model.operator import Budget

Clock = Callable[[], float]
"""Seconds that never go back."""

MINUTE = 60.0
IN_A_ROW = 4
"""Failures after which a breaker opens."""

FIRST_REST, LONGEST_REST = 5.0, 300.0
"""Seconds of a breaker's first rest, which doubles with every failed trial, and of the longest."""


class CallAllowance:
    """What a worker may use of an operator's budget.

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
        # A share of less than one call is saved up: once it is whole it is given, and the budget still holds.
        self._calls = None if budget.calls is None else _Bucket(budget.calls * share, least=1.0, now=clock())
        self._seconds = None if budget.seconds is None else _Bucket(budget.seconds * share, least=0.0, now=clock())

    def take(self, calls: int) -> int:
        """How many of these calls may be made now; they count as made."""
        with self._lock:
            now = self._clock()
            if self._seconds is not None and self._seconds.level(now) <= 0.0:
                return 0
            if self._calls is None:
                return calls
            given = min(calls, int(self._calls.level(now) + 1e-9))
            self._calls.take(given)
            return given

    def spend(self, seconds: float) -> None:
        """Note how long calls took. It is known only afterwards: the bucket may be overdrawn, and must fill again."""
        if self._seconds is not None:
            with self._lock:
                self._seconds.level(self._clock())
                self._seconds.take(seconds)


class _Bucket:
    def __init__(self, in_a_minute: float, *, least: float, now: float) -> None:
        self._rate = in_a_minute / MINUTE
        self._most = max(in_a_minute, least if in_a_minute > 0.0 else 0.0)
        self._level = in_a_minute
        self._at = now

    def level(self, now: float) -> float:
        self._level = min(self._most, self._level + self._rate * max(0.0, now - self._at))
        self._at = max(self._at, now)
        return self._level

    def take(self, amount: float) -> None:
        self._level -= amount


class Breaker:
    """Lets an operator rest that failed several times in a row. One trial at a time ends or prolongs the rest.

    >>> seconds = [0.0]
    >>> breaker = Breaker(clock=lambda: seconds[0])
    >>> for _ in range(IN_A_ROW):
    ...     breaker.note(failed=True)
    >>> breaker.allows(), breaker.rest
    (False, 5.0)
    >>> seconds[0] = 5.0
    >>> breaker.allows(), breaker.allows()
    (True, False)
    >>> breaker.note(failed=False)
    >>> breaker.allows()
    True
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._failures = 0
        self._pause = 0.0
        self._until = 0.0
        self._trying = False

    @property
    def rest(self) -> float:
        """The seconds that the rest still lasts."""
        return max(0.0, self._until - self._clock()) if self._pause else 0.0

    def allows(self) -> bool:
        """Whether the operator may be asked. After a rest one trial may; others wait for what becomes of it."""
        with self._lock:
            if not self._pause:
                return True
            if self._clock() < self._until:
                return False
            # Should nothing become known of the trial, there is another one later.
            self._until = self._clock() + self._pause
            self._trying = True
            return True

    def note(self, *, failed: bool, at_once: bool = False) -> None:
        """What became of asking; `at_once`: there is no use in trying several times."""
        with self._lock:
            if not failed:
                self._failures, self._pause, self._trying = 0, 0.0, False
                return
            self._failures += 1
            # What was under way when the rest began does not prolong it; a failed trial does.
            if self._trying or (not self._pause and (at_once or self._failures >= IN_A_ROW)):
                self._pause = min(LONGEST_REST, 2 * self._pause or FIRST_REST)
                self._until = self._clock() + self._pause
                self._trying = False
