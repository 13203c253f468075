"""Containment and merging, measured: Figures 9c to 9h of the paper. Prints one JSON line per figure.

The size of an index is the number of its roots and mergers: what every publication is asked about. A merge
percentage of 90 asks for a tenth as many of these as there are subscriptions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from benchmarks.graph_runs import Setting
from benchmarks.graph_workload import Workload, make_patterns, publications_of
from benchmarks.measuring import say

from runnel.algebra.graphs.graph_patterns import Graph
from runnel.matching.graphs.patterns.pattern_table import PatternTable
from runnel.model.graph import RdfGraph, Triple
from runnel.papers.graphs.shape_matcher import ShapeMatcher
from runnel.scaleout.containment.root_index import Counters, RootIndex

OVERLAPS = (0.0, 0.25, 0.5, 0.75, 0.9)
PERCENTAGES = (50, 60, 70, 80, 90, 95, 99)
_INSERTED = 1_000
"""The number of subscriptions over which the time of an insertion is averaged, as in the paper."""


def figure9c(options: argparse.Namespace, patterns: Sequence[Graph]) -> bool:
    """The size of the index by the number of subscriptions: with none, with containment, and with merging."""
    index, sample = RootIndex(), list(_sample(options))
    for before, size in pairwise((0, *options.sizes)):
        for number in range(before, size):
            index.subscribe(number, patterns[number])
        about = {"subscriptions": size, "bytes_per_subscription": index.index.size / size}
        say("graphs", "figure9c", index="none", roots=size, subscriptions=size)
        say("graphs", "figure9c", index="containment", roots=index.root_count, **about)
        merged = _filled(patterns[:size])
        _observe(merged, sample)
        merged.merge(int(0.3 * size))
        say("graphs", "figure9c", index="merging, 70 %", roots=merged.root_count, subscriptions=size)
    return True


def figure9d(options: argparse.Namespace, patterns: Sequence[Graph]) -> bool:
    """The size of the index by overlap."""
    size = max(options.sizes)
    for overlap in OVERLAPS:
        made = make_patterns(Workload(subscriptions=size, overlap=overlap, seed=options.seed))
        roots = _filled(made).root_count
        expected = size * (1 - overlap)
        say("graphs", "figure9d", overlap=overlap, subscriptions=size, roots=roots, paper=expected)
    return True


def figure9e(options: argparse.Namespace, patterns: Sequence[Graph]) -> bool:
    """Mergers that hold for nothing, by merge percentage, with few subscriptions and many publications."""
    size = min(options.sizes)
    workload = _workload(options, publications=options.sampled + options.matched)
    asked = list(islice(publications_of(workload), options.sampled, None))
    index = _filled(patterns[:size])
    _observe(index, list(_sample(options)))
    equal = True
    for percentage in (0, *PERCENTAGES):
        if percentage and index.root_count > _lower(size, percentage) and not index.merge(_lower(size, percentage)):
            break  # nothing more can be merged
        index.counters = Counters()
        forwarded = in_vain = 0
        for graph in asked:
            before = index.counters
            index.match(graph.triples())
            held = index.counters.mergers_held - before.mergers_held
            forwarded += held > 0
            in_vain += 0 < held == index.counters.false_positives - before.false_positives
        counted = index.counters
        equal &= _agrees(index, patterns[:size], asked[:100])
        say(
            "graphs",
            "figure9e",
            subscriptions=size,
            publications=len(asked),
            merge_percentage=percentage,
            roots=index.root_count,
            mergers=len(index.index.mergers()),
            roots_checked=counted.roots_checked / len(asked),
            members_checked=counted.members_checked / len(asked),
            mergers_held=counted.mergers_held / len(asked),
            false_positives=counted.false_positives / len(asked),
            false_positive_percent_of_held=100 * counted.false_positives / max(1, counted.mergers_held),
            false_positive_percent_of_pairs=100 * counted.false_positives / (len(asked) * index.root_count),
            forwarded_percent=100 * forwarded / len(asked),
            forwarded_in_vain_percent=100 * in_vain / len(asked),
            equal=equal,
        )
    return equal


def figure9f(options: argparse.Namespace, patterns: Sequence[Graph]) -> bool:
    """The time to take in a subscription, by how many there are, over the last thousand."""
    index = RootIndex()
    taken = 0
    for size in options.sizes:
        last = min(_INSERTED, size - taken)
        for number in range(taken, size - last):
            index.subscribe(number, patterns[number])
        looked, laid = index.index.counters
        started = time.process_time()
        for number in range(size - last, size):
            index.subscribe(number, patterns[number])
        inserting = time.process_time() - started
        started = time.process_time()
        PatternTable.of(patterns[size - last : size])
        arrays = time.process_time() - started
        after = index.index.counters
        say(
            "graphs",
            "figure9f",
            subscriptions=size,
            microseconds=1e6 * inserting / last,
            microseconds_without_containment=1e6 * arrays / last,
            looked_at=(after[0] - looked) / last,
            laid=(after[1] - laid) / last,
        )
        taken = size
    say(
        "graphs", "unsubscribe", subscriptions=taken, microseconds=1e6 * _remove(index, taken) / min(_INSERTED, taken)
    )
    return True


def figure9g(options: argparse.Namespace, patterns: Sequence[Graph]) -> bool:
    """The size of the index and the time of merging (Figure 9h) by merge percentage."""
    size = max(options.sizes)
    index = _filled(patterns[:size])
    started = time.process_time()
    _observe(index, list(_sample(options)))
    observing = time.process_time() - started
    seconds, merged = 0.0, 1
    for percentage in PERCENTAGES:
        started = time.process_time()
        if merged and index.root_count > _lower(size, percentage):
            merged = index.merge(_lower(size, percentage))  # once nothing can be merged, nothing more is tried
        seconds += time.process_time() - started
        say(
            "graphs",
            "figure9g",
            subscriptions=size,
            merge_percentage=percentage,
            roots=index.root_count,
            mergers=len(index.index.mergers()),
            merge_seconds=seconds,
            observed=options.sampled,
            observe_milliseconds=1e3 * observing / max(1, options.sampled),
            paper=size * (100 - percentage) / 100,
        )
    return True


def _remove(index: RootIndex, size: int) -> float:
    step = max(1, size // _INSERTED)
    started = time.process_time()
    for number in range(0, step * min(_INSERTED, size), step):
        index.unsubscribe(number)
    return time.process_time() - started


def _workload(options: argparse.Namespace, publications: int) -> Workload:
    # Statistics are of other publications than those that are matched.
    return replace(Workload(seed=options.seed), publications=publications)


def _sample(options: argparse.Namespace) -> Iterator[RdfGraph]:
    return publications_of(_workload(options, options.sampled))


def _filled(patterns: Sequence[Graph]) -> RootIndex:
    index = RootIndex()
    for number, graph in enumerate(patterns):
        index.subscribe(number, graph)
    return index


def _observe(index: RootIndex, graphs: Sequence[RdfGraph]) -> None:
    for graph in graphs:
        triples: Iterator[Triple] = graph.triples()
        index.observe(triples)


def _lower(size: int, percentage: int) -> int:
    return max(1, size * (100 - percentage) // 100)


def _agrees(index: RootIndex, patterns: Sequence[Graph], graphs: list[RdfGraph]) -> bool:
    """Whether both stages together find what the matcher of plans finds."""
    setting = Setting(list(patterns), graphs)
    places, results = ShapeMatcher(setting.table).match(setting.publications())
    wanted = list(zip(places.tolist(), results.tolist(), strict=True))
    return wanted == [
        (place, number) for place, graph in enumerate(graphs) for number in index.match(graph.triples()).subscriptions
    ]
