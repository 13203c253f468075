"""Composing: turns open messages of the ledger into deliveries.

In: the numbers of subscriptions with messages due. Out: the next messages of each, in order, with their items, feed
names, signing keys and links. Data is read for many subscriptions at once. The total size of the items is limited;
subscriptions that do not fit are returned to be composed later.
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
from runnel.delivery.match_reader import FeedRange, LoadedItems, MatchReader
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

_MAX_MESSAGES = 8
"""Messages that are composed for one subscription at once."""
_BLOCK_ITEMS = 5_000
_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A message with its delivery, or with the error because of which it cannot be delivered."""

    message: Message
    delivery: Delivery | None = None
    error: Exception | None = None

    def require_delivery(self) -> Delivery:
        """Return the delivery. Raise the error if there is none."""
        if self.error is not None or self.delivery is None:
            raise self.error or DeliveryError("the message has no delivery")
        return self.delivery


@dataclass(frozen=True, slots=True)
class SubscriptionQueue:
    """The next messages of one subscription, to be sent one after the other.

    `has_more` says that the ledger has further open messages. `bytes` is the approximate size of the items.
    """

    subscription: int
    messages: tuple[PreparedMessage, ...]
    has_more: bool
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class ComposedMessages:
    """The composed messages per subscription, and the subscriptions that did not fit into the size limit."""

    queues: tuple[SubscriptionQueue, ...]
    remaining: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _CatalogSnapshot:
    """The catalog's data about several subscriptions and their open messages, read in one transaction."""

    messages: Mapping[int, Sequence[Message]]
    subscriptions: Mapping[int, Subscription]
    live_since: Mapping[int, int]
    keys: Mapping[int, tuple[bytes, ...]]
    sent: datetime
    contents: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)
    """The recorded sequences of every message, by message key. None: the matches cannot be read."""

    def sequences(self, number: int, count: int) -> Iterator[int]:
        """Yield the sequences of the first `count` messages of a subscription."""
        for message in self.messages[number][:count]:
            yield from self.contents.get(message.key) or ()


class Composer:
    """Creates deliveries from open messages. Thread-safe: calls are executed one at a time."""

    def __init__(
        self,
        catalog: Catalog,
        match_reader: MatchReader,
        out: Path,
        settings: Settings,
        accept: Accept | None = None,
    ) -> None:
        self._accept = accept
        self._pacer = MessagePacer(self._sent_before)
        self._catalog = catalog
        self._match_reader = match_reader
        self._out = out
        self._settings = settings
        self._lock = threading.Lock()
        self._secret: bytes | None = None

    def compose(self, subscriptions: Sequence[int], epoch: int) -> ComposedMessages:
        """Compose the next messages of subscriptions. Those without open messages get no queue.

        Raise FencedError if another runner has taken over.
        """
        with self._lock:
            snapshot = self._read_catalog(subscriptions, epoch)
            composed = self._compose_all(replace(snapshot, contents=self._find_contents(snapshot)))
            return replace(composed, queues=tuple(self._pace(queue, snapshot) for queue in composed.queues))

    def _read_catalog(self, numbers: Sequence[int], epoch: int) -> _CatalogSnapshot:
        with self._catalog.read() as connection:
            leases.check(connection, epoch)
            unconfirmed = consents.unconfirmed_among(connection, numbers)
            served = {
                number: subscription
                for number, subscription in outbox.subscriptions_of(connection, numbers).items()
                if not subscription.paused and subscription.disabled is None and number not in unconfirmed
            }
            sinks = {subscription.kind: find_sink(subscription.kind) for subscription in served.values()}
            signed_kinds = {kind for kind, sink in sinks.items() if sink is not None and sink.is_signed}
            snapshot = _CatalogSnapshot(
                messages=ledger.first_open(connection, sorted(served), _MAX_MESSAGES),
                subscriptions=served,
                live_since=feeds.since_of(connection, {subscription.feed for subscription in served.values()}),
                keys=signing_keys.keys_of(
                    connection,
                    [number for number, subscription in served.items() if subscription.kind in signed_kinds],
                ),
                sent=datetime.fromtimestamp(now(connection) / 1e6, UTC),
            )
        has_recipients = any(isinstance(sink, RemoteSink) for sink in sinks.values())
        if has_recipients and self._settings.public_url and self._secret is None:
            with self._catalog.write() as connection:
                self._secret = workspace_secret(connection, UNSUBSCRIBE)
        return snapshot

    def _compose_all(self, snapshot: _CatalogSnapshot) -> ComposedMessages:
        self._match_reader.feed_names({subscription.feed for subscription in snapshot.subscriptions.values()})
        queues: list[SubscriptionQueue] = []
        pending = list(snapshot.messages)
        free_bytes = _MAX_BYTES
        while pending and (free_bytes > 0 or not queues):
            block = list(_next_block(pending, snapshot))
            try:
                composed, size = self._compose_fitting(block, snapshot, free_bytes, at_least_one=not queues)
            except CatalogUnavailableError:
                raise  # affects all subscriptions and is temporary
            except Exception:
                logger.exception("cannot read some items; composing the messages of each subscription separately")
                composed, size = self._compose_separately(block, snapshot, free_bytes)
            if not composed:
                break
            queues += composed
            free_bytes -= size
            pending = pending[len(composed) :]
        return ComposedMessages(tuple(queues), tuple(pending))

    def _compose_fitting(
        self, block: Sequence[int], snapshot: _CatalogSnapshot, free_bytes: int, *, at_least_one: bool
    ) -> tuple[list[SubscriptionQueue], int]:
        """Compose the first subscriptions of a block that fit into `free_bytes`. Return their queues and their size.

        If not all messages of the first subscription fit, it gets a shorter queue. If not even its first message
        fits, return nothing, or that message alone if `at_least_one` is set.
        """
        for numbers, count in _shrinking_blocks(block):
            loaded = self._load(numbers, count, snapshot, free_bytes)
            if loaded is not None:
                return [self._queue(number, count, snapshot, loaded) for number in numbers], loaded.bytes
        loaded = self._load(block[:1], 1, snapshot, math.inf) if at_least_one else None
        if loaded is None:
            return [], 0
        return [self._queue(block[0], 1, snapshot, loaded)], loaded.bytes

    def _load(
        self, numbers: Sequence[int], count: int, snapshot: _CatalogSnapshot, max_bytes: float
    ) -> LoadedItems | None:
        """Load the items of the first `count` messages of each subscription. Return None if they are too large."""
        loaded = self._match_reader.load_items(
            (sequence for number in numbers for sequence in snapshot.sequences(number, count)), max_bytes
        )
        if loaded is None:
            return None
        sequences_by_feed: dict[int, list[int]] = {}
        for number in numbers:
            feed = snapshot.subscriptions[number].feed
            sequences_by_feed.setdefault(feed, []).extend(snapshot.sequences(number, count))
        contents = (
            (snapshot.subscriptions[number].feed, tuple(snapshot.contents.get(message.key) or ()))
            for number in numbers
            for message in snapshot.messages[number][:count]
        )
        detailed = self._match_reader.with_details(loaded, sequences_by_feed)
        return self._match_reader.with_joined_items(detailed, contents, max_bytes)

    def _compose_separately(
        self, block: Sequence[int], snapshot: _CatalogSnapshot, free_bytes: int
    ) -> tuple[list[SubscriptionQueue], int]:
        """Compose subscriptions one by one if an item cannot be read, so that only those with it get an error."""
        queues: list[SubscriptionQueue] = []
        total = 0
        for number in block:
            try:
                composed, size = self._compose_fitting(
                    [number], snapshot, free_bytes - total, at_least_one=not queues
                )
            except CatalogUnavailableError:
                raise
            except Exception:
                queue = self._compose_first_message(number, snapshot)
                composed, size = [queue], queue.bytes
            if not composed:
                break
            queues += composed
            total += size
        return queues, total

    def _compose_first_message(self, number: int, snapshot: _CatalogSnapshot) -> SubscriptionQueue:
        """Compose only the first message of a subscription, because the unreadable items may be in a later one."""
        try:
            loaded = self._load([number], 1, snapshot, math.inf)
            return self._queue(number, 1, snapshot, loaded or LoadedItems({}, {}))
        except CatalogUnavailableError:
            raise
        except Exception as cause:
            error = DeliveryError(f"the items of this message cannot be read: {cause}")
            return SubscriptionQueue(
                number, (PreparedMessage(snapshot.messages[number][0], error=error),), has_more=False
            )

    def _queue(self, number: int, count: int, snapshot: _CatalogSnapshot, loaded: LoadedItems) -> SubscriptionQueue:
        """Return the first `count` messages of a subscription, up to the first that cannot be sent as recorded."""
        prepared = []
        size = 0
        feed = snapshot.subscriptions[number].feed
        for message in snapshot.messages[number][:count]:
            sequences = snapshot.contents.get(message.key)
            readable = [sequence for sequence in sequences or () if sequence in loaded.items]
            if sequences is None or len(readable) != message.count:
                error = _explain_difference(message, sequences, len(readable))
                prepared.append(PreparedMessage(message, error=error))
                break
            items = loaded.message_items(feed, readable)
            prepared.append(PreparedMessage(message, self._delivery(message, snapshot, items)))
            size += loaded.message_bytes(feed, readable)
        open_count = len(snapshot.messages[number])
        has_more = open_count == _MAX_MESSAGES or open_count > count
        return SubscriptionQueue(number, tuple(prepared), has_more, size)

    def _find_contents(self, snapshot: _CatalogSnapshot) -> dict[str, tuple[int, ...] | None]:
        """Return the sequences that each message was recorded with, or None if its matches cannot be read."""
        messages = [message for messages in snapshot.messages.values() for message in messages]
        ranges = [
            FeedRange(
                snapshot.subscriptions[message.subscription].feed,
                message.first_sequence - 1,
                message.last_sequence,
                message.plan,
            )
            for message in messages
        ]
        contents: dict[str, tuple[int, ...] | None] = {}
        matches = self._match_reader.find_matches(ranges, snapshot.live_since, with_details=True)
        for message, sequences in zip(messages, matches, strict=True):
            since = snapshot.subscriptions[message.subscription].since
            if sequences is not None and message.first_sequence <= since:
                sequences = tuple(sequence for sequence in sequences if sequence > since)
            contents[message.key] = sequences
        return contents

    def _delivery(self, message: Message, snapshot: _CatalogSnapshot, items: Sequence[DeliveredItem]) -> Delivery:
        subscription = snapshot.subscriptions[message.subscription]
        name = self._match_reader.feed_names({subscription.feed})[subscription.feed]
        return Delivery(
            key=message.key,
            subscription=subscription,
            feed_name=name,
            feed_title=name,
            items=items,
            sent=snapshot.sent,
            out=self._out,
            allowed=self._settings.out_folders,
            out_url=self._settings.out_url,
            max_entries=self._settings.feed_entries,
            signing_keys=snapshot.keys.get(subscription.id, ()),
            unsubscribe=self._unsubscribe_link(subscription),
            accept=self._accept,
        )

    # --- limits of owners ----------------------------------------------------------------------------------------

    def _pace(self, queue: SubscriptionQueue, snapshot: _CatalogSnapshot) -> SubscriptionQueue:
        """Keep the messages that the hourly limit of the recipient allows now. Postpone the next one."""
        subscription = snapshot.subscriptions[queue.subscription]
        if subscription.owner == ADMIN or subscription.target is None:
            return queue
        sink = find_sink(subscription.kind)
        if not isinstance(sink, ConfirmingSink):
            return queue
        recipient = (subscription.owner, subscription.kind, sink.recipient(subscription.target))
        limit, moment = sink.messages_per_hour(self._settings), int(snapshot.sent.timestamp() * 1e6)
        granted, next_time = self._pacer.take(recipient, len(queue.messages), limit, moment)
        if granted == len(queue.messages):
            return queue
        error = RateLimitedError(
            f"not attempted yet: an owner may send {limit} messages per hour to one recipient",
            seconds=max((next_time - moment) / 1e6, 1.0),
        )
        postponed = PreparedMessage(queue.messages[granted].message, error=error)
        return replace(queue, messages=(*queue.messages[:granted], postponed), has_more=False)

    def _sent_before(self, recipient: Recipient, since: int, limit: int) -> list[int]:
        with self._catalog.read() as connection:
            return ledger.sent_to(connection, *recipient, since=since, limit=limit)

    def _unsubscribe_link(self, subscription: Subscription) -> str | None:
        if self._secret is None or not isinstance(find_sink(subscription.kind), RemoteSink):
            return None
        token = unsubscribe_token(self._secret, subscription.id)
        return f"{self._settings.public_url.rstrip('/')}/unsubscribe/{token}"


def _next_block(pending: Sequence[int], snapshot: _CatalogSnapshot) -> Iterator[int]:
    """Yield the first subscriptions, until their messages have at least `_BLOCK_ITEMS` items."""
    count = 0
    for number in pending:
        yield number
        count += sum(1 for _ in snapshot.sequences(number, _MAX_MESSAGES))
        if count >= _BLOCK_ITEMS:
            return


def _shrinking_blocks(block: Sequence[int]) -> Iterator[tuple[Sequence[int], int]]:
    """Yield (subscriptions, number of messages of each): first the whole block, then halves.

    The subscriptions are halved first, until one is left. Then the number of its messages is halved.
    """
    size = len(block)
    while size > 1:
        yield block[:size], _MAX_MESSAGES
        size //= 2
    count = _MAX_MESSAGES
    while count:
        yield block[:1], count
        count //= 2


def _explain_difference(message: Message, sequences: Sequence[int] | None, readable: int) -> DeliveryError:
    """Return an error that says why a message cannot be sent as it was recorded."""
    if sequences is None:
        hint = "see the application log for the cause"
        return DeliveryError("the matches of this message cannot be read", hint=hint)
    return DeliveryError(
        f"the message was recorded with {message.count} items, but {readable} can be read now",
        hint="items are deleted after `keep_items_days`; if they are newer, run `runnel doctor` to check the files",
    )
