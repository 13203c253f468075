"""Routing at run time: items in, for every item the partitions that it must go to out.

The router is a plan whose queries are the partitions (see `scaleout.partitioning`), so any matcher can tell. What
travels to the partitions is a bit for each item of a slice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runnel.errors import CorruptDataError
from runnel.matching.compile.build_matcher import build_matcher
from runnel.model.item_batch import ItemBatch
from runnel.plan.store import Plan

Choices = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Routed:
    """Where the items of a batch go: `choices` has a row for each item and a column for each partition."""

    choices: Choices

    @property
    def copies(self) -> int:
        """How often an item is looked at in a partition."""
        return int(np.count_nonzero(self.choices))

    def partitions(self) -> list[int]:
        """The partitions that get any item."""
        found: list[int] = np.flatnonzero(self.choices.any(axis=0)).tolist()
        return found

    def rows(self, partition: int) -> npt.NDArray[np.int64]:
        """The rows of the items that go to a partition."""
        return np.flatnonzero(self.choices[:, partition])


class Router:
    """The router of a partitioning with so many partitions. `items` and `copies` count what was routed."""

    def __init__(self, plan: Plan, partitions: int) -> None:
        ids = plan.base.queries.query_ids
        if len(ids) and not 1 <= int(ids.min()) <= int(ids.max()) <= partitions:
            raise CorruptDataError(f"the router {plan.base.manifest.folder} names a partition that is not there")
        self.matcher = build_matcher(plan)
        self._partitions = partitions
        self.items = 0
        self.copies = 0

    def route(self, items: ItemBatch) -> Routed:
        """The partitions that each item must go to."""
        matches = self.matcher.match(items)
        choices = np.zeros((len(items), self._partitions), dtype=np.bool_)
        rows = np.repeat(np.arange(len(items)), np.diff(matches.offsets))
        choices[rows, matches.queries - 1] = True
        for failure in matches.failures:
            # Nobody knows whether the item belongs there: the partition itself finds out, and says what fails.
            choices[failure.row, failure.query - 1] = True
        routed = Routed(choices)
        self.items += len(items)
        self.copies += routed.copies
        return routed


def packed(chosen: Choices) -> bytes:
    """The chosen items of a slice as bits.

    >>> packed(np.array([True, False, True]))
    b'\\xa0'
    """
    return np.packbits(chosen).tobytes()


def unpacked(data: bytes, count: int) -> Choices:
    """Which of so many items were chosen.

    >>> unpacked(b"\\xa0", 3).tolist()
    [True, False, True]
    """
    if len(data) != -(-count // 8):
        raise CorruptDataError(f"{len(data)} bytes cannot say which of {count} items were chosen")
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=count).astype(np.bool_)
