"""Runs on a real standalone cluster: one root with a plan, matched again and again in different shapes.

In: a mix of queries, and configurations (workers, partitions, strategy, budget). Out: for each what it took, as
figures. The catalog is a PostgreSQL server; master, workers and driver are processes on this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.cluster_watch import DRIVER, Watch
from benchmarks.cluster_workload import OPERATOR, Mix, items_of, kept_plan
from benchmarks.measuring import say
from benchmarks.workloads import frequencies
from tests.services import SparkCluster, kill_session

from runnel.catalog.declared import feeds
from runnel.catalog.logs import match_segments, plan_versions
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.engine import Engine
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_logical
from runnel.matching.compile.warm_up import warm_up
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.plan.manifest import PlanManifest
from runnel.plan.store import PlanVersion, load, load_part, read_manifest
from runnel.scaleout.divide.make_partitioning import make_partitioning
from runnel.scaleout.partitioning import Partitioning, Strategy, read_partitioning
from runnel.scaleout.planning import partition_loads
from runnel.storage.file_storage import Storage

NAME = "cluster"
BASE = "plans/benchmark"
_PATIENCE = 3_600.0


@dataclass(frozen=True, slots=True)
class Configuration:
    """How a run is done. One partition means that every worker has all queries; `budget` is in megabytes.

    `batch` is how many items a batch has.
    """

    workers: int
    partitions: int
    strategy: Strategy | None = None
    budget: int = 4_096
    batch: int = 6_144

    @property
    def about(self) -> dict[str, Any]:
        """For every line."""
        shape = "replicated" if self.partitions == 1 else self.strategy or "chosen"
        return {
            "workers": self.workers,
            "partitions": self.partitions,
            "shape": shape,
            "budget_mb": self.budget,
            "batch": self.batch,
        }


@dataclass(frozen=True)
class Sizes:
    """How many items there are, and how many of these only warm up."""

    items: int
    warm: int
    seed: int


# ---- the root ----


def prepare(engine: Engine, mix: Mix, keep: Path | None) -> PlanManifest:
    """Register feeds and the operator, and write the base that all runs share; nothing is published yet."""
    for name in mix.feeds:
        engine.execute(f"register feed {name};")
    engine.execute(OPERATOR)
    with engine.workspace.catalog.read() as connection:
        ids = {feed.name: feed.id for feed in feeds.live_feeds(connection)}
    if ids != mix.feeds:
        raise RuntimeError(f"the plan's feeds have other ids than the catalog's: {ids}")
    manifest = base_of(engine.workspace.storage, mix, keep)
    warm_kernels(engine.workspace.storage, mix)
    say(
        NAME,
        "plan",
        **mix.counts,
        queries=mix.queries,
        bytes=manifest.size,
        bytes_per_query=manifest.size / mix.queries,
    )
    return manifest


def base_of(storage: Storage, mix: Mix, keep: Path | None) -> PlanManifest:
    """The base folder: compiled, or copied from where it was kept."""
    kept = None if keep is None else keep / f"{mix.name}.plan"
    target = storage.local(BASE)
    if kept is not None and kept.exists():
        shutil.copytree(kept, target)
        return read_manifest(storage, BASE)
    logical = kept_plan(mix, keep)
    started = time.process_time()
    manifest = compile_logical(storage, BASE, logical, frequencies=frequencies())
    say(NAME, "compile", queries=mix.queries, cpu_seconds=time.process_time() - started)
    if kept is not None:
        shutil.copytree(target, kept)
    return manifest


def warm_kernels(storage: Storage, mix: Mix) -> None:
    """Have the kernels compiled here, so that workers find them on the disk."""
    warm_up()
    feeds_by_name = mix.feeds
    matcher = build_matcher(load(storage, PlanVersion(1, BASE)))
    for _, values in items_of(mix, 2_048, 1, "warm"):
        matcher.match(ItemBatch.of(values, feeds_by_name))


def kept_division(storage: Storage, mix: Mix, configuration: Configuration, keep: Path | None) -> Partitioning:
    """The base, divided as a configuration wants it: from where that was kept, or made and kept."""
    if keep is None:
        return divided(storage, configuration)
    kept = keep / f"{mix.name}.{configuration.strategy or 'chosen'}-{configuration.partitions}"
    if not kept.exists():
        made = divided(storage, configuration)
        for folder in (*made.pieces, made.folder):
            shutil.copytree(storage.local(folder), kept / folder)
        (kept / "partitioning").write_text(made.folder)
        return made
    shutil.copytree(kept / "plans", storage.local("plans"), dirs_exist_ok=True)
    return read_partitioning(storage, (kept / "partitioning").read_text())


def divided(storage: Storage, configuration: Configuration) -> Partitioning:
    """The base, divided as a configuration wants it."""
    part = load_part(storage, BASE)
    number = iter(range(1_000_000))
    name = f"plans/{configuration.strategy or 'chosen'}-{configuration.partitions}"
    started = time.process_time()
    made = make_partitioning(
        storage,
        part.logical,
        stored_atoms(part),
        base=BASE,
        count=configuration.partitions,
        strategy=configuration.strategy,
        frequencies=frequencies(),
        new_folder=lambda: f"{name}-{next(number)}",
    )
    say(
        NAME,
        "divide",
        partitions=configuration.partitions,
        strategy=made.strategy,
        cpu_seconds=time.process_time() - started,
        plan_bytes=part.manifest.size,
        router_bytes=made.router_bytes,
        partition_bytes=[partition.bytes for partition in made.partitions],
        queries=[partition.queries for partition in made.partitions],
        expected_shares=[round(partition.share, 4) for partition in made.partitions],
        expected_microseconds=[round(partition.microseconds, 2) for partition in made.partitions],
        counters=dict(made.counters),
        reason=made.reason,
    )
    return made


def publish(engine: Engine, mix: Mix, made: Partitioning | None) -> None:
    """Make the base, divided or not, the current version, with nothing known of earlier runs."""
    with engine.workspace.catalog.write() as connection:
        partition_loads.forget_loads(connection, [])
        plan_versions.publish_plan(
            connection,
            BASE,
            None,
            mix.queries,
            distribution=None if made is None else made.folder,
            pieces=() if made is None else made.pieces,
        )


class Stream:
    """The items of all runs: the same in each, under other ids."""

    def __init__(self, mix: Mix, sizes: Sizes) -> None:
        self._items = list(items_of(mix, sizes.items, sizes.seed, ""))
        self._times = 0

    def accept(self, engine: Engine) -> tuple[int, int]:
        """Accept all items once more; gives the sequences before the first and of the last."""
        self._times += 1
        before = engine.workspace.items.last_sequence()
        for feed, values in self._items:
            engine.workspace.items.accept(feed, [self._again(value) for value in values])
        return before, engine.workspace.items.last_sequence()

    def _again(self, item: Item) -> Item:
        return replace(item, id=f"run-{self._times}{item.id}")


# ---- one run ----


@dataclass(frozen=True)
class Run:
    """A finished run: its segments, the process samples, and the shuffle counters of the driver."""

    configuration: Configuration
    segments: Sequence[MatchSegment]
    watch: Watch
    shuffle: dict[str, Any]
    digest: str

    def warm(self, items: int) -> Sequence[MatchSegment]:
        """Return the segments after the given number of warm-up items, at least the last segment."""
        return self.segments[self._cold(items) :]

    def span(self, items: int) -> tuple[float, float]:
        """The moments between which the warm segments were matched."""
        first = self.segments[max(0, self._cold(items) - 1)]
        return first.committed / 1e6, self.segments[-1].committed / 1e6

    def _cold(self, items: int) -> int:
        ends = np.cumsum([segment.items for segment in self.segments])
        return min(1 + int(np.searchsorted(ends, items)), len(self.segments) - 1)

    def counted(self, segments: Sequence[MatchSegment]) -> Counter[str]:
        """The counters of some segments, added up."""
        results: Counter[str] = Counter()
        for segment in segments:
            results.update(segment.counters)
        return results


@dataclass(frozen=True)
class Place:
    """A cluster, the folder of its files, the root that is matched, and its catalog."""

    engine: Engine
    cluster: SparkCluster
    folder: Path
    catalog: str


def run(place: Place, configuration: Configuration, sequences: tuple[int, int]) -> Run:
    """Match the items between two sequences on a cluster."""
    root = place.engine.workspace
    environment = os.environ | {
        "RUNNEL_CATALOG": place.catalog,
        "RUNNEL_MASTER": place.cluster.url,
        "SPARK_CONF_DIR": str(place.cluster.configuration),
        "RUNNEL_DRIVER_MEMORY": "1g",
        "RUNNEL_PARTITIONS": str(configuration.partitions),
        "RUNNEL_PARTITION_STRATEGY": configuration.strategy or "",
        "RUNNEL_PLAN_MEGABYTES": str(configuration.budget),
        "RUNNEL_MAX_BATCH_ITEMS": str(configuration.batch),
        "RUNNEL_MAX_BATCH_BYTES": str(1 << 30),
        "RUNNEL_SLICE_ITEMS": "512",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    driver = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.cluster_driver", str(root.folder)],
        env=environment,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    watch = Watch(place.folder, driver.pid, root.storage.local("plans"))
    watch.start()
    try:
        messages, _ = driver.communicate(timeout=_PATIENCE)
    finally:
        watch.stop()
        kill_session(driver)
    if driver.returncode:
        raise RuntimeError(f"the driver ended with {driver.returncode}: see {root.folder}/logs")
    with root.catalog.read() as connection:
        segments = match_segments.match_segments(connection, sequences[0])
    if not segments or segments[-1].last_sequence != sequences[1]:
        raise RuntimeError("not all items were matched")
    books = json.loads(messages.decode().strip().splitlines()[-1])
    return Run(configuration, segments, watch, books, _digest(place.engine, sequences))


def _digest(engine: Engine, sequences: tuple[int, int]) -> str:
    """Return a digest of all matches of a run. Runs on the same items must have the same digest."""
    made = hashlib.blake2b(digest_size=8)
    for rows in engine.workspace.matches.read(*sequences):
        for number in range(len(rows.sequences)):
            own = np.sort(rows.queries[rows.offsets[number] : rows.offsets[number + 1]])
            made.update(np.int64(rows.sequences[number] - sequences[0]).tobytes())
            made.update(own.astype("<i8").tobytes())
    return made.hexdigest()


def worker_seconds(run_: Run, warm: int) -> dict[str, dict[str, float]]:
    """CPU seconds of every worker and the driver while warm, Python and Java apart."""
    results: dict[str, dict[str, float]] = {}
    for (owner, kind), seconds in run_.watch.seconds(*run_.span(warm)).items():
        results.setdefault(owner, {})[kind] = seconds
    return {owner: results[owner] for owner in sorted(results, key=lambda name: (name == DRIVER, name))}
