"""DuckDB on the same work: the titles and the queries as tables, and one SQL statement per batch of items.

In: titles as lists of word numbers, so that DuckDB does not have to split texts. Out: the same pairs and matches.
DuckDB works with one thread, so that CPU times can be compared.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from benchmarks.windows_workload import JoinQueries, Numbers, Titles, Workload

_COMMON = "len(list_intersect(n.words, p.words))"
_SIMILAR = f"2 * {_COMMON} >= n.length + p.length - {_COMMON}"
_IN_WINDOW = "p.sequence < n.sequence and p.age <= ?"

_PREFIX_PAIRS = f"""
    select n.item, p.row from (
        select distinct n.item, p.row
        from news_prefixes n join photo_prefixes p using (word)
        where 2 * p.length >= n.length and 2 * n.length >= p.length
    ) join news n using (item) join photos p using (row)
    where {_IN_WINDOW} and {_SIMILAR}
"""

PAIRS = {
    "duckdb, list_intersect": f"select n.item, p.row from news n, photos p where {_IN_WINDOW} and {_SIMILAR}",
    "duckdb, join of words": f"""
        select item, row from (
            select n.item, p.row, n.length + p.length as total, count(*) as common
            from news_words n join photo_words p using (word)
            where {_IN_WINDOW} group by all
        ) where 2 * common >= total - common
    """,
    "duckdb, join of prefixes": _PREFIX_PAIRS,
}
"""Statements that find the pairs of a batch: compare all, join on all words, or join on the rarest words only."""

_MATCHES = f"""
    select distinct n.sequence, q.query
    from ({_PREFIX_PAIRS}) join news n using (item) join members m using (row)
    join queries q on q.topic = n.topic and q.number = m.number and m.age <= q.extent
"""
"""Rules as rows: the queries of an item's topic whose windows have one of the photos that it joins."""


@dataclass(frozen=True)
class Answered:
    """The rows of an answer in ascending order, and the CPU seconds for it."""

    rows: Numbers
    items: int
    seconds: float

    def figures(self) -> dict[str, Any]:
        """Return the figures per item."""
        return {"items": self.items, "mean_microseconds": 1e6 * self.seconds / self.items}


class DuckDb:
    """A database with all photos, and with the join queries if there are any."""

    def __init__(self, workload: Workload, queries: JoinQueries | None = None) -> None:
        self._workload = workload
        self._database = duckdb.connect(config={"threads": 1})
        count = len(workload.photos)
        photos = _table(workload.photos, 0, count, "row", first_sequence=1)
        photos = photos.append_column("age", pa.array(count - np.arange(count)))
        self._load("photos", photos.append_column("price", pa.array(workload.prices)), "p")
        if queries is not None:
            self._load_queries(queries)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def pairs(self, statement: str, items: int) -> Answered:
        """Return the pairs (item, row) of the first items, found by one of PAIRS."""
        return self._answer(PAIRS[statement], 0, items)

    def matches(self, first: int, last: int) -> Answered:
        """Return the matches (sequence, query) of a batch of items."""
        return self._answer(_MATCHES, first, last)

    def _answer(self, statement: str, first: int, last: int) -> Answered:
        workload = self._workload
        news = _table(workload.news, first, last, "item", first_sequence=len(workload.photos) + 1)
        started = time.process_time()
        self._load("news", news.append_column("topic", pa.array(workload.topics[first:last])), "n")
        columns = self._database.execute(statement, [len(workload.photos)]).fetchnumpy()
        seconds = time.process_time() - started
        rows = np.stack([np.asarray(column, dtype=np.int64) for column in columns.values()], axis=1)
        return Answered(rows[np.lexsort((rows[:, 1], rows[:, 0]))], last - first, seconds)

    def _load(self, name: str, table: Any, alias: str) -> None:
        """Store titles, with one row per word, and one per word of their prefixes, in tables of their own."""
        self._database.register("loaded", table)
        self._database.execute(f"create or replace table {name} as select * from loaded")
        singular = {"news": "news", "photos": "photo"}[name]
        keys = {"news": "item, sequence", "photos": "row, sequence, age"}[name]
        for words, chosen in (("words", "words"), ("prefixes", "words[-(length - (length + 1) // 2 + 1):]")):
            self._database.execute(
                f"create or replace table {singular}_{words} as "
                f"select {keys}, length, unnest({chosen}) as word from {name} {alias}"
            )
        self._database.unregister("loaded")

    def _load_queries(self, queries: JoinQueries) -> None:
        tables = {
            "queries": {
                "query": queries.ids,
                "topic": queries.topics,
                "number": queries.windows,
                "extent": queries.extents,
            },
            "windows": {"number": np.arange(len(queries.lows)), "low": queries.lows, "high": queries.highs},
        }
        for name, columns in tables.items():
            self._database.register("loaded", pa.table(columns))
            self._database.execute(f"create table {name} as select * from loaded")
            self._database.unregister("loaded")
        self._database.execute(
            "create table members as "
            "select number, row, row_number() over (partition by number order by row desc) as age "
            "from windows join photos on price >= low and price < high"
        )


def _table(titles: Titles, first: int, last: int, key: str, first_sequence: int) -> Any:
    """Return a range of titles as a table with their numbers, their sequences, and their words as lists."""
    offsets = titles.offsets[first : last + 1]
    words = titles.words[offsets[0] : offsets[-1]]
    numbers = np.arange(first, last)
    return pa.table(
        {
            key: numbers,
            "sequence": numbers + first_sequence,
            "length": np.diff(offsets),
            "words": pa.ListArray.from_arrays(pa.array((offsets - offsets[0]).astype(np.int32)), pa.array(words)),
        }
    )
