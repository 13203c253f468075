"""Growing posting lists of patterns (see `edge_postings`)."""

from __future__ import annotations

from runnel.scaleout.containment.edge_postings import KEYS, POSTINGS, Lists, widen
from runnel.scaleout.containment.pattern_store import grown


class GrowingLists:
    """A `Lists` that is replaced by a larger one before it is full."""

    def __init__(self) -> None:
        self.lists = Lists.empty()
        self._room = 0  # postings that can surely be added without growing

    @property
    def size(self) -> int:
        """The size of the arrays in bytes."""
        return sum(array.nbytes for array in self.lists)

    def make_room(self, more: int) -> None:
        """Make room for `more` postings, each under a new key. At most half of the slots are used."""
        self._room -= more
        if self._room >= 0:
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
        self._room = min(left, slots // 2 - int(lists.counts[KEYS]) - more)

    def clear(self) -> None:
        """Remove all postings and keys, but keep the counters."""
        lists = self.lists
        lists.keys[:] = 0
        lists.lengths[:] = 0
        lists.counts[:3] = 0
        self._room = 0
