"""Matching of the rows of a DataFrame: each row is an item, and its columns are the attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from runnel.errors import InputError, InvalidItemError
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.temporary_plan import load_temporary
from runnel.matching.contract import Matcher
from runnel.model.item import Item, attributes_of, moment
from runnel.model.item_batch import ItemBatch


class MatchablePlan(Protocol):
    """The parts of a compiled plan (see `runnel.compile`) that `match` uses."""

    @property
    def folder(self) -> str: ...
    @property
    def sources(self) -> dict[str, int]: ...
    @property
    def queries(self) -> dict[int, str]: ...
    @property
    def gates(self) -> tuple[str, ...]: ...
    def keep_until_exit(self) -> None: ...


def match(
    dataframe: DataFrame,
    plan: MatchablePlan,
    *,
    feed: str | None = None,
    column: str = "feeds",
    accepted: datetime | None = None,
) -> DataFrame:
    """Return the DataFrame with an additional column: the names of the feeds that each row matches.

    `feed` names the source feed of all rows. Without it, each row names its source feed in the column `feed`, unless
    the plan reads only one source feed. Workers must be able to read the plan's folder, as in local mode. Relative
    times (`2 days ago`) count from `accepted`, by default the time at which a row is matched. The rows of a DataFrame
    have no order, so a plan with an order-dependent clause such as `distinct` is refused.
    """
    if plan.gates:
        raise InputError(
            f"`{plan.gates[0]}` depends on the order of items, and the rows of a DataFrame have no order",
            hint="leave the clause out of the query, or match a list with plan.match",
        )
    if column in dataframe.columns:
        raise InputError(f"the DataFrame already has a column {column}", hint="choose another name with column=")
    source = feed or (next(iter(plan.sources)) if len(plan.sources) == 1 else None)
    if source is None and "feed" not in dataframe.columns:
        raise InputError(
            f"the plan reads {len(plan.sources)} source feeds, and the rows do not name theirs",
            hint="pass feed=, or add a column `feed`",
        )
    if source is not None and source not in plan.sources:
        raise InputError(f"the plan does not read the feed {source}", hint=f"it reads {', '.join(plan.sources)}")
    plan.keep_until_exit()
    schema = StructType([*dataframe.schema.fields, StructField(column, ArrayType(StringType()))])
    match_batches = _match_batches_with(plan.folder, dict(plan.sources), dict(plan.queries), source, column, accepted)
    return dataframe.mapInArrow(match_batches, schema)


def _match_batches_with(
    folder: str,
    sources: Mapping[str, int],
    queries: Mapping[int, str],
    source: str | None,
    column: str,
    accepted: datetime | None,
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for `mapInArrow` that adds the column with the names of the matched feeds."""

    def match_batches(batches: Iterator[Any]) -> Iterator[Any]:
        matcher = _matcher(folder)
        for batch in batches:
            rows = [_item_of_row(row, source, sources) for row in batch.to_pylist()]
            items = ItemBatch.of(rows, sources, accepted=moment(accepted or datetime.now(UTC)))
            matches = matcher.match(items)
            names = [[queries[int(query)] for query in matches.row(row)] for row in range(len(items))]
            fields = [*batch.schema, pa.field(column, pa.list_(pa.string()))]
            arrays = [*batch.columns, pa.array(names, pa.list_(pa.string()))]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    return match_batches


def _item_of_row(row: dict[str, Any], source: str | None, sources: Mapping[str, int]) -> Item:
    feed = source or str(row.pop("feed"))
    if feed not in sources:
        raise InvalidItemError(
            f"a row has the feed {feed[:60]}, which the plan does not read", hint=f"it reads {', '.join(sources)}"
        )
    return Item(feed, str(row.pop("id", "")), attributes_of(row, place="row"))


@lru_cache(maxsize=2)
def _matcher(folder: str) -> Matcher:
    return build_matcher(load_temporary(folder))
