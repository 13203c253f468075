"""The matching step: slices in, sealed blocks of matches out. Runs in Spark's Python workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa

from runnel.log.item_files import read_items
from runnel.log.match_files import match_records
from runnel.log.storage import Storage, open_storage
from runnel.matching.build import build_matcher
from runnel.matching.contract import Matcher
from runnel.model.match import Matches
from runnel.model.segment import Slice
from runnel.plan.store import PlanVersion, load

BLOCK_DDL = (
    "first_sequence long, last_sequence long, plan long, matches long, counters string, failures string, block binary"
)
_ARROW = pa.schema(
    [
        ("first_sequence", pa.int64()),
        ("last_sequence", pa.int64()),
        ("plan", pa.int64()),
        ("matches", pa.int64()),
        ("counters", pa.string()),
        ("failures", pa.string()),
        ("block", pa.binary()),
    ]
)


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
    if row["base"] is None:
        matches, counters = Matches.of([[]] * len(items)), dict[str, int]()
    else:
        matcher = _matcher(storage.url, PlanVersion(row["plan"], row["base"], row["delta"]))
        matches, counters = _counted(matcher, items)
    failures = [[int(items.sequences[one.row]), one.query, one.reason] for one in matches.failures]
    columns = [
        [one.first_sequence],
        [one.last_sequence],
        [row["plan"]],
        [matches.total],
        [json.dumps(counters)],
        [json.dumps(failures)],
        [match_records(items.sequences, matches).serialize().to_pybytes()],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _counted(matcher: Matcher, items: Any) -> tuple[Matches, dict[str, int]]:
    before = matcher.statistics.to_json()
    matches = matcher.match(items)
    after = matcher.statistics.to_json()
    return matches, {name: after[name] - before[name] for name in after}


@lru_cache(maxsize=2)
def _matcher(storage_url: str, version: PlanVersion) -> Matcher:
    """Two matchers are enough for a worker: the batch's, and the one before it while tasks overlap."""
    return build_matcher(load(open_storage(storage_url), version))
