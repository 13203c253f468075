"""Matching against a subset of the queries: by a small plan of its own, or by the large plan with a selection.

    python -m benchmarks.subset [--queries 100000] [--items 2000] [--selected 10,100,1000,10000] [--seed 7]

A JSON line for every figure: how long each way takes to be ready and to match, for one item and for all. `selected`
lets the large plan's last step pass over what is not selected, `filtered` matches everything and throws the rest
away, `compiled` compiles the selected queries alone. All ways must give the same matches, or the run fails.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.contenders import Setting
from benchmarks.measuring import digest, say
from benchmarks.workloads import Items, frequencies, make_items, make_queries

from runnel.algebra.nodes.query import Node
from runnel.arrays import Array, offsets_of
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base
from runnel.matching.compile.select_queries import select_queries
from runnel.matching.contract import Matcher
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import PlanVersion, load
from runnel.storage.file_storage import FileStorage, Storage


class Filtered:
    """Everything is matched, and what is not selected is thrown away."""

    def __init__(self, matcher: Matcher, selected: Array) -> None:
        self.statistics = matcher.statistics
        self._matcher = matcher
        self._selected = selected

    def match(self, items: ItemBatch) -> Matches:
        """The selected queries that each item matches."""
        results = self._matcher.match(items)
        places = np.minimum(np.searchsorted(self._selected, results.queries), len(self._selected) - 1)
        kept = self._selected[places] == results.queries
        rows = np.repeat(np.arange(len(results)), np.diff(results.offsets))[kept]
        return Matches(offsets_of(np.bincount(rows, minlength=len(results))), results.queries[kept])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=2_000)
    parser.add_argument("--selected", default="10,100,1000,10000")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    queries, items = make_queries("M", options.queries, options.seed), make_items(options.items)
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        setting = Setting(queries, FileStorage(Path(folder, "plans").as_uri()), frequencies())
        definitions = queries.definitions()
        build_matcher(setting.plan()).match(items.batch(0, 300))  # loops are compiled, and files warm, after it
        random = np.random.default_rng(options.seed)
        different = False
        for count in map(int, options.selected.split(",")):
            selected = np.sort(random.choice(queries.query_ids, count, replace=False))
            ways: dict[str, Callable[[], Matcher]] = {
                "compiled": partial(_compiled, setting.storage, selected.tolist(), definitions),
                "selected": partial(_selected, setting, selected),
                "filtered": partial(_filtered, setting, selected),
            }
            digests = {name: _measure(name, way, items, count, len(queries)) for name, way in ways.items()}
            different |= len(set(digests.values())) > 1
        if different:
            sys.exit("different matches")


def _compiled(storage: Storage, selected: list[int], definitions: Mapping[int, Node]) -> Matcher:
    folder = f"few-{time.perf_counter_ns()}"
    compile_base(storage, folder, map(PlanQuery, selected), {value: definitions[value] for value in selected})
    return build_matcher(load(storage, PlanVersion(0, folder)))


def _selected(setting: Setting, selected: Array) -> Matcher:
    return build_matcher(select_queries(setting.plan(), selected.tolist()))


def _filtered(setting: Setting, selected: Array) -> Matcher:
    return Filtered(build_matcher(setting.plan()), selected)


def _measure(name: str, way: Callable[[], Matcher], items: Items, count: int, queries: int) -> str:
    started = time.perf_counter()
    matcher = way()
    ready = time.perf_counter()
    matcher.match(items.batch(0, 1))
    first = time.perf_counter()
    before = matcher.statistics.candidates
    matches = matcher.match(items.batch(0, len(items)))
    done = time.perf_counter()
    say(
        "subset",
        name,
        queries=queries,
        selected=count,
        items=len(items),
        ready_seconds=ready - started,
        first_item_seconds=first - ready,
        match_seconds=done - first,
        candidates_per_item=(matcher.statistics.candidates - before) / len(items),
        matches=matches.total,
        matches_digest=digest(matches),
    )
    return digest(matches)


if __name__ == "__main__":
    main()
