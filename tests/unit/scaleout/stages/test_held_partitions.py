"""A worker process maps the router and partitions within its budget, and no whole plan or old delta with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.scaleout.divided_plans import divided

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Compare, Contains
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.matching.compile.compile_plan import compile_base, compile_delta
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import PlanVersion, forget_parts, load, read_manifest
from runnel.scaleout.partitioning import read_partitioning
from runnel.scaleout.stages.held_partitions import load_cached_partition, load_routing, loaded_plans
from runnel.storage.file_storage import FileStorage
from runnel.streaming.worker.plan_cache import load_whole_plan, release_all_plans

COUNT = 3
BASE = 3_000


@pytest.fixture(autouse=True)
def _release_plans() -> Iterator[None]:
    release_all_plans()
    forget_parts()
    loaded_plans.cache_clear()
    yield
    release_all_plans()
    forget_parts()


def definitions(count: int) -> dict[int, Node]:
    """Return different queries, enough for their plans to be mapped instead of read."""
    title, price = Attribute("title"), Attribute("price")
    return {
        10 + n: Filter(Read(1), And((Contains(title, (f"w{n % 97}",)), Compare(price, "<", float(n)))))
        for n in range(count)
    }


class PartitionedBase:
    """A base with partitions, and later versions with deltas."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.storage = folder, FileStorage(folder.as_uri())
        self.definitions = definitions(BASE + 8_000)
        queries = [PlanQuery(feed) for feed in self.definitions]
        compile_base(self.storage, "base", queries[:BASE], self.definitions)
        self.queries = queries[BASE:]
        self.whole = PlanVersion(1, "base")
        self.version = replace(divided(self.storage, load(self.storage, self.whole), COUNT), version=2)
        forget_parts()

    def with_delta(self, number: int) -> PlanVersion:
        """Return the version after `number` declarations of a thousand queries each."""
        folder = f"delta-{number}"
        compile_delta(self.storage, folder, self.queries[: 1_000 * number], self.definitions, [], "base")
        return replace(self.version, version=2 + number, delta=folder)

    def mapped(self) -> dict[str, int]:
        """Return the bytes of plan files that this process has mapped, by their folders."""
        sizes: dict[str, int] = {}
        lines = Path("/proc/self/maps").read_text().splitlines()
        for path in {line[line.index("/") :] for line in lines if f"{self.folder}/" in line}:
            name = Path(path).parent.name
            sizes[name] = sizes.get(name, 0) + Path(path).stat().st_size
        return sizes

    def use(self, version: PlanVersion, budget: int) -> None:
        """Load what a batch needs: the router and every partition."""
        load_routing(self.storage, version, budget)
        for number in range(COUNT):
            load_cached_partition(self.storage, version, number, budget)


def test_mapped_plans_stay_within_the_budget_after_many_declarations(tmp_path: Path) -> None:
    base = PartitionedBase(tmp_path)
    partitioning = read_partitioning(base.storage, base.version.distribution or "")
    largest = max(partition.bytes for partition in partitioning.partitions)
    versions = [base.with_delta(number) for number in range(1, 8)]
    newest = read_manifest(base.storage, versions[-1].delta or "").size
    budget = partitioning.router_bytes + newest + largest
    load_whole_plan(base.storage.url, base.whole)
    assert "base" in base.mapped()
    for version in versions:
        base.use(version, budget)
        mapped = base.mapped()
        assert sum(mapped.values()) <= loaded_plans(budget).counters.held_bytes <= budget
        assert "base" not in mapped, "loading a partition releases the whole plan"
        assert {name for name in mapped if name.startswith("delta")} <= {version.delta}, "old deltas are released"
    load_whole_plan(base.storage.url, base.whole)
    assert set(base.mapped()) == {"base"}, "loading the whole plan releases the partitions"


def test_new_delta_counts_as_renewal_and_not_as_load(tmp_path: Path) -> None:
    base, budget = PartitionedBase(tmp_path), 1 << 30
    for number in range(3):
        base.use(base.with_delta(number) if number else base.version, budget)
    counters = loaded_plans(budget).counters
    assert (counters.loads, counters.reloads, counters.evictions) == (COUNT + 1, 0, 0)
    assert counters.renewals == 2 * (COUNT + 1)
