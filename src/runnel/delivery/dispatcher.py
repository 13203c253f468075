"""Delivery: records messages for committed matches, and sends them to endpoints.

In: the match log and the ledger. Out: delivered messages. The recorder records the messages that are due. Messages of
local sinks are delivered here, one after the other. All others go to the Sender, which works in the background. After
a crash, open messages are sent again under the same key.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from runnel.catalog.delivery import ledger
from runnel.catalog.delivery.ledger import DueMessage
from runnel.catalog.store.connection import Catalog, now
from runnel.delivery.composer import Composer, SubscriptionQueue
from runnel.delivery.confirmer import Confirmer
from runnel.delivery.match_reader import MatchReader
from runnel.delivery.recorder import SCAN_INTERVAL_FACTOR, Recorder
from runnel.delivery.sender import Sender
from runnel.delivery.settle_attempts import Attempt, AttemptRecorder
from runnel.delivery.shape_messages import Decode, MessageShaper
from runnel.delivery.transports import Transports
from runnel.errors import DeliveryError, InputError, StorageFullError
from runnel.settings import Settings
from runnel.sinks.contract import Accept, LocalSink
from runnel.sinks.registry import open_sink
from runnel.storage.file_storage import Storage, open_storage

_PAGE_SIZE = 2_000
_LOCAL_BLOCK = 100
_OVERLAP_MICROSECONDS = 2_000_000
"""How far a partial scan for due messages goes back before the start of the previous scan."""


class Dispatcher:
    """Delivers the matches of a workspace.

    `accept` accepts items into materialized feeds, and `decode` parses feeds that stylesheets create. The caller
    provides both, because this package does not import the sources. `storage` contains the stylesheets.
    """

    def __init__(
        self,
        catalog: Catalog,
        match_reader: MatchReader,
        out: Path,
        settings: Settings,
        *,
        storage: Storage | None = None,
        accept: Accept | None = None,
        decode: Decode | None = None,
    ) -> None:
        self._catalog = catalog
        self._shaper = MessageShaper(
            storage or open_storage(settings.storage or out.parent.as_uri()), settings, decode
        )
        self.recorder = Recorder(catalog, match_reader)
        self.attempt_recorder = AttemptRecorder(catalog, settings)
        self._composer = Composer(catalog, match_reader.clone(), out, settings, accept)
        self._transports = Transports(self._shaper, settings)
        self._confirmer = Confirmer(catalog, settings, lambda: Transports(self._shaper, settings))
        self._sender = Sender(catalog, self._composer, self.attempt_recorder, self._transports, settings)
        self._watermark = 0
        self._next_full_scan = 0.0

    def close(self) -> None:
        """Stop sending and close connections. Messages that are being sent stay open in the ledger."""
        self._confirmer.close()
        self._sender.close()
        self._shaper.close()

    def deliver(self, epoch: int, *, wait: bool = False, seconds: float | None = None) -> int:
        """Record due messages and send open messages. Return how many were delivered since the last call.

        Without `wait`, do not wait for endpoints on the network. With `wait`, return when every due message was
        attempted, or after about `seconds`. The remaining messages stay open in the ledger.
        """
        delivered = self._sender.collect()
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        self._confirmer.send_due(epoch, wait=wait, deadline=deadline)
        has_more = self.recorder.record(epoch, scan_all=wait)
        delivered += self.send(epoch, wait=wait, deadline=deadline)
        while has_more and time.monotonic() < deadline:
            has_more = self.recorder.record(epoch)
            delivered += self.send(epoch, wait=wait, deadline=deadline)
        return delivered

    def send(self, epoch: int, *, wait: bool = False, deadline: float = math.inf) -> int:
        """Send open messages, in order per subscription. Return how many were delivered.

        A subscription whose message fails does not delay others.
        """
        delivered, enqueued = self._send_due(epoch, scan_all=wait)
        while wait and enqueued and time.monotonic() < deadline:
            attempts = self._sender.attempts
            is_finished = self._sender.wait(deadline)
            delivered += self._sender.collect()
            if not is_finished or self._sender.attempts == attempts:
                break
            more, enqueued = self._send_due(epoch, scan_all=True)
            delivered += more
        return delivered

    def _send_due(self, epoch: int, *, scan_all: bool) -> tuple[int, int]:
        """Deliver due messages of local sinks, and enqueue all others with the Sender.

        Return the number of delivered messages and the number of enqueued subscriptions.
        """
        delivered = enqueued = 0
        done: set[int] = set()
        storage_full: StorageFullError | None = None
        for page in self._due_pages(scan_all):
            due = {message.subscription: message for message in reversed(page) if message.subscription not in done}
            done |= due.keys()
            ended = [message.subscription for message in due.values() if message.ended]
            self.attempt_recorder.settle(epoch, (), ended)
            hosts = {number: self._transports.host(message) for number, message in due.items() if not message.ended}
            remote = [(number, host) for number, host in hosts.items() if host is not None]
            self._sender.enqueue(epoch, remote)
            enqueued += len(remote)
            try:
                delivered += self._send_local(epoch, [number for number, host in hosts.items() if host is None])
            except StorageFullError as error:
                storage_full = error
        if storage_full is not None and not delivered:
            raise storage_full  # no message could be delivered, so this is not a problem of one endpoint
        return delivered, enqueued

    def _due_pages(self, scan_all: bool) -> Iterator[list[DueMessage]]:
        """Yield pages of the messages that may be attempted now.

        Without `scan_all`, yield only messages that became due since the previous scan, unless enough time has passed
        since the last full scan (see `SCAN_INTERVAL_FACTOR`).
        """
        scan_all = scan_all or time.monotonic() >= self._next_full_scan
        since = 0 if scan_all else self._watermark - _OVERLAP_MICROSECONDS
        scan_seconds, after, scan_start = 0.0, None, 0
        while True:
            started = time.monotonic()
            with self._catalog.read() as connection:
                scan_start = scan_start or now(connection)
                page = ledger.due_page(connection, after=after, since=max(since, 0), limit=_PAGE_SIZE)
            scan_seconds += time.monotonic() - started
            if page:
                yield page
            if len(page) < _PAGE_SIZE:
                break
            after = page[-1].place
        self._watermark = scan_start
        if scan_all:
            self._next_full_scan = time.monotonic() + SCAN_INTERVAL_FACTOR * scan_seconds

    # --- local sinks ---------------------------------------------------------------------------------------------

    def _send_local(self, epoch: int, subscriptions: Sequence[int]) -> int:
        """Deliver messages to local sinks, in order, and settle them in blocks. Return how many were delivered."""
        delivered = 0
        storage_full: StorageFullError | None = None
        for first in range(0, len(subscriptions), _LOCAL_BLOCK):
            waiting = list(subscriptions[first : first + _LOCAL_BLOCK])
            while waiting:
                composed = self._composer.compose(waiting, epoch)
                waiting = list(composed.remaining)
                attempts: list[Attempt] = []
                for queue in composed.queues:
                    try:
                        attempts += self._deliver_queue(queue)
                        if queue.has_more and attempts[-1].is_done:
                            waiting.append(queue.subscription)
                    except StorageFullError as error:
                        storage_full = error
                delivered += self.attempt_recorder.settle(epoch, attempts)
        if storage_full is not None and not delivered:
            raise storage_full
        return delivered

    def _deliver_queue(self, queue: SubscriptionQueue) -> list[Attempt]:
        """Deliver the messages of one subscription, up to the first that fails."""
        attempts: list[Attempt] = []
        for prepared in queue.messages:
            try:
                delivery = prepared.require_delivery()
                sink = self._local_sink(delivery.subscription.kind)
                attempts.append(Attempt(prepared.message, sink.deliver(delivery)))
            except StorageFullError:
                if not attempts:
                    raise
                break  # the messages before this one are settled; this one stays open
            except Exception as error:
                attempts.append(Attempt(prepared.message, error=error))
                break
        return attempts

    def _local_sink(self, kind: str) -> LocalSink:
        try:
            sink = open_sink(kind)
        except InputError as error:
            # A DeliveryError is retried: the sink may be installed again later.
            raise DeliveryError(error.message, hint=error.hint) from error
        if not isinstance(sink, LocalSink):
            raise DeliveryError(f"the output {kind!r} has no host and is not a local sink")
        return sink
