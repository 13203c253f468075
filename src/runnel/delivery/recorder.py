"""Recording: from committed matches to messages in the ledger.

In: what the match log has beyond the cursors. Out: open messages, and cursors moved past them in the same
transaction. Nothing is written per item and subscription, and nothing is asked one subscription at a time.
"""

from __future__ import annotations

import logging
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
from runnel.delivery.match_reader import ItemOutline, MatchedRange, MatchReader, MessageRange, items_digest
from runnel.errors import CorruptDataError
from runnel.model.message import Message
from runnel.model.subscription import Subscription
from runnel.sinks.registry import silent_kinds

logger = logging.getLogger("runnel")

LOOK_AGAIN = 20.0
"""What took a second to look through is looked through again after so many seconds."""

_TURN_ITEMS = 20_000
_TURN_MATCHES = 4_000_000
_OUTLINES = 200_000
_PAGE = 5_000
_FEW_SUBSCRIPTIONS = 500
"""At most this many subscriptions are served without asking first which feeds matched at all."""

_Goal = tuple[SubscriptionCursor, int]
"""A subscription at its place, and the sequence up to which it is to be served."""

_Bounded = tuple[SubscriptionCursor, int, int]
"""The same, and the sequence up to which it is served in this turn."""


class Recorder:
    """Records the messages of a root."""

    def __init__(self, catalog: Catalog, shares: MatchReader) -> None:
        self._catalog = catalog
        self._shares = shares
        self._digests: dict[tuple[int, ...], str] = {}
        self._outlines: dict[int, ItemOutline] = {}
        self._largest = 0
        self._root = 0
        self._looking = self._look_again = 0.0
        self.recorded = 0
        """How many messages were recorded so far."""

    def record(self, epoch: int, *, look_at_all: bool = True) -> bool:
        """Record the messages that are due, for a bounded run of the log; True if there is more to do at once.

        Finding those that are due or behind among very many takes its time. Unless told to `look_at_all`, that is
        left for now if it was done a moment ago.
        """
        goes_on = self._record_shared(epoch)
        if look_at_all or time.monotonic() >= self._look_again:
            self._looking = 0.0
            for page in (self._behind, self._due):
                goes_on = self._record_own(epoch, page) or goes_on
            self._look_again = time.monotonic() + LOOK_AGAIN * self._looking
        self._digests.clear()
        self._outlines.clear()
        self._largest = 0
        return goes_on

    # --- those that share a cursor -------------------------------------------------------------------------------

    def _record_shared(self, epoch: int) -> bool:
        """Immediate subscriptions that do not lag, all together."""
        with self._catalog.read() as connection:
            start = ledger.cursor(connection, SHARED) or 0
            last = match_segments.matched_upto(connection)
            newest = outbox.newest_acceptance(connection)
            if last <= start:
                return False
            upto = min(last, start + _turn(connection, start, start + _TURN_ITEMS))
            sharing = outbox.sharing(connection, silent=silent_kinds(), limit=_FEW_SUBSCRIPTIONS + 1)
        if len(sharing) > _FEW_SUBSCRIPTIONS:
            matched = self._shares.matched_feeds(start, upto)
            with self._catalog.read() as connection:
                sharing = outbox.sharing(connection, matched, silent=silent_kinds())
        runs = [MessageRange(one.feed, start, upto) for one in sharing]
        # They follow the shared cursor, so their queries were live in all of the run: nothing of it is the past.
        found = self._shares.of_runs(runs, dict.fromkeys({one.feed for one in sharing}, 0))
        self._outline(found)
        shares = [
            share
            for one, sequences in zip(sharing, found, strict=True)
            for share in self._shares.cut(one, start, upto, _readable(sequences, one), newest, *self._outlined())
        ]
        self._digest(shares)
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            # Somebody may have paused or ended a subscription meanwhile; a paused one has its own cursor by now.
            feeds_ = {share.subscription.feed for share in shares}
            live = outbox.sharing_numbers(connection, feeds_, silent=silent_kinds())
            self._write(connection, [share for share in shares if share.subscription.id in live], _plan(connection))
            ledger.set_cursor(connection, SHARED, upto)
        return upto < last

    # --- those with a cursor of their own ------------------------------------------------------------------------

    def _behind(self, connection: Connection, after: int) -> list[_Goal]:
        """Subscriptions that lag are to come to where the others are."""
        shared = ledger.cursor(connection, SHARED) or 0
        return [(one, shared) for one in outbox.behind(connection, after=after, limit=_PAGE)]

    def _due(self, connection: Connection, after: int) -> list[_Goal]:
        """Subscriptions whose period is over get all that there is."""
        last = match_segments.matched_upto(connection)
        return [(one, last) for one in outbox.due(connection, after=after, limit=_PAGE)]

    def _record_own(self, epoch: int, page: Callable[[Connection, int], list[_Goal]]) -> bool:
        """Serve subscriptions page by page; True if one of them did not come to its goal but went on."""
        after, goes_on = 0, False
        while True:
            with self._catalog.read() as connection:
                started = time.monotonic()
                goals = page(connection, after)
                self._looking += time.monotonic() - started
                if not goals:
                    return goes_on
                live_since = feeds.since_of(connection, {place.subscription.feed for place, _ in goals})
                newest = outbox.newest_acceptance(connection)
                plan = _plan(connection)
                places = [place.sequence for place, _ in goals]
                turn = _turn(connection, min(places), max(places) + _TURN_ITEMS)
            bounded = [(place, goal, min(goal, place.sequence + turn)) for place, goal in goals]
            goes_on = self._record_page(epoch, bounded, live_since, newest, plan) or goes_on
            after = goals[-1][0].subscription.id

    def _record_page(
        self, epoch: int, bounded: Sequence[_Bounded], live_since: Mapping[int, int], newest: int, plan: int
    ) -> bool:
        """Record what some subscriptions are to get of their runs, in one transaction.

        What was before a query was live is found with the definitions of a plan version, and the messages keep that
        version: a view that is redefined meanwhile changes nothing about what they hold when they are composed.
        """
        runs = [MessageRange(place.subscription.feed, place.sequence, end, plan) for place, _, end in bounded]
        wanted = [
            run.upto > run.after and place.subscription.kind not in silent_kinds()
            for run, (place, _, _) in zip(runs, bounded, strict=True)
        ]
        answers = self._shares.of_runs([run for run, want in zip(runs, wanted, strict=True) if want], live_since)
        self._outline(answers)
        found = iter(answers)
        shares: list[MatchedRange] = []
        able: list[tuple[SubscriptionCursor, int, int]] = []
        for (place, goal, end), want in zip(bounded, wanted, strict=True):
            sequences = next(found) if want else ()
            if sequences is not None:
                subscription = place.subscription
                shares += self._shares.cut(subscription, place.sequence, end, sequences, newest, *self._outlined())
                able.append((place, end, goal))
        self._digest(shares)
        with self._catalog.write() as connection:
            leases.check(connection, epoch)
            return self._move(connection, able, shares, live_since, plan)

    def _move(
        self,
        connection: Connection,
        able: Sequence[tuple[SubscriptionCursor, int, int]],
        shares: Sequence[MatchedRange],
        live_since: Mapping[int, int],
        plan: int,
    ) -> bool:
        """Write messages, move cursors, and let each go on as it should; True if one has not come to its goal."""
        places = outbox.own_cursors(connection, [place.subscription.id for place, _, _ in able])
        # What changed meanwhile is left as it is: the next turn sees how it is now.
        moved = {
            place.subscription.id: (place, end, goal)
            for place, end, goal in able
            if place.subscription.id in places and _unmoved(place, places[place.subscription.id])
        }
        self._write(connection, [share for share in shares if share.subscription.id in moved], plan)
        ledger.move_cursors(connection, {one: max(place.sequence, end) for one, (place, end, _) in moved.items()})
        for one, (place, end, _) in moved.items():
            if places[one] is None:
                ledger.set_cursor(connection, one, max(place.sequence, end))
        shared = ledger.cursor(connection, SHARED) or 0
        over: list[Subscription] = []
        caught_up: list[int] = []
        for one, (place, end, goal) in moved.items():
            if place.subscription.every is not None:
                # What was matched since the goal was set belongs to the next period.
                over += [place.subscription] if end >= goal else []
            elif end >= max(shared, live_since.get(place.subscription.feed, 0)):
                # It has all that is not in the match log, and all that the others have had.
                caught_up.append(one)
        outbox.begin_next_periods(connection, over)
        outbox.leave_own_cursors(connection, caught_up)
        return any(end < goal for _, end, goal in moved.values())

    # --- messages ------------------------------------------------------------------------------------------------

    def _outline(self, found: Iterable[tuple[int, ...] | None]) -> None:
        """Find the keys and sizes of items, outside the transaction; many subscriptions get the same items."""
        if len(self._outlines) > _OUTLINES:
            self._outlines.clear()
            self._digests.clear()
        distinct = {id(sequences): sequences for sequences in found if sequences is not None}.values()
        missing = set[int]().union(*distinct) - self._outlines.keys()
        fresh = self._shares.outlines(missing)
        self._outlines |= fresh
        self._largest = max([self._largest, *(one.size for one in fresh.values())])

    def _outlined(self) -> tuple[Mapping[int, ItemOutline], int]:
        """The outlines that were found, and a size that none of them exceeds."""
        return self._outlines, self._largest

    def _digest(self, shares: Sequence[MatchedRange]) -> None:
        """Find the digests of shares, outside the transaction."""
        if not shares:
            return
        self._root = self._shares.root_number
        fresh = {share.sequences for share in shares} - self._digests.keys()
        self._digests |= {
            sequences: items_digest(self._outlines[one].key for one in sequences) for sequences in fresh
        }

    def _write(self, connection: Connection, shares: Sequence[MatchedRange], plan: int) -> None:
        """Record a message for each share, found with a plan version."""
        if not shares:
            return
        numbers = ledger.next_places(connection, sorted({share.subscription.id for share in shares}))
        messages = []
        for share in shares:
            subscription = share.subscription.id
            number, not_before = numbers[subscription]
            numbers[subscription] = number + 1, not_before
            digest = self._digests[share.sequences]
            messages.append(
                Message(
                    subscription=subscription,
                    number=number,
                    first_sequence=share.after + 1,
                    last_sequence=share.upto,
                    count=len(share.sequences),
                    # With the digest in it: a root restored from a backup counts on from an older number, and an
                    # endpoint must not take other items for a message that it had.
                    key=f"{self._root:x}-{subscription}-{number}-{digest[:8]}",
                    digest=digest,
                    plan=plan,
                    not_before=not_before,
                )
            )
        ledger.record_messages(connection, messages)
        self.recorded += len(messages)


def _turn(connection: Connection, after: int, upto: int) -> int:
    """How many items are looked through in one turn: fewer where each of them matched very many queries."""
    return max(
        1, min(_TURN_ITEMS, int(_TURN_MATCHES // max(match_segments.most_per_item(connection, after, upto), 1.0)))
    )


def _plan(connection: Connection) -> int:
    current = plan_versions.current_plan(connection)
    return current.version if current else 0


def _unmoved(place: SubscriptionCursor, sequence: int | None) -> bool:
    return place.sequence == (place.subscription.since if sequence is None else sequence)


def _readable(sequences: tuple[int, ...] | None, subscription: Subscription) -> tuple[int, ...]:
    """What could not be read of the shared run must stop it: the cursor may not move past what nobody got."""
    if sequences is None:
        raise CorruptDataError(f"the matches for subscription {subscription.id} cannot be read")
    return sequences
