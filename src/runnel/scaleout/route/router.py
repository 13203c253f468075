"""Routing at run time.

In: items. Out: for each item the partitions that it must go to. The router is a plan whose queries are the partitions
(see `scaleout.partitioning`), so any matcher can evaluate it. A partition receives a bitmap of the items of a slice.
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
    """The routes of a batch of items. `choices` has a row for each item and a column for each partition."""

    choices: Choices

    @property
    def copies(self) -> int:
        """The number of pairs of an item and a partition that receives it."""
        return int(np.count_nonzero(self.choices))

    def partitions(self) -> list[int]:
        """Return the partitions that receive at least one item."""
        numbers: list[int] = np.flatnonzero(self.choices.any(axis=0)).tolist()
        return numbers

    def rows(self, partition: int) -> npt.NDArray[np.int64]:
        """Return the rows of the items that go to a partition."""
        return np.flatnonzero(self.choices[:, partition])


class Router:
    """Routes items to `partitions` partitions. `items` counts the routed items, `copies` where they were sent."""

    def __init__(self, plan: Plan, partitions: int) -> None:
        ids = plan.base.queries.query_ids
        if len(ids) and not 1 <= int(ids.min()) <= int(ids.max()) <= partitions:
            raise CorruptDataError(
                f"the router {plan.base.manifest.folder} refers to a partition that does not exist"
            )
        self.matcher = build_matcher(plan)
        self._partitions = partitions
        self.items = 0
        self.copies = 0

    def route(self, items: ItemBatch) -> Routed:
        """Return the partitions that each item must go to."""
        matches = self.matcher.match(items)
        choices = np.zeros((len(items), self._partitions), dtype=np.bool_)
        rows = np.repeat(np.arange(len(items)), np.diff(matches.offsets))
        choices[rows, matches.queries - 1] = True
        for failure in matches.failures:
            # Whether the item matches is unknown. The partition evaluates its queries, and reports the failure.
            choices[failure.row, failure.query - 1] = True
        routed = Routed(choices)
        self.items += len(items)
        self.copies += routed.copies
        return routed


def packed(chosen: Choices) -> bytes:
    """Encode which items of a slice were chosen as a bitmap.

    >>> packed(np.array([True, False, True]))
    b'\\xa0'
    """
    return np.packbits(chosen).tobytes()


def unpacked(data: bytes, count: int) -> Choices:
    """Decode the bitmap of `count` items.

    >>> unpacked(b"\\xa0", 3).tolist()
    [True, False, True]
    """
    if len(data) != -(-count // 8):
        raise CorruptDataError(f"a bitmap of {count} items has {len(data)} bytes instead of {-(-count // 8)}")
    return np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=count).astype(np.bool_)
