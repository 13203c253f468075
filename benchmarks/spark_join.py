"""Filters as a plain PySpark user would match them: items cut into words, joined with the words of queries, counted.

Everything is relational: a row for every word of an item and for every literal of a clause, a join, and two groupings
(by clause, then by query). It is the baseline without Runnel's index on the same engine.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks.runs import Run
from benchmarks.workloads import FIRST_QUERY, NUMBERS, Items, QuerySet

from runnel.algebra.nodes.expressions import Between, Compare, Contains
from runnel.arrays import offsets_of
from runnel.model.match import Matches
from runnel.streaming.session import open_session

_MOST_QUERIES, _MOST_ITEMS = 10_000, 500

_MATCHES = """
with hits as (
    select item, query, clause, negated, negations
    from (select distinct item, explode(split(text, ' ')) as word from items) join terms using (word)
    union all
    select item, query, clause, 0 as negated, negations
    from (select item, stack(4, {columns}) as (attribute, value) from items) join ranges using (attribute)
    where value between low and high
), clauses as (
    select item, query, clause, min(negated) as affirmed, sum(negated) as seen,
        max(negations) as negations
    from hits group by item, query, clause
), changes as (
    select item, query,
        case when affirmed = 0 or seen < negations then 1 else 0 end - case when negations > 0 then 1 else 0 end
            as change
    from clauses
    union all
    select item, query, 0 as change from items cross join queries where given = needed
)
select item, query
from changes join queries using (query)
group by item, query
having first(given) + sum(change) = first(needed)
order by item, query
"""
"""A clause with negated words holds until all of them are seen, so a query is given it from the start."""


def measure(run: Run) -> None:
    """Match with a join, on sizes that it can take."""
    if not isinstance(run.items, Items):
        run.say("pyspark join", not_run="the join is written for words")
        return
    queries = run.queries.head(_MOST_QUERIES)
    count = min(_MOST_ITEMS, len(run.items))
    spark = open_session(master="local[2]", driver_memory="4g", logs=run.folder / "logs", local_folder=run.folder)
    try:
        for name, table in query_tables(queries).items():
            spark.createDataFrame(table).cache().createOrReplaceTempView(name)
        statement = _MATCHES.format(columns=", ".join(f"'{name}', {name}" for name in NUMBERS))
        for size in (20, count):
            items = pd.DataFrame(list(run.items.records())[:size]).drop(columns="id")
            items.insert(0, "item", np.arange(size))
            spark.createDataFrame(items).createOrReplaceTempView("items")
            wall, started = time.perf_counter(), _cpu_seconds(spark)
            frame = spark.sql(statement).toPandas()
            seconds, elapsed = _cpu_seconds(spark) - started, time.perf_counter() - wall
    finally:
        spark.stop()
    offsets = offsets_of(np.bincount(frame["item"], minlength=count))
    run.say(
        "pyspark join",
        **{"queries": len(queries)},
        items=count,
        cpu_seconds=seconds,
        seconds=elapsed,
        items_per_cpu_second=count / seconds,
        **run.compare("pyspark join", Matches(offsets, frame["query"].to_numpy(dtype=np.int64)), len(queries)),
    )


def query_tables(queries: QuerySet) -> dict[str, pd.DataFrame]:
    """The queries as tables: a row for each word, each range, and each query."""
    owners = np.repeat(np.arange(len(queries)), queries.queries.lengths)
    negations = np.bincount(
        np.repeat(np.arange(len(queries.clauses)), queries.clauses.lengths),
        weights=queries.clauses.values & 1,
        minlength=len(queries.clauses),
    ).astype(np.int64)
    places, literals = queries.clauses.expand(queries.queries.values)
    terms: list[tuple[Any, ...]] = []
    ranges: list[tuple[Any, ...]] = []
    for place, literal in zip(places.tolist(), literals.tolist(), strict=True):
        clause = int(queries.queries.values[place])
        about = FIRST_QUERY + int(owners[place]), clause, int(negations[clause])
        match queries.atoms[literal >> 1]:
            case Contains(_, (word,)):
                terms.append((word, *about, literal & 1))
            case Between(attribute, low, high):
                ranges.append((attribute.name, *about, low, high))
            case Compare(attribute, operator, constant):
                ranges.append((attribute.name, *about, constant, constant if operator == "=" else math.inf))
    given = np.bincount(owners, weights=negations[queries.queries.values] > 0, minlength=len(queries))
    counted = {"query": queries.query_ids, "given": given.astype(np.int64), "needed": queries.queries.lengths}
    return {
        "terms": pd.DataFrame(terms, columns=["word", "query", "clause", "negations", "negated"]),
        "ranges": pd.DataFrame(ranges, columns=["attribute", "query", "clause", "negations", "low", "high"]),
        "queries": pd.DataFrame(counted),
    }


def _cpu_seconds(spark: Any) -> float:
    """What the session's Java process has used."""
    process = spark.sparkContext._gateway.proc.pid
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
