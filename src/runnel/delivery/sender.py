"""Concurrent sending: an asyncio loop in its own thread sends open messages to endpoints and settles the attempts.

In: subscriptions with messages due, each with the host that it sends to. Out: attempts, settled in the ledger in
batches. The messages of a subscription are sent one at a time, in order; the number of concurrent sends is limited
per host and in total. After a crash, messages that were not settled are sent again under the same key.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from runnel.catalog.delivery import ledger
from runnel.catalog.store.connection import Catalog
from runnel.delivery.composer import Composer, PreparedMessage, SubscriptionQueue
from runnel.delivery.host_queues import HostQueues
from runnel.delivery.settle_attempts import Attempt, AttemptRecorder, HostSilentError, is_host_trouble
from runnel.delivery.transports import Transports
from runnel.errors import DeliveryError, FencedError, RunnelError, StorageFullError
from runnel.settings import Settings
from runnel.sinks.contract import Delivery

logger = logging.getLogger("runnel")

_MAX_COMPOSED = 512
"""Subscriptions that are composed together."""
_SETTLE_BATCH = 2_000
_SETTLE_DELAY_SECONDS = 0.02
"""A batch that is not full waits this long for more attempts before it is settled."""
_GRACE_SECONDS = 1.0
_SETTLE_RETRY_SECONDS = 1.0
_ENQUEUE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _FinishedTurn:
    """The end of a subscription's turn, to be settled.

    `has_more` says that the subscription can send further messages now. `is_host_paused` says that nothing was
    attempted, because the host is paused.
    """

    subscription: int
    host: str
    attempts: tuple[Attempt, ...] = ()
    has_more: bool = False
    is_host_paused: bool = False


class Sender:
    """Sends messages to endpoints until it is closed. Its public methods are called from other threads."""

    def __init__(
        self,
        catalog: Catalog,
        composer: Composer,
        attempt_recorder: AttemptRecorder,
        transports: Transports,
        settings: Settings,
    ) -> None:
        self._catalog = catalog
        self._composer = composer
        self._attempt_recorder = attempt_recorder
        self._transports = transports
        self._settings = settings
        self._hosts: HostQueues[SubscriptionQueue] = HostQueues(
            settings.send_concurrency, settings.send_host_concurrency
        )
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._epoch = 0
        self._delivered = 0
        self.attempts = 0
        """Number of attempts made so far."""
        self._deadlines: dict[object, float] = {}
        """The deadline of each attempt in progress."""
        self._storage_full: StorageFullError | None = None
        self._settle_error: RunnelError | None = None
        """The error because of which attempts cannot be settled at the moment. Sending pauses while it is set."""
        self._fatal_error: Exception | None = None

    # --- from other threads --------------------------------------------------------------------------------------

    def enqueue(self, epoch: int, due: Sequence[tuple[int, str]]) -> None:
        """Start sending the messages of subscriptions, each given with its host. Do not wait for the attempts."""
        if due:
            self._start()
            self._epoch = epoch
            self._run_in_loop(self._enqueue(list(due)))

    def collect(self) -> int:
        """Return the number of messages delivered since the last call.

        Raise the error that stopped sending. Raise a temporary error (storage full, attempts that cannot be settled)
        only if no message was delivered.
        """
        if self._fatal_error is not None:
            raise self._fatal_error.with_traceback(None)
        delivered, self._delivered = self._delivered, 0
        if not delivered and (error := self._settle_error or self._storage_full) is not None:
            self._storage_full = None
            raise error.with_traceback(None)
        return delivered

    def wait(self, deadline: float = math.inf) -> bool:
        """Wait until all enqueued subscriptions are finished, and return True.

        Return False after `deadline` (monotonic clock), or if no attempt ended for as long as one may take.
        """
        max_idle = self._settings.send_seconds + 2 * _GRACE_SECONDS
        attempts, since = self.attempts, time.monotonic()
        while not self._idle.wait(0.05):
            moment = time.monotonic()
            if self.attempts != attempts:
                attempts, since = self.attempts, moment
            # A mail may take longer than `send_seconds`. If its attempt were interrupted, a mail that the server has
            # already accepted would be sent again.
            if moment > min(deadline, max(since + max_idle, *tuple(self._deadlines.values()), 0.0)):
                return False
        return True

    def close(self) -> None:
        """Stop sending. Attempts in progress are cancelled and stay open; finished attempts are settled."""
        if self._thread is not None and self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
        self._thread = self._loop = None
        self._fatal_error = None

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            started = threading.Event()
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._main(started)), name="runnel-send", daemon=True
            )
            self._thread.start()
            started.wait()

    def _run_in_loop(self, coroutine: Coroutine[Any, Any, None]) -> None:
        if self._loop is None:
            coroutine.close()
            return
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_ENQUEUE_SECONDS)

    # --- in the loop ---------------------------------------------------------------------------------------------

    async def _main(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing, self._wake, self._settle_wake = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._finished: list[_FinishedTurn] = []
        self._send_tasks: set[asyncio.Task[None]] = set()
        # Reading and settling have a thread each, so that neither waits for the other or for an endpoint.
        self._read_thread = ThreadPoolExecutor(1, "runnel-send-read")
        self._settle_thread = ThreadPoolExecutor(1, "runnel-send-settle")
        started.set()
        composing = asyncio.create_task(self._compose_forever())
        settling = asyncio.create_task(self._settle_forever())
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait((closing, composing, settling), return_when=asyncio.FIRST_COMPLETED)
            for task in (composing, settling):
                if task.done() and task.exception() is not None:
                    message = "sending stopped because of an error; it restarts when messages are due"
                    logger.error(message, exc_info=task.exception())
        finally:
            self._closing.set()
            for task in (composing, *self._send_tasks):
                task.cancel()
            await asyncio.gather(composing, *self._send_tasks, return_exceptions=True)
            self._settle_wake.set()
            await asyncio.gather(settling, return_exceptions=True)
            await self._transports.close()
            self._read_thread.shutdown()
            self._settle_thread.shutdown()
            self._hosts = HostQueues(self._settings.send_concurrency, self._settings.send_host_concurrency)
            self._idle.set()

    async def _enqueue(self, due: Sequence[tuple[int, str]]) -> None:
        self._idle.clear()
        now = time.monotonic()
        for subscription, host in due:
            if not self._hosts.add(subscription, host, now):
                self._finish(_FinishedTurn(subscription, host, is_host_paused=True))
        self._set_idle_if_done()
        self._wake.set()

    async def _compose_forever(self) -> None:
        """Compose messages while hosts have room for them in their queues, and start to send them."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._may_send() and (chosen := self._hosts.next_to_compose(_MAX_COMPOSED, time.monotonic())):
                await self._compose(chosen)
                self._send_ready()

    async def _compose(self, chosen: Sequence[tuple[int, str]]) -> None:
        queues: dict[int, SubscriptionQueue] = {}
        remaining: set[int] = set()
        subscriptions = [subscription for subscription, _ in chosen]
        try:
            composed = await self._run_in(self._read_thread, self._composer.compose, subscriptions, self._epoch)
            queues, remaining = {queue.subscription: queue for queue in composed.queues}, set(composed.remaining)
        except FencedError as error:
            self._stop_sending(error)
        except Exception:
            logger.exception("cannot compose messages; they are composed again when the ledger is next checked")
        now = time.monotonic()
        for subscription, host in chosen:
            queue = queues.get(subscription)
            is_accepted = self._hosts.finish_composing(host, queue, now, size=0 if queue is None else queue.bytes)
            if subscription in remaining:
                is_accepted = self._hosts.requeue(subscription, host, now)
            elif subscription not in queues:
                self._hosts.forget(subscription)
            if not is_accepted:
                self._finish(_FinishedTurn(subscription, host, is_host_paused=True))
        self._set_idle_if_done()

    def _send_ready(self) -> None:
        while self._may_send() and (ready := self._hosts.next_to_send(time.monotonic())) is not None:
            task = asyncio.create_task(self._send_queue(*ready))
            self._send_tasks.add(task)
            task.add_done_callback(self._send_tasks.discard)

    def _may_send(self) -> bool:
        """Return whether attempts can be settled. If they cannot, no further messages are sent."""
        return self._fatal_error is None and self._settle_error is None

    async def _send_queue(self, host: str, queue: SubscriptionQueue) -> None:
        """Send the messages of one subscription, in order, up to the first that fails."""
        attempts: list[Attempt] = []
        has_failed = is_host_failure = False
        try:
            for prepared in queue.messages:
                attempt = await self._attempt(prepared)
                has_failed = attempt is None or not attempt.is_done
                is_host_failure = attempt is not None and self._is_host_failure(prepared, attempt)
                if attempt is not None:
                    attempts.append(attempt)
                    self.attempts += 1
                if has_failed:
                    break
        finally:
            has_more = queue.has_more and not has_failed
            self._finish(_FinishedTurn(queue.subscription, host, tuple(attempts), has_more=has_more))
            waiting, ready = self._hosts.finish_sending(
                host, failed=is_host_failure, now=time.monotonic(), size=queue.bytes
            )
            for subscription in (*waiting, *(dropped.subscription for dropped in ready)):
                self._finish(_FinishedTurn(subscription, host, is_host_paused=True))
        self._send_ready()
        self._wake.set()

    def _is_host_failure(self, prepared: PreparedMessage, attempt: Attempt) -> bool:
        """Return whether an attempt failed because its host did not respond."""
        if prepared.delivery is None or attempt.is_done:
            return False
        return is_host_trouble(attempt.error) and self._transports.is_remote(prepared.delivery.subscription.kind)

    async def _attempt(self, prepared: PreparedMessage) -> Attempt | None:
        """Attempt to deliver a message. Return None if the storage is full, which does not count as an attempt."""
        try:
            return Attempt(prepared.message, await self._deliver(prepared.require_delivery()))
        except StorageFullError as error:
            self._storage_full = error
            return None
        except Exception as error:
            return Attempt(prepared.message, error=error)

    async def _deliver(self, delivery: Delivery) -> str:
        delivery, deliver, seconds = await self._transports.open(delivery)
        if seconds is None:
            return await deliver(delivery)
        attempt = object()
        self._deadlines[attempt] = time.monotonic() + seconds + 2 * _GRACE_SECONDS
        try:
            async with asyncio.timeout(seconds + _GRACE_SECONDS):
                return await deliver(delivery)
        except TimeoutError as error:
            raise DeliveryError(f"the endpoint did not respond within {seconds:g} seconds") from error
        finally:
            del self._deadlines[attempt]

    # --- settling ------------------------------------------------------------------------------------------------

    def _finish(self, turn: _FinishedTurn) -> None:
        self._finished.append(turn)
        self._settle_wake.set()

    async def _settle_forever(self) -> None:
        """Settle finished turns in batches. If a batch cannot be settled now, try it again."""
        while self._fatal_error is None and (self._finished or not self._closing.is_set()):
            await self._settle_wake.wait()
            if len(self._finished) < _SETTLE_BATCH:
                await asyncio.sleep(_SETTLE_DELAY_SECONDS)
            self._settle_wake.clear()
            batch, self._finished = self._finished[:_SETTLE_BATCH], self._finished[_SETTLE_BATCH:]
            if self._finished:
                self._settle_wake.set()
            try:
                self._delivered += await self._run_in(self._settle_thread, self._settle, batch)
            except FencedError as error:
                self._stop_sending(error)
            except Exception as error:
                if self._closing.is_set():
                    return  # the messages stay open in the ledger and are sent again
                await self._retry_settling(batch, error)
                continue
            self._settle_error = None
            self._requeue_or_forget(batch)

    async def _retry_settling(self, batch: list[_FinishedTurn], error: Exception) -> None:
        """Put a batch back, and wait before it is settled again. Sending pauses until then."""
        self._finished = batch + self._finished
        self._settle_wake.set()
        logger.warning("cannot record the results of delivery attempts; retrying: %s", error)
        if not isinstance(error, RunnelError):
            error = RunnelError(f"cannot record the results of delivery attempts: {error}")
        self._settle_error = error
        await asyncio.sleep(_SETTLE_RETRY_SECONDS)

    def _settle(self, batch: Sequence[_FinishedTurn]) -> int:
        """Settle a batch in one transaction. Return the number of delivered messages. Runs in the settle thread."""
        attempts = [attempt for turn in batch for attempt in turn.attempts]
        paused_hosts = {turn.subscription: turn.host for turn in batch if turn.is_host_paused}
        if paused_hosts:
            with self._catalog.read() as connection:
                first_messages = ledger.first_open(connection, sorted(paused_hosts), 1)
            for subscription, messages in first_messages.items():
                host = paused_hosts[subscription].split(" ", 1)[-1]
                error = HostSilentError(f"not attempted: {host} did not respond to recent messages")
                attempts.append(Attempt(messages[0], error=error))
        return self._attempt_recorder.settle(self._epoch, attempts)

    def _requeue_or_forget(self, batch: Sequence[_FinishedTurn]) -> None:
        """Enqueue the subscriptions of settled turns that have more messages, and remove the others."""
        now = time.monotonic()
        for turn in batch:
            if not turn.has_more:
                self._hosts.forget(turn.subscription)
            elif not self._hosts.requeue(turn.subscription, turn.host, now):
                self._finish(_FinishedTurn(turn.subscription, turn.host, is_host_paused=True))
        self._wake.set()
        self._send_ready()
        self._set_idle_if_done()

    def _stop_sending(self, error: Exception) -> None:
        """Stop sending and settling, because another runner has taken over."""
        self._fatal_error = error
        for task in self._send_tasks:
            task.cancel()
        self._idle.set()

    def _set_idle_if_done(self) -> None:
        if not len(self._hosts):
            self._idle.set()

    async def _run_in(self, pool: ThreadPoolExecutor, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)
