"""Delivery: from committed matches to messages, and from messages to endpoints.

`plan_messages` records messages in the ledger and moves cursors past them, in one transaction; `send` hands open
messages over and settles them. A crash between the two leaves open messages, which are sent again under the same key.
Nothing is written per item and subscription.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from sqlalchemy import Connection

from runnel.catalog import feeds, leases, ledger, matches, subscriptions
from runnel.catalog.connection import Catalog, chunks
from runnel.catalog.ledger import SHARED
from runnel.errors import DeliveryFailed, StorageFull
from runnel.log.item_log import ItemLog
from runnel.log.match_log import MatchLog
from runnel.model.delivery import Message, MessageState
from runnel.model.item import Item
from runnel.model.subscription import Subscription
from runnel.settings import Settings
from runnel.sinks.contract import DeliveredItem, Delivery
from runnel.sinks.registry import open_sink

logger = logging.getLogger("runnel")

NO_MESSAGES = frozenset({"log"})
"""Kinds whose subscribers read the match log themselves: nothing is sent, so nothing is recorded."""

_MESSAGE_ITEMS = 1_000
_ATTEMPTS = 10

History = Callable[[int, int, int], list[int]]
"""The sequences in (after, upto] of the items that a query, by its id, would have matched."""


@dataclass(frozen=True, slots=True)
class _Share:
    """A run of the log that one subscription is to get, and the sequences in it that match."""

    subscription: Subscription
    after: int
    upto: int
    sequences: tuple[int, ...]


class Dispatcher:
    """Delivers the matches of a root."""

    def __init__(
        self,
        catalog: Catalog,
        items: ItemLog,
        matched: MatchLog,
        out: Path,
        settings: Settings,
        history: History,
    ) -> None:
        self._catalog = catalog
        self._items = items
        self._matched = matched
        self._out = out
        self._settings = settings
        self._history = history
        self._not_before: dict[str, float] = {}

    def deliver(self, epoch: int) -> int:
        """Record what is due and send what is open; gives how many messages were handed over."""
        self.plan_messages(epoch)
        return self.send(epoch)

    # --- recording -----------------------------------------------------------------------------------------------

    def plan_messages(self, epoch: int) -> int:
        """Record the messages that are due now; gives how many."""
        return self._plan_shared(epoch) + self._plan_own(epoch)

    def _plan_shared(self, epoch: int) -> int:
        """Immediate subscriptions that do not lag, all together, up to the last committed match."""
        with self._catalog.read() as connection:
            start = ledger.cursor(connection, SHARED) or 0
            upto = matches.matched_upto(connection)
            if upto <= start:
                return 0
            sharing = subscriptions.sharing_subscriptions(connection, but=NO_MESSAGES)
        found = self._matching({one.feed for one in sharing}, start, upto)
        shares = [_share(one, start, upto, found.get(one.feed, ())) for one in sharing]
        messages = self._messages([one for one in shares if one.sequences])
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            # Somebody may have paused or ended a subscription meanwhile; a paused one has its own cursor by now.
            live = {one.id for one in subscriptions.sharing_subscriptions(connection, but=NO_MESSAGES)}
            return self._record(connection, [one for one in messages if one.subscription in live], {SHARED: upto})

    def _plan_own(self, epoch: int) -> int:
        """Subscriptions with cursors of their own: those that lag, and those whose period is over."""
        with self._catalog.read() as connection:
            shared = ledger.cursor(connection, SHARED) or 0
            upto = matches.matched_upto(connection)
            own = ledger.cursors(connection)
            lagging = [(one, own[one.id], shared) for one in subscriptions.lagging_subscriptions(connection)]
            due = [(one, own.get(one.id, one.since), upto) for one in subscriptions.due_subscriptions(connection)]
            live_since = feeds.since_of(connection, {one.feed for one, _, _ in lagging + due})
        return sum(self._plan_some(epoch, some, live_since) for some in chunks(lagging + due))

    def _plan_some(
        self, epoch: int, runs: Sequence[tuple[Subscription, int, int]], live_since: Mapping[int, int]
    ) -> int:
        """Record what some subscriptions are to get of their runs (subscription, after, upto), in one transaction."""
        shares: list[_Share] = []
        for subscription, start, end in runs:
            if end > start and subscription.kind not in NO_MESSAGES:
                found = self._sequences(subscription, start, end, live_since.get(subscription.feed))
                shares += _parts(subscription, start, end, found)
        messages = self._messages(shares)
        count = 0
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            shared = ledger.cursor(connection, SHARED) or 0
            for subscription, start, end in runs:
                current = subscriptions.subscription_by_number(connection, subscription.id)
                if current is None or current.paused or ledger.cursor(connection, subscription.id) != start:
                    continue  # changed meanwhile: the next turn sees how it is now
                own = [one for one in messages if one.subscription == subscription.id]
                count += self._record(connection, own, {subscription.id: max(start, end)})
                if subscription.every is not None:
                    subscriptions.next_period(connection, subscription)
                elif end >= shared:
                    ledger.drop_cursor(connection, subscription.id)  # it has caught up and goes on with the others
        return count

    def _record(self, connection: Connection, messages: Sequence[Message], cursors: Mapping[int, int]) -> int:
        ledger.record_messages(connection, messages)
        for subscription, sequence in cursors.items():
            ledger.set_cursor(connection, subscription, sequence)
        return len(messages)

    def _messages(self, shares: Sequence[_Share]) -> list[Message]:
        """Messages for shares; the digest is over the keys of the items inside."""
        wanted = sorted({sequence for share in shares for sequence in share.sequences})
        keys: dict[int, str] = {}
        for batch in self._items.get(wanted):
            columns = batch.records.select(["sequence", "feed", "id", "version"]).to_pylist()
            keys.update({row["sequence"]: f"{row['feed']}/{row['id']}/{row['version']}" for row in columns})
        with self._catalog.read() as connection:
            numbers = {
                one: ledger.next_number(connection, one) for one in {share.subscription.id for share in shares}
            }
        messages = []
        for share in shares:
            number = numbers[share.subscription.id]
            numbers[share.subscription.id] += 1
            digest = blake2b("\n".join(keys[one] for one in share.sequences).encode(), digest_size=16)
            messages.append(
                Message(
                    subscription=share.subscription.id,
                    number=number,
                    first_sequence=share.after + 1,
                    last_sequence=share.upto,
                    count=len(share.sequences),
                    key=f"{share.subscription.id}-{number}",
                    digest=digest.hexdigest(),
                )
            )
        return messages

    def _sequences(self, subscription: Subscription, after: int, upto: int, live_since: int | None) -> list[int]:
        """What matched in a range: from the match log where the query was live, by evaluation before that."""
        feed = subscription.feed
        border = min(upto, max(after, live_since if live_since is not None else upto))
        past = self._history(feed, after, border) if border > after else []
        logged = self._matching({feed}, border, upto).get(feed, [])
        return [*past, *logged]

    def _matching(self, queries: set[int], after: int, upto: int) -> dict[int, list[int]]:
        """The sequences in (after, upto] that the match log has for each of these queries."""
        found: dict[int, list[int]] = {}
        if not queries:
            return found
        for rows in self._matched.read(after, upto):
            sequences, of = rows.of_queries(queries)
            for sequence, query in zip(sequences.tolist(), of.tolist(), strict=True):
                found.setdefault(query, []).append(sequence)
        return found

    # --- sending -------------------------------------------------------------------------------------------------

    def send(self, epoch: int) -> int:
        """Hand open messages over, each subscription's in order; a failing one holds back only itself."""
        with self._catalog.read() as connection:
            messages = ledger.open_messages(connection)
            names = feeds.feed_names(connection) if messages else {}
            held = {
                one: subscriptions.subscription_by_number(connection, one)
                for one in {message.subscription for message in messages}
            }
        sent = 0
        blocked: set[int] = set()
        for message in messages:
            subscription = held[message.subscription]
            if message.subscription in blocked or self._not_before.get(message.key, 0) > time.monotonic():
                blocked.add(message.subscription)
                continue
            if subscription is None:
                self._settle(epoch, message, MessageState.DEAD, "the subscription ended before this was sent")
                continue
            if subscription.paused:
                continue
            if self._send_one(epoch, message, subscription, names):
                sent += 1
            else:
                blocked.add(message.subscription)
        return sent

    def _send_one(self, epoch: int, message: Message, subscription: Subscription, names: Mapping[int, str]) -> bool:
        try:
            outcome = open_sink(subscription.kind).deliver(self._delivery(message, subscription, names))
        except StorageFull:
            raise
        except Exception as error:
            self._failed(epoch, message, error)
            return False
        self._settle(epoch, message, MessageState.DONE, outcome)
        self._not_before.pop(message.key, None)
        return True

    def _failed(self, epoch: int, message: Message, error: Exception) -> None:
        """Try again later, a little later each time; at last the message is dead and can be looked at."""
        attempts = message.attempts + 1
        reason = str(error) if isinstance(error, DeliveryFailed) else f"{type(error).__name__}: {error}"
        logger.warning("message %s failed (attempt %d): %s", message.key, attempts, reason)
        self._not_before[message.key] = time.monotonic() + min(2.0**attempts, 300.0)
        state = MessageState.DEAD if attempts >= _ATTEMPTS else MessageState.OPEN
        self._settle(epoch, message, state, reason)

    def _settle(self, epoch: int, message: Message, state: MessageState, outcome: str) -> None:
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            ledger.settle(connection, message, state, outcome)

    def _delivery(self, message: Message, subscription: Subscription, names: Mapping[int, str]) -> Delivery:
        with self._catalog.read() as connection:
            live_since = feeds.since_of(connection, [subscription.feed]).get(subscription.feed)
        after = max(message.first_sequence - 1, subscription.since)
        sequences = self._sequences(subscription, after, message.last_sequence, live_since)
        delivered = [DeliveredItem(item, item.feed) for item in self._load(sequences, names)]
        name = names[subscription.feed]
        return Delivery(
            key=message.key,
            subscription=subscription,
            feed_name=name,
            feed_title=name,
            items=delivered,
            sent=datetime.now(UTC),
            out=self._out,
            allowed=self._settings.out_folders,
            max_entries=self._settings.feed_entries,
        )

    def _load(self, sequences: Iterable[int], names: Mapping[int, str]) -> list[Item]:
        return [item for batch in self._items.get(sorted(sequences)) for item in batch.items(names)]


def _share(subscription: Subscription, after: int, upto: int, sequences: Sequence[int]) -> _Share:
    own = tuple(one for one in sequences if one > subscription.since)
    return _Share(subscription, after, upto, own)


def _parts(subscription: Subscription, after: int, upto: int, sequences: Sequence[int]) -> list[_Share]:
    """A long backlog as several messages, cut so that each message's range holds exactly its items."""
    shares: list[_Share] = []
    start = after
    for first in range(0, len(sequences), _MESSAGE_ITEMS):
        some = tuple(sequences[first : first + _MESSAGE_ITEMS])
        is_last = first + _MESSAGE_ITEMS >= len(sequences)
        end = upto if is_last else some[-1]
        shares.append(_Share(subscription, start, end, some))
        start = end
    return shares
