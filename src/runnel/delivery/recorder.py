"""Recording: creates messages in the ledger from committed matches.

In: the matches after the cursors of subscriptions. Out: open messages, and cursors moved past their matches in the
same transaction. Subscriptions are read and messages are written in bulk, never one query per subscription or item.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlalchemy import Connection

from runnel.catalog.declared import feeds
from runnel.catalog.delivery import ledger, outbox
from runnel.catalog.delivery.ledger import SHARED
from runnel.catalog.delivery.outbox import SubscriptionCursor
from runnel.catalog.logs import match_segments, plan_versions
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.delivery.match_reader import FeedRange, ItemSummary, MatchReader, MessageRange, digest_keys
from runnel.errors import CorruptDataError
from runnel.model.message import Message
from runnel.model.subscription import Subscription
from runnel.sinks.registry import silent_kinds

SCAN_INTERVAL_FACTOR = 20.0
"""A scan that took t seconds is repeated after at least this many times t seconds."""

_MAX_TURN_ITEMS = 20_000
_MAX_TURN_MATCHES = 4_000_000
_MAX_SUMMARIES = 200_000
_PAGE_SIZE = 5_000
_FEW_SUBSCRIPTIONS = 500
"""Up to this many subscriptions, their matches are read without determining first which feeds matched at all."""

_Goal = tuple[SubscriptionCursor, int]
"""A subscription with its cursor, and the sequence that the cursor has to reach."""

_Step = tuple[SubscriptionCursor, int, int]
"""A goal, and the sequence that the cursor reaches in this turn: `(cursor, goal, end)`."""


class Recorder:
    """Records the messages of a workspace."""

    def __init__(self, catalog: Catalog, match_reader: MatchReader) -> None:
        self._catalog = catalog
        self._match_reader = match_reader
        self._digests: dict[tuple[int, ...], str] = {}
        self._summaries: dict[int, ItemSummary] = {}
        self._max_item_bytes = 0
        self._workspace_number = 0
        self._scan_seconds = self._next_scan = 0.0
        self.recorded = 0
        """Number of messages recorded so far."""

    def record(self, epoch: int, *, scan_all: bool = True) -> bool:
        """Record the messages that are due, for a limited range of items. Return whether more can be recorded now.

        Finding the subscriptions that are due or behind among very many takes time. Without `scan_all`, this scan is
        skipped if the last one was a short time ago (see `SCAN_INTERVAL_FACTOR`).
        """
        has_more = self._record_shared(epoch)
        if scan_all or time.monotonic() >= self._next_scan:
            self._scan_seconds = 0.0
            for page in (self._page_behind, self._page_due):
                has_more = self._record_own(epoch, page) or has_more
            self._next_scan = time.monotonic() + SCAN_INTERVAL_FACTOR * self._scan_seconds
        self._digests.clear()
        self._summaries.clear()
        self._max_item_bytes = 0
        return has_more

    # --- subscriptions that share a cursor -----------------------------------------------------------------------

    def _record_shared(self, epoch: int) -> bool:
        """Record messages of the immediate subscriptions that follow the shared cursor, in one transaction."""
        with self._catalog.read() as connection:
            start = ledger.cursor(connection, SHARED) or 0
            last = match_segments.matched_upto(connection)
            newest = outbox.newest_acceptance(connection)
            if last <= start:
                return False
            upto = min(last, start + _turn_items(connection, start, start + _MAX_TURN_ITEMS))
            sharing = outbox.sharing(connection, silent=silent_kinds(), limit=_FEW_SUBSCRIPTIONS + 1)
        if len(sharing) > _FEW_SUBSCRIPTIONS:
            matched_feeds = self._match_reader.matched_feeds(start, upto)
            with self._catalog.read() as connection:
                sharing = outbox.sharing(connection, matched_feeds, silent=silent_kinds())
        ranges = [FeedRange(subscription.feed, start, upto) for subscription in sharing]
        # These subscriptions follow the shared cursor, so their queries were live in the whole range.
        live_since = dict.fromkeys({subscription.feed for subscription in sharing}, 0)
        matches = self._match_reader.find_matches(ranges, live_since)
        self._summarize(matches)
        messages = [
            message
            for subscription, sequences in zip(sharing, matches, strict=True)
            for message in self._split(subscription, start, upto, _check_readable(sequences, subscription), newest)
        ]
        self._digest(messages)
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            # A subscription may have been paused or ended since it was read. A paused one has its own cursor now.
            matched = {message.subscription.feed for message in messages}
            live = outbox.sharing_numbers(connection, matched, silent=silent_kinds())
            self._write(
                connection, [message for message in messages if message.subscription.id in live], _plan(connection)
            )
            ledger.set_cursor(connection, SHARED, upto)
        return upto < last

    # --- subscriptions with their own cursor ---------------------------------------------------------------------

    def _page_behind(self, connection: Connection, after: int) -> list[_Goal]:
        """Return a page of the immediate subscriptions with their own cursor. Their goal is the shared cursor."""
        shared = ledger.cursor(connection, SHARED) or 0
        return [(cursor, shared) for cursor in outbox.behind(connection, after=after, limit=_PAGE_SIZE)]

    def _page_due(self, connection: Connection, after: int) -> list[_Goal]:
        """Return a page of the subscriptions whose period has ended. Their goal is the last matched item."""
        last = match_segments.matched_upto(connection)
        return [(cursor, last) for cursor in outbox.due(connection, after=after, limit=_PAGE_SIZE)]

    def _record_own(self, epoch: int, page: Callable[[Connection, int], list[_Goal]]) -> bool:
        """Record messages page by page. Return whether a subscription advanced but did not reach its goal."""
        after, has_more = 0, False
        while True:
            with self._catalog.read() as connection:
                started = time.monotonic()
                goals = page(connection, after)
                self._scan_seconds += time.monotonic() - started
                if not goals:
                    return has_more
                live_since = feeds.since_of(connection, {cursor.subscription.feed for cursor, _ in goals})
                newest = outbox.newest_acceptance(connection)
                plan = _plan(connection)
                starts = [cursor.sequence for cursor, _ in goals]
                turn_items = _turn_items(connection, min(starts), max(starts) + _MAX_TURN_ITEMS)
            steps = [(cursor, goal, min(goal, cursor.sequence + turn_items)) for cursor, goal in goals]
            has_more = self._record_page(epoch, steps, live_since, newest, plan) or has_more
            after = goals[-1][0].subscription.id

    def _record_page(
        self, epoch: int, steps: Sequence[_Step], live_since: Mapping[int, int], newest: int, plan: int
    ) -> bool:
        """Record messages of several subscriptions in one transaction. Return whether one has not reached its goal.

        Items from before a query was live are matched with the definitions of plan version `plan`, which is stored
        with the messages. A view that is redefined before they are composed does not change their content.
        """
        ranges = [FeedRange(cursor.subscription.feed, cursor.sequence, end, plan) for cursor, _, end in steps]
        needs_reading = [
            feed_range.upto > feed_range.after and cursor.subscription.kind not in silent_kinds()
            for feed_range, (cursor, _, _) in zip(ranges, steps, strict=True)
        ]
        to_read = [feed_range for feed_range, is_needed in zip(ranges, needs_reading, strict=True) if is_needed]
        matches = self._match_reader.find_matches(to_read, live_since)
        self._summarize(matches)
        remaining_matches = iter(matches)
        messages: list[MessageRange] = []
        readable: list[_Step] = []
        for (cursor, goal, end), is_needed in zip(steps, needs_reading, strict=True):
            sequences = next(remaining_matches) if is_needed else ()
            if sequences is not None:
                messages += self._split(cursor.subscription, cursor.sequence, end, sequences, newest)
                readable.append((cursor, goal, end))
        self._digest(messages)
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            return self._move(connection, readable, messages, live_since, plan)

    def _move(
        self,
        connection: Connection,
        steps: Sequence[_Step],
        messages: Sequence[MessageRange],
        live_since: Mapping[int, int],
        plan: int,
    ) -> bool:
        """Write messages and move cursors. Return whether a subscription has not reached its goal."""
        sequences = outbox.own_cursors(connection, [cursor.subscription.id for cursor, _, _ in steps])
        # Skip subscriptions that changed since they were read. The next turn reads them again.
        moved = {
            cursor.subscription.id: (cursor, goal, end)
            for cursor, goal, end in steps
            if cursor.subscription.id in sequences and _is_unmoved(cursor, sequences[cursor.subscription.id])
        }
        self._write(connection, [message for message in messages if message.subscription.id in moved], plan)
        ends = {number: max(cursor.sequence, end) for number, (cursor, _, end) in moved.items()}
        ledger.move_cursors(connection, ends)
        for number, end in ends.items():
            if sequences[number] is None:
                ledger.set_cursor(connection, number, end)
        shared = ledger.cursor(connection, SHARED) or 0
        ended_periods: list[Subscription] = []
        caught_up: list[int] = []
        for number, (cursor, goal, end) in moved.items():
            if cursor.subscription.every is not None:
                # Items that were matched after the goal was set belong to the next period.
                ended_periods += [cursor.subscription] if end >= goal else []
            elif end >= max(shared, live_since.get(cursor.subscription.feed, 0)):
                # It has all items from before its query was live, and all that the shared cursor has passed.
                caught_up.append(number)
        outbox.begin_next_periods(connection, ended_periods)
        outbox.leave_own_cursors(connection, caught_up)
        return any(end < goal for _, goal, end in moved.values())

    # --- messages ------------------------------------------------------------------------------------------------

    def _summarize(self, matches: Iterable[tuple[int, ...] | None]) -> None:
        """Read the keys and sizes of items, before the transaction. Many subscriptions get the same items."""
        if len(self._summaries) > _MAX_SUMMARIES:
            self._summaries.clear()
            self._digests.clear()
        distinct = {id(sequences): sequences for sequences in matches if sequences is not None}.values()
        missing = set[int]().union(*distinct) - self._summaries.keys()
        summaries = self._match_reader.summarize_items(missing)
        self._summaries |= summaries
        self._max_item_bytes = max([self._max_item_bytes, *(summary.size for summary in summaries.values())])

    def _split(
        self, subscription: Subscription, after: int, upto: int, sequences: Sequence[int], newest: int
    ) -> list[MessageRange]:
        return self._match_reader.split_into_messages(
            subscription, after, upto, sequences, newest, self._summaries, self._max_item_bytes
        )

    def _digest(self, messages: Sequence[MessageRange]) -> None:
        """Compute the digests of messages, before the transaction."""
        if not messages:
            return
        self._workspace_number = self._match_reader.workspace_number
        missing = {message.sequences for message in messages} - self._digests.keys()
        self._digests |= {
            sequences: digest_keys(self._summaries[sequence].key for sequence in sequences) for sequences in missing
        }

    def _write(self, connection: Connection, ranges: Sequence[MessageRange], plan: int) -> None:
        """Record one message per range, with the plan version that its matches were found with."""
        if not ranges:
            return
        numbers = ledger.next_places(connection, sorted({message.subscription.id for message in ranges}))
        messages = []
        for message in ranges:
            subscription = message.subscription.id
            number, not_before = numbers[subscription]
            numbers[subscription] = number + 1, not_before
            digest = self._digests[message.sequences]
            messages.append(
                Message(
                    subscription=subscription,
                    number=number,
                    first_sequence=message.after + 1,
                    last_sequence=message.upto,
                    count=len(message.sequences),
                    # A workspace that was restored from a backup uses numbers again. The digest makes the keys
                    # different, so an endpoint does not take new items for a message that it already has.
                    key=f"{self._workspace_number:x}-{subscription}-{number}-{digest[:8]}",
                    digest=digest,
                    plan=plan,
                    not_before=not_before,
                )
            )
        ledger.record_messages(connection, messages)
        self.recorded += len(messages)


def _turn_items(connection: Connection, after: int, upto: int) -> int:
    """Return how many items to process in one turn: fewer if each of them matched very many queries."""
    matches_per_item = max(match_segments.most_per_item(connection, after, upto), 1.0)
    return max(1, min(_MAX_TURN_ITEMS, int(_MAX_TURN_MATCHES // matches_per_item)))


def _plan(connection: Connection) -> int:
    current = plan_versions.current_plan(connection)
    return current.version if current else 0


def _is_unmoved(cursor: SubscriptionCursor, sequence: int | None) -> bool:
    return cursor.sequence == (cursor.subscription.since if sequence is None else sequence)


def _check_readable(sequences: tuple[int, ...] | None, subscription: Subscription) -> tuple[int, ...]:
    """Raise CorruptDataError if matches cannot be read, so that the shared cursor does not skip them."""
    if sequences is None:
        raise CorruptDataError(
            f"cannot read the matches of subscription {subscription.id}", hint="see the application log for the cause"
        )
    return sequences
