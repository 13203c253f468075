"""Every installed matcher on every workload, and what the work of streams costs.

    python -m benchmarks.matchers [--parts constants,cases] [--queries 20000] [--items 2048] [--seed 7]

`constants` measures those of `matching/compile/expected_work.py`. Streams run over the same items with few and with
many queries. What both runs share (cutting texts, taking batches apart) falls out of the difference, which is divided
by the difference of what was expected to be done. The scan, which shares nothing, is simply divided by its queries.

`cases` runs every matcher on every workload; all must give the same matches. `ranges` are conditions on numbers
alone, `few` has 50 queries, `sources` 1,000 sources which ask for their own, `uneven` two sources, one with 100
queries and the other with all the rest. A JSON line for every figure; times are microseconds of CPU per item, the
least of three runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.contenders import Setting, scan
from benchmarks.hot_terms import Case, roses, sources
from benchmarks.measuring import digest, say
from benchmarks.workloads import KINDS, Kind, QuerySet, frequencies, make_items, make_queries, over_sources, spread

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import Atom, Between, Compare
from runnel.arrays import IDENTIFIER, Rows, offsets_of
from runnel.entry_points import plugin_names
from runnel.matching.compile.build_matcher import GROUP, STREAMS, find_matcher
from runnel.matching.compile.compile_plan import compile_logical
from runnel.matching.compile.expected_work import EACH_ENTRY, EACH_EVALUATION, EACH_ITEM, EACH_NUMBER, expect_streams
from runnel.matching.contract import Matcher, MatchStatistics
from runnel.matching.filters.index.index_layout import stored_atoms
from runnel.matching.filters.streams.stream_layout import StreamLayout
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

NAME = "matchers"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="constants,cases")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--items", type=int, default=2_048)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    for part in options.parts.split(","):
        {"constants": constants, "cases": cases}[part](options)


def ranges(options: argparse.Namespace, queries: int = 4_000) -> Case:
    """Conditions on numbers alone: a price and, for half of them, a score; many lie inside others."""
    dice = np.random.default_rng(options.seed)
    lows, widths = dice.integers(0, 200, queries), dice.choice([5, 20, 50, 100, 200], queries)
    prices = [(int(low), int(low + width)) for low, width in zip(lows, widths, strict=True)]
    scores = [int(score) for score in dice.integers(0, 100, queries)]
    price_atoms, price_of = np.unique(np.array(prices), axis=0, return_inverse=True)
    score_atoms, score_of = np.unique(scores, return_inverse=True)
    atoms: tuple[Atom, ...] = (
        *(Between(Attribute("price"), float(low), float(high)) for low, high in price_atoms.tolist()),
        *(Compare(Attribute("score"), ">=", float(low)) for low in score_atoms.tolist()),
    )
    clauses = Rows(offsets_of(np.ones(len(atoms))), 2 * np.arange(len(atoms), dtype=IDENTIFIER))
    rows = [
        [value, len(price_atoms) + other] if number % 2 else [value]
        for number, (value, other) in enumerate(zip(price_of.reshape(-1).tolist(), score_of.tolist(), strict=True))
    ]
    batch = make_items(options.items).batch(0, options.items)
    return Case(QuerySet(atoms, clauses, Rows.of(rows)).logical(), batch, frequencies())


def texts(options: argparse.Namespace, kind: Kind, queries: int | None = None) -> Case:
    """A workload of long texts."""
    logical = make_queries(kind, queries or options.queries, options.seed).logical()
    return Case(logical, make_items(options.items).batch(0, options.items), frequencies())


def uneven(options: argparse.Namespace) -> Case:
    """Two sources: of the second, nearly everything is asked."""
    case = texts(options, "M")
    alone = spread(case.logical, 2)
    first = alone.targets.values[alone.targets.offsets[:-1]]
    logical = replace(alone, target_scopes=(first >= 100).astype(IDENTIFIER))
    return replace(case, logical=logical, items=over_sources(case.items, 2, options.seed))


CASES: dict[str, Callable[[argparse.Namespace], Case]] = {
    **{kind: partial(texts, kind=kind) for kind in KINDS},
    "RoSeS": lambda options: roses(options, 10_000),
    "few": lambda options: texts(options, "M", 50),
    "ranges": ranges,
    "sources": sources,
    "uneven": uneven,
}


def constants(options: argparse.Namespace) -> None:
    """What one more unit of work costs, and what an item costs without any."""
    few, many = (_Measured(texts(options, "M", count)) for count in (options.queries // 10, options.queries))
    times = few.microseconds(STREAMS), many.microseconds(STREAMS)
    each = (times[1] - times[0]) / (many.entries - few.entries)
    always = times[0] - each * few.entries
    say(NAME, "entries", each=each, always=always, assumed_each=EACH_ENTRY, assumed_always=EACH_ITEM)
    plain, compared = _Measured(texts(options, "M", 50)), _Measured(ranges(options))
    more = compared.microseconds(STREAMS) - plain.microseconds(STREAMS)
    say(NAME, "numbers", each=more / compared.numbers, assumed_each=EACH_NUMBER)
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        queries = make_queries("M", 200, options.seed)
        slow = scan(Setting(queries, FileStorage(Path(folder).as_uri()), frequencies())).matcher
        taken = _timed(slow, ItemBatch(few.case.items.records.slice(0, 5)))[0]
        say(NAME, "evaluations", each=taken / 200, assumed_each=EACH_EVALUATION)


def cases(options: argparse.Namespace) -> None:
    """Every matcher on every workload."""
    for name in options.cases.split(","):
        measured = _Measured(CASES[name](options))
        microseconds = {value: measured.microseconds(value) for value in plugin_names(GROUP)}
        say(
            NAME,
            name,
            fastest=min(microseconds, key=microseconds.__getitem__),
            measured=_rounded(microseconds),
            expected_entries=measured.entries,
            expected_numbers=measured.numbers,
            counted=_rounded(measured.counted),
            compile_seconds={cost.step: round(cost.seconds, 2) for cost in measured.plan.base.manifest.costs},
        )
        if len(set(measured.digests.values())) > 1:
            sys.exit(f"different matches in {name}: {measured.digests}")


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in values.items()}


class _Measured:
    """A case, compiled; matchers are made and measured when they are asked for."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.digests: dict[str, str] = {}
        self.counted: dict[str, float] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="runnel-bench-")
        storage = FileStorage(Path(self._folder.name).as_uri())
        compile_logical(storage, "base", case.logical, frequencies=case.known)
        self.plan: Plan = load(storage, PlanVersion(1, "base"))
        part = self.plan.base
        work = expect_streams(StreamLayout.stored(part.layout), stored_atoms(part))
        self.entries, self.numbers = float(work.entries[0]), float(work.numbers[0])

    def microseconds(self, name: str) -> float:
        """What a matcher takes for an item."""
        matcher = find_matcher(name)(self.plan)
        taken, results = _timed(matcher, self.case.items)
        self.digests[name] = digest(results)
        self.counted[name] = matcher.statistics.candidates / len(self.case.items)
        return taken


def _timed(matcher: Matcher, batch: ItemBatch) -> tuple[float, Matches]:
    """CPU time for one item; kernels are compiled and files mapped before."""
    matcher.match(batch)
    times = []
    for _ in range(3):
        matcher.statistics = MatchStatistics()
        started = time.process_time()
        results = matcher.match(batch)
        times.append(time.process_time() - started)
    return 1e6 * min(times) / len(batch), results


if __name__ == "__main__":
    main()
