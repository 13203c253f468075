"""Measure whether a batch after a year of running costs as much as one at the start. Prints one JSON line per figure.

    python benchmarks/year.py [--segments 100000] [--weeks 52] [--keep-days 90] [--seed 7] [--plot year.svg]

A simulated year goes through the real catalog, files and tidying, on a clock that is moved by hand, without Spark.
Between samples, segments are made some at a time in one transaction, with the same functions. Every simulated week
some batches are made singly, as a publisher and a runner do it, and timed: acceptance, the reader's offsets, the
commit. Times are CPU times, not wall-clock times. A tenth of the year runs twice more, with tidying
and without, to show what tidying is good for.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import text
from tests import catalog_rows

from runnel.catalog.delivery import ledger
from runnel.catalog.logs import item_segments as manifest
from runnel.catalog.logs import match_segments, plan_versions
from runnel.catalog.logs.item_segments import SeenItem
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store import leases
from runnel.catalog.store.sequencer import last_sequence, take_sequences
from runnel.engine import connect
from runnel.engine.ask.status import read_status
from runnel.engine.upkeep.maintenance import run_maintenance
from runnel.engine.workspace import Workspace
from runnel.logs.items.item_files import STORED_SCHEMA
from runnel.logs.items.item_log import item_key
from runnel.logs.matches.match_files import match_records, write_part
from runnel.model.item import Item, attributes_of
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.model.message import Message, MessageState
from runnel.model.segment import Tier
from runnel.storage.arrow_files import write_arrow
from runnel.storage.file_storage import FileStorage, StoredFile
from runnel.testing import FakeClock

_QUERIES = 1_000
_PER_ITEM = 10
_TOGETHER = 32
_SAMPLES = 20
_SCRIPT = "register feed Wire; create feed Rock from Wire; subscribe to Rock output jsonl 'rock.jsonl' every 7 days;"
_WORDS = ("rock", "jazz", "concert", "quiet", "loud", "river", "mountain", "election", "market", "weather")


class CountingStorage(FileStorage):
    """Files in a folder; counts how often folders are listed."""

    listings = 0

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """As `FileStorage.files`, counted."""
        self.listings += 1
        return super().files(prefix)


@dataclass
class Year:
    """A root, and a clock that is moved by hand."""

    root: Workspace
    clock: FakeClock
    dice: random.Random
    step: timedelta
    storage: CountingStorage
    epoch: int = 0
    lineage: int = 0
    plan: int = 0
    batch: int = 0
    messages: int = 0
    tidied: list[float] = field(default_factory=list)

    @property
    def feed(self) -> int:
        """The one source feed."""
        return 1

    def begin(self) -> None:
        """Take the lease."""
        with self.root.catalog.write() as connection:
            self.epoch = leases.acquire(connection, 1e10).epoch
            self.lineage = match_segments.start_lineage(connection, "year", reason="first run").id
            current = plan_versions.current_plan(connection)
            self.plan = current.version if current else 0

    def items(self, first: int, count: int) -> list[Item]:
        """New items of about 40 words."""
        return [
            Item("Wire", f"item-{n}", attributes_of({"title": self._words(8), "description": self._words(32)}))
            for n in range(first, first + count)
        ]

    def _words(self, count: int) -> str:
        return " ".join(self.dice.choices(_WORDS, k=count))

    def matched(self, sequences: Sequence[int]) -> Any:
        """Made-up matches, of query 2 in every fifth item and of others at random."""
        rows = [
            [*([2] if sequence % 5 == 0 else []), *(self.dice.randrange(3, _QUERIES) for _ in range(_PER_ITEM))]
            for sequence in sequences
        ]
        return match_records(np.asarray(sequences, dtype=np.int64), Matches.of(rows))

    # --- making segments, some at a time ---------------------------------------------------------------------------

    def make_some(self, count: int) -> None:
        """Make the given number of segments of items and of matches, of one item each, in one transaction."""
        with self.root.catalog.write() as connection:
            seen: dict[bytes, SeenItem] = {}
            for _ in range(count):
                self.clock.advance(self.step)
                first, accepted = take_sequences(connection, 1)
                [item] = self.items(first, 1)
                path = f"items/log/{first:032x}.arrow"
                stored = ItemBatch.of([item], {"Wire": self.feed}).records.select(STORED_SCHEMA.names)
                file = write_arrow(self.storage, path, [stored], stored.schema)
                times = (accepted, accepted)
                manifest.add_segment(
                    connection, Tier.LOG, file.path, sequences=(first, first), times=times, size=file.size
                )
                seen[item_key(item.id)] = SeenItem(1, b"0" * 16, first)
                self._commit(connection, first, first)
            manifest.record_seen(connection, self.feed, seen)
            self._deliver(connection)

    def _commit(self, connection: Any, first: int, last: int) -> None:
        part = write_part(self.storage, self.lineage, [self.matched(range(first, last + 1))], (first, last))
        results = (last - first + 1) * _PER_ITEM
        segment = MatchSegment(
            self.lineage, self.batch, first, last, self.plan, last - first + 1, results, {"checks": 9}
        )
        assert match_segments.commit_segment(connection, segment, [part], epoch=self.epoch)
        self.batch += 1

    def _deliver(self, connection: Any) -> None:
        """Everything is handed over, by one message."""
        last = match_segments.matched_upto(connection)
        self.messages += 1
        message = Message(1, self.messages, last, last, 1, f"key-{self.messages}", "digest")
        ledger.record_messages(connection, [message])
        catalog_rows.settle(connection, message, MessageState.DONE, "written")
        ledger.set_cursor(connection, ledger.SHARED, last)
        ledger.set_cursor(connection, 1, last)

    def tidy(self) -> None:
        """As a runner does it, and how long it took."""
        started = time.process_time()
        run_maintenance(self.root, self.epoch)
        self.tidied.append(time.process_time() - started)

    # --- samples ---------------------------------------------------------------------------------------------------

    def one_batch(self) -> float:
        """The catalog's work for one batch, as a publisher and a runner do it; gives the seconds."""
        self.clock.advance(self.step)
        fresh = self.items(self.root.items.last_sequence() + 1, 2)
        started = time.process_time()
        accepted = self.root.items.accept(self.feed, fresh)
        with self.root.catalog.read() as connection:
            after, last = match_segments.matched_upto(connection), last_sequence(connection)
            segments = manifest.segments_between(connection, after, last)
            plan_versions.current_plan(connection)
        slices = self.root.items.slices(after, last, rows=1000)
        assert accepted.accepted == 2
        assert len(segments) == len(slices) == 1
        with self.root.catalog.write() as connection:
            self._commit(connection, after + 1, last)
        return time.process_time() - started

    def read_week(self, query: int) -> tuple[float, int]:
        """The matches that one query had in the last week: seconds, and how many."""
        begin = int((self.clock() - 7 * 86_400) * 1e6)
        started = time.process_time()
        after = self.root.items.sequence_before(begin)
        sequences = self.root.matches.of_queries([query], after, self.root.matches.matched_upto())
        return time.process_time() - started, sum(len(sequence) for sequence in sequences.values())

    def sample(self, week: int) -> dict[str, Any]:
        """Everything that could grow."""
        batches = [self.one_batch() for _ in range(_SAMPLES)]
        status = [_timed(lambda: read_status(self.root)) for _ in range(5)]
        indexed = [self.read_week(2) for _ in range(3)]
        scanned = self.read_week(3)
        files = [path for path in self.root.folder.rglob("*") if path.is_file()]
        with self.root.catalog.read() as connection:
            rows = {
                name: int(connection.execute(text(f"select count(*) from {name}")).scalar_one())
                for name in ("item_segments", "match_parts", "match_segments", "seen", "messages")
            }
        gc.collect()
        taken, self.tidied = self.tidied, []
        return {
            "week": week,
            "batch_milliseconds": 1e3 * statistics.median(batches),
            "status_milliseconds": 1e3 * statistics.median(status),
            "read_indexed_milliseconds": 1e3 * statistics.median(value for value, _ in indexed),
            "read_scanned_milliseconds": 1e3 * scanned[0],
            "matches_read": indexed[0][1],
            "manifest_rows": rows["item_segments"] + rows["match_parts"] + rows["match_segments"],
            "seen_rows": rows["seen"],
            "message_rows": rows["messages"],
            "files": len(files),
            "megabytes_on_disk": sum(path.stat().st_size for path in files) / 1e6,
            "listings": self.storage.listings,
            "memory_megabytes": _resident(),
            "tidy_seconds": sum(taken),
            "longest_tidy_seconds": max(taken, default=0.0),
        }


def run_year(
    name: str, *, segments: int, weeks: int, keep_days: int, seed: int, tidies: bool
) -> list[dict[str, Any]]:
    """One simulated year; gives the samples, which are printed as they come."""
    samples: list[dict[str, Any]] = []
    clock = FakeClock()
    started = time.process_time()
    with (
        tempfile.TemporaryDirectory(prefix="runnel-year-", dir=_fast_folder()) as folder,
        connect(Path(folder) / "root", clock=clock, keep_items_days=keep_days) as engine,
    ):
        engine.execute(_SCRIPT)
        storage = CountingStorage(engine.workspace.storage.url)
        root = replace(engine.workspace, storage=storage)
        year = Year(root, clock, random.Random(seed), timedelta(weeks=weeks) / segments, storage)
        year.begin()
        for week in range(1, weeks + 1):
            left = segments // weeks - _SAMPLES
            while left > 0:
                year.make_some(min(left, _TOGETHER))
                left -= _TOGETHER
                if tidies:
                    year.tidy()
            samples.append(year.sample(week))
            say(name, **samples[-1])
            storage.listings = 0
    say(f"{name}_whole", segments=segments, seconds=time.process_time() - started, **_drift(samples))
    return samples


def _drift(samples: list[dict[str, Any]]) -> dict[str, float]:
    """The median of the last quarter over that of the second, where everything that is kept for a while is there."""
    second, last = (samples[len(samples) * part // 4 : len(samples) * (part + 1) // 4] for part in (1, 3))
    names = ("batch_milliseconds", "status_milliseconds", "read_indexed_milliseconds", "manifest_rows", "files")
    return {
        f"{name}_last_over_second_quarter": statistics.median(value[name] for value in last)
        / statistics.median(value[name] for value in second)
        for name in (*names, "memory_megabytes")
        if second and last
    }


def _fast_folder() -> str | None:
    """Memory, where there is such a folder: what is measured is how work grows, not the disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _timed(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def say(figure: str, **values: Any) -> None:
    """Print one figure as a line of JSON."""
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}
    print(json.dumps({"benchmark": "year", "figure": figure, **rounded}), flush=True)


_PANELS = (
    ("batch_milliseconds", "catalog work of a batch, ms"),
    ("status_milliseconds", "a status call, ms"),
    ("read_indexed_milliseconds", "a week of one query, ms"),
    ("manifest_rows", "rows in the manifests"),
    ("files", "files"),
    ("memory_megabytes", "memory of the process, MB"),
)


def plot(path: Path, lines: dict[str, list[dict[str, Any]]]) -> None:
    """The samples as small pictures, one for each thing that could grow."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, places = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
    for place, (name, title) in zip(places.flat, _PANELS, strict=True):
        for (label, samples), style in zip(lines.items(), ("-", "--", ":"), strict=False):
            place.plot(
                [sample["week"] for sample in samples], [sample[name] for sample in samples], style, label=label
            )
        place.set_title(title, fontsize=10)
        place.set_xlabel("week", fontsize=8)
        place.set_yscale("log" if name in ("manifest_rows", "files") else "linear")
        if name not in ("manifest_rows", "files"):
            place.set_ylim(bottom=0)
        place.grid(alpha=0.3)
    handles, labels = places.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--weeks", type=int, default=52)
    parser.add_argument("--keep-days", type=int, default=90)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--plot", type=Path, default=None)
    options = parser.parse_args()
    shared: dict[str, Any] = {"weeks": options.weeks, "keep_days": options.keep_days, "seed": options.seed}
    tenth = options.segments // 10
    runs: dict[str, dict[str, Any]] = {
        f"{options.segments:,} segments": {"name": "year", "segments": options.segments, "tidies": True},
        f"{tenth:,} segments": {"name": "tenth", "segments": tenth, "tidies": True},
        f"{tenth:,} segments, never tidied": {"name": "untidied", "segments": tenth, "tidies": False},
    }
    lines = {}
    for label, run in runs.items():
        # A process for each, so that its memory is its own.
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            lines[label] = alone.submit(run_year, **run, **shared).result()
    if options.plot is not None:
        plot(options.plot, lines)


if __name__ == "__main__":
    main()
