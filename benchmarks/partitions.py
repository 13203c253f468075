"""Partitions, measured: how queries are divided, what was expected of it, and what the pieces do. JSON lines.

    python -m benchmarks.partitions [--parts constants,filters,sources,graphs] [--queries 100000] [--partitions 8]
        [--items 2048] [--patterns 20000] [--publications 600] [--most 0] [--match-up-to 200000] [--seed 7]

`constants` measures those of `scaleout/divide/weigh_queries.py`: each workload is matched with fewer and with more
queries, and microseconds of entries and matches are fitted to what differs. The other parts divide a plan by both
strategies: filters of workload M over one source, the same over 1,000 sources, and graph patterns. `divided` has the
seconds of every step; `weighed` what each strategy is expected to cost; `routed` the copies of items that the router
makes, next to those expected and those needed (of an item that matches something in the partition); `matched` the
CPU time of the whole plan and of the pieces. Beyond `--match-up-to` queries partitions are not cut out, only routed
to. All pieces together must give the matches of the whole plan, or the run fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.graph_runs import batch_of
from benchmarks.graph_workload import Workload, make_patterns, make_publications
from benchmarks.measuring import digest, say
from benchmarks.workloads import Kind, frequencies, make_items, make_queries, over_sources, spread
from tests.partitioned_matcher import PartitionMatches, united

from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.arrays import Array
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_logical
from runnel.matching.contract import Matcher
from runnel.matching.filters.atoms.anchors import choose_anchors
from runnel.matching.filters.atoms.atom_layout import compute_atom_layout
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.optimizer.optimize import optimize
from runnel.plan.gates import query_of
from runnel.plan.logical_plan import LogicalPlan, PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.scaleout.cover.cover_predicates import Cover, cover_predicates
from runnel.scaleout.cover.router_plan import router_plan
from runnel.scaleout.cover.subsuming_roots import find_subsuming_roots
from runnel.scaleout.divide.assign_queries import assign_queries, choose_assignment, weigh_assignment
from runnel.scaleout.divide.cut_plan import cut_plan
from runnel.scaleout.divide.weigh_queries import Weights, weigh_queries
from runnel.scaleout.partitioning import STRATEGIES, Strategy
from runnel.scaleout.route.router import Router
from runnel.storage.file_storage import FileStorage, Storage

NAME = "partitions"
SOURCES = 1_000
_GRAPH_SOURCE = 1


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--items", type=int, default=2_048)
    parser.add_argument("--patterns", type=int, default=20_000)
    parser.add_argument("--publications", type=int, default=600)
    parser.add_argument("--most", type=int, default=0, help="conditions of the router; 0: one for 16 predicates")
    parser.add_argument("--match-up-to", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    for part in options.parts.split(","):
        PARTS[part](options)


# ---- constants ----


def constants(options: argparse.Namespace) -> None:
    """Fit what entries and matches cost, and what a graph pattern does."""
    batch, rows = make_items(options.items).batch(), []
    kinds: tuple[Kind, ...] = ("H", "M", "S")
    for kind in kinds:
        for count in (20_000, 100_000):
            case = _Case(f"{kind}", make_queries(kind, count, options.seed).logical(), batch, frequencies())
            entries = _expected_entries(case)
            with _folder() as storage:
                taken, matches = _timed(case.compiled(storage, "base", case.logical), batch)
            rows.append((1.0, entries, matches.total / len(batch), taken))
            say(
                NAME,
                "filters",
                workload=kind,
                queries=count,
                entries=entries,
                matches=rows[-1][2],
                microseconds=taken,
            )
    table = np.array(rows)
    fitted = np.linalg.lstsq(table[:, :3], table[:, 3], rcond=None)[0]
    say(NAME, "constants", copy=fitted[0], entry=fitted[1], emit=fitted[2])
    costs = {}
    for count in (50, options.patterns, 3 * options.patterns):
        case = _graph_case(count, options)
        with _folder() as storage:
            costs[count], _ = _timed(case.compiled(storage, "base", case.logical), case.batch)
        say(NAME, "patterns", patterns=count, microseconds=costs[count])
    few, many = options.patterns, 3 * options.patterns
    say(NAME, "constants", graph_copy=costs[50], pattern=(costs[many] - costs[few]) / (many - few))


def _expected_entries(case: _Case) -> float:
    """The entries that an item passes, by its part in a block."""
    atoms = compute_atom_layout(case.logical, case.known)
    shares = np.minimum(1.0, atoms.key_shares.astype(np.float64))
    return float(((1.0 - (1.0 - shares) ** 256) / 256)[choose_anchors(case.logical, atoms).keys.values].sum())


# ---- what is divided ----


@dataclass
class _Case:
    """Queries and items; `seconds` are what the steps took."""

    name: str
    logical: LogicalPlan
    batch: ItemBatch
    known: dict[str, float] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def compiled(self, storage: Storage, folder: str, logical: LogicalPlan) -> Matcher:
        """A matcher for some of it, written and loaded again."""
        return build_matcher(self.loaded(storage, folder, logical))

    def loaded(self, storage: Storage, folder: str, logical: LogicalPlan) -> Plan:
        """A plan folder of some of it."""
        compile_logical(storage, folder, logical, frequencies=self.known)
        return load(storage, PlanVersion(1, folder))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step."""
        started = time.process_time()
        yield
        self.seconds[name] = round(time.process_time() - started, 3)


def filters(options: argparse.Namespace) -> None:
    """Workload M over one source."""
    logical = make_queries("M", options.queries, options.seed).logical()
    _divide(_Case("M", logical, make_items(options.items).batch(), frequencies()), options)


def sources(options: argparse.Namespace) -> None:
    """The same over many sources, each query over one."""
    logical = spread(make_queries("M", options.queries, options.seed).logical(), SOURCES)
    items = over_sources(make_items(options.items).batch(), SOURCES, options.seed)
    _divide(_Case(f"M over {SOURCES} sources", logical, items, frequencies()), options)


def graphs(options: argparse.Namespace) -> None:
    """Graph patterns."""
    _divide(_graph_case(options.patterns, options), options)


def _graph_case(count: int, options: argparse.Namespace) -> _Case:
    workload = Workload(subscriptions=count, publications=options.publications)
    definitions: dict[int, Node] = {
        1_000 + number: Filter(Read(_GRAPH_SOURCE), pattern) for number, pattern in enumerate(make_patterns(workload))
    }
    logical = optimize([PlanQuery(query) for query in definitions], definitions)
    return _Case("graphs", logical, batch_of(make_publications(workload)))


def _divide(case: _Case, options: argparse.Namespace) -> None:
    logical, count = case.logical, options.partitions
    _warm_up(case, options)
    with case.step("atoms"):
        atoms = compute_atom_layout(logical, case.known)
        anchors = choose_anchors(logical, atoms)
    with case.step("kin"):
        kin = find_subsuming_roots(logical, atoms, anchors)
    with case.step("cover"):
        most = options.most or max(4_096, len(logical.predicates) // 16)
        cover = cover_predicates(logical, atoms, anchors, kin, most=most)
    with case.step("weigh"):
        weights = weigh_queries(logical, atoms, anchors, cover.of_predicates, cover.shares)
    with case.step("choose"):
        chosen = choose_assignment(weights, count)
    about = {"workload": case.name, "queries": len(weights), "partitions": count}
    say(NAME, "divided", **about, groups=weights.group_count, **cover.counters, cpu_seconds=case.seconds)
    for value in chosen.weighed:
        values = {"copies": value.copies, "microseconds": value.microseconds, "longest": value.longest}
        say(NAME, "weighed", **about, strategy=value.strategy, chosen=value.strategy == chosen.strategy, **values)
    say(NAME, "reason", **about, reason=chosen.reason)
    with _folder() as storage:
        whole = None
        if len(weights) <= options.match_up_to:
            whole = _timed(case.compiled(storage, "base", logical), case.batch)
        for strategy in STRATEGIES:
            _measure(case, storage, strategy, _Divided(weights, cover, count), whole, about)


def _warm_up(case: _Case, options: argparse.Namespace) -> None:
    """Let the loops be compiled before anything is timed."""
    small = _graph_case(200, options).logical if case.name == "graphs" else make_queries("M", 500).logical()
    atoms = compute_atom_layout(small)
    anchors = choose_anchors(small, atoms)
    kin = find_subsuming_roots(small, atoms, anchors)
    cover = cover_predicates(small, atoms, anchors, kin, most=40)
    choose_assignment(weigh_queries(small, atoms, anchors, cover.of_predicates, cover.shares), 3)


@dataclass(frozen=True)
class _Divided:
    weights: Weights
    cover: Cover
    count: int


def _measure(
    case: _Case,
    storage: Storage,
    strategy: Strategy,
    divided: _Divided,
    whole: tuple[float, Matches] | None,
    about: dict[str, Any],
) -> None:
    """Route the items by one strategy and, where partitions are to be cut out, match them there."""
    weights, count, items = divided.weights, divided.count, len(case.batch)
    partitions = assign_queries(weights, count, strategy)
    expected = weigh_assignment(weights, partitions, count, strategy)
    places = partitions[np.searchsorted(weights.owners, query_of(case.logical.query_ids))]
    started = time.process_time()
    opened = expected.routes.open_partitions, expected.routes.open_scopes
    logical = router_plan(case.logical, divided.cover, places, count, opened=opened)
    plan = case.loaded(storage, f"router-{strategy}", logical)
    made = time.process_time() - started
    router = Router(plan, count)
    taken, _ = _timed(router.matcher, case.batch)
    choices = router.route(case.batch).choices
    shares = choices.mean(axis=0)
    results = _needed(whole[1], case, places, count) if whole else None
    say(
        NAME,
        "routed",
        **about,
        strategy=strategy,
        copies_expected=expected.weighed.copies,
        copies=float(shares.sum()),
        copies_needed=None if results is None else float(results.sum()) / items,
        largest_difference_of_a_share=float(np.abs(shares - expected.shares).max()),
        router_bytes=plan.base.manifest.size,
        router_cpu_seconds=round(made, 2),
        router_microseconds=taken,
        router_expected=expected.routes.router,
        open_routes=len(expected.routes.open_scopes),
    )
    if whole is None:
        return
    times, united_matches = _matched(case, storage, strategy, places, choices)
    say(
        NAME,
        "matched",
        **about,
        strategy=strategy,
        whole_microseconds=whole[0],
        microseconds=taken + float(times.sum()),
        microseconds_expected=expected.weighed.microseconds,
        longest=taken + float(times.max()),
        longest_expected=expected.weighed.longest,
        skew=float(times.max() / times.mean()),
        skew_expected=expected.skew,
        matches_per_item=whole[1].total / items,
    )
    if digest(united_matches) != digest(whole[1]):
        sys.exit(f"the pieces of {case.name}, {strategy}, give other matches than the whole")


def _needed(matches: Matches, case: _Case, places: Array, count: int) -> Array:
    """For every partition the items that match something in it."""
    rows = np.repeat(np.arange(len(matches)), np.diff(matches.offsets))
    owners = places[np.searchsorted(case.logical.query_ids, matches.queries)]
    return np.bincount(np.unique(rows * count + owners) % count, minlength=count)


def _matched(
    case: _Case, storage: Storage, strategy: Strategy, places: Array, choices: Array
) -> tuple[Array, Matches]:
    """The microseconds of every partition for an item of the stream, and what all of them found."""
    times, results = np.zeros(choices.shape[1]), []
    for number in range(choices.shape[1]):
        rows = np.flatnonzero(choices[:, number])
        if len(rows):
            matcher = case.compiled(storage, f"{strategy}-{number}", cut_plan(case.logical, places == number))
            taken, matches = _timed(matcher, ItemBatch(case.batch.records.take(rows)))
            times[number] = taken * len(rows) / len(case.batch)
            results.append(PartitionMatches(rows, matches))
    return times, united(len(case.batch), results)


def _timed(matcher: Matcher, batch: ItemBatch) -> tuple[float, Matches]:
    """Microseconds of CPU for an item, the least of three runs; kernels are compiled and files mapped before."""
    results = matcher.match(batch)
    times = []
    for _ in range(3):
        started = time.process_time()
        results = matcher.match(batch)
        times.append(time.process_time() - started)
    return 1e6 * min(times) / len(batch), results


@contextmanager
def _folder() -> Iterator[Storage]:
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        yield FileStorage(Path(folder).as_uri())


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "constants": constants,
    "filters": filters,
    "sources": sources,
    "graphs": graphs,
}

if __name__ == "__main__":
    main()
