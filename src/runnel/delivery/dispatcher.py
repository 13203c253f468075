"""Delivery: from committed matches to messages, and from messages to endpoints.

In: the match log and the ledger. Out: messages at their endpoints. `recorder.py` records what is due; local sinks
take their messages here, one after the other; all others are handed to the Sender, which works in the background. A
crash leaves open messages, which are sent again under the same key.
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
from runnel.delivery.recorder import LOOK_AGAIN, Recorder
from runnel.delivery.sender import Sender
from runnel.delivery.settle_attempts import Attempt, AttemptRecorder
from runnel.delivery.shape_messages import Decode, MessageShaper
from runnel.delivery.transports import Transports
from runnel.errors import DeliveryError, InputError, StorageFullError
from runnel.settings import Settings
from runnel.sinks.contract import Accept, LocalSink
from runnel.sinks.registry import open_sink
from runnel.storage.file_storage import Storage, open_storage

_PAGE = 2_000
_LOCAL_BLOCK = 100
_OVERLAP = 2_000_000


class Dispatcher:
    """Delivers the matches of a workspace.

    `accept` takes items into other feeds, `decode` reads the feeds that stylesheets make; both come from a caller
    that knows sources. `storage` holds the stylesheets.
    """

    def __init__(
        self,
        catalog: Catalog,
        shares: MatchReader,
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
        self.recorder = Recorder(catalog, shares)
        self.settler = AttemptRecorder(catalog, settings)
        self._composer = Composer(catalog, shares.another(), out, settings, accept)
        self._ways = Transports(self._shaper, settings)
        self._confirmer = Confirmer(catalog, settings, lambda: Transports(self._shaper, settings))
        self._sender = Sender(catalog, self._composer, self.settler, self._ways, settings)
        self._watermark = 0
        self._look_at_all = 0.0

    def close(self) -> None:
        """Stop sending and let go of connections; what is under way stays open in the ledger."""
        self._confirmer.close()
        self._sender.close()
        self._shaper.close()

    def deliver(self, epoch: int, *, wait: bool = False, seconds: float | None = None) -> int:
        """Record what is due and send what is open; gives how many messages were taken since this was last asked.

        Endpoints on the network are not waited for, unless told to `wait`: then until everything due was tried,
        or for about so many `seconds`; what is left stays open in the ledger.
        """
        taken = self._sender.collect()
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        self._confirmer.ask(epoch, wait=wait, deadline=deadline)
        goes_on = self.recorder.record(epoch, look_at_all=wait)
        taken += self.send(epoch, wait=wait, deadline=deadline)
        while goes_on and time.monotonic() < deadline:
            goes_on = self.recorder.record(epoch)
            taken += self.send(epoch, wait=wait, deadline=deadline)
        return taken

    def send(self, epoch: int, *, wait: bool = False, deadline: float = math.inf) -> int:
        """Hand open messages over, each subscription's in order; a failing one holds back only itself."""
        taken, handed_over = self._send_due(epoch, look_at_all=wait)
        while wait and handed_over and time.monotonic() < deadline:
            tried = self._sender.tried
            has_ended = self._sender.wait(deadline)
            taken += self._sender.collect()
            if not has_ended or self._sender.tried == tried:
                break
            more, handed_over = self._send_due(epoch, look_at_all=True)
            taken += more
        return taken

    def _send_due(self, epoch: int, *, look_at_all: bool) -> tuple[int, int]:
        """Look once at what is due: gives how many messages local sinks took, and how many lines are being served."""
        taken = handed_over = 0
        done: set[int] = set()
        no_room: StorageFullError | None = None
        for page in self._due(look_at_all):
            fresh = {one.subscription: one for one in reversed(page) if one.subscription not in done}
            done |= fresh.keys()
            self.settler.settle(epoch, (), [one.subscription for one in fresh.values() if one.ended])
            hosts = {number: self._ways.host(one) for number, one in fresh.items() if not one.ended}
            remote = [(number, host) for number, host in hosts.items() if host is not None]
            self._sender.hand_over(epoch, remote)
            handed_over += len(remote)
            try:
                taken += self._send_local(epoch, [number for number, host in hosts.items() if host is None])
            except StorageFullError as error:
                no_room = error
        if no_room is not None and not taken:
            raise no_room  # nobody has room, so it is not one endpoint's matter
        return taken, handed_over

    def _due(self, look_at_all: bool) -> Iterator[list[DueMessage]]:
        """What may be tried now, in pages. Looking at all of it is left for now if it took long a moment ago."""
        look_at_all = look_at_all or time.monotonic() >= self._look_at_all
        since = 0 if look_at_all else self._watermark - _OVERLAP
        spent, after, begun = 0.0, None, 0
        while True:
            started = time.monotonic()
            with self._catalog.read() as connection:
                begun = begun or now(connection)
                page = ledger.due_page(connection, after=after, since=max(since, 0), limit=_PAGE)
            spent += time.monotonic() - started
            if page:
                yield page
            if len(page) < _PAGE:
                break
            after = page[-1].place
        self._watermark = begun
        if look_at_all:
            self._look_at_all = time.monotonic() + LOOK_AGAIN * spent

    # --- local sinks ---------------------------------------------------------------------------------------------

    def _send_local(self, epoch: int, subscriptions: Sequence[int]) -> int:
        """Hand over the messages of local sinks, in order, and settle them block by block."""
        taken = 0
        no_room: StorageFullError | None = None
        for first in range(0, len(subscriptions), _LOCAL_BLOCK):
            waiting = list(subscriptions[first : first + _LOCAL_BLOCK])
            while waiting:
                composed = self._composer.compose(waiting, epoch)
                waiting = list(composed.left)
                attempts: list[Attempt] = []
                for lane in composed.lanes:
                    try:
                        attempts += self._run(lane)
                        if lane.more and attempts[-1].is_done:
                            waiting.append(lane.subscription)
                    except StorageFullError as error:
                        no_room = error
                taken += self.settler.settle(epoch, attempts)
        if no_room is not None and not taken:
            raise no_room
        return taken

    def _run(self, lane: SubscriptionQueue) -> list[Attempt]:
        """Hand over the messages of one subscription up to the first that fails."""
        attempts: list[Attempt] = []
        for parcel in lane.parcels:
            try:
                delivery = parcel.checked()
                sink = self._local_sink(delivery.subscription.kind)
                attempts.append(Attempt(parcel.message, sink.deliver(delivery)))
            except StorageFullError:
                if not attempts:
                    raise
                break  # what was handed over before is settled; this one comes again
            except Exception as error:
                attempts.append(Attempt(parcel.message, error=error))
                break
        return attempts

    def _local_sink(self, kind: str) -> LocalSink:
        try:
            sink = open_sink(kind)
        except InputError as error:
            # It may be installed again tomorrow.
            raise DeliveryError(error.message, hint=error.hint) from error
        if not isinstance(sink, LocalSink):
            raise DeliveryError(f"the output {kind!r} is not on this machine")
        return sink
