"""Per-host send queues, served round-robin, so that one slow endpoint cannot starve the others.

In: subscriptions with messages due, and the result of each attempt. Out: which subscriptions to compose and which to
send now. A host that fails several times in a row is paused: its queue is emptied, and after the pause a single
message probes whether the host is back. This module only schedules; `sender` does the I/O.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_T = TypeVar("_T")
_FAILURES_BEFORE_PAUSE = 5
_MAX_PAUSE_SECONDS = 60.0
_PREFETCH_FACTOR = 4
"""Subscriptions that may be prepared ahead of sending, as a multiple of the concurrency limits."""
_MAX_PREPARED_BYTES = 256 << 20
"""Composing stops while the messages that are ready or being sent have at least this size."""
_MAX_HOST_BYTES = 16 << 20
"""The same limit per host, so that a slow host cannot use up the total."""


@dataclass
class _HostQueue(Generic[_T]):
    """The queue of one host. `ready` pairs each entry with its size.

    `bytes` is the total size of the entries that are ready or being sent.
    """

    waiting: deque[int] = field(default_factory=deque)
    ready: deque[tuple[_T, int]] = field(default_factory=deque)
    composing: int = 0
    sending: int = 0
    bytes: int = 0
    failures: int = 0
    """Consecutive failures of the host."""
    pause_until: float = 0.0

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.ready or self.composing or self.sending)


class HostQueues(Generic[_T]):
    """The send queues of all hosts. `_T` is the type of the prepared messages of one subscription.

    A subscription goes through a queue in three steps: it waits, its messages are composed, and they are sent. There
    may be very many hosts, so those with work for a step are indexed separately, in round-robin order.

    If a method returns False or a list of subscriptions, their host is paused, and the caller has to settle these
    subscriptions as not attempted.
    """

    def __init__(self, limit: int, host_limit: int) -> None:
        self._limit = limit
        self._host_limit = host_limit
        self._queues: dict[str, _HostQueue[_T]] = {}
        self._hosts_to_compose: dict[str, None] = {}
        self._hosts_to_send: dict[str, None] = {}
        self._active: set[int] = set()
        self._sending = 0
        self._prepared = 0
        """Number of subscriptions that are being composed or are ready to send, over all hosts."""
        self._bytes = 0
        """Size of the messages that are ready or being sent, over all hosts."""

    def __len__(self) -> int:
        """Return the number of subscriptions that are queued, being sent or not yet settled."""
        return len(self._active)

    def add(self, subscription: int, host: str, now: float) -> bool:
        """Enqueue a subscription unless it is already active. Return False if its host is paused."""
        if subscription in self._active:
            return True
        self._active.add(subscription)
        return self.requeue(subscription, host, now)

    def requeue(self, subscription: int, host: str, now: float) -> bool:
        """Append an active subscription to the queue of its host. Return False if the host is paused."""
        queue = self._queues.setdefault(host, _HostQueue())
        if self._send_limit(queue, now) == 0:
            return False
        queue.waiting.append(subscription)
        self._hosts_to_compose[host] = None
        return True

    def forget(self, subscription: int) -> None:
        """Remove a subscription that has nothing more to send."""
        self._active.discard(subscription)

    def next_to_compose(self, limit: int, now: float) -> list[tuple[int, str]]:
        """Choose up to `limit` subscriptions whose messages to compose next, round-robin over hosts.

        At most `_PREFETCH_FACTOR` times the concurrency limits are prepared ahead, per host and in total, and nothing
        more while the prepared messages exceed the byte limits.
        """
        chosen: list[tuple[int, str]] = []
        if self._bytes >= _MAX_PREPARED_BYTES:
            return chosen
        limit = min(limit, self._limit * _PREFETCH_FACTOR - self._prepared)
        while self._hosts_to_compose and len(chosen) < limit:
            host = next(iter(self._hosts_to_compose))
            del self._hosts_to_compose[host]
            queue = self._queues[host]
            prefetch_limit = self._send_limit(queue, now) * _PREFETCH_FACTOR
            has_room = queue.composing + len(queue.ready) + queue.sending < prefetch_limit
            if queue.waiting and has_room and queue.bytes < _MAX_HOST_BYTES:
                queue.composing += 1
                chosen.append((queue.waiting.popleft(), host))
                self._hosts_to_compose[host] = None  # re-insert at the end
        self._prepared += len(chosen)
        return chosen

    def finish_composing(self, host: str, ready: _T | None, now: float, *, size: int = 0) -> bool:
        """Accept the composed messages of a subscription, or None if it had none. Return False if the host is paused.

        `size` is the size of the messages in bytes.
        """
        queue = self._queues[host]
        queue.composing -= 1
        is_accepted = ready is None or self._send_limit(queue, now) > 0
        if ready is not None and is_accepted:
            queue.ready.append((ready, size))
            self._add_bytes(queue, size)
        else:
            self._prepared -= 1
        self._schedule(host, queue)
        return is_accepted

    def next_to_send(self, now: float) -> tuple[str, _T] | None:
        """Choose the next host and the messages to send to it, round-robin. Return None if no send is allowed."""
        while self._hosts_to_send and self._sending < self._limit:
            host = next(iter(self._hosts_to_send))
            del self._hosts_to_send[host]
            queue = self._queues[host]
            if queue.ready and queue.sending < self._send_limit(queue, now):
                queue.sending += 1
                self._sending += 1
                self._prepared -= 1
                self._hosts_to_send[host] = None
                return host, queue.ready.popleft()[0]
        return None

    def finish_sending(self, host: str, *, failed: bool, now: float, size: int = 0) -> tuple[list[int], list[_T]]:
        """Record the end of a send. `failed` means that the host did not respond, not that it rejected a message.

        If the failure pauses the host, empty its queue and return the waiting subscriptions and the ready messages.
        """
        queue = self._queues[host]
        queue.sending -= 1
        self._sending -= 1
        self._add_bytes(queue, -size)
        queue.failures = queue.failures + 1 if failed else 0
        waiting: list[int] = []
        ready: list[_T] = []
        if queue.failures >= _FAILURES_BEFORE_PAUSE:
            queue.pause_until = now + min(2.0 ** (queue.failures - _FAILURES_BEFORE_PAUSE), _MAX_PAUSE_SECONDS)
            waiting, ready = list(queue.waiting), [messages for messages, _ in queue.ready]
            self._prepared -= len(ready)
            self._add_bytes(queue, -sum(ready_size for _, ready_size in queue.ready))
            queue.waiting.clear()
            queue.ready.clear()
        self._schedule(host, queue)
        return waiting, ready

    def _add_bytes(self, queue: _HostQueue[_T], size: int) -> None:
        queue.bytes += size
        self._bytes += size

    def _send_limit(self, queue: _HostQueue[_T], now: float) -> int:
        """Return how many concurrent sends a host may have: the full limit, one probe after a pause, or none."""
        if queue.failures < _FAILURES_BEFORE_PAUSE:
            return self._host_limit
        return 1 if now >= queue.pause_until else 0

    def _schedule(self, host: str, queue: _HostQueue[_T]) -> None:
        """Queue a host for its next steps. Delete its queue if it is idle and has no failures to remember."""
        if queue.waiting:
            self._hosts_to_compose[host] = None
        if queue.ready:
            self._hosts_to_send[host] = None
        if queue.is_idle and not queue.failures:
            self._hosts_to_compose.pop(host, None)
            self._hosts_to_send.pop(host, None)
            del self._queues[host]
