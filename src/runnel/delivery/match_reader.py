"""Reads matches for delivery: which items in a range of the item log matched a feed, and the items themselves.

Once a query is live, its matches are in the match log. Earlier matches (`subscribe … from last …`) are found by
evaluating the query on past items. A message contains all matches in its range of sequences, so its items can be
found again from the range alone. Matches and items that several subscriptions need are read once.
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
from runnel.catalog.logs import item_segments
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.sequencer import workspace_number
from runnel.delivery.matches_by_query import BLOCK_ITEMS, MatchesByQuery
from runnel.errors import StorageFullError, WorkspaceError
from runnel.logs.items.item_log import ItemLog
from runnel.logs.matches.match_log import MatchLog
from runnel.model.annotation import Annotation, MatchDetails, unite_annotations
from runnel.model.bindings import Bindings
from runnel.model.item_batch import ItemBatch
from runnel.model.subscription import Subscription
from runnel.sinks.contract import DeliveredItem

logger = logging.getLogger("runnel")

_MAX_MESSAGE_ITEMS = 1_000
_MAX_MESSAGE_BYTES = 4 << 20
_MAX_CACHED_BYTES = 64 << 20
_ITEM_OVERHEAD_BYTES = 600
_NO_LIMIT = 1 << 62

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

    The joined items of annotations are in `joined`, by sequence.
    """

    items: Mapping[int, DeliveredItem]
    sizes: Mapping[int, int]
    bindings: Mapping[tuple[int, int], Bindings] = field(default_factory=dict)
    annotations: Mapping[tuple[int, int], tuple[Annotation, ...]] = field(default_factory=dict)
    joined: LoadedItems | None = None

    @property
    def bytes(self) -> int:
        """The approximate size of all items and bindings."""
        own = sum(self.sizes.values()) + sum(bindings.bytes for bindings in self.bindings.values())
        return own + (0 if self.joined is None else self.joined.bytes)

    def item(self, feed: int, sequence: int) -> DeliveredItem:
        """Return an item as delivered to subscribers of a feed, with the details of the match with that feed."""
        item = self.items[sequence]
        if (bindings := self.bindings.get((feed, sequence))) is not None:
            item = replace(item, bindings=bindings)
        if annotations := self.annotations.get((feed, sequence)):
            joined = {} if self.joined is None else self.joined.items
            known = {number: delivered.item for number, delivered in joined.items()}
            item = replace(item, annotations=unite_annotations(annotations, known))
        return item

    def size(self, feed: int, sequence: int) -> int:
        """Return the approximate size of an item, including the bindings and joined items of a feed's query."""
        bindings = self.bindings.get((feed, sequence))
        size = self.sizes[sequence] + (0 if bindings is None else bindings.bytes)
        for annotation in self.annotations.get((feed, sequence), ()):
            size += sum(self.joined.sizes.get(number, 0) for number in annotation.newest) if self.joined else 0
        return size


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
        """Add the bindings and annotations of matches to loaded items. `sequences` are keyed by feed.

        They come from the match log and, for past matches, from the last call of `find_matches`.
        """
        bindings = self._match_log.bindings_of(sequences)
        annotations = self._match_log.annotations_of(sequences)
        for feed, wanted in sequences.items() if self._past_details else ():
            for key in ((feed, sequence) for sequence in wanted):
                if (past := self._past_details.get(key)) is not None:
                    bindings[key], annotations[key] = past.bindings, past.annotations
        return replace(loaded, bindings=bindings, annotations=annotations, joined=self._load_joined(annotations))

    def _load_joined(self, annotations: Mapping[tuple[int, int], Sequence[Annotation]]) -> LoadedItems | None:
        """Load the items that annotations refer to, without deleted ones."""
        joined = {number for several in annotations.values() for each in several for number in each.newest}
        if not joined:
            return None
        with self._catalog.read() as connection:
            kept_after = item_segments.retained_upto(connection)
        return self.load_items(number for number in joined if number > kept_after)

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
    if 0 < len(sequences) <= min(_MAX_MESSAGE_ITEMS, _MAX_MESSAGE_BYTES // max(max_item_bytes, 1)):
        yield tuple(sequences)  # the usual case, in which the sizes need not be added up
        return
    group: list[int] = []
    size = 0
    for sequence in sequences:
        size += summaries[sequence].size
        if group and (len(group) == _MAX_MESSAGE_ITEMS or size > _MAX_MESSAGE_BYTES):
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
