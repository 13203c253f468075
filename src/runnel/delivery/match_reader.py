"""Shares: which items of a run of the log one subscription is to get, and the items themselves.

Where its query was live the match log tells; before that (a subscription `from last …`) the query is evaluated on
the items of the past. A share is cut so that its range holds exactly its items: so a message is found again.
However many subscriptions want the same stretch of the log, its matches and its items are read once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np
import pyarrow.compute as pc

from runnel.bounded_cache import BoundedCache
from runnel.catalog.delivery import outbox
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.sequencer import workspace_number
from runnel.delivery.matches_by_query import SPAN, MatchesByQuery
from runnel.errors import StorageFullError, WorkspaceError
from runnel.logs.items.item_log import ItemLog
from runnel.logs.matches.match_log import MatchLog
from runnel.model.bindings import Bindings
from runnel.model.item_batch import ItemBatch
from runnel.model.subscription import Subscription
from runnel.sinks.contract import DeliveredItem

logger = logging.getLogger("runnel")

_MESSAGE_ITEMS = 1_000
_MESSAGE_BYTES = 4 << 20
_CACHED_BYTES = 64 << 20
_ITEM_BYTES = 600
_FOR_EVER = 1 << 62

History = Callable[[int, int, int, int | None, bool], Mapping[int, Bindings]]
"""The sequences in (after, upto] of the items that a query, by its id, would have matched, in order; with the
definitions as they were in a plan version, or as they are. Each with its bindings, if these are wanted."""


@dataclass(frozen=True, slots=True)
class MatchedRange:
    """A run of the log that one subscription is to get, and the sequences in it that match."""

    subscription: Subscription
    after: int
    upto: int
    sequences: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MessageRange:
    """A run (after, upto] of the log that a feed's matches are wanted of; as in a plan version, or as they are."""

    feed: int
    after: int
    upto: int
    plan: int | None = None


@dataclass(frozen=True, slots=True)
class ItemOutline:
    """What is known of an item before it is read: its key (feed, id, version), and about how many bytes it is."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class LoadedItems:
    """Items by sequence, about how many bytes each is, and the bindings of matches, by feed and sequence."""

    items: Mapping[int, DeliveredItem]
    sizes: Mapping[int, int]
    bindings: Mapping[tuple[int, int], Bindings] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """About how many bytes all of them are."""
        return sum(self.sizes.values()) + sum(one.bytes for one in self.bindings.values())

    def item(self, feed: int, sequence: int) -> DeliveredItem:
        """An item as it goes to those who subscribe to a feed: with the bindings of that feed's own query."""
        item = self.items[sequence]
        bound = self.bindings.get((feed, sequence))
        return item if bound is None else replace(item, bindings=bound)

    def size(self, feed: int, sequence: int) -> int:
        """About how many bytes it is so."""
        bound = self.bindings.get((feed, sequence))
        return self.sizes[sequence] + (0 if bound is None else bound.bytes)


class MatchReader:
    """Finds shares in the logs of a root. Not for several threads at once."""

    def __init__(self, catalog: Catalog, items: ItemLog, matched: MatchLog, history: History) -> None:
        self._catalog = catalog
        self._items = items
        self._matched = matched
        self._history = history
        self._stretches = MatchesByQuery(matched)
        self._names: dict[int, str] = {}
        self._past: dict[tuple[int, int], Bindings] = {}
        self._kept = BoundedCache[int, tuple[DeliveredItem, int]](_CACHED_BYTES)

    def another(self) -> MatchReader:
        """The same for another thread."""
        return MatchReader(self._catalog, self._items, self._matched, self._history)

    @cached_property
    def root_number(self) -> int:
        """The number of this root, which makes keys of messages unique among roots."""
        with self._catalog.write() as connection:
            return workspace_number(connection)

    # --- which items ---------------------------------------------------------------------------------------------

    def matched_feeds(self, after: int, upto: int) -> set[int]:
        """The feeds that any item in a range matched."""
        return self._stretches.feeds(after, upto)

    def of_runs(
        self, runs: Sequence[MessageRange], live_since: Mapping[int, int], *, bound: bool = False
    ) -> list[tuple[int, ...] | None]:
        """The matches of each run; None for a run whose matches could not be computed, which delays only that run.

        With `bound`, `bindings` knows those of the past, which no log has, until this is called again.
        """
        self._past.clear()
        answers: dict[MessageRange, tuple[int, ...] | None] = {}
        stretches: dict[int, list[MessageRange]] = {}
        for one in dict.fromkeys(runs):
            stretches.setdefault(one.after // SPAN, []).append(one)
        for alike in stretches.values():
            self._stretches.load([(one.feed, one.after, one.upto) for one in alike])
            answers |= {one: self._of_run(one, live_since.get(one.feed), bound) for one in alike}
        return [answers[one] for one in runs]

    def _of_run(self, run: MessageRange, live_since: int | None, bound: bool) -> tuple[int, ...] | None:
        try:
            border = min(run.upto, max(run.after, live_since if live_since is not None else run.upto))
            past = self._history(run.feed, run.after, border, run.plan, bound) if border > run.after else {}
            self._past |= {(run.feed, sequence): one for sequence, one in past.items() if not one.is_empty}
            logged = self._stretches.of(run.feed, border, run.upto)
            return (*past, *logged) if past else logged
        except (StorageFullError, WorkspaceError):
            raise  # no run is at fault, and it passes
        except Exception:
            logger.exception("the matches of feed %d in %d-%d could not be read", run.feed, run.after, run.upto)
            return None

    def cut(
        self,
        subscription: Subscription,
        after: int,
        upto: int,
        sequences: Sequence[int],
        newest: int,
        outlines: Mapping[int, ItemOutline],
        largest: int,
    ) -> list[MatchedRange]:
        """The shares of a subscription in a range: several where there is much, none where there is nothing.

        `newest` is the time of the newest item that was accepted, in microseconds since 1970; `outlines` are those
        of the sequences, and none of them is larger than `largest`.
        """
        sequences = [one for one in sequences if one in outlines]  # items of damaged files are gone
        until = self._until(subscription, newest)
        if subscription.since > after or until < upto:
            sequences = [one for one in sequences if subscription.since < one <= until]
        shares: list[MatchedRange] = []
        start, pieces = after, list(_pieces(sequences, outlines, largest))
        for number, some in enumerate(pieces, 1):
            end = min(upto, until) if number == len(pieces) else some[-1]
            shares.append(MatchedRange(subscription, start, end, some))
            start = end
        return shares

    def _until(self, subscription: Subscription, newest: int) -> int:
        """The last sequence that a subscription is to get: what was accepted before it expired."""
        if subscription.expires is None:
            return _FOR_EVER
        expires = int(subscription.expires.timestamp() * 1e6)
        return _FOR_EVER if newest < expires else self._items.sequence_before(expires)

    def outlines(self, sequences: Iterable[int]) -> dict[int, ItemOutline]:
        """The outlines of items by sequence."""
        found: dict[int, ItemOutline] = {}
        for batch in self._items.get(sorted(set(sequences))):
            columns = (batch.records.column(name).to_pylist() for name in ("sequence", "feed", "id", "version"))
            for sequence, feed, name, version, size in zip(*columns, _sizes(batch), strict=True):
                found[sequence] = ItemOutline(f"{feed}/{name}/{version}", size)
        return found

    # --- the items themselves ------------------------------------------------------------------------------------

    def items(self, sequences: Iterable[int], most: float = math.inf) -> LoadedItems | None:
        """The items of some sequences; None if they are more than so many bytes, roughly.

        Those used last are kept for others.
        """
        wanted = sorted(set(sequences))
        found: dict[int, DeliveredItem] = {}
        sizes: dict[int, int] = {}
        for one in wanted:
            kept = self._kept.get(one)
            if kept is not None:
                found[one], sizes[one] = kept
        total = sum(sizes.values())
        for batch in self._items.get([one for one in wanted if one not in found]):
            measured = _sizes(batch)
            total += sum(measured)
            if total > most:
                return None  # before objects are made of them
            for item, size in zip(batch.items(self.names({int(one) for one in batch.feeds})), measured, strict=True):
                sequence = item.sequence or 0
                found[sequence], sizes[sequence] = DeliveredItem(item, item.feed), size
                self._kept.put(sequence, (found[sequence], size), size)
        return LoadedItems(found, sizes)

    def bindings(self, wanted: Mapping[int, Collection[int]]) -> dict[tuple[int, int], Bindings]:
        """The bindings with which items matched feeds, by feed and sequence: of the match log, and of the past."""
        past = {(feed, one) for feed, several in wanted.items() for one in several} if self._past else set()
        return self._matched.bindings_of(wanted) | {key: self._past[key] for key in past & self._past.keys()}

    def names(self, feeds: Collection[int]) -> Mapping[int, str]:
        """The names of feeds, which never change; these among them."""
        missing = [one for one in feeds if one not in self._names]
        if missing:
            with self._catalog.read() as connection:
                self._names |= outbox.names_of(connection, missing)
        return self._names


def _pieces(sequences: Sequence[int], outlines: Mapping[int, ItemOutline], largest: int) -> Iterator[tuple[int, ...]]:
    """Runs of sequences that are not too much for one message, in number and in bytes; one item at least."""
    if 0 < len(sequences) <= min(_MESSAGE_ITEMS, _MESSAGE_BYTES // max(largest, 1)):
        yield tuple(sequences)  # as nearly always: their sizes need not be added up
        return
    piece: list[int] = []
    size = 0
    for one in sequences:
        size += outlines[one].size
        if piece and (len(piece) == _MESSAGE_ITEMS or size > _MESSAGE_BYTES):
            yield tuple(piece)
            piece, size = [], outlines[one].size
        piece.append(one)
    if piece:
        yield tuple(piece)


def _sizes(batch: ItemBatch) -> list[int]:
    """About how many bytes each item of a batch is: its texts, and something for the rest."""
    attributes = batch.records.column("attributes")
    lengths = pc.fill_null(pc.binary_length(attributes.values.field("text")), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    texts = np.diff(ends[attributes.offsets.to_numpy(zero_copy_only=False)])
    return list((_ITEM_BYTES + texts).tolist())


def items_digest(keys: Iterable[str]) -> str:
    """The digest of the item keys of a message.

    >>> items_digest(["1/a/1"]) == items_digest(["1/a/2"])
    False
    """
    return blake2b("\n".join(keys).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
