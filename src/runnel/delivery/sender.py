"""Sending side by side: an asyncio loop in a thread of its own, from open messages to endpoints and settled rows.

In: subscriptions with something due, each with the host it goes to. Out: their messages, one at a time for each
subscription and in order; a bounded number for each host and in all. Outcomes are settled many at a time. A crash
before that sends again, under the same key.
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

_BLOCK = 512
_BATCH = 2_000
_GATHER_SECONDS = 0.02
_GRACE_SECONDS = 1.0
_RETRY_SECONDS = 1.0
_HAND_OVER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Ended:
    """A subscription's turn is over: how its attempts ended, and whether it has more to send at once."""

    subscription: int
    host: str
    attempts: tuple[Attempt, ...] = ()
    goes_on: bool = False
    turned_away: bool = False


class Sender:
    """Sends messages to endpoints for as long as it is open. Its methods may be called from any other thread."""

    def __init__(
        self, catalog: Catalog, composer: Composer, settler: AttemptRecorder, ways: Transports, settings: Settings
    ) -> None:
        self._catalog = catalog
        self._composer = composer
        self._settler = settler
        self._ways = ways
        self._settings = settings
        self._hosts: HostQueues[SubscriptionQueue] = HostQueues(
            settings.send_concurrency, settings.send_host_concurrency
        )
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._epoch = 0
        self._done = 0
        self.tried = 0
        """How many attempts were made so far."""
        self._ends: dict[object, float] = {}
        """Until when each attempt that is under way may take."""
        self._no_room: StorageFullError | None = None
        self._trouble: RunnelError | None = None
        self._error: Exception | None = None

    # --- from other threads --------------------------------------------------------------------------------------

    def hand_over(self, epoch: int, due: Sequence[tuple[int, str]]) -> None:
        """Let the messages of subscriptions be sent, each to its host; returns at once."""
        if due:
            self._start()
            self._epoch = epoch
            self._call(self._take(list(due)))

    def collect(self) -> int:
        """How many messages were taken by their endpoints since this was last asked; raises what stopped sending."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        done, self._done = self._done, 0
        if not done and (trouble := self._trouble or self._no_room) is not None:
            self._no_room = None
            raise trouble.with_traceback(None)
        return done

    def wait(self, deadline: float = math.inf) -> bool:
        """Wait for all that was handed over; False if nothing has come of it for as long as one message may take.

        Also at a deadline, of the monotonic clock.
        """
        patience = self._settings.send_seconds + 2 * _GRACE_SECONDS
        tried, since = self.tried, time.monotonic()
        while not self._idle.wait(0.05):
            moment = time.monotonic()
            if self.tried != tried:
                tried, since = self.tried, moment
            # A mail may take longer than others: whoever breaks it off has it sent again that may have been taken.
            if moment > min(deadline, max(since + patience, *tuple(self._ends.values()), 0.0)):
                return False
        return True

    def close(self) -> None:
        """Stop sending. What is under way is broken off and stays open; what has ended is settled."""
        if self._thread is not None and self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
        self._thread = self._loop = None
        self._error = None

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            started = threading.Event()
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._main(started)), name="runnel-send", daemon=True
            )
            self._thread.start()
            started.wait()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        if self._loop is None:
            work.close()
            return
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_HAND_OVER_SECONDS)

    # --- in the loop ---------------------------------------------------------------------------------------------

    async def _main(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing, self._wake, self._settle_wake = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._ended: list[_Ended] = []
        self._lanes: set[asyncio.Task[None]] = set()
        # Reading and settling have a thread each: neither may wait for the other, or for an endpoint.
        self._reading = ThreadPoolExecutor(1, "runnel-send-read")
        self._settling = ThreadPoolExecutor(1, "runnel-send-settle")
        started.set()
        composing, settling = asyncio.create_task(self._compose_on()), asyncio.create_task(self._settle_on())
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait((closing, composing, settling), return_when=asyncio.FIRST_COMPLETED)
            for task in (composing, settling):
                if task.done() and task.exception() is not None:
                    logger.error("sending broke off, and starts anew", exc_info=task.exception())
        finally:
            self._closing.set()
            for task in (composing, *self._lanes):
                task.cancel()
            await asyncio.gather(composing, *self._lanes, return_exceptions=True)
            self._settle_wake.set()
            await asyncio.gather(settling, return_exceptions=True)
            await self._ways.close()
            self._reading.shutdown()
            self._settling.shutdown()
            self._hosts = HostQueues(self._settings.send_concurrency, self._settings.send_host_concurrency)
            self._idle.set()

    async def _take(self, due: Sequence[tuple[int, str]]) -> None:
        self._idle.clear()
        now = time.monotonic()
        for subscription, host in due:
            if not self._hosts.add(subscription, host, now):
                self._end(_Ended(subscription, host, turned_away=True))
        self._look_idle()
        self._wake.set()

    async def _compose_on(self) -> None:
        """Make lanes ready wherever a host has room for them."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._may_send() and (chosen := self._hosts.next_to_compose(_BLOCK, time.monotonic())):
                await self._compose(chosen)
                self._send_ready()

    async def _compose(self, chosen: Sequence[tuple[int, str]]) -> None:
        lanes: dict[int, SubscriptionQueue] = {}
        left: set[int] = set()
        try:
            composed = await self._in(self._reading, self._composer.compose, [one for one, _ in chosen], self._epoch)
            lanes, left = {lane.subscription: lane for lane in composed.lanes}, set(composed.left)
        except FencedError as error:
            self._fail(error)
        except Exception:
            logger.exception("messages could not be made ready; the next look tries again")
        now = time.monotonic()
        for subscription, host in chosen:
            lane = lanes.get(subscription)
            is_taken = self._hosts.composed(host, lane, now, size=0 if lane is None else lane.bytes)
            if subscription in left:
                is_taken = self._hosts.again(subscription, host, now)
            elif subscription not in lanes:
                self._hosts.forget(subscription)
            if not is_taken:
                self._end(_Ended(subscription, host, turned_away=True))
        self._look_idle()

    def _send_ready(self) -> None:
        while self._may_send() and (found := self._hosts.next_to_send(time.monotonic())) is not None:
            task = asyncio.create_task(self._run(*found))
            self._lanes.add(task)
            task.add_done_callback(self._lanes.discard)

    def _may_send(self) -> bool:
        """Nothing more is sent while what was sent cannot be settled."""
        return self._error is None and self._trouble is None

    async def _run(self, host: str, lane: SubscriptionQueue) -> None:
        """Send the messages of one subscription, in order, up to the first that fails."""
        attempts: list[Attempt] = []
        failed = silent = False
        try:
            for parcel in lane.parcels:
                attempt = await self._attempt(parcel)
                failed = attempt is None or not attempt.is_done
                silent = attempt is not None and self._is_silence(parcel, attempt)
                if attempt is not None:
                    attempts.append(attempt)
                    self.tried += 1
                if failed:
                    break
        finally:
            goes_on = lane.more and not failed
            self._end(_Ended(lane.subscription, host, tuple(attempts), goes_on=goes_on))
            waiting, ready = self._hosts.finished(host, silent=silent, now=time.monotonic(), size=lane.bytes)
            for one in (*waiting, *(other.subscription for other in ready)):
                self._end(_Ended(one, host, turned_away=True))
        self._send_ready()
        self._wake.set()

    def _is_silence(self, parcel: PreparedMessage, attempt: Attempt) -> bool:
        if parcel.delivery is None or attempt.is_done:
            return False
        return is_host_trouble(attempt.error) and self._ways.is_remote(parcel.delivery.subscription.kind)

    async def _attempt(self, parcel: PreparedMessage) -> Attempt | None:
        """One attempt at a message; None where there is no room, which is not the message's fault."""
        try:
            return Attempt(parcel.message, await self._hand_over(parcel.checked()))
        except StorageFullError as error:
            self._no_room = error
            return None
        except Exception as error:
            return Attempt(parcel.message, error=error)

    async def _hand_over(self, delivery: Delivery) -> str:
        delivery, deliver, seconds = await self._ways.open(delivery)
        if seconds is None:
            return await deliver(delivery)
        attempt = object()
        self._ends[attempt] = time.monotonic() + seconds + 2 * _GRACE_SECONDS
        try:
            async with asyncio.timeout(seconds + _GRACE_SECONDS):
                return await deliver(delivery)
        except TimeoutError as error:
            raise DeliveryError(f"the endpoint did not answer within {seconds:g} seconds") from error
        finally:
            del self._ends[attempt]

    # --- settling ------------------------------------------------------------------------------------------------

    def _end(self, ended: _Ended) -> None:
        self._ended.append(ended)
        self._settle_wake.set()

    async def _settle_on(self) -> None:
        """Settle what has ended, many at a time; what cannot be settled now is kept, and tried again."""
        while self._error is None and (self._ended or not self._closing.is_set()):
            await self._settle_wake.wait()
            if len(self._ended) < _BATCH:
                await asyncio.sleep(_GATHER_SECONDS)
            self._settle_wake.clear()
            batch, self._ended = self._ended[:_BATCH], self._ended[_BATCH:]
            if self._ended:
                self._settle_wake.set()
            try:
                self._done += await self._in(self._settling, self._settle, batch)
            except FencedError as error:
                self._fail(error)
            except Exception as error:
                if self._closing.is_set():
                    return  # it stays open in the ledger, and is sent again
                await self._hold_up(batch, error)
                continue
            self._trouble = None
            self._go_on(batch)

    async def _hold_up(self, batch: list[_Ended], error: Exception) -> None:
        self._ended = batch + self._ended
        self._settle_wake.set()
        self._trouble = error if isinstance(error, RunnelError) else RunnelError(f"nothing can be settled: {error}")
        logger.warning("what was sent cannot be settled yet: %s", error)
        await asyncio.sleep(_RETRY_SECONDS)

    def _settle(self, batch: Sequence[_Ended]) -> int:
        """In one transaction, in a thread of its own."""
        attempts = [attempt for one in batch for attempt in one.attempts]
        turned_away = {one.subscription: one.host for one in batch if one.turned_away}
        if turned_away:
            with self._catalog.read() as connection:
                first = ledger.first_open(connection, sorted(turned_away), 1)
            for subscription, messages in first.items():
                host = turned_away[subscription].split(" ", 1)[-1]
                silent = HostSilentError(f"not tried: {host} has not answered others lately")
                attempts.append(Attempt(messages[0], error=silent))
        return self._settler.settle(self._epoch, attempts)

    def _go_on(self, batch: Sequence[_Ended]) -> None:
        now = time.monotonic()
        for one in batch:
            if not one.goes_on:
                self._hosts.forget(one.subscription)
            elif not self._hosts.again(one.subscription, one.host, now):
                self._end(_Ended(one.subscription, one.host, turned_away=True))
        self._wake.set()
        self._send_ready()
        self._look_idle()

    def _fail(self, error: Exception) -> None:
        """Nothing more may be sent or settled: another runner has taken over."""
        self._error = error
        for task in self._lanes:
            task.cancel()
        self._idle.set()

    def _look_idle(self) -> None:
        if not len(self._hosts):
            self._idle.set()

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)
