"""Filters, measured: the same queries and items by every contender, in one run. Prints one JSON line per figure.

    python -m benchmarks.filters [--workload M] [--queries 100000] [--items 16384] [--batch 2048] [--rounds 3]
        [--parts matchers,single,delta,text,spark,monitor,ruler] [--contenders streams,index,counting,tree,scan]
        [--jars DIR] [--seed 7] [--unknown-frequencies]

Queries and items are seeded (see `workloads`), so counters are the same everywhere; times are those of this machine,
in seconds of CPU unless a name says otherwise. All contenders must give the same matches: a digest of all pairs of
an item and a query stands beside each figure, and the run fails where they differ. A contender too slow for all
items gets some of them, and is compared on those.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import spark_join
from benchmarks.contenders import CONTENDERS, COUNTED, Compiled, Setting, everything, parsed
from benchmarks.event_workload import make_event_queries, make_events
from benchmarks.measuring import joined, private_megabytes, touched_bytes
from benchmarks.peers.measure import measure_monitor, measure_ruler
from benchmarks.runs import Batches, Run
from benchmarks.workloads import FIRST_QUERY, KINDS, frequencies, make_items, make_queries

from runnel.catalog.logs import plan_versions
from runnel.catalog.store.connection import Catalog
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_delta
from runnel.model.match import Matches
from runnel.optimizer.optimize import optimize
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import PlanVersion, load
from runnel.storage.file_storage import FileStorage


def main() -> None:
    """Measure and print."""
    options = _options()
    events = options.workload == "events"
    queries = (
        make_event_queries(options.queries, options.seed)
        if events
        else make_queries(options.workload, options.queries, options.seed)
    )
    items: Batches = make_events(options.items) if events else make_items(options.items)
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        known = None if events or options.unknown_frequencies else frequencies()
        setting = Setting(queries, FileStorage(Path(folder, "plans").as_uri()), known)
        run = Run(options, setting, items, Path(folder))
        run.say("workload", items=len(items), seed=options.seed, **queries.shape)
        for part in options.parts:
            PARTS[part](run)
        if run.differing:
            sys.exit(f"different matches: {', '.join(run.differing)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=[*KINDS, "events"], default="M")
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=16_384)
    parser.add_argument("--batch", type=int, default=2_048)
    parser.add_argument("--parts", type=_names(PARTS), default=["matchers", "single", "delta", "text"])
    parser.add_argument("--contenders", type=_names(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=3, help="how often items are matched; the least time counts")
    parser.add_argument("--statements", type=int, default=2000)
    parser.add_argument("--jars", type=Path, help="a folder with the peers' jars; those missing are fetched into it")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--unknown-frequencies", action="store_true", help="compile without statistics of words")
    return parser.parse_args()


def _names(known: dict[str, Any]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        results = text.split(",")
        unknown = [name for name in results if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(known)}")
        return results

    return names


def matchers(run: Run) -> None:
    """Every contender on the same items."""
    _warm_up(run)
    for name in run.options.contenders:
        try:
            _match(run, name)
        except ValueError as error:
            run.say(name, not_run=str(error))


def _warm_up(run: Run) -> None:
    """Let the loops be compiled before anything is measured; it takes seconds, and a lot of memory, once."""
    setting = Setting(run.queries.head(500), FileStorage((run.folder / "few").as_uri()))
    for name in run.options.contenders:
        with suppress(ValueError):
            CONTENDERS[name](setting).matcher.match(run.items.batch(0, 3))


def _match(run: Run, name: str) -> None:
    if name in ("streams", "index", "tree"):
        _ = run.setting.base  # written before memory is measured
    before = private_megabytes()
    compiled = CONTENDERS[name](run.setting)
    count = len(run.items)
    if name in COUNTED:
        count = min(count, 4 * COUNTED[name] // max(1, len(run.queries)))
        if count < 1:
            raise ValueError(f"one item with {len(run.queries)} queries would take minutes")
        count = max(1, count // 4)
    batches = run.items.batches(run.options.batch) if count == len(run.items) else [run.items.batch(0, count)]
    if name not in COUNTED:
        compiled.matcher.match(run.items.batch(0, 100))  # mapped files are warm after it
    memory = private_megabytes() - before  # without the answers that are kept below
    counted = compiled.matcher.statistics.candidates, compiled.matcher.statistics.clause_checks
    rounds = 1 if name in COUNTED else run.options.rounds
    times = []
    for _ in range(rounds):
        wall, started = time.perf_counter(), time.process_time()
        results = [compiled.matcher.match(batch) for batch in batches]
        times.append((time.process_time() - started, time.perf_counter() - wall))
    seconds, elapsed = min(times)
    statistics = compiled.matcher.statistics
    shared = {"touched_bytes_per_query": touched_bytes(run.folder) / len(run.queries)} if name == "streams" else {}
    run.say(
        name,
        **shared,
        items=count,
        **_compiling(compiled, len(run.queries)),
        cpu_seconds=seconds,
        seconds=elapsed,
        items_per_cpu_second=count / seconds,
        rounds=rounds,
        slowest_items_per_cpu_second=count / max(times)[0],
        candidates_per_item=(statistics.candidates - counted[0]) / (rounds * count),
        clause_checks_per_item=(statistics.clause_checks - counted[1]) / (rounds * count),
        private_megabytes=memory,
        **run.compare(name, joined(results)),
    )


def _compiling(compiled: Compiled, queries: int) -> dict[str, Any]:
    stored = compiled.stored_bytes
    return {
        "compile_cpu_seconds": compiled.seconds,
        "stored_bytes": stored,
        "stored_bytes_per_query": stored / max(1, queries),
    }


def single(run: Run) -> None:
    """One item at a time: what a stream that trickles costs."""
    for name in [name for name in run.options.contenders if name not in COUNTED]:
        try:
            matcher = CONTENDERS[name](run.setting).matcher
        except ValueError as error:
            run.say(f"{name} single item", not_run=str(error))
            continue
        batches = [run.items.batch(row, row + 1) for row in range(min(220, len(run.items)))]
        times = []
        for batch in batches:
            started = time.perf_counter()
            matcher.match(batch)
            times.append(time.perf_counter() - started)
        warm = times[20:] or times
        run.say(f"{name} single item", items=len(warm), median_microseconds=1e6 * median(warm))


def delta(run: Run) -> None:
    """Measure adding a query to all others, and removing it: from its text to a matcher that knows it."""
    storage, base = run.setting.storage, run.setting.base[0].folder
    added = FIRST_QUERY + len(run.queries)
    batch = run.items.batch(0, 200)
    before = build_matcher(run.setting.plan()).match(batch)
    for turn in range(2):  # the first is not counted
        started, used = time.perf_counter(), time.process_time()
        definitions = everything(added)
        manifest = compile_delta(storage, f"delta-{turn}", [PlanQuery(added)], definitions, (), base)
        times = time.perf_counter() - started, time.process_time() - used
        after, seconds = _matched(run, PlanVersion(2, base, manifest.folder))
        right = after.total - before.total == len(batch)
        if turn:
            _say_changed(run, "add a query", times, seconds, right, stored_bytes=manifest.size)
    removed = int(before.queries[0])
    with closing(Catalog(f"sqlite:///{run.folder / 'catalog.sqlite'}")) as catalog:
        times, row = _removed(catalog, base, removed)
    after, seconds = _matched(run, PlanVersion.of(row))
    right = after.total < before.total and removed not in after.queries
    _say_changed(run, "remove a query", times, seconds, right, stored_bytes=8 * len(row.removed))


def _removed(catalog: Catalog, base: str, query: int) -> tuple[tuple[float, float], plan_versions.PlanRow]:
    """How long it takes to publish a version without a query (median of several), and what was published."""
    catalog.migrate()
    times: list[tuple[float, float]] = []
    for _ in range(21):
        with catalog.write() as connection:
            plan_versions.publish_plan(connection, base, None, 1)
            started, used = time.perf_counter(), time.process_time()
            current = plan_versions.current_plan(connection)
            assert current is not None
            gone = {*current.removed, query}
            plan_versions.publish_plan(connection, current.base, current.delta, current.queries - 1, gone)
            times.append((time.perf_counter() - started, time.process_time() - used))
    with catalog.read() as connection:
        row = plan_versions.current_plan(connection)
    assert row is not None
    return (median(value[0] for value in times), median(value[1] for value in times)), row


def _matched(run: Run, version: PlanVersion) -> tuple[Matches, float]:
    """What a version matches, and how long it took to have its matcher."""
    started = time.perf_counter()
    matcher = build_matcher(load(run.setting.storage, version))
    seconds = time.perf_counter() - started
    return matcher.match(run.items.batch(0, 200)), seconds


def _say_changed(
    run: Run, figure: str, times: tuple[float, float], load_seconds: float, right: bool, stored_bytes: int
) -> None:
    if not right:
        run.differing.append(figure)
    run.say(
        figure,
        compile_seconds=times[0],
        compile_cpu_seconds=times[1],
        load_seconds=load_seconds,
        stored_bytes=stored_bytes,
        right=right,
    )


def text(run: Run) -> None:
    """Statements as text: parsed, bound and optimised."""
    head = run.queries.head(run.options.statements)
    statements = list(head.statements())
    parsed(statements[:5], head.feed)  # the parser is made when first used
    started = time.process_time()
    definitions = parsed(statements, head.feed)
    read = time.process_time()
    plan = optimize(head.plan_queries(), definitions)
    optimized = time.process_time()
    run.say(
        "from text",
        statements=len(head),
        parse_cpu_seconds=read - started,
        optimize_cpu_seconds=optimized - read,
        statements_per_cpu_second=len(head) / (optimized - started),
        predicates=plan.counts["predicates"],
        same_definitions=definitions == head.definitions(),
    )


PARTS: dict[str, Callable[[Run], None]] = {
    "matchers": matchers,
    "single": single,
    "delta": delta,
    "text": text,
    "spark": spark_join.measure,
    "monitor": measure_monitor,
    "ruler": measure_ruler,
}


if __name__ == "__main__":
    main()
