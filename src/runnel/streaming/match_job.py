"""The matching step: slices in, sealed blocks of matches out. Runs in Spark's Python workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa

from runnel.log.item_files import read_items
from runnel.log.match_files import MATCH_SCHEMA, match_records
from runnel.log.storage import Storage, open_storage
from runnel.matching.build import build_matcher
from runnel.matching.contract import Matcher
from runnel.matching.observe import Observer, observations_to_json
from runnel.model.batch import ItemBatch
from runnel.model.segment import Slice
from runnel.plan.store import PlanVersion, load

BLOCK_DDL = (
    "first_sequence long, last_sequence long, plan long, matches long, counters string, observed string, "
    "failures string, block binary"
)
_ARROW = pa.schema(
    [
        ("first_sequence", pa.int64()),
        ("last_sequence", pa.int64()),
        ("plan", pa.int64()),
        ("matches", pa.int64()),
        ("counters", pa.string()),
        ("observed", pa.string()),
        ("failures", pa.string()),
        ("block", pa.binary()),
    ]
)

_PIECE = 2048
"""Items that are matched at once: few enough for their matches to find room in memory that was used before."""


def match_slices(storage_url: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for `mapInArrow`: matches every slice it is given with the plan that the slice names."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        storage = open_storage(storage_url)
        for batch in batches:
            for row in batch.to_pylist():
                yield match_slice(storage, row)

    return run


def match_slice(storage: Storage, row: dict[str, Any]) -> Any:
    """One slice matched: a record batch of one row."""
    one = Slice(row["tier"], row["path"], row["first_row"], row["rows"], row["first_sequence"], row["accepted"])
    items = read_items(storage, one)
    found = _Found()
    if row["base"] is not None:
        matcher, observer = _matcher(storage.url, PlanVersion(row["plan"], row["base"], row["delta"]))
        before = matcher.statistics.to_json()
        for start in range(0, len(items), _PIECE):
            found.add(ItemBatch(items.records.slice(start, _PIECE)), matcher)
        after = matcher.statistics.to_json()
        found.counters = {name: after[name] - before[name] for name in after}
        found.observed = observations_to_json(observer.observe(items))
    columns = [
        [one.first_sequence],
        [one.last_sequence],
        [row["plan"]],
        [found.matches],
        [json.dumps(found.counters)],
        [json.dumps(found.observed)],
        [json.dumps(found.failures)],
        [found.block()],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


class _Found:
    """What was found in a slice so far. An item may match ten thousand queries: only the stored form is kept."""

    def __init__(self) -> None:
        self.matches = 0
        self.counters: dict[str, int] = {}
        self.observed: dict[str, object] = {}
        self.failures: list[list[Any]] = []
        self._records: list[Any] = []

    def add(self, items: ItemBatch, matcher: Matcher) -> None:
        """Match a piece of the slice."""
        matches = matcher.match(items)
        self.matches += matches.total
        self.failures += [[int(items.sequences[one.row]), one.query, one.reason] for one in matches.failures]
        self._records.append(match_records(items.sequences, matches))

    def block(self) -> bytes:
        """All matches as one sealed block."""
        batches = pa.Table.from_batches(self._records, MATCH_SCHEMA).combine_chunks().to_batches()
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=MATCH_SCHEMA)
        return bytes(batch.serialize().to_pybytes())


@lru_cache(maxsize=2)
def _matcher(storage_url: str, version: PlanVersion) -> tuple[Matcher, Observer]:
    """Two matchers are enough for a worker: the batch's, and the one before it while tasks overlap."""
    plan = load(open_storage(storage_url), version)
    return build_matcher(plan), Observer.of(plan.base)
