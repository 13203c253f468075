"""Reads matches for delivery: which items in a range of the item log matched a feed, and the items themselves.

Once a query is live, its matches are in the match log. Earlier matches (`subscribe … from last …`) are found by
evaluating the query on past items. A message contains all matches in its range of sequences, so its items can be
found again from the range alone. Matches and items that several subscriptions need are read once.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np
import pyarrow.compute as pc

from runnel.bounded_cache import BoundedCache
from runnel.catalog.delivery import outbox
from runnel.catalog.logs import item_segments
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.sequencer import workspace_number
from runnel.delivery.joined_items import (
    MAX_MESSAGE_BYTES,
    NOTHING_JOINED,
    RESERVED_BYTES,
    JoinedContent,
    allow,
    fit,
)
from runnel.delivery.matches_by_query import BLOCK_ITEMS, MatchesByQuery
from runnel.errors import StorageFullError, WorkspaceError
from runnel.logs.items.item_log import ItemLog
from runnel.logs.matches.match_log import MatchLog
from runnel.model.annotation import Annotation, MatchDetails, unite_annotations
from runnel.model.bindings import NO_BINDINGS, Bindings
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.subscription import Subscription
from runnel.sinks.contract import DeliveredItem

logger = logging.getLogger("runnel")

_MAX_MESSAGE_ITEMS = 1_000
_MAX_OWN_BYTES = MAX_MESSAGE_BYTES - RESERVED_BYTES
_MAX_CACHED_BYTES = 64 << 20
_ITEM_OVERHEAD_BYTES = 600
_NO_LIMIT = 1 << 62
_GROUP_ITEMS = 32
"""Joined items that are loaded at once before they are shortened."""

MessageContent = tuple[int, tuple[int, ...]]
"""The subscribed feed of a message and the sequences of its items."""

EvaluatePast = Callable[[int, int, int, int | None, bool], Mapping[int, MatchDetails]]
"""`(feed, after, upto, plan, with_details)`: evaluate a feed's query on the past items in (after, upto].

Return the matching sequences in ascending order, with their details if `with_details` is set. The definition of the
query comes from plan version `plan`, or is the current one if `plan` is None.
"""


@dataclass(frozen=True, slots=True)
class MessageRange:
    """The content of one message: the matching sequences of a subscription in the range (after, upto]."""

    subscription: Subscription
    after: int
    upto: int
    sequences: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FeedRange:
    """A request for the matches of a feed in (after, upto]. `plan` is as in `EvaluatePast`."""

    feed: int
    after: int
    upto: int
    plan: int | None = None


@dataclass(frozen=True, slots=True)
class ItemSummary:
    """The key of an item (feed, id and version) and its approximate size in bytes."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class LoadedItems:
    """Items and their approximate sizes in bytes, by sequence; bindings and annotations by feed and sequence.

    `joined` has the joined items of each message, by the feed and the sequences of the message.
    """

    items: Mapping[int, DeliveredItem]
    sizes: Mapping[int, int]
    bindings: Mapping[tuple[int, int], Bindings] = field(default_factory=dict)
    annotations: Mapping[tuple[int, int], tuple[Annotation, ...]] = field(default_factory=dict)
    joined: Mapping[MessageContent, JoinedContent] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The approximate size of all items, with their bindings and joined items."""
        own = sum(self.sizes.values()) + sum(bindings.bytes for bindings in self.bindings.values())
        return own + sum(joined.bytes for joined in self.joined.values())

    def message_items(self, feed: int, sequences: Sequence[int]) -> list[DeliveredItem]:
        """Return the items of a message as delivered to subscribers of a feed, with the details of their matches."""
        joined = self.joined.get((feed, tuple(sequences)), NOTHING_JOINED)
        return [self._item(feed, sequence, joined) for sequence in sequences]

    def _item(self, feed: int, sequence: int, joined: JoinedContent) -> DeliveredItem:
        item = self.items[sequence]
        if (bindings := self.bindings.get((feed, sequence))) is not None:
            item = replace(item, bindings=bindings)
        if annotations := self.annotations.get((feed, sequence)):
            united = unite_annotations(annotations, joined.known(annotations), joined.omitted)
            item = replace(item, annotations=united)
        return item

    def message_bytes(self, feed: int, sequences: Sequence[int]) -> int:
        """Return the approximate size of a message, with bindings and joined items."""
        return self.own_bytes(feed, sequences) + self.joined.get((feed, tuple(sequences)), NOTHING_JOINED).bytes

    def own_bytes(self, feed: int, sequences: Sequence[int]) -> int:
        """Return the approximate size of a message's items and their bindings, without joined items."""
        bindings = (self.bindings.get((feed, sequence), NO_BINDINGS) for sequence in sequences)
        return sum(self.sizes.get(sequence, 0) for sequence in sequences) + sum(each.bytes for each in bindings)


class MatchReader:
    """Reads the matches and items of a workspace for delivery, with caches. Not thread-safe; see `clone`."""

    def __init__(self, catalog: Catalog, item_log: ItemLog, match_log: MatchLog, evaluate_past: EvaluatePast) -> None:
        self._catalog = catalog
        self._item_log = item_log
        self._match_log = match_log
        self._evaluate_past = evaluate_past
        self._matches = MatchesByQuery(match_log)
        self._feed_names: dict[int, str] = {}
        self._past_details: dict[tuple[int, int], MatchDetails] = {}
        """Details of past matches, which are in no log, by feed and sequence."""
        self._item_cache = BoundedCache[int, tuple[DeliveredItem, int]](_MAX_CACHED_BYTES)

    def clone(self) -> MatchReader:
        """Return a reader of the same logs with its own caches, for use in another thread."""
        return MatchReader(self._catalog, self._item_log, self._match_log, self._evaluate_past)

    @cached_property
    def workspace_number(self) -> int:
        """A number that makes message keys unique across workspaces."""
        with self._catalog.write() as connection:
            return workspace_number(connection)

    # --- matches -------------------------------------------------------------------------------------------------

    def matched_feeds(self, after: int, upto: int) -> set[int]:
        """Return the feeds with a match in (after, upto]."""
        return self._matches.feeds(after, upto)

    def find_matches(
        self, ranges: Sequence[FeedRange], live_since: Mapping[int, int], *, with_details: bool = False
    ) -> list[tuple[int, ...] | None]:
        """Return the matching sequences of each range, or None for a range that cannot be read.

        `live_since` maps each feed to the sequence after which the match log has its matches. If `with_details` is
        set, the method `with_details` also knows those of past matches, until the next call of this method.
        """
        self._past_details.clear()
        sequences: dict[FeedRange, tuple[int, ...] | None] = {}
        blocks: dict[int, list[FeedRange]] = {}
        for feed_range in dict.fromkeys(ranges):
            blocks.setdefault(feed_range.after // BLOCK_ITEMS, []).append(feed_range)
        for block in blocks.values():
            self._matches.load([(feed_range.feed, feed_range.after, feed_range.upto) for feed_range in block])
            for feed_range in block:
                sequences[feed_range] = self._find_matches(feed_range, live_since.get(feed_range.feed), with_details)
        return [sequences[feed_range] for feed_range in ranges]

    def _find_matches(self, wanted: FeedRange, live_since: int | None, with_details: bool) -> tuple[int, ...] | None:
        feed, after, upto = wanted.feed, wanted.after, wanted.upto
        try:
            past_end = upto if live_since is None else min(upto, max(after, live_since))
            past = self._evaluate_past(feed, after, past_end, wanted.plan, with_details) if past_end > after else {}
            self._past_details |= {
                (feed, sequence): details for sequence, details in past.items() if details != MatchDetails()
            }
            logged = self._matches.sequences(feed, past_end, upto)
            return (*past, *logged) if past else logged
        except (StorageFullError, WorkspaceError):
            raise  # affects all ranges and is temporary, so the caller retries
        except Exception:
            logger.exception("cannot read the matches of feed %d in (%d, %d]", feed, after, upto)
            return None

    def split_into_messages(
        self,
        subscription: Subscription,
        after: int,
        upto: int,
        sequences: Sequence[int],
        newest: int,
        summaries: Mapping[int, ItemSummary],
        max_item_bytes: int,
    ) -> list[MessageRange]:
        """Split the matches of a subscription in (after, upto] into messages of limited size.

        `newest` is the acceptance time of the newest item, in microseconds since 1970. Sequences without a summary
        are skipped. No summary has a size of more than `max_item_bytes`.
        """
        sequences = [sequence for sequence in sequences if sequence in summaries]  # others were in damaged files
        last = self._last_sequence(subscription, newest)
        if subscription.since > after or last < upto:
            sequences = [sequence for sequence in sequences if subscription.since < sequence <= last]
        ranges: list[MessageRange] = []
        groups = list(_group_by_size(sequences, summaries, max_item_bytes))
        start = after
        for number, group in enumerate(groups, 1):
            end = min(upto, last) if number == len(groups) else group[-1]
            ranges.append(MessageRange(subscription, start, end, group))
            start = end
        return ranges

    def _last_sequence(self, subscription: Subscription, newest: int) -> int:
        """Return the sequence of the last item that was accepted before the subscription expired."""
        if subscription.expires is None:
            return _NO_LIMIT
        expires = int(subscription.expires.timestamp() * 1e6)
        return _NO_LIMIT if newest < expires else self._item_log.sequence_before(expires)

    def summarize_items(self, sequences: Iterable[int]) -> dict[int, ItemSummary]:
        """Return the keys and sizes of items, by sequence, without creating item objects."""
        summaries: dict[int, ItemSummary] = {}
        for batch in self._item_log.get(sorted(set(sequences))):
            columns = (batch.records.column(name).to_pylist() for name in ("sequence", "feed", "id", "version"))
            for sequence, feed, item_id, version, size in zip(*columns, _estimate_sizes(batch), strict=True):
                summaries[sequence] = ItemSummary(f"{feed}/{item_id}/{version}", size)
        return summaries

    # --- items ---------------------------------------------------------------------------------------------------

    def load_items(self, sequences: Iterable[int], max_bytes: float = math.inf) -> LoadedItems | None:
        """Load items, or return None if they would exceed `max_bytes` (approximately).

        Recently used items come from a cache.
        """
        wanted = sorted(set(sequences))
        items: dict[int, DeliveredItem] = {}
        sizes: dict[int, int] = {}
        for sequence in wanted:
            cached = self._item_cache.get(sequence)
            if cached is not None:
                items[sequence], sizes[sequence] = cached
        total = sum(sizes.values())
        for batch in self._item_log.get([sequence for sequence in wanted if sequence not in items]):
            batch_sizes = _estimate_sizes(batch)
            total += sum(batch_sizes)
            if total > max_bytes:
                return None  # before creating any item objects of this batch
            feed_names = self.feed_names({int(feed) for feed in batch.feeds})
            for item, size in zip(batch.items(feed_names), batch_sizes, strict=True):
                sequence = item.sequence or 0
                items[sequence], sizes[sequence] = DeliveredItem(item, item.feed), size
                self._item_cache.put(sequence, (items[sequence], size), size)
        return LoadedItems(items, sizes)

    def with_details(self, loaded: LoadedItems, sequences: Mapping[int, Collection[int]]) -> LoadedItems:
        """Add the bindings and annotations of matches to loaded items, without joined items. `sequences` are keyed
        by feed.

        They come from the match log and, for past matches, from the last call of `find_matches`.
        """
        bindings = self._match_log.bindings_of(sequences)
        annotations = self._match_log.annotations_of(sequences)
        for feed, wanted in sequences.items() if self._past_details else ():
            for key in ((feed, sequence) for sequence in wanted):
                if (past := self._past_details.get(key)) is not None:
                    bindings[key], annotations[key] = past.bindings, past.annotations
        return replace(loaded, bindings=bindings, annotations=annotations)

    def with_joined_items(
        self, loaded: LoadedItems, messages: Iterable[MessageContent], max_bytes: float
    ) -> LoadedItems | None:
        """Add the joined items of messages, given by feed and sequences, to items that were loaded with details.

        Return None if all items would exceed `max_bytes` (approximately) with them.
        """
        joined: dict[MessageContent, JoinedContent] = {}
        free_bytes = max_bytes - loaded.bytes if loaded.annotations else max_bytes
        for feed, sequences in dict.fromkeys(messages) if loaded.annotations else ():
            content = self._load_joined(loaded, feed, sequences)
            free_bytes -= content.bytes
            if free_bytes < 0:
                return None
            joined[feed, sequences] = content
        return replace(loaded, joined=joined)

    def _load_joined(self, loaded: LoadedItems, feed: int, sequences: Sequence[int]) -> JoinedContent:
        """Load the joined items that a message shows, without deleted ones."""
        annotations = [each for sequence in sequences for each in loaded.annotations.get((feed, sequence), ())]
        if not annotations:
            return NOTHING_JOINED
        allowance = allow(annotations, loaded.own_bytes(feed, sequences))
        uses = Counter(number for annotation in annotations for number in allowance.shown(annotation))
        with self._catalog.read() as connection:
            kept_after = item_segments.retained_upto(connection)
        items: dict[int, Item] = {}
        omitted: dict[int, int] = {}
        size = 0
        for item in self._each_item(sorted(number for number in uses if number > kept_after)):
            fitting, count, item_bytes = fit(item, allowance.item_bytes)
            if fitting is not None:
                sequence = item.sequence or 0
                items[sequence], size = fitting, size + item_bytes * uses[sequence]
                omitted |= {sequence: count} if count else {}
        return JoinedContent(allowance, items, omitted, size)

    def _each_item(self, sequences: Sequence[int]) -> Iterator[Item]:
        """Yield items, in small groups, because they may be large."""
        for start in range(0, len(sequences), _GROUP_ITEMS):
            group = self.load_items(sequences[start : start + _GROUP_ITEMS])
            yield from (delivered.item for delivered in group.items.values()) if group else ()

    def feed_names(self, feeds: Collection[int]) -> Mapping[int, str]:
        """Return a mapping from feed IDs to names that contains at least `feeds`. Feed names never change."""
        missing = [feed for feed in feeds if feed not in self._feed_names]
        if missing:
            with self._catalog.read() as connection:
                self._feed_names |= outbox.names_of(connection, missing)
        return self._feed_names


def _group_by_size(
    sequences: Sequence[int], summaries: Mapping[int, ItemSummary], max_item_bytes: int
) -> Iterator[tuple[int, ...]]:
    """Split sequences into groups that fit into one message each. A single item may exceed the size limit."""
    if 0 < len(sequences) <= min(_MAX_MESSAGE_ITEMS, _MAX_OWN_BYTES // max(max_item_bytes, 1)):
        yield tuple(sequences)  # the usual case, in which the sizes need not be added up
        return
    group: list[int] = []
    size = 0
    for sequence in sequences:
        size += summaries[sequence].size
        if group and (len(group) == _MAX_MESSAGE_ITEMS or size > _MAX_OWN_BYTES):
            yield tuple(group)
            group, size = [], summaries[sequence].size
        group.append(sequence)
    if group:
        yield tuple(group)


def _estimate_sizes(batch: ItemBatch) -> list[int]:
    """Estimate the size of each item in bytes: the length of its texts plus a fixed overhead."""
    attributes = batch.records.column("attributes")
    lengths = pc.fill_null(pc.binary_length(attributes.values.field("text")), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    text_sizes = np.diff(ends[attributes.offsets.to_numpy(zero_copy_only=False)])
    return list((_ITEM_OVERHEAD_BYTES + text_sizes).tolist())


def digest_keys(keys: Iterable[str]) -> str:
    """Return a digest of the item keys of a message.

    >>> digest_keys(["1/a/1"]) == digest_keys(["1/a/2"])
    False
    """
    return blake2b("\n".join(keys).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
