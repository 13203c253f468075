"""One run of the benchmark of filters: its queries and items, and the answer that everyone must give."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from benchmarks import measuring
from benchmarks.contenders import CONTENDERS, Setting
from benchmarks.measuring import agree, digest, head, joined
from benchmarks.workloads import FIRST_QUERY, QuerySet

from runnel.arrays import offsets_of
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches


class Batches(Protocol):
    """Items of a workload."""

    def __len__(self) -> int: ...

    def batch(self, start: int = 0, stop: int | None = None) -> ItemBatch:
        """Some of the items."""
        ...

    def batches(self, size: int) -> list[ItemBatch]:
        """All items."""
        ...


@dataclass
class Run:
    """What was asked for, and the answer that all contenders are compared with: that of the first."""

    options: argparse.Namespace
    setting: Setting
    items: Batches
    folder: Path
    answer: Matches | None = None
    differing: list[str] = field(default_factory=list)

    @property
    def queries(self) -> QuerySet:
        """The queries of the run."""
        return self.setting.queries

    def say(self, figure: str, **values: Any) -> None:
        """Print one figure as a line of JSON."""
        about = {"workload": self.options.workload, "queries": len(self.queries)}
        measuring.say("filters", figure, **about | values)

    def compare(self, name: str, matches: Matches, queries: int | None = None) -> dict[str, Any]:
        """Compare the matches of all or the first queries with the expected ones. Return the figures to print."""
        if self.answer is None:
            self.answer = matches if name in CONTENDERS else self._matched()
        wanted = self.answer if queries is None else _restricted(head(self.answer, len(matches)), queries)
        equal = agree(matches, wanted)
        if not equal:
            self.differing.append(name)
        items = max(1, len(matches))
        return {"matches_per_item": matches.total / items, "digest": digest(matches), "equal": equal}

    def _matched(self) -> Matches:
        matcher = CONTENDERS["streams"](self.setting).matcher
        return joined([matcher.match(batch) for batch in self.items.batches(self.options.batch)])


def _restricted(matches: Matches, queries: int) -> Matches:
    """Return the matches of the first queries."""
    kept = matches.queries < FIRST_QUERY + queries
    rows = np.repeat(np.arange(len(matches)), np.diff(matches.offsets))[kept]
    return Matches(offsets_of(np.bincount(rows, minlength=len(matches))), matches.queries[kept])
