"""Spark's own stream-stream join on the work of `benchmarks.windows`, next to Runnel's pipeline. Both on `local[2]`.

Similarity is not a key of a stream-stream join, so Spark joins the words of titles, within a range of time and with
watermarks. All common words of two titles come in one micro-batch, in which a grouping counts them. The variant
`prefixes` joins only the rarest words of the titles, and compares the pairs afterwards. Spark would also join a photo
that comes later but has an earlier time. Here times follow the order of the items, so that the answers are equal.
Spark writes no match log and no annotations. CPU times are those of all processes, from the arrival of the news to
their last match; the session, the plan and the window are ready before.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.spark_workers import cpu_seconds
from benchmarks.windows_contenders import PrefixPostings
from benchmarks.windows_goals import Figures
from benchmarks.windows_workload import Numbers, Titles, Workload, make_workload
from pyspark.sql.functions import expr

from runnel.catalog.declared import feeds
from runnel.engine import Engine, connect
from runnel.model.item import Item
from runnel.streaming.session import open_session

_PHOTOS, _WARM_UP = 20_000, 100
_BEGINNING = datetime(2026, 11, 1, tzinfo=UTC)
_SCRIPT = (
    "register feed Photos; register feed News;"
    "create feed Shown from News as $n join last 30 days on Photos as $photos with $n[title similar window.title];"
    "subscribe to Shown output log;"
)
_WORDS = {"words": "words", "prefixes": "slice(words, -(length - (length + 1) div 2 + 1), length)"}
_ITEMS = {"words": 200}
"""The number of items, for a variant that is too slow for all."""


@dataclass(frozen=True)
class Run:
    """The pairs (item, photo) that a system found, and how long it took."""

    pairs: Numbers
    photos: int
    items: int
    cpu_seconds: float
    seconds: float


def measure_spark(figures: Figures, options: argparse.Namespace) -> None:
    """Join the same news with the same photos in both."""
    photos = min(_PHOTOS, min(options.windows))
    workload = make_workload(photos, _WARM_UP + options.items, 1, options.seed)
    last = _WARM_UP + options.items
    pairs = PrefixPostings(workload.photos).look_up(workload.news, range(_WARM_UP, last)).pairs
    ours = _run_ours(workload)
    _say(figures, "ours, Runnel on Spark", ours, ours, pairs)
    for words in _WORDS:
        items = min(options.items, _ITEMS.get(words, options.items))
        found = _run_spark(workload, words, items)
        _say(figures, f"spark, stream-stream join of {words}", found, ours, pairs[pairs[:, 0] < _WARM_UP + items])


def _say(figures: Figures, name: str, found: Run, ours: Run, pairs: Numbers) -> None:
    figures.say(
        "peers",
        contender=name,
        window=found.photos,
        items=found.items,
        items_per_cpu_second=found.items / found.cpu_seconds,
        cpu_seconds=found.cpu_seconds,
        seconds=found.seconds,
        times_ours=found.cpu_seconds / found.items * ours.items / ours.cpu_seconds,
        **figures.compare(name, found.pairs, pairs),
    )


def _used() -> float:
    """Return the CPU seconds of this process and all below it."""
    return time.process_time() + sum(cpu_seconds().values())


def _wait_until(is_done: Callable[[], bool]) -> None:
    while not is_done():
        time.sleep(0.02)


def _run_ours(workload: Workload) -> Run:
    """Publish photos, then news, to a running engine."""
    photos, items = len(workload.photos), len(workload.news) - _WARM_UP
    with (
        tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder,
        connect(folder, master="local[2]") as engine,
    ):
        engine.execute(_SCRIPT)
        runner = threading.Thread(target=engine.run, daemon=True)
        runner.start()
        _publish(engine, runner, "Photos", workload.photos, 0, photos)
        _publish(engine, runner, "News", workload.news, 0, _WARM_UP)
        seconds, elapsed = _publish(engine, runner, "News", workload.news, _WARM_UP, len(workload.news))
        engine.stop()
        runner.join()
        return Run(_joined(engine, photos), photos, items, seconds, elapsed)


def _publish(
    engine: Engine, runner: threading.Thread, feed: str, titles: Titles, first: int, last: int
) -> tuple[float, float]:
    """Accept titles and wait until they are matched. Return the CPU seconds without acceptance, and the seconds."""
    texts = zip(range(first, last), titles.texts(first, last), strict=True)
    items = [Item(feed, str(number), {"title": (text,)}) for number, text in texts]
    source = {"Photos": 1, "News": 2}[feed]
    started, used = time.perf_counter(), _used()
    accepting = time.thread_time()
    accepted: Any = engine.workspace.items.accept(source, items)
    accepting = time.thread_time() - accepting

    def is_matched() -> bool:
        assert runner.is_alive(), "the runner ended"
        return bool(engine.workspace.matches.matched_upto() >= accepted.last_sequence)

    _wait_until(is_matched)
    return _used() - used - accepting, time.perf_counter() - started


def _joined(engine: Engine, photos: int) -> Numbers:
    """Return the pairs of the annotations as (item, photo), without those of the first items."""
    matches = engine.workspace.matches
    first = photos + _WARM_UP
    last = engine.workspace.items.last_sequence()
    with engine.workspace.catalog.read() as connection:
        shown = next(feed for feed, name in feeds.feed_names(connection).items() if name == "Shown")
    sequences = matches.of_queries([shown], first, last)
    notes = matches.annotations_of({feed: found.tolist() for feed, found in sequences.items()})
    rows = [
        (sequence - photos - 1, joined - 1)
        for (_, sequence), annotations in notes.items()
        for annotation in annotations
        for joined in annotation.newest
    ]
    return np.array(sorted(rows), dtype=np.int64).reshape(-1, 2)


def _run_spark(workload: Workload, words: str, items: int) -> Run:
    """Add files with photos, then news, to a running query."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        folder = Path(name)
        spark = open_session(master="local[2]", driver_memory="4g", logs=folder / "logs", local_folder=folder)
        try:
            spark.conf.set("spark.sql.shuffle.partitions", "2")
            return _stream(spark, folder, workload, words, items)
        finally:
            spark.stop()


def _stream(spark: Any, folder: Path, workload: Workload, words: str, items: int) -> Run:
    count = len(workload.photos)
    for feed in ("photos", "news"):
        (folder / feed).mkdir()
    found: list[tuple[int, int]] = []

    def collect(rows: Any, batch: int) -> None:
        found.extend(map(tuple, _pairs_of(rows, words).collect()))

    photos = _words_of(spark, folder / "photos", words, "photo_")
    joined = _words_of(spark, folder / "news", words, "").join(
        photos,
        on=expr("word = photo_word and photo_time < time and photo_time > time - interval 30 days"),
    )
    query = joined.writeStream.foreachBatch(collect).option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        _add_file(query, folder / "photos", workload.photos, 0, count, 0)
        _add_file(query, folder / "news", workload.news, 0, _WARM_UP, count)
        found.clear()
        started, used = time.perf_counter(), _used()
        _add_file(query, folder / "news", workload.news, _WARM_UP, _WARM_UP + items, count)
        seconds, elapsed = _used() - used, time.perf_counter() - started
    finally:
        query.stop()
    return Run(np.array(sorted(found), dtype=np.int64).reshape(-1, 2), count, items, seconds, elapsed)


def _add_file(query: Any, folder: Path, titles: Titles, first: int, last: int, seconds: int) -> None:
    """Add titles as a file, and wait until the query has processed it. A title is one second later than the last."""
    offsets = titles.offsets[first : last + 1]
    numbers = np.arange(first, last)
    table = pa.table(
        {
            "number": numbers,
            "time": pa.array([_BEGINNING + timedelta(seconds=seconds + number) for number in numbers.tolist()]),
            "length": np.diff(offsets).astype(np.int32),
            "words": pa.ListArray.from_arrays(
                pa.array((offsets - offsets[0]).astype(np.int32)), pa.array(titles.words[offsets[0] : offsets[-1]])
            ),
        }
    )
    hidden = folder / f".{first}.parquet"
    pq.write_table(table, hidden)
    hidden.rename(folder / f"{first}.parquet")
    query.processAllAvailable()


def _words_of(spark: Any, folder: Path, words: str, prefix: str) -> Any:
    """Return a stream with a row per word of each title. The names of its columns begin with a prefix."""
    schema = "number long, time timestamp, length int, words array<int>"
    titles = spark.readStream.schema(schema).parquet(str(folder)).withWatermark("time", "1 day")
    kept = ["number", "time", "length", *(["words"] if words == "prefixes" else [])]
    rows = titles.selectExpr(*kept, f"explode({_WORDS[words]}) as word")
    return rows.toDF(*(f"{prefix}{name}" for name in rows.columns))


def _pairs_of(rows: Any, words: str) -> Any:
    """Return the pairs of a micro-batch. A row is a common word of two titles."""
    pair = ["number", "photo_number"]
    if words == "prefixes":
        common = "size(array_intersect(words, photo_words))"
        similar = rows.dropDuplicates(pair).where(f"2 * {common} >= length + photo_length - {common}")
    else:
        counted = rows.groupBy(*pair, "length", "photo_length").count()
        similar = counted.where("2 * count >= length + photo_length - count")
    return similar.select(*pair)
