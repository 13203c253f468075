"""Hosts: whose turn it is among endpoints, so that a slow or dead one takes nobody else's.

In: subscriptions with something due, and how attempts ended. Out: which may be looked at, and which sent, now. Every
host has a line of its own; lines take turns. A host that has not answered several times in a row is asked by one
message at a time, after a pause, and the rest of its line is not kept waiting. Plain data: nothing here sends.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_T = TypeVar("_T")
_SILENT_AFTER = 5
_LONGEST_PAUSE = 60.0
_AHEAD = 4
_MOST_BYTES = 256 << 20
"""Nothing more is made ready while what is ready or under way holds so many bytes of items."""
_HOST_BYTES = 16 << 20
"""The same for one host: a slow one may not use up what there is for all."""


@dataclass
class _Line(Generic[_T]):
    """One host: who waits, what is ready to be sent, how many are under way, and how often in a row it was silent.

    What is ready stands there with its size; `bytes` is that of all that is ready or under way.
    """

    waiting: deque[int] = field(default_factory=deque)
    ready: deque[tuple[_T, int]] = field(default_factory=deque)
    composing: int = 0
    under_way: int = 0
    bytes: int = 0
    silences: int = 0
    pause_until: float = 0.0

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.ready or self.composing or self.under_way)


class HostQueues(Generic[_T]):
    """The lines of all hosts. `_T` is what is ready to be sent for one subscription.

    A root may have very many hosts, so those with something to do now are kept apart, in the order of their turns.
    """

    def __init__(self, limit: int, host_limit: int) -> None:
        self._limit = limit
        self._host_limit = host_limit
        self._lines: dict[str, _Line[_T]] = {}
        self._calling: dict[str, None] = {}
        self._ready: dict[str, None] = {}
        self._known: set[int] = set()
        self._under_way = 0
        self._ahead = 0
        """How many are being made ready or are ready, over all hosts."""
        self._bytes = 0
        """How many bytes what is ready or under way holds, over all hosts."""

    def __len__(self) -> int:
        """How many subscriptions are in a line, under way, or not settled yet."""
        return len(self._known)

    def add(self, subscription: int, host: str, now: float) -> bool:
        """Put a subscription into the line of its host; False where it shall not wait: the host is silent."""
        if subscription not in self._known:
            self._known.add(subscription)
            return self.again(subscription, host, now)
        return True

    def again(self, subscription: int, host: str, now: float) -> bool:
        """Put a subscription that is known at the end of its line; False where it shall not wait."""
        line = self._lines.setdefault(host, _Line())
        if self._allowed(line, now) == 0:
            return False
        line.waiting.append(subscription)
        self._calling[host] = None
        return True

    def forget(self, subscription: int) -> None:
        """A subscription has nothing more to send now."""
        self._known.discard(subscription)

    def next_to_compose(self, most: int, now: float) -> list[tuple[int, str]]:
        """Subscriptions whose messages are to be made ready; hosts take turns.

        No more than some times as many as may be under way, to each host and in all, are made ready in advance, and
        only while what was made ready holds not too many bytes.
        """
        chosen: list[tuple[int, str]] = []
        most = min(most, self._limit * _AHEAD - self._ahead) if self._bytes < _MOST_BYTES else 0
        while self._calling and len(chosen) < most:
            host = next(iter(self._calling))
            del self._calling[host]
            line = self._lines[host]
            room = self._allowed(line, now) * _AHEAD - line.composing - len(line.ready) - line.under_way
            if line.waiting and room > 0 and line.bytes < _HOST_BYTES:
                line.composing += 1
                chosen.append((line.waiting.popleft(), host))
                self._calling[host] = None  # at the end: all others come first
        self._ahead += len(chosen)
        return chosen

    def composed(self, host: str, ready: _T | None, now: float, *, size: int = 0) -> bool:
        """Messages of a subscription are ready, of so many bytes, or there are none; False: they shall not wait."""
        line = self._lines[host]
        line.composing -= 1
        is_taken = ready is None or self._allowed(line, now) > 0
        if ready is not None and is_taken:
            line.ready.append((ready, size))
            self._hold(line, size)
        else:
            self._ahead -= 1
        self._call(host, line)
        return is_taken

    def next_to_send(self, now: float) -> tuple[str, _T] | None:
        """What may be sent now, and to which host; hosts take turns."""
        while self._ready and self._under_way < self._limit:
            host = next(iter(self._ready))
            del self._ready[host]
            line = self._lines[host]
            if line.ready and line.under_way < self._allowed(line, now):
                line.under_way += 1
                self._under_way += 1
                self._ahead -= 1
                self._ready[host] = None
                return host, line.ready.popleft()[0]
        return None

    def finished(self, host: str, *, silent: bool, now: float, size: int = 0) -> tuple[list[int], list[_T]]:
        """Something under way, of so many bytes, has ended. Gives those that shall not wait: the host is silent."""
        line = self._lines[host]
        line.under_way -= 1
        self._under_way -= 1
        self._hold(line, -size)
        line.silences = line.silences + 1 if silent else 0
        waiting: list[int] = []
        ready: list[_T] = []
        if line.silences >= _SILENT_AFTER:
            line.pause_until = now + min(2.0 ** (line.silences - _SILENT_AFTER), _LONGEST_PAUSE)
            waiting, ready = list(line.waiting), [one for one, _ in line.ready]
            self._ahead -= len(ready)
            self._hold(line, -sum(bytes_ for _, bytes_ in line.ready))
            line.waiting.clear()
            line.ready.clear()
        self._call(host, line)
        return waiting, ready

    def is_silent(self, host: str, now: float) -> bool:
        """Whether a host is given a pause."""
        line = self._lines.get(host)
        return line is not None and self._allowed(line, now) == 0

    def _hold(self, line: _Line[_T], size: int) -> None:
        line.bytes += size
        self._bytes += size

    def _allowed(self, line: _Line[_T], now: float) -> int:
        """How many may be under way to a host: all, one that finds out, or none."""
        if line.silences < _SILENT_AFTER:
            return self._host_limit
        return 1 if now >= line.pause_until else 0

    def _call(self, host: str, line: _Line[_T]) -> None:
        """Give a host its turns, if it has something to do; forget it if it has nothing, unless it is silent."""
        if line.waiting:
            self._calling[host] = None
        if line.ready:
            self._ready[host] = None
        if line.is_idle and not line.silences:
            self._calling.pop(host, None)
            self._ready.pop(host, None)
            del self._lines[host]
