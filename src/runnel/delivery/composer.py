"""Composing: from open messages to deliveries.

In: numbers of subscriptions with something due. Out: for each its next messages, in order, with their items, names,
keys and links. All is read for many subscriptions at once, and bounded in bytes: what does not fit comes later.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from runnel.catalog.access import consents, signing_keys
from runnel.catalog.access.workspace_secrets import UNSUBSCRIBE, unsubscribe_token, workspace_secret
from runnel.catalog.declared import feeds
from runnel.catalog.delivery import ledger, outbox
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog, now
from runnel.delivery.match_reader import LoadedItems, MatchReader, MessageRange
from runnel.delivery.message_pacer import MessagePacer, Recipient
from runnel.delivery.settle_attempts import RateLimitedError
from runnel.errors import CatalogUnavailableError, DeliveryError
from runnel.model.feed import ADMIN
from runnel.model.message import Message
from runnel.model.subscription import Subscription
from runnel.settings import Settings
from runnel.sinks.contract import Accept, ConfirmingSink, DeliveredItem, Delivery, RemoteSink
from runnel.sinks.registry import find_sink

logger = logging.getLogger("runnel")

_EACH = 8
_LOADED = 5_000
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A message and what is to be handed over; or why it cannot be."""

    message: Message
    delivery: Delivery | None = None
    trouble: Exception | None = None

    def checked(self) -> Delivery:
        """What is to be handed over; raises why it cannot be."""
        if self.trouble is not None or self.delivery is None:
            raise self.trouble or DeliveryError("there is nothing to send")
        return self.delivery


@dataclass(frozen=True, slots=True)
class SubscriptionQueue:
    """The next messages of one subscription, to be sent one after the other. `more` says that others wait behind.

    `bytes` is about how much their items are.
    """

    subscription: int
    parcels: tuple[PreparedMessage, ...]
    more: bool
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ComposedMessages:
    """Lanes, and the subscriptions that there was no room for this time."""

    lanes: tuple[SubscriptionQueue, ...]
    left: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Known:
    """What the catalog says about some subscriptions, as of one moment."""

    messages: Mapping[int, Sequence[Message]]
    subscriptions: Mapping[int, Subscription]
    live_since: Mapping[int, int]
    keys: Mapping[int, tuple[bytes, ...]]
    sent: datetime
    contents: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    """The sequences of every message, by its key, as they were when it was recorded; None: not to be found out."""

    def sequences(self, number: int, each: int) -> Iterator[int]:
        """The sequences of the first so many messages of a subscription."""
        for message in self.messages[number][:each]:
            yield from self.contents.get(message.key) or ()


class Composer:
    """Makes deliveries. Threads may share it; one composes at a time."""

    def __init__(
        self,
        catalog: Catalog,
        shares: MatchReader,
        out: Path,
        settings: Settings,
        accept: Accept | None = None,
    ) -> None:
        self._accept = accept
        self._pacer = MessagePacer(self._sent_before)
        self._catalog = catalog
        self._shares = shares
        self._out = out
        self._settings = settings
        self._lock = threading.Lock()
        self._secret: bytes | None = None

    def compose(self, subscriptions: Sequence[int], epoch: int) -> ComposedMessages:
        """The next messages of subscriptions; those with none to send have no lane. Raises Fenced."""
        with self._lock:
            known = self._look_up(subscriptions, epoch)
            composed = self._lanes(replace(known, contents=self._contents(known)))
            return replace(composed, lanes=tuple(self._pace(lane, known) for lane in composed.lanes))

    def _look_up(self, numbers: Sequence[int], epoch: int) -> _Known:
        with self._catalog.read() as connection:
            leases.check(connection, epoch)
            unconfirmed = consents.unconfirmed_among(connection, numbers)
            served = {
                number: one
                for number, one in outbox.subscriptions_of(connection, numbers).items()
                if not one.paused and one.disabled is None and number not in unconfirmed
            }
            kinds = {one.kind: find_sink(one.kind) for one in served.values()}
            signed = {kind for kind, sink in kinds.items() if sink is not None and sink.is_signed}
            known = _Known(
                messages=ledger.first_open(connection, sorted(served), _EACH),
                subscriptions=served,
                live_since=feeds.since_of(connection, {one.feed for one in served.values()}),
                keys=signing_keys.keys_of(
                    connection, [number for number, one in served.items() if one.kind in signed]
                ),
                sent=datetime.fromtimestamp(now(connection) / 1e6, UTC),
            )
        has_recipients = any(isinstance(sink, RemoteSink) for sink in kinds.values())
        if has_recipients and self._settings.public_url and self._secret is None:
            with self._catalog.write() as connection:
                self._secret = workspace_secret(connection, UNSUBSCRIBE)
        return known

    def _lanes(self, known: _Known) -> ComposedMessages:
        self._shares.names({one.feed for one in known.subscriptions.values()})
        lanes: list[SubscriptionQueue] = []
        pending = list(known.messages)
        room = _MOST_BYTES
        while pending and (room > 0 or not lanes):
            block = list(_block(pending, known))
            try:
                made, size = self._fitting(block, known, room, at_least_one=not lanes)
            except CatalogUnavailableError:
                raise  # nobody's items are at fault; all of them wait
            except Exception:
                logger.exception("some items cannot be read; subscriptions are looked at one by one")
                made, size = self._one_by_one(block, known, room)
            if not made:
                break
            lanes += made
            room -= size
            pending = pending[len(made) :]
        return ComposedMessages(tuple(lanes), tuple(pending))

    def _fitting(
        self, block: Sequence[int], known: _Known, room: int, *, at_least_one: bool
    ) -> tuple[list[SubscriptionQueue], int]:
        """The lanes of the first subscriptions of a block, as many as there is room for, and how many bytes they are.

        Where not even one subscription has room for all of its messages it gets a shorter lane; where none has room
        for a single message the first gets it all the same if there must be `at_least_one`.
        """
        for numbers, each in _fewer_and_fewer(block):
            loaded = self._load(numbers, each, known, room)
            if loaded is not None:
                return [self._lane(number, each, known, loaded) for number in numbers], loaded.bytes
        loaded = self._load(block[:1], 1, known, math.inf) if at_least_one else None
        if loaded is None:
            return [], 0
        return [self._lane(block[0], 1, known, loaded)], loaded.bytes

    def _load(self, numbers: Sequence[int], each: int, known: _Known, room: float) -> LoadedItems | None:
        loaded = self._shares.items((one for number in numbers for one in known.sequences(number, each)), room)
        if loaded is None:
            return None
        wanted: dict[int, list[int]] = {}
        for number in numbers:
            wanted.setdefault(known.subscriptions[number].feed, []).extend(known.sequences(number, each))
        return replace(loaded, bindings=self._shares.bindings(wanted))

    def _one_by_one(self, block: Sequence[int], known: _Known, room: int) -> tuple[list[SubscriptionQueue], int]:
        """The lanes of a block in which some items cannot be read: whoever needs those is told, and nobody else."""
        lanes: list[SubscriptionQueue] = []
        total = 0
        for number in block:
            try:
                made, size = self._fitting([number], known, room - total, at_least_one=not lanes)
            except CatalogUnavailableError:
                raise
            except Exception:
                lane = self._first_message(number, known)
                made, size = [lane], lane.bytes
            if not made:
                break
            lanes += made
            total += size
        return lanes, total

    def _first_message(self, number: int, known: _Known) -> SubscriptionQueue:
        """The first message of a subscription of which some items, perhaps of a later one, cannot be read."""
        try:
            loaded = self._load([number], 1, known, math.inf)
            return self._lane(number, 1, known, loaded or LoadedItems({}, {}))
        except CatalogUnavailableError:
            raise
        except Exception as error:
            trouble = DeliveryError(f"the items of this message cannot be read: {error}")
            return SubscriptionQueue(
                number, (PreparedMessage(known.messages[number][0], trouble=trouble),), more=False
            )

    def _lane(self, number: int, each: int, known: _Known, loaded: LoadedItems) -> SubscriptionQueue:
        """The first so many messages of a subscription, up to one that cannot be sent as it was recorded."""
        parcels = []
        size = 0
        feed = known.subscriptions[number].feed
        for message in known.messages[number][:each]:
            sequences = known.contents.get(message.key)
            found = [one for one in sequences or () if one in loaded.items]
            if sequences is None or len(found) != message.count:
                parcels.append(PreparedMessage(message, trouble=_trouble(message, sequences, len(found))))
                break
            items = [loaded.item(feed, one) for one in found]
            parcels.append(PreparedMessage(message, self._delivery(message, known, items)))
            size += sum(loaded.size(feed, one) for one in found)
        waiting = len(known.messages[number])
        return SubscriptionQueue(number, tuple(parcels), waiting == _EACH or waiting > each, size)

    def _contents(self, known: _Known) -> dict[str, tuple[int, ...] | None]:
        """The sequences of every message, as they were when it was recorded; None where they cannot be found out."""
        messages = [one for some in known.messages.values() for one in some]
        feeds_ = {one.id: one.feed for one in known.subscriptions.values()}
        runs = [
            MessageRange(feeds_[one.subscription], one.first_sequence - 1, one.last_sequence, one.plan)
            for one in messages
        ]
        found: dict[str, tuple[int, ...] | None] = {}
        contents = self._shares.of_runs(runs, known.live_since, bound=True)
        for message, sequences in zip(messages, contents, strict=True):
            since = known.subscriptions[message.subscription].since
            if sequences is not None and message.first_sequence <= since:
                sequences = tuple(one for one in sequences if one > since)
            found[message.key] = sequences
        return found

    def _delivery(self, message: Message, known: _Known, items: Sequence[DeliveredItem]) -> Delivery:
        subscription = known.subscriptions[message.subscription]
        name = self._shares.names({subscription.feed})[subscription.feed]
        return Delivery(
            key=message.key,
            subscription=subscription,
            feed_name=name,
            feed_title=name,
            items=items,
            sent=known.sent,
            out=self._out,
            allowed=self._settings.out_folders,
            out_url=self._settings.out_url,
            max_entries=self._settings.feed_entries,
            signing_keys=known.keys.get(subscription.id, ()),
            unsubscribe=self._unsubscribe(subscription),
            accept=self._accept,
        )

    # --- limits of owners ----------------------------------------------------------------------------------------

    def _pace(self, lane: SubscriptionQueue, known: _Known) -> SubscriptionQueue:
        """The messages of a lane that its recipient may get now; the first of the others is put off."""
        subscription = known.subscriptions[lane.subscription]
        if subscription.owner == ADMIN or subscription.target is None:
            return lane
        sink = find_sink(subscription.kind)
        if not isinstance(sink, ConfirmingSink):
            return lane
        recipient = (subscription.owner, subscription.kind, sink.recipient(subscription.target))
        limit, moment = sink.messages_per_hour(self._settings), int(known.sent.timestamp() * 1e6)
        granted, following = self._pacer.take(recipient, len(lane.parcels), limit, moment)
        if granted == len(lane.parcels):
            return lane
        put_off = RateLimitedError(
            f"not tried yet: an owner may send {limit} messages per hour to one recipient",
            seconds=max((following - moment) / 1e6, 1.0),
        )
        waiting = PreparedMessage(lane.parcels[granted].message, trouble=put_off)
        return replace(lane, parcels=(*lane.parcels[:granted], waiting), more=False)

    def _sent_before(self, recipient: Recipient, since: int, limit: int) -> list[int]:
        with self._catalog.read() as connection:
            return ledger.sent_to(connection, *recipient, since=since, limit=limit)

    def _unsubscribe(self, subscription: Subscription) -> str | None:
        if self._secret is None or not isinstance(find_sink(subscription.kind), RemoteSink):
            return None
        token = unsubscribe_token(self._secret, subscription.id)
        return f"{self._settings.public_url.rstrip('/')}/unsubscribe/{token}"


def _block(pending: Sequence[int], known: _Known) -> Iterator[int]:
    """The first subscriptions, as many as have items for one reading."""
    count = 0
    for number in pending:
        yield number
        count += sum(1 for _ in known.sequences(number, _EACH))
        if count >= _LOADED:
            return


def _fewer_and_fewer(block: Sequence[int]) -> Iterator[tuple[Sequence[int], int]]:
    """A block, its first half, and so on to its first subscription; then that with fewer and fewer messages."""
    count = len(block)
    while count > 1:
        yield block[:count], _EACH
        count //= 2
    each = _EACH
    while each:
        yield block[:1], each
        each //= 2


def _trouble(message: Message, sequences: Sequence[int] | None, found: int) -> DeliveryError:
    """Why a message cannot be sent as it was recorded."""
    if sequences is None:
        return DeliveryError("the matches of this message cannot be read", hint="the runner's log says why")
    return DeliveryError(
        f"the message was recorded with {message.count} items and would have {found} now",
        hint="items are kept for the time that `keep_items_days` sets",
    )
