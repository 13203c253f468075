"""Factorisation of filters, measured: the curves of RoSeS's figures 7 and 8. Prints one JSON line per figure.

    python benchmarks/factoring.py [--largest 100000] [--patience 20] [--seed 7] [--plots docs/images]

The workload is generated and seeded, so that costs are the same everywhere; times are those of this machine. Costs
are filter evaluations expected for an item (RoSeS table 1), beside those of the unfactored plan, which asks each
distinct predicate by itself. An algorithm is given up once a run takes longer than the patience, in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import And, Contains
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.arrays import Array, Rows
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base
from runnel.matching.contract import Matcher, MatchStatistics
from runnel.matching.filters.index.index_matcher import IndexMatcher
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.optimizer.subsumption.wider_clauses import wider_clauses
from runnel.papers.roses.factoring.factor_filters import factor_filters
from runnel.papers.roses.factoring.filter_table import clause_rates
from runnel.papers.roses.factoring.filter_tree import FilterTree
from runnel.papers.roses.factoring.filters import Filters
from runnel.papers.roses.factoring.widen_clauses import widen_clauses
from runnel.papers.roses.sta import factor_by_sta
from runnel.papers.roses.subsumption_graph import build_graph
from runnel.papers.roses.tree_matcher import TreeMatcher
from runnel.papers.roses.vca import factor_by_vca
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import PlanVersion, load
from runnel.storage.file_storage import FileStorage

KEYWORDS = 200
LAWS = {"0.2/r^0.8": (0.2, 0.8), "0.1/r^0.6": (0.1, 0.6), "0.3/r": (0.3, 1.0)}
"""Document frequencies of the keyword of rank r. The paper does not say its own; the first is used throughout."""

Algorithm = Callable[[Filters], FilterTree]
ALGORITHMS: dict[str, Algorithm] = {
    "STA": lambda filters: factor_by_sta(build_graph(filters)),
    "VCA with graph": lambda filters: factor_by_vca(build_graph(filters)),
    "VCA+VCB": lambda filters: factor_filters(filters, refined=False),
    "VCA+VCB, refined": factor_filters,
}


@dataclass(frozen=True)
class Point:
    """One run: the input, the time it took, and the costs of the tree and of the unfactored plan."""

    algorithm: str
    size: int
    seconds: float
    percent: float


def main() -> None:
    """Measure, print, and draw if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=100_000, help="predicates in the largest set")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds after which an algorithm is given up")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--plots", type=Path, help="a folder for the figures as SVG")
    options = parser.parse_args()
    _warm_up()
    seventh = list(_figure_seven(options.largest, options.patience, options.seed))
    eighth = list(_figure_eight(options.patience, options.seed))
    _other_laws(options.seed)
    _near_the_best(options.seed)
    _matched(options.seed)
    if options.plots:
        draw(options.plots / "factoring-queries.svg", seventh, "distinct predicates", logarithmic=True)
        draw(options.plots / "factoring-clauses.svg", eighth, "disjunctions in a predicate", logarithmic=False)


def say(figure: str, **values: Any) -> None:
    """Print one figure as a line of JSON, with the load of the machine."""
    rounded = {name: round(value, 5) if isinstance(value, float) else value for name, value in values.items()}
    load = [round(element, 1) for element in os.getloadavg()[:2]]
    print(json.dumps({"benchmark": "factoring", "figure": figure, **rounded, "load": load}), flush=True)


def frequencies(law: str = "0.2/r^0.8") -> Array:
    """The document frequencies of the keywords, most frequent first."""
    highest, steepness = LAWS[law]
    return np.asarray(highest / np.arange(1, KEYWORDS + 1) ** steepness)


def conjunctions(count: int, seed: int, law: str = "0.2/r^0.8") -> Filters:
    """Draw the given number of distinct conjunctions of one to three keywords by document frequency."""
    dice = np.random.default_rng(seed)
    rates = frequencies(law)
    results: dict[tuple[int, ...], None] = {}
    while len(results) < count:
        sizes = dice.integers(1, 4, count)
        drawn = dice.choice(KEYWORDS, (count, 3), p=rates / rates.sum())
        for size, row in zip(sizes.tolist(), drawn.tolist(), strict=True):
            if len(set(row[:size])) == size and len(results) < count:
                results.setdefault(tuple(sorted(row[:size])))
    return Filters.of(Rows.of(results), rates)


def normal_forms(count: int, disjunctions: int, seed: int) -> Filters:
    """Draw conjunctions of disjunctions of one to five keywords, with the clauses that subsume others."""
    dice = np.random.default_rng(seed)
    rates = frequencies()
    clauses: dict[tuple[int, ...], int] = {}
    rows = []
    for _ in range(count):
        row: set[int] = set()
        while len(row) < disjunctions:
            words = dice.choice(KEYWORDS, dice.integers(1, 6), replace=False, p=rates / rates.sum())
            row.add(clauses.setdefault(tuple(sorted((2 * words).tolist())), len(clauses)))
        rows.append(sorted(row))
    table = widen_clauses(Rows.of(clauses), rates)
    selectivities = clause_rates(table, rates)
    wider = wider_clauses(table, Rows.of([[]] * (2 * KEYWORDS)), selectivities)
    return Filters.of(Rows.of(rows), selectivities, wider, first_union=len(clauses))


def _warm_up() -> None:
    """Compile the kernels, or load what was compiled before, so that no curve pays for it."""
    started = time.perf_counter()
    for factor in ALGORITHMS.values():
        factor(normal_forms(20, 2, 1))
    say("first_call", seconds=time.perf_counter() - started)


def _measured(figure: str, algorithm: str, filters: Filters, size: int) -> Point:
    started = time.process_time()
    tree = ALGORITHMS[algorithm](filters)
    seconds = time.process_time() - started
    percent = 100 * tree.cost / tree.unfactored_cost
    say(
        figure,
        algorithm=algorithm,
        size=size,
        cpu_seconds=seconds,
        cost=tree.cost,
        unfactored_cost=tree.unfactored_cost,
        percent_of_unfactored=percent,
        filters=len(tree) - 1,
        depth=int(tree.depths.max()),
    )
    return Point(algorithm, size, seconds, percent)


def _figure_seven(largest: int, patience: float, seed: int) -> Iterable[Point]:
    """Time and cost by the number of conjunctive queries."""
    sizes = (50, 100, 200, 400, 700, 1000, 2000, 3000, 5000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
    given_up: set[str] = set()
    for size in (value for value in sizes if value <= largest):
        filters = conjunctions(size, seed)
        for algorithm in ALGORITHMS:
            if algorithm not in given_up:
                point = _measured("figure 7", algorithm, filters, size)
                yield point
                if point.seconds > patience:
                    given_up.add(algorithm)


def _figure_eight(patience: float, seed: int) -> Iterable[Point]:
    """Time and cost by the number of disjunctions in each of 1,000 queries."""
    given_up = {"STA"}
    for disjunctions in range(1, 6):
        filters = normal_forms(1000, disjunctions, seed)
        for algorithm in ALGORITHMS:
            if algorithm not in given_up:
                point = _measured("figure 8", algorithm, filters, disjunctions)
                yield point
                if point.seconds > patience:
                    given_up.add(algorithm)


def _other_laws(seed: int) -> None:
    """The same 10,000 predicates under other document frequencies."""
    for law in LAWS:
        tree = factor_filters(conjunctions(10_000, seed, law))
        say("document frequencies", law=law, percent_of_unfactored=100 * tree.cost / tree.unfactored_cost)


def _near_the_best(seed: int) -> None:
    """How far from the best tree, by trying every choice of filters, on sets small enough for that."""
    ratios: dict[str, list[float]] = {name: [] for name in ALGORITHMS}
    for case in range(200):
        dice = np.random.default_rng(seed + case)
        rates = 0.3 / np.arange(1, 7) ** 0.7
        drawn = [dice.choice(6, dice.integers(1, 4), replace=False, p=rates / rates.sum()).tolist() for _ in range(8)]
        filters = Filters.of(Rows.of(drawn), rates)
        best = cheapest(filters)
        for name, factor in ALGORITHMS.items():
            ratios[name].append(factor(filters).cost / best)
    for name, ratio in ratios.items():
        say("above the best", algorithm=name, cases=len(ratio), mean=float(np.mean(ratio)), worst=max(ratio))


def cheapest(filters: Filters) -> float:
    """The cost of the best tree: whatever filters are chosen, each node goes below the most selective one above."""
    graph = build_graph(filters)
    count, nodes = len(graph.problem.predicates), len(graph.rates)
    above = [sum(1 << other for other in range(nodes) if graph.below[other] >> node & 1) for node in range(nodes)]
    ranked = sorted(range(nodes), key=lambda node: graph.rates[node])
    best = float(count)
    for choice in range(1 << (nodes - count)):
        present = (1 << count) - 1 | choice << count
        cost = 0.0
        for node in range(nodes):
            if present >> node & 1:
                able = above[node] & present
                cost += next((graph.rates[value] for value in ranked if able >> value & 1), 1.0)
                if cost >= best:
                    break
        best = min(best, cost)
    return best


def _matched(seed: int, queries: int = 10_000, items: int = 4_096) -> None:
    """Measure the filters evaluated per item next to the expected number, and other matchers on the same items."""
    rates = frequencies()
    dice = np.random.default_rng(seed)
    held = dice.random((items, KEYWORDS)) < rates
    texts = [" ".join(f"k{word}" for word in np.flatnonzero(row)) or "none" for row in held]
    batch = ItemBatch.of([Item("News", str(n), {"title": (text,)}) for n, text in enumerate(texts)], {"News": 1})
    definitions: dict[int, Node] = {
        10 + number: Filter(Read(1), And(tuple(Contains(Attribute("title"), (f"k{word}",)) for word in row)))
        for number, row in enumerate(conjunctions(queries, seed).predicates.lists())
    }
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        storage = FileStorage(Path(folder).as_uri())
        known = {f"k{word}": rate for word, rate in enumerate(rates.tolist())}
        compile_base(
            storage, "base", [PlanQuery(definition) for definition in definitions], definitions, frequencies=known
        )
        plan = load(storage, PlanVersion(1, "base"))
        tree = TreeMatcher(plan)
        matchers: dict[str, Matcher] = {"tree": tree, "index": IndexMatcher(plan), "streams": build_matcher(plan)}
        results: dict[str, Matches] = {}
        for name, matcher in matchers.items():
            matcher.match(batch)
            matcher.statistics = MatchStatistics()
            started = time.process_time()
            results[name] = matcher.match(batch)
            seconds = time.process_time() - started
            asked = matcher.statistics.candidates / items
            matches = results[name].total / items
            say("matching", matcher=name, items_per_cpu_second=items / seconds, asked=asked, matches_per_item=matches)
        say("expected", asked=tree.trees(1)[0].cost)
    digests = {(result.offsets.tobytes(), result.queries.tobytes()) for result in results.values()}
    assert len(digests) == 1, "the matchers differ"


def draw(place: Path, points: list[Point], label: str, *, logarithmic: bool) -> None:
    """Time on the left, cost on the right, a line for each algorithm."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "runnel", "font.size": 9}):
        figure = Figure(figsize=(9.6, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for number, (name, marker) in enumerate(zip(ALGORITHMS, "s^ov", strict=True)):
            mine = [point for point in points if point.algorithm == name]
            if mine:
                sizes = [point.size for point in mine]
                look = {"marker": marker, "markersize": 4, "color": f"C{number}", "label": name}
                left.plot(sizes, [point.seconds for point in mine], **look)
                right.plot(sizes, [point.percent for point in mine], **look)
        left.set(yscale="log", xlabel=label, title="CPU seconds to factor")
        right.set(xlabel=label, title="cost, in percent of the unfactored plan")
        for axes in (left, right):
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
            if logarithmic:
                axes.set_xscale("log")
            else:
                axes.set_xticks(sorted({point.size for point in points}))
        if logarithmic:
            right.set_yscale("log")
        else:
            right.set_ylim(bottom=0)
        left.legend(frameon=False)
        figure.savefig(place, format="svg", metadata={"Date": None, "Creator": "Runnel"})


if __name__ == "__main__":
    main()
