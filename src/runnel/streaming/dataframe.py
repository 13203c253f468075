"""The matching step over any DataFrame: a row is an item, its columns are attributes."""

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
    """What `runnel.compile` gives."""

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
        raise InputError(f"there is a column {column} already", hint="give another name with column=")
    only = feed or (next(iter(plan.sources)) if len(plan.sources) == 1 else None)
    if only is None and "feed" not in dataframe.columns:
        raise InputError("the plan reads several feeds", hint="give feed=, or a column `feed`")
    if only is not None and only not in plan.sources:
        raise InputError(f"the plan does not read {only}", hint=f"it reads {', '.join(plan.sources)}")
    plan.keep_until_exit()
    schema = StructType([*dataframe.schema.fields, StructField(column, ArrayType(StringType()))])
    run = _matching(plan.folder, dict(plan.sources), dict(plan.queries), only, column, accepted)
    return dataframe.mapInArrow(run, schema)


def _matching(
    folder: str,
    sources: Mapping[str, int],
    queries: Mapping[int, str],
    only: str | None,
    column: str,
    accepted: datetime | None,
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        matcher = _matcher(folder)
        for batch in batches:
            rows = [_item(row, only, sources) for row in batch.to_pylist()]
            items = ItemBatch.of(rows, sources, accepted=moment(accepted or datetime.now(UTC)))
            matches = matcher.match(items)
            names = [[queries[int(one)] for one in matches.row(row)] for row in range(len(items))]
            fields = [*batch.schema, pa.field(column, pa.list_(pa.string()))]
            arrays = [*batch.columns, pa.array(names, pa.list_(pa.string()))]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    return run


def _item(row: dict[str, Any], only: str | None, sources: Mapping[str, int]) -> Item:
    feed = only or str(row.pop("feed"))
    if feed not in sources:
        raise InvalidItemError(
            f"a row comes from no feed of the plan: {feed[:60]}", hint=f"known: {', '.join(sources)}"
        )
    return Item(feed, str(row.pop("id", "")), attributes_of(row, place="row"))


@lru_cache(maxsize=2)
def _matcher(folder: str) -> Matcher:
    return build_matcher(load_temporary(folder))
