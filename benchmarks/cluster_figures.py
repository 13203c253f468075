"""Figures 9i and 10 of the paper: throughput by nodes, and by merge percentage, from CPU-seconds. JSON lines.

    python -m benchmarks.cluster_figures [--subscriptions 100000] [--publications 600] [--parts figure9i,figure10]

All parts run one after another in this process, and their CPU time is measured: the router (the paper's server, stage
one), and every partition (a back end, stage two) on the publications that reach it. A cluster of n nodes has n - 1
back ends. Its throughput is taken to be that of its slowest node, 1 / max(router, slowest partition), as if nodes ran
in parallel without overhead. The figures are therefore CPU times on two cores, not measurements of a cluster. "No
server" is how Runnel runs: every node routes and has a partition. Two alternatives are measured as well: the whole
plan on every node, which takes its share of the publications, and the paper's two stages as printed
(`scaleout.containment`), with the roots distributed over the back ends.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count

import numpy as np
from benchmarks.graph_runs import batch_of
from benchmarks.graph_workload import Workload, make_patterns, publications_of
from benchmarks.measuring import say

from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.arrays import Array
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_logical
from runnel.matching.contract import Matcher
from runnel.matching.filters.atoms.anchors import Anchors, choose_anchors
from runnel.matching.filters.atoms.atom_layout import AtomLayout, compute_atom_layout
from runnel.model.graph import RdfGraph, Triple
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.optimizer.optimize import optimize
from runnel.plan.gates import query_of
from runnel.plan.logical_plan import LogicalPlan, PlanQuery
from runnel.plan.store import PlanVersion, load
from runnel.scaleout.containment.root_index import RootIndex
from runnel.scaleout.cover.cover_predicates import Cover, cover_predicates
from runnel.scaleout.cover.router_plan import router_plan
from runnel.scaleout.cover.subsuming_roots import SubsumingRoots, find_subsuming_roots
from runnel.scaleout.divide.assign_queries import choose_assignment
from runnel.scaleout.divide.cut_plan import cut_plan
from runnel.scaleout.divide.weigh_queries import Weights, weigh_queries
from runnel.scaleout.partitioning import STRATEGIES, Strategy
from runnel.scaleout.route.router import Router
from runnel.storage.file_storage import FileStorage, Storage

NAME = "cluster_figures"
NODES = tuple(range(1, 8))
PERCENTAGES = (50, 60, 70, 80, 90, 95, 99)
TOPICS = {"figure9i": 29, "figure10": 15}
"""Topics with which a publication matches about 0.5 and 1 per cent of the subscriptions, as in the paper."""

PAPERS = 70
"""The merge percentage of the paper's Figure 9i."""

FIRST = 1_000
"""The id of the first query."""

_SAMPLED = 300
"""Other publications, by which patterns are merged that often hold of the same ones (§4.3)."""


def main() -> None:
    """Measure and print. Fail if the matches differ from those of the whole plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=100_000)
    parser.add_argument("--publications", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; the best is reported")
    parser.add_argument("--parts", default="figure9i,figure10")
    parser.add_argument("--nodes", default=",".join(map(str, NODES)), help="sizes of clusters in Figure 9i")
    parser.add_argument(
        "--merging",
        default="0,70,94",
        help="merge percentages in Figure 9i; 0: containment alone; Runnel's own is 94",
    )
    parser.add_argument("--percentages", default=",".join(map(str, PERCENTAGES)), help="of merging, in Figure 10")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    equal = True
    for part in options.parts.split(","):
        with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
            bench = Bench(options, TOPICS[part], FileStorage(f"file://{folder}"))
            sizes = options.nodes if part == "figure9i" else options.percentages
            equal &= {"figure9i": figure9i, "figure10": figure10}[part](
                bench, [int(value) for value in sizes.split(",")]
            )
    sys.exit(0 if equal else 1)


@dataclass(frozen=True)
class Stages:
    """CPU microseconds per publication of the router and of every partition, and the matches."""

    router: float
    partitions: tuple[float, ...]
    copies: float
    found: Array

    @property
    def slowest(self) -> float:
        """The time of the slowest node."""
        return max(self.router, *self.partitions)


class Bench:
    """Subscriptions and publications, and what is made of them."""

    def __init__(self, options: argparse.Namespace, topics: int, storage: Storage) -> None:
        self._workload = Workload(options.subscriptions, _SAMPLED + options.publications, topics=topics)
        self._storage, self._rounds = storage, options.rounds
        self.merging = [int(part) or None for part in options.merging.split(",")]
        self._folders = (f"plans/{number}" for number in count())
        graphs = list(publications_of(self._workload))
        self.sampled: list[list[Triple]] = [list(graph.triples()) for graph in graphs[:_SAMPLED]]
        self.triples: list[list[Triple]] = [list(graph.triples()) for graph in graphs[_SAMPLED:]]
        self.items: ItemBatch = batch_of(graphs[_SAMPLED:])
        self.patterns = make_patterns(self._workload)
        asked: dict[int, Node] = {
            number: Filter(Read(1), pattern) for number, pattern in enumerate(self.patterns, FIRST)
        }
        self.logical = optimize(map(PlanQuery, asked), asked)
        self._covers: dict[int | None, tuple[Cover, Weights]] = {}

    @property
    def subscriptions(self) -> int:
        """How many there are."""
        return len(self.patterns)

    @cached_property
    def atoms(self) -> AtomLayout:
        """The arrays of atoms."""
        return compute_atom_layout(self.logical)

    @cached_property
    def anchors(self) -> Anchors:
        """The anchors of the predicates."""
        return choose_anchors(self.logical, self.atoms)

    @cached_property
    def kin(self) -> SubsumingRoots:
        """The roots, by containment."""
        return find_subsuming_roots(self.logical, self.atoms, self.anchors)

    def cover(self, most: int | None) -> tuple[Cover, Weights]:
        """The router's conditions, merged until there are `most`, and the weights of queries with these."""
        if most not in self._covers:
            results = cover_predicates(
                self.logical,
                self.atoms,
                self.anchors,
                self.kin,
                most=most,
                samples={"graph": [RdfGraph.of(value) for value in self.sampled]},
            )
            weights = weigh_queries(self.logical, self.atoms, self.anchors, results.of_predicates, results.shares)
            self._covers[most] = results, weights
        return self._covers[most]

    def matcher(self, logical: LogicalPlan) -> tuple[Matcher, PlanVersion]:
        """The matcher of a plan, which is written and mapped as workers have it."""
        folder = next(self._folders)
        compile_logical(self._storage, folder, logical)
        version = PlanVersion(1, folder)
        return build_matcher(load(self._storage, version)), version

    def timed(self, work: Callable[[], Matches]) -> tuple[float, Matches]:
        """Return the CPU microseconds per publication: the best of several rounds after a warm-up round."""
        results = work()
        return self.best(work), results

    def best(self, work: Callable[[], object]) -> float:
        """Return the CPU microseconds per publication, the best of several rounds."""
        times = []
        for _ in range(self._rounds):
            started = time.process_time()
            work()
            times.append(time.process_time() - started)
        return 1e6 * min(times) / len(self.items)

    @cached_property
    def whole(self) -> Stages:
        """The whole plan on one node."""
        matcher, _ = self.matcher(self.logical)
        microseconds, results = self.timed(lambda: matcher.match(self.items))
        return Stages(microseconds, (0.0,), 0.0, pairs_of(np.arange(len(self.items)), results))

    def divided(self, most: int | None, count: int, strategy: Strategy) -> Stages:
        """Measure a number of partitions behind a router."""
        cover, weights = self.cover(most)
        chosen = choose_assignment(weights, count, strategy)
        places = np.searchsorted(weights.owners, query_of(self.logical.query_ids))
        numbers = chosen.partitions[places]
        folder = next(self._folders)
        compile_logical(self._storage, folder, router_plan(self.logical, cover, numbers, count))
        router = Router(load(self._storage, PlanVersion(1, folder)), count)
        routed = router.route(self.items)
        routing = self.best(lambda: router.route(self.items))
        times, results = [], []
        for number in range(count):
            rows = routed.rows(number)
            matcher, _ = self.matcher(cut_plan(self.logical, numbers == number))
            chosen_items = ItemBatch(self.items.records.take(rows))
            microseconds, matches = self.timed(lambda matcher=matcher, own=chosen_items: matcher.match(own))  # type: ignore[misc]
            times.append(microseconds)
            results.append(pairs_of(rows, matches))
        copies = routed.copies / len(self.items)
        return Stages(routing, tuple(times), copies, np.unique(np.concatenate(results)))


def pairs_of(rows: Array, matches: Matches) -> Array:
    """The pairs of a publication and a query as single numbers, ascending."""
    owners = np.repeat(rows, np.diff(matches.offsets))
    return np.unique(owners * (1 << 32) + matches.queries)


class PaperStages:
    """The two stages as the paper has them: roots and mergers at the server, what lies below at the back ends."""

    def __init__(self, bench: Bench, percentage: int | None) -> None:
        self._bench = bench
        self.index = RootIndex()
        for number, graph in enumerate(bench.patterns, 1):
            self.index.subscribe(number, graph)
        if percentage is not None:
            for triples in bench.sampled:
                self.index.observe(iter(triples))
            self.index.merge(bench.subscriptions * (100 - percentage) // 100)

    def stages(self, count: int) -> Stages:
        """Measure a number of back ends. The matching roots are distributed over them by number."""
        index, triples = self.index, self._bench.triples

        def first() -> list[Array]:
            return [index.roots_of(index.encoded(triple)) for triple in triples]

        roots = [np.where(held < 0, -1 - held, held) for held in first()]
        routing = self._bench.best(first)
        times = [self._bench.best(lambda own=number: self._second(roots, own, count)) for number in range(count)]  # type: ignore[misc]
        copies = sum(len(np.unique(held % count)) for held in roots) / len(roots)
        return Stages(routing, tuple(times), copies, np.empty(0))

    def alone(self) -> Stages:
        """Measure both stages on one node, one after the other, which is the paper's baseline."""
        both = self.stages(1)
        return Stages(both.router + both.partitions[0], (0.0,), 1.0, both.found)

    def _second(self, roots: Sequence[Array], own: int, count: int) -> None:
        for triples, held in zip(self._bench.triples, roots, strict=True):
            mine = held[held % count == own]
            if len(mine):
                self.index.members_of(self.index.encoded(triples), mine)


def _lower(bench: Bench, percentage: int) -> int:
    return max(1, bench.subscriptions * (100 - percentage) // 100)


def _say(bench: Bench, figure: str, curve: str, nodes: int, stages: Stages, **more: object) -> bool:
    """Print a line. Return whether the matches are those of the whole plan."""
    equal = not len(stages.found) or np.array_equal(stages.found, bench.whole.found)
    say(
        NAME,
        figure,
        curve=curve,
        nodes=nodes,
        subscriptions=bench.subscriptions,
        matches_percent=100 * len(bench.whole.found) / len(bench.items) / bench.subscriptions,
        publications_per_second=1e6 / stages.slowest,
        times_one_node=bench.whole.router / stages.slowest,
        router_microseconds=stages.router,
        slowest_partition_microseconds=max(stages.partitions),
        copies=stages.copies,
        equal=equal,
        **more,
    )
    return bool(equal)


def _replicated(bench: Bench, nodes: int) -> Stages:
    whole = bench.whole
    return Stages(whole.router / nodes, (0.0,), 1.0, whole.found)


def shared_by(stages: Stages, nodes: int) -> Stages:
    """The same without a server: as Runnel runs, every node routes its part of the publications and has a partition.

    >>> shared_by(Stages(30.0, (20.0, 40.0, 10.0), 1.5, np.empty(0)), 3).slowest
    50.0
    """
    every = stages.router / nodes
    return Stages(every, tuple(every + partition for partition in stages.partitions), stages.copies, stages.found)


def _ours(bench: Bench, figure: str, nodes: int, percentage: int | None) -> Iterator[bool]:
    most = None if percentage is None else _lower(bench, percentage)
    cover, _ = bench.cover(most)
    more: dict[str, object] = {"conditions": len(cover.conditions), "merge_percentage": percentage}
    name = _name(percentage if figure == "figure9i" else PAPERS)
    for strategy in STRATEGIES:
        stages = bench.divided(most, nodes - 1, strategy)
        yield _say(bench, figure, f"{name}, {strategy}", nodes, stages, strategy=strategy, **more)
        if nodes > 2:
            own = shared_by(stages, nodes - 1)
            yield _say(bench, figure, f"{name}, {strategy}, no server", nodes - 1, own, strategy=strategy, **more)


def figure9i(bench: Bench, sizes: Sequence[int]) -> bool:
    """Throughput by nodes: containment, merging, the whole plan everywhere, and the paper's stages."""
    equal = True
    paper = lru_cache(lambda percentage: PaperStages(bench, percentage))
    for nodes in sizes:
        equal &= _say(bench, "figure9i", "whole plan on every node", nodes, _replicated(bench, nodes))
        if nodes == 1:
            _say(bench, "figure9i", "the paper's stages, one node for both", 1, paper(None).alone())
            continue
        for percentage in bench.merging:
            equal &= all(list(_ours(bench, "figure9i", nodes, percentage)))
            if percentage in (None, PAPERS):
                own = paper(percentage)
                name = f"the paper's stages, {_name(percentage)}"
                _say(bench, "figure9i", name, nodes, own.stages(nodes - 1), conditions=own.index.root_count)
    return equal


def _name(percentage: int | None) -> str:
    """What a merge percentage is called in the names of curves."""
    if percentage is None:
        return "containment"
    return "merging" if percentage == PAPERS else f"merging {percentage} %"


def figure10(bench: Bench, percentages: Sequence[int]) -> bool:
    """Throughput by merge percentage, with two and four back ends."""
    equal = True
    for percentage in percentages:
        for back_ends in (2, 4):
            equal &= all(list(_ours(bench, "figure10", 1 + back_ends, percentage)))
        paper = PaperStages(bench, percentage)
        for back_ends in (2, 4):
            stages = paper.stages(back_ends)
            more = {"conditions": paper.index.root_count, "merge_percentage": percentage}
            _say(bench, "figure10", "the paper's stages", 1 + back_ends, stages, **more)
    _say(bench, "figure10", "the paper's stages, one node for both", 1, PaperStages(bench, None).alone())
    for nodes in (1, 3, 5):
        equal &= _say(bench, "figure10", "whole plan on every node", nodes, _replicated(bench, nodes))
    return equal


if __name__ == "__main__":
    main()
