"""Delivery: from committed matches to messages, and from messages to endpoints.

`plan_messages` records messages in the ledger and moves cursors past them, in one transaction; `send` hands open
messages over and settles them. A crash between the two leaves open messages, which are sent again under the same key.
Nothing is written per item and subscription.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection

from runnel.catalog import feeds, leases, ledger, matches, plans, subscriptions
from runnel.catalog.connection import Catalog, chunks, now
from runnel.catalog.ledger import SHARED
from runnel.errors import DeliveryFailed, StorageFull
from runnel.model.delivery import Message, MessageState
from runnel.model.item import Item
from runnel.model.subscription import Subscription
from runnel.settings import Settings
from runnel.sinks.contract import DeliveredItem, Delivery
from runnel.sinks.registry import open_sink
from runnel.sinks.shares import Share, Shares, digest_of

logger = logging.getLogger("runnel")

NO_MESSAGES = frozenset({"log"})
"""Kinds whose subscribers read the match log themselves: nothing is sent, so nothing is recorded."""

_TURN_ITEMS = 20_000
_ATTEMPTS = 10

_Run = tuple[Subscription, int, int]
"""A subscription and the run of the log (after, upto] that it is to get."""


class Dispatcher:
    """Delivers the matches of a root."""

    def __init__(self, catalog: Catalog, shares: Shares, out: Path, settings: Settings) -> None:
        self._catalog = catalog
        self._shares = shares
        self._out = out
        self._settings = settings
        self._not_before: dict[str, float] = {}

    def deliver(self, epoch: int) -> int:
        """Record what is due and send what is open, up to the last committed match; gives how many were sent."""
        sent = 0
        while True:
            goes_on = self.plan_messages(epoch)
            sent += self.send(epoch)
            if not goes_on:
                return sent

    # --- recording -----------------------------------------------------------------------------------------------

    def plan_messages(self, epoch: int) -> bool:
        """Record the messages that are due, for a bounded run of the log; True if there is more to do at once."""
        goes_on = self._plan_shared(epoch)
        return self._plan_own(epoch) or goes_on

    def _plan_shared(self, epoch: int) -> bool:
        """Immediate subscriptions that do not lag, all together."""
        with self._catalog.read() as connection:
            start = ledger.cursor(connection, SHARED) or 0
            last = matches.matched_upto(connection)
            if last <= start:
                return False
            upto = min(last, start + _TURN_ITEMS)
            sharing = subscriptions.sharing_subscriptions(connection, but=NO_MESSAGES)
        found = self._shares.logged({one.feed for one in sharing}, start, upto)
        shares = [share for one in sharing for share in self._shares.cut(one, start, upto, found.get(one.feed, []))]
        messages = self._messages(shares)
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            # Somebody may have paused or ended a subscription meanwhile; a paused one has its own cursor by now.
            live = {one.id for one in subscriptions.sharing_subscriptions(connection, but=NO_MESSAGES)}
            ledger.record_messages(connection, [one for one in messages if one.subscription in live])
            ledger.set_cursor(connection, SHARED, upto)
        return upto < last

    def _plan_own(self, epoch: int) -> bool:
        """Subscriptions with cursors of their own: those that lag, and those whose period is over."""
        with self._catalog.read() as connection:
            shared = ledger.cursor(connection, SHARED) or 0
            last = matches.matched_upto(connection)
            own = ledger.cursors(connection)
            lagging = [(one, own[one.id], shared) for one in subscriptions.lagging_subscriptions(connection)]
            due = [(one, own.get(one.id, one.since), last) for one in subscriptions.due_subscriptions(connection)]
            live_since = feeds.since_of(connection, {one.feed for one, _, _ in lagging + due})
        bounded = [(one, start, min(end, start + _TURN_ITEMS)) for one, start, end in lagging + due]
        for some in chunks(bounded):
            self._plan_some(epoch, some, live_since)
        return any(reached < end for (_, _, reached), (_, _, end) in zip(bounded, lagging + due, strict=True))

    def _plan_some(self, epoch: int, runs: Sequence[_Run], live_since: Mapping[int, int]) -> None:
        """Record what some subscriptions are to get of their runs, in one transaction."""
        shares, able = self._shares_of(runs, live_since)
        messages = self._messages(shares)
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            shared = ledger.cursor(connection, SHARED) or 0
            for subscription, start, end in able:
                current = subscriptions.subscription_by_number(connection, subscription.id)
                if current is None or current.paused or ledger.cursor(connection, subscription.id) != start:
                    continue  # changed meanwhile: the next turn sees how it is now
                own = [one for one in messages if one.subscription == subscription.id]
                ledger.record_messages(connection, own)
                ledger.set_cursor(connection, subscription.id, max(start, end))
                self._go_on(connection, subscription, end, max(shared, live_since.get(subscription.feed, 0)))

    def _go_on(self, connection: Connection, subscription: Subscription, end: int, goal: int) -> None:
        """After its run: the next period, or, once it has all that is not in the match log, the shared cursor."""
        if subscription.every is not None:
            if end >= matches.matched_upto(connection):
                subscriptions.next_period(connection, subscription)
        elif end >= goal:
            ledger.drop_cursor(connection, subscription.id)

    def _shares_of(self, runs: Sequence[_Run], live_since: Mapping[int, int]) -> tuple[list[Share], list[_Run]]:
        """The shares of runs, and the runs that could be looked at: one that fails holds back only itself."""
        shares: list[Share] = []
        able: list[_Run] = []
        for subscription, start, end in runs:
            try:
                if end > start and subscription.kind not in NO_MESSAGES:
                    found = self._shares.sequences(subscription.feed, start, end, live_since.get(subscription.feed))
                    shares += self._shares.cut(subscription, start, end, found)
                able.append((subscription, start, end))
            except StorageFull:
                raise
            except Exception:
                logger.exception("the matches of subscription %d could not be read", subscription.id)
        return shares, able

    def _messages(self, shares: Sequence[Share]) -> list[Message]:
        """Messages for shares; the digest is over the keys of the items inside."""
        if not shares:
            return []
        keys = self._shares.item_keys(sequence for share in shares for sequence in share.sequences)
        with self._catalog.read() as connection:
            current = plans.current_plan(connection)
            numbers = {
                one: ledger.next_number(connection, one) for one in {share.subscription.id for share in shares}
            }
        messages = []
        for share in shares:
            number = numbers[share.subscription.id]
            numbers[share.subscription.id] += 1
            messages.append(
                Message(
                    subscription=share.subscription.id,
                    number=number,
                    first_sequence=share.after + 1,
                    last_sequence=share.upto,
                    count=len(share.sequences),
                    key=f"{self._shares.root_number:x}-{share.subscription.id}-{number}",
                    digest=digest_of(keys[one] for one in share.sequences),
                    plan=current.version if current else 0,
                )
            )
        return messages

    # --- sending -------------------------------------------------------------------------------------------------

    def send(self, epoch: int) -> int:
        """Hand open messages over, each subscription's in order; a failing one holds back only itself."""
        with self._catalog.read() as connection:
            messages = ledger.open_messages(connection)
            if not messages:
                return 0
            names = feeds.feed_names(connection)
            held = {
                one: subscriptions.subscription_by_number(connection, one)
                for one in {message.subscription for message in messages}
            }
            live_since = feeds.since_of(connection, {one.feed for one in held.values() if one is not None})
        self._shares.prepare([(m, held[m.subscription]) for m in messages], live_since)
        sent = 0
        blocked: set[int] = set()
        no_room: StorageFull | None = None
        for message in messages:
            subscription = held[message.subscription]
            if message.subscription in blocked or self._not_before.get(message.key, 0) > time.monotonic():
                blocked.add(message.subscription)
            elif subscription is None:
                self._settle(epoch, message, MessageState.DEAD, "the subscription ended before this was sent")
            elif not subscription.paused:
                try:
                    if self._send_one(epoch, message, subscription, names):
                        sent += 1
                        continue
                except StorageFull as error:
                    no_room = error
                blocked.add(message.subscription)
        if no_room is not None and not sent:
            raise no_room  # nobody has room, so it is not one endpoint's matter
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
        sequences = self._shares.of_message(message, subscription)
        delivered: list[Item] = self._shares.items(sequences, names)
        if len(delivered) != message.count:
            raise DeliveryFailed(
                f"the message was recorded with {message.count} items and would have {len(delivered)} now"
            )
        name = names[subscription.feed]
        with self._catalog.read() as connection:
            sent = datetime.fromtimestamp(now(connection) / 1e6, UTC)
        return Delivery(
            key=message.key,
            subscription=subscription,
            feed_name=name,
            feed_title=name,
            items=[DeliveredItem(item, item.feed) for item in delivered],
            sent=sent,
            out=self._out,
            allowed=self._settings.out_folders,
            max_entries=self._settings.feed_entries,
        )
