"""A setting of the benchmark of graph patterns: patterns, publications, and the answer that all must give."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.matching.graphs.patterns.term_index import TermIndex
from runnel.matching.graphs.search.publications import Publications, read_publications
from runnel.model.graph import GRAPH, RdfGraph
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.papers.graphs.contract import Counters, Pairs
from runnel.papers.graphs.registry import CONTENDERS

MAX_PAIRS = {"scan": 100_000, "alone": 4_000_000, "joined": 12_000_000}
"""For slow contenders: about how many pairs of a publication and a pattern they are asked about."""


@dataclass
class Setting:
    """Patterns and the graphs of items."""

    patterns: list[Graph]
    graphs: list[RdfGraph]
    answer: Pairs | None = field(default=None, repr=False)

    @cached_property
    def table(self) -> PatternTable:
        """The patterns in arrays."""
        return PatternTable.of(self.patterns)

    @cached_property
    def terms(self) -> TermIndex:
        """The terms of the patterns."""
        return TermIndex.of(self.table)

    @cached_property
    def batch(self) -> ItemBatch:
        """The graphs as items."""
        return batch_of(self.graphs)

    def publications(self, count: int | None = None) -> Publications:
        """Return the first graphs as arrays."""
        return read_publications(
            ItemColumns(self.batch if count is None else batch_of(self.graphs[:count])), self.terms
        )

    def measure(self, name: str, rounds: int) -> dict[str, Any]:
        """What a contender took, and whether its answer is that of the first."""
        started = time.process_time()
        matcher = CONTENDERS[name](self.table, self.terms)
        building = time.process_time() - started
        count = len(self.graphs)
        if name in MAX_PAIRS:
            count = max(1, min(count, MAX_PAIRS[name] // len(self.patterns)))
        publications = self.publications(count)
        if name != "scan":
            matcher.match(self.publications(1))
        matcher.counters = Counters()
        times = []
        for _ in range(rounds if name not in MAX_PAIRS else 1):
            started = time.process_time()
            results = matcher.match(publications)
            times.append(time.process_time() - started)
        counted = len(times) * count
        return {
            "contender": name,
            "publications": count,
            "milliseconds": 1e3 * min(times) / count,
            "slowest_milliseconds": 1e3 * max(times) / count,
            "build_seconds": building,
            "bytes_per_subscription": matcher.size / len(self.patterns),
            "touched": matcher.counters.touched / counted,
            "candidates": matcher.counters.candidates / counted,
            "joined": matcher.counters.joined / counted,
            "matches": matcher.counters.matches / counted,
            **self._compared(results, count),
        }

    def _compared(self, pairs: Pairs, count: int) -> dict[str, Any]:
        if self.answer is None:
            self.answer = pairs
        wanted = np.flatnonzero(self.answer[0] < count)
        equal = all(np.array_equal(mine, theirs[wanted]) for mine, theirs in zip(pairs, self.answer, strict=True))
        return {"digest": digest(pairs), "equal": equal}


def batch_of(graphs: list[RdfGraph]) -> ItemBatch:
    """Items with these graphs."""
    items = [Item("Pages", str(number), {GRAPH: (graph,)}) for number, graph in enumerate(graphs)]
    return ItemBatch.of(items, {"Pages": 1})


def digest(pairs: Pairs) -> str:
    """A digest of all pairs of a publication and a pattern."""
    made = hashlib.blake2b(digest_size=8)
    for side in pairs:
        made.update(side.astype("<i8").tobytes())
    return made.hexdigest()
