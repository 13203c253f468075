"""Shares: which items of a run of the log one subscription is to get.

Where its query was live the match log tells; before that (a subscription `from last …`) the query is evaluated on
the items of the past. A share is cut so that its range holds exactly its items: so a message is found again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from runnel.catalog.connection import Catalog
from runnel.catalog.sequencer import root_number
from runnel.log.item_log import ItemLog
from runnel.log.match_log import MatchLog
from runnel.model.delivery import Message
from runnel.model.item import Item
from runnel.model.subscription import Subscription

_MESSAGE_ITEMS = 1_000

History = Callable[[int, int, int, int | None], list[int]]
"""The sequences in (after, upto] of the items that a query, by its id, would have matched; with the definitions as
they were in a plan version, or as they are."""


@dataclass(frozen=True, slots=True)
class Share:
    """A run of the log that one subscription is to get, and the sequences in it that match."""

    subscription: Subscription
    after: int
    upto: int
    sequences: tuple[int, ...]


class Shares:
    """Finds shares in the logs of a root."""

    def __init__(self, catalog: Catalog, items: ItemLog, matched: MatchLog, history: History) -> None:
        self._catalog = catalog
        self._items = items
        self._matched = matched
        self._history = history
        self._live_since: Mapping[int, int] = {}
        self._prepared: dict[tuple[int, int], dict[int, list[int]]] = {}

    @cached_property
    def root_number(self) -> int:
        """The number of this root, which makes keys of messages unique among roots."""
        with self._catalog.write() as connection:
            return root_number(connection)

    def sequences(
        self, feed: int, after: int, upto: int, live_since: int | None, plan: int | None = None
    ) -> list[int]:
        """What matched in a range: from the match log where the query was live, by evaluation before that."""
        border = min(upto, max(after, live_since if live_since is not None else upto))
        past = self._history(feed, after, border, plan) if border > after else []
        return [*past, *self.logged({feed}, border, upto).get(feed, [])]

    def logged(self, queries: set[int], after: int, upto: int) -> dict[int, list[int]]:
        """The sequences in (after, upto] that the match log has for each of these queries."""
        found: dict[int, list[int]] = {}
        if not queries or upto <= after:
            return found
        for rows in self._matched.read(after, upto):
            sequences, of = rows.of_queries(queries)
            for sequence, query in zip(sequences.tolist(), of.tolist(), strict=True):
                found.setdefault(query, []).append(sequence)
        return found

    def cut(self, subscription: Subscription, after: int, upto: int, sequences: Sequence[int]) -> list[Share]:
        """The shares of a subscription in a range: several where there is much, none where there is nothing."""
        until = self._until(subscription)
        wanted = [one for one in sequences if subscription.since < one <= until]
        shares: list[Share] = []
        start = after
        for first in range(0, len(wanted), _MESSAGE_ITEMS):
            some = tuple(wanted[first : first + _MESSAGE_ITEMS])
            end = min(upto, until) if first + _MESSAGE_ITEMS >= len(wanted) else some[-1]
            shares.append(Share(subscription, start, end, some))
            start = end
        return shares

    def _until(self, subscription: Subscription) -> int:
        """The last sequence that a subscription is to get: what was accepted before it expired."""
        if subscription.expires is None:
            return 1 << 62
        return self._items.sequence_before(int(subscription.expires.timestamp() * 1e6))

    def prepare(self, messages: Sequence[tuple[Message, Subscription | None]], live_since: Mapping[int, int]) -> None:
        """Read the match log once for all messages of a range, however many subscriptions they go to."""
        self._live_since = live_since
        wanted: dict[tuple[int, int], set[int]] = {}
        for message, subscription in messages:
            if subscription is not None:
                run = (message.first_sequence - 1, message.last_sequence)
                wanted.setdefault(run, set()).add(subscription.feed)
        self._prepared = {run: self.logged(queries, *run) for run, queries in wanted.items() if len(queries) > 1}

    def of_message(self, message: Message, subscription: Subscription) -> list[int]:
        """The sequences of a message, as they were when it was recorded."""
        after, upto = message.first_sequence - 1, message.last_sequence
        live_since = self._live_since.get(subscription.feed)
        prepared = self._prepared.get((after, upto))
        if prepared is not None and live_since is not None and live_since <= after:
            found = prepared.get(subscription.feed, [])
        else:
            found = self.sequences(subscription.feed, after, upto, live_since, message.plan)
        return [one for one in found if one > subscription.since]

    def item_keys(self, sequences: Iterable[int]) -> dict[int, str]:
        """The keys (feed, id, version) of items by sequence."""
        keys: dict[int, str] = {}
        for batch in self._items.get(sorted(set(sequences))):
            columns = batch.records.select(["sequence", "feed", "id", "version"]).to_pylist()
            keys.update({row["sequence"]: f"{row['feed']}/{row['id']}/{row['version']}" for row in columns})
        return keys

    def items(self, sequences: Iterable[int], names: Mapping[int, str]) -> list[Item]:
        """The items of some sequences, in order."""
        return [item for batch in self._items.get(sorted(sequences)) for item in batch.items(names)]


def digest_of(keys: Iterable[str]) -> str:
    """The digest of the item keys of a message.

    >>> digest_of(["1/a/1"]) == digest_of(["1/a/2"])
    False
    """
    return blake2b("\n".join(keys).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
