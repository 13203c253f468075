"""Measure streams with trees under hot terms and with streams per source, next to flat streams.

Prints one JSON line per figure.

    python -m benchmarks.hot_terms [--cases RoSeS10k,RoSeS100k,H,M,sources] [--queries 100000] [--items 4096]
        [--seed 7]

Each case is matched by streams laid out flat, with trees only, with own streams only and with both, as plans have
them, in one run and on the same items; all must give the same matches. `RoSeS` has conjunctions of one to three of
200 keywords, all different; `H` and `M` are those of `workloads`; `sources` has queries of workload M spread over
1,000 sources, each of which asks for its own. Counters are the same everywhere; times are of CPU, the least of eight
rounds in which each has its turn.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks import factoring
from benchmarks.item_batches import batch_of
from benchmarks.measuring import digest, say
from benchmarks.workloads import QuerySet, frequencies, make_items, make_queries, over_sources, spread

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Contains
from runnel.arrays import IDENTIFIER, Rows, offsets_of
from runnel.matching.contract import MatchStatistics
from runnel.matching.filters.atoms.anchors import choose_anchors
from runnel.matching.filters.atoms.atom_layout import compute_atom_layout
from runnel.matching.filters.streams.entries import FLAT, StreamShape
from runnel.matching.filters.streams.stream_layout import StreamLayout, compute_stream_layout
from runnel.matching.filters.streams.stream_matcher import StreamMatcher
from runnel.model.item_batch import ItemBatch
from runnel.plan.logical_plan import LogicalPlan
from runnel.plan.store import Layout, PlanVersion, load, write_base
from runnel.storage.file_storage import FileStorage

SHAPES = {
    "flat": FLAT,
    "trees": StreamShape(most_sources=0),
    "own streams": StreamShape(trees=False),
    "both": StreamShape(),
}
SOURCES = 1000
ROUNDS = 8


@dataclass(frozen=True)
class Case:
    """Queries, items, and how frequent words are."""

    logical: LogicalPlan
    items: ItemBatch
    known: dict[str, float]


def roses(options: argparse.Namespace, queries: int) -> Case:
    """The workload of RoSeS's figure 7."""
    rates = factoring.frequencies()
    rows = factoring.conjunctions(queries, options.seed).predicates
    words = [f"k{word}" for word in range(factoring.KEYWORDS)]
    atoms = tuple(Contains(Attribute("title"), (word,)) for word in words)
    clauses = Rows(offsets_of(np.ones(len(words))), 2 * np.arange(len(words), dtype=IDENTIFIER))
    held = np.random.default_rng(options.seed).random((options.items, len(words))) < rates
    texts = pa.array([" ".join(words[value] for value in np.flatnonzero(row)) for row in held])
    return Case(
        QuerySet(atoms, clauses, rows).logical(),
        batch_of({"title": texts}, {}, source=1, first=1),
        dict(zip(words, rates.tolist(), strict=True)),
    )


def workload(options: argparse.Namespace, kind: str) -> Case:
    """A workload of long texts and one source."""
    made = make_queries("H" if kind == "H" else "M", options.queries, options.seed)
    return Case(made.logical(), make_items(options.items).batch(0, options.items), frequencies())


def sources(options: argparse.Namespace) -> Case:
    """Many sources, each of which asks for its own."""
    made = make_queries("M", options.queries, options.seed)
    batch = make_items(options.items).batch(0, options.items)
    return Case(spread(made.logical(), SOURCES), over_sources(batch, SOURCES, options.seed), frequencies())


CASES: dict[str, Callable[[argparse.Namespace], Case]] = {
    "RoSeS10k": lambda options: roses(options, 10_000),
    "RoSeS100k": lambda options: roses(options, 100_000),
    "H": lambda options: workload(options, "H"),
    "M": lambda options: workload(options, "M"),
    "sources": sources,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    for name in options.cases.split(","):
        case = CASES[name](options)
        with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
            if len(set(_measured(name, case, Path(folder)))) > 1:
                sys.exit(f"different matches in {name}")


def _measured(name: str, case: Case, folder: Path) -> list[str]:
    """Match by streams of all shapes, in turns, and say; gives the digests of the matches."""
    made = {shape: _laid_out(case, SHAPES[shape], folder / shape.replace(" ", "-")) for shape in SHAPES}
    results = {shape: entry.matcher.match(case.items) for shape, entry in made.items()}
    times: dict[str, list[float]] = {shape: [] for shape in SHAPES}
    for _ in range(ROUNDS):
        for shape, entry in made.items():
            entry.matcher.statistics = MatchStatistics()
            started = time.process_time()
            entry.matcher.match(case.items)
            times[shape].append(time.process_time() - started)
    count = len(case.items)
    for shape, entry in made.items():
        counted, streams = entry.matcher.statistics, entry.streams
        say(
            "hot terms",
            name,
            shape=shape,
            queries=len(case.logical.query_ids),
            items_per_cpu_second=count / min(times[shape]),
            microseconds=1e6 * min(times[shape]) / count,
            entries_per_item=counted.candidates / count,
            tails_per_item=counted.clause_checks / count,
            stream_bytes=streams.stream.nbytes + streams.offsets.nbytes + streams.own_keys.values.nbytes,
            layout_cpu_seconds=entry.seconds,
            matches_per_item=results[shape].total / count,
        )
    return [digest(result) for result in results.values()]


@dataclass(frozen=True)
class LaidOutPlan:
    """Streams of one shape, and their matcher."""

    streams: StreamLayout
    seconds: float
    matcher: StreamMatcher


def _laid_out(case: Case, shape: StreamShape, folder: Path) -> LaidOutPlan:
    atoms = compute_atom_layout(case.logical, case.known)
    anchors = choose_anchors(case.logical, atoms)
    started = time.process_time()
    streams = compute_stream_layout(case.logical, atoms, anchors, shape)
    seconds = time.process_time() - started
    storage = FileStorage(folder.as_uri())
    write_base(storage, "base", case.logical, Layout(atoms.arrays() | streams.arrays(), streams.seldom()))
    return LaidOutPlan(streams, seconds, StreamMatcher(load(storage, PlanVersion(1, "base"))))


if __name__ == "__main__":
    main()
