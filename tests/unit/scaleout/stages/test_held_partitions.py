"""What a worker process has mapped: pieces that fit into its budget, and no whole plan or old delta beside them."""

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
from runnel.scaleout.stages.held_partitions import held_pieces, partition_of, routing_of
from runnel.storage.file_storage import FileStorage
from runnel.streaming.worker.plan_cache import forget_plans, loaded_plan

COUNT = 3
BASE = 3_000


@pytest.fixture(autouse=True)
def _nothing_is_held() -> Iterator[None]:
    forget_plans()
    forget_parts()
    held_pieces.cache_clear()
    yield
    forget_plans()
    forget_parts()


def definitions(count: int) -> dict[int, Node]:
    """Different queries, enough for their plans to be mapped and not read."""
    title, price = Attribute("title"), Attribute("price")
    return {
        10 + n: Filter(Read(1), And((Contains(title, (f"w{n % 97}",)), Compare(price, "<", float(n)))))
        for n in range(count)
    }


class Roots:
    """A base with partitions, and the versions with deltas that come after it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.storage = folder, FileStorage(folder.as_uri())
        self.asked = definitions(BASE + 8_000)
        queries = [PlanQuery(one) for one in self.asked]
        compile_base(self.storage, "base", queries[:BASE], self.asked)
        self.queries = queries[BASE:]
        self.whole = PlanVersion(1, "base")
        self.version = replace(divided(self.storage, load(self.storage, self.whole), COUNT), version=2)
        forget_parts()

    def declared(self, number: int) -> PlanVersion:
        """The version after so many declarations of a thousand queries each."""
        folder = f"delta-{number}"
        compile_delta(self.storage, folder, self.queries[: 1_000 * number], self.asked, [], "base")
        return replace(self.version, version=2 + number, delta=folder)

    def mapped(self) -> dict[str, int]:
        """The bytes of plan files that this process has mapped, by their folders."""
        found: dict[str, int] = {}
        lines = Path("/proc/self/maps").read_text().splitlines()
        for path in {line[line.index("/") :] for line in lines if f"{self.folder}/" in line}:
            name = Path(path).parent.name
            found[name] = found.get(name, 0) + Path(path).stat().st_size
        return found

    def use(self, version: PlanVersion, budget: int) -> None:
        """What a batch does: route, and match in every partition."""
        routing_of(self.storage, version, budget)
        for number in range(COUNT):
            partition_of(self.storage, version, number, budget)


def test_no_more_is_mapped_than_the_budget_however_often_queries_are_declared(tmp_path: Path) -> None:
    roots = Roots(tmp_path)
    pieces = read_partitioning(roots.storage, roots.version.distribution or "")
    largest = max(one.bytes for one in pieces.partitions)
    versions = [roots.declared(number) for number in range(1, 8)]
    newest = read_manifest(roots.storage, versions[-1].delta or "").size
    budget = pieces.router_bytes + newest + largest
    loaded_plan(roots.storage.url, roots.whole)
    assert "base" in roots.mapped()
    for version in versions:
        roots.use(version, budget)
        there = roots.mapped()
        assert sum(there.values()) <= held_pieces(budget).counters.held_bytes <= budget
        assert "base" not in there, "who has pieces needs no whole plan"
        assert {name for name in there if name.startswith("delta")} <= {version.delta}, "old deltas are let go of"
    loaded_plan(roots.storage.url, roots.whole)
    assert set(roots.mapped()) == {"base"}, "who has the whole plan needs no pieces"


def test_a_declaration_is_no_load(tmp_path: Path) -> None:
    roots, budget = Roots(tmp_path), 1 << 30
    for number in range(3):
        roots.use(roots.declared(number) if number else roots.version, budget)
    counters = held_pieces(budget).counters
    assert (counters.loads, counters.reloads, counters.evictions) == (COUNT + 1, 0, 0)
    assert counters.renewals == 2 * (COUNT + 1)
