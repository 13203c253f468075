"""Lists of patterns under keys, with room for more (see `edge_postings`)."""

from __future__ import annotations

from runnel.scaleout.containment.edge_postings import KEYS, POSTINGS, Lists, widen
from runnel.scaleout.containment.pattern_store import grown


class GrowingLists:
    """A `Lists` that is exchanged for a wider one before it is full."""

    def __init__(self) -> None:
        self.lists = Lists.empty()
        self._sure = 0  # how many more there is room for without looking

    @property
    def size(self) -> int:
        """How many bytes the arrays take."""
        return sum(array.nbytes for array in self.lists)

    def make_room(self, more: int) -> None:
        """Let so many postings, each under a key of its own, be added; at most half of the slots are taken."""
        self._sure -= more
        if self._sure >= 0:
            return
        lists = self.lists
        postings = int(lists.counts[POSTINGS]) + more
        if postings > len(lists.patterns):
            lists = lists._replace(patterns=grown(lists.patterns, postings), nexts=grown(lists.nexts, postings))
            self.lists = lists
        slots = len(lists.keys)
        while 2 * (int(lists.counts[KEYS]) + more) > slots:
            slots *= 2
        if slots > len(lists.keys):
            empty = Lists.empty(slots, 0)
            self.lists = lists._replace(keys=empty.keys, heads=empty.heads, lengths=empty.lengths)
            widen(lists, self.lists)
        left = len(self.lists.patterns) - postings
        self._sure = min(left, slots // 2 - int(lists.counts[KEYS]) - more)

    def clear(self) -> None:
        """Take out all postings and keys; counters and stamps go on."""
        lists = self.lists
        lists.keys[:] = 0
        lists.lengths[:] = 0
        lists.counts[:3] = 0
        self._sure = 0
