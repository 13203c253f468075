"""Predicates that cost, on news: what people ask of it, in every order of calls. JSON lines.

    python -m benchmarks.operators_news [--queries 10000] [--items 1000] [--parts process,spark] [--seed 7]

Standing queries with filters, languages, regions, distances and meanings (`benchmarks.operator_interests`) are
declared in a root. Some hundred items are there to learn from; the others are measured for every order: first with
nothing known of their content, then again under new ids. In this process calls are counted by operator; in Spark
(`local[2]`) the runner does the same from the item log to the match log. Calls and rounds are counts; they differ a
little from run to run, because orders go by what calls were seen to cost. Times are CPU times, but for those that say
`wall`. `unshared` is what queries would ask each for itself, in the order in which they are written, until one
predicate fails: counted, by the answers that are known, for some of the items.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.measuring import digest, joined, private_megabytes, say
from benchmarks.operator_interests import (
    Interest,
    Predicate,
    make_interests,
    make_news,
    places_file,
    regions_file,
    script,
)
from benchmarks.spark_workers import Workers, cpu_seconds

from runnel.catalog.declared import feeds
from runnel.catalog.declared.operators import callable_operators
from runnel.catalog.learned.operator_cache import cache_totals
from runnel.catalog.logs import match_segments, plan_versions
from runnel.engine import Engine, connect
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.contract import Matcher
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.matching.operators.decide.decider import Decider, Decisions
from runnel.matching.operators.decide.operators_in_process import Operators
from runnel.matching.operators.plugins.contract import FailedCall, Question
from runnel.model.item import Item
from runnel.model.item_batch import ItemBatch
from runnel.model.learned.operator_statistics import OperatorStatistics, OperatorUse
from runnel.model.match import Matches
from runnel.model.operator import OperatorDeclaration, Rows
from runnel.plan.gates import FIRST_OPERATOR_DISJUNCT, query_of
from runnel.plan.store import Plan, PlanVersion, load

NAME = "operators_news"
ORDERS = ("naive", "sequential", "sub_order", "static_greedy", "adaptive", "adaptive_weighted", "")
MODELS = ("semantic", "languageOf")
_AGAIN = 10_000_000
_PIECE = 1_000
"""Items that are decided, or accepted, together."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--learning", type=int, default=500, help="items to learn from, before")
    parser.add_argument("--counted", type=int, default=200, help="items for which queries are asked each for itself")
    parser.add_argument("--parts", default="process,spark")
    parser.add_argument("--orders", default=",".join(ORDERS), help="orders; an empty one is chosen by cost")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    interests = make_interests(options.seed, options.queries)
    with (
        tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder,
        declared(Path(folder) / "root", interests, options.seed) as engine,
    ):
        if "process" in options.parts.split(","):
            process(engine, interests, options)
        if "spark" in options.parts.split(","):
            spark(engine, Path(folder), options)


@contextmanager
def declared(folder: Path, interests: Sequence[Interest], seed: int) -> Iterator[Engine]:
    """An engine on a new root that has the interests."""
    # No files of answers: what is learned from goes into the copies of this root, what it answered does not.
    limits: dict[str, Any] = {"owner_queries": 10**7, "owner_subscriptions": 10**7, "operator_cache_bytes": 0}
    with connect(folder, create=True, master="local[2]", **limits) as engine:
        files = engine.workspace.folder / "operators"
        files.mkdir(exist_ok=True)
        (files / "regions.geojson").write_text(regions_file(seed), "utf-8")
        (files / "places.csv").write_text(places_file(seed), "utf-8")
        began = time.process_time()
        engine.execute(script(interests))
        say(NAME, "declare", queries=len(interests), cpu_seconds=time.process_time() - began)
        yield engine


@dataclass
class Deciding:
    """A plan and all that decides its ways in this process, without Spark."""

    engine: Engine

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The numbers of feeds, by name."""
        with self.engine.workspace.catalog.read() as connection:
            return {feed.name: feed.id for feed in feeds.live_feeds(connection)}

    @cached_property
    def plan(self) -> Plan:
        """The plan."""
        with self.engine.workspace.catalog.read() as connection:
            row = plan_versions.current_plan(connection)
        assert row is not None
        return load(self.engine.workspace.storage, PlanVersion.of(row))

    @cached_property
    def matcher(self) -> Matcher:
        """What decides the filters."""
        return build_matcher(self.plan)

    @cached_property
    def declarations(self) -> Sequence[OperatorDeclaration]:
        """The operators."""
        with self.engine.workspace.catalog.read() as connection:
            return list(callable_operators(connection))

    def operators(self, order: str, segments: Sequence[str] = ()) -> Operators:
        """Operators that know nothing but what is in these files."""
        root = self.engine.workspace
        environment = replace(OperatorEnvironment.of(root.settings, root.storage), order=order, cache_bytes=1 << 30)
        made = Operators(root.storage, environment)
        made.use(self.declarations, segments)
        return made

    def batches(self, items: Sequence[Item]) -> list[ItemBatch]:
        """Items as they are matched together."""
        return [ItemBatch.of(items[at : at + _PIECE], self.ids) for at in range(0, len(items), _PIECE)]


@dataclass(frozen=True)
class Measured:
    """What deciding some items took: CPU seconds without those of the filters, and uses by operator."""

    decided: Sequence[Decisions]
    uses: Mapping[str, OperatorUse]
    seconds: float

    @property
    def found(self) -> Matches:
        """The matches of all batches."""
        return joined([entry.matches for entry in self.decided])

    def figures(self, items: int) -> dict[str, Any]:
        """Counts by item, rounds by batch, and CPU time by a thousand items."""
        asked = {name: use.calls / items for name, use in self.uses.items()}
        return {
            "calls": sum(entry.calls for entry in self.decided) / items,
            "asked": sum(asked.values()),
            "known": sum(use.hits for use in self.uses.values()) / items,
            "model_calls": sum(asked.get(name, 0.0) for name in MODELS),
            "asked_by_operator": {name: round(count, 2) for name, count in sorted(asked.items())},
            "rounds": sum(entry.rounds for entry in self.decided) / len(self.decided),
            "cpu_seconds_for_1000": 1_000 * self.seconds / items,
            "operator_wall_seconds_for_1000": 1_000 * sum(use.seconds for use in self.uses.values()) / items,
            "matches": self.found.total / items,
            "unknown": sum(len(entry.unknown) for entry in self.decided),
        }


def measure(deciding: Deciding, operators: Operators, decider: Decider, batches: Sequence[ItemBatch]) -> Measured:
    """Decide batches."""
    filtered = [deciding.matcher.match(batch) for batch in batches]
    operators.caller.take_learned()
    began = time.process_time()
    decided = [decider.decide(batch, results) for batch, results in zip(batches, filtered, strict=True)]
    seconds = time.process_time() - began
    uses = {name.split()[0]: use for name, use in operators.caller.take_learned().operators.items()}
    return Measured(decided, uses, seconds)


def process(engine: Engine, interests: Sequence[Interest], options: argparse.Namespace) -> None:
    """Every order in this process: nothing known, all known in memory, all known in files."""
    deciding = Deciding(engine)
    items = list(make_news(options.seed, options.items))
    learned = learn(deciding, options)
    batches = deciding.batches(items)
    workload(deciding, interests, batches)
    again = deciding.batches(list(make_news(options.seed, options.items, _AGAIN)))
    first: str | None = None
    for order in options.orders.split(","):
        operators = deciding.operators(order)
        decider = operators.new_decider(deciding.plan, learned)
        for cache in ("cold", "in memory"):
            measured = measure(deciding, operators, decider, batches if cache == "cold" else again)
            answers = digest(measured.found)
            first = first or answers
            figures = measured.figures(len(items))
            say(NAME, "process", order=order or "chosen", cache=cache, **figures, equal=answers == first)
        kept = operators.new_answers()
        operators.close()
        if kept is not None and order == "":
            fresh = deciding.operators(order, [kept.path])
            decider = fresh.new_decider(deciding.plan, learned)
            figures = measure(deciding, fresh, decider, again).figures(len(items))
            fresh.close()
            size = {"file_bytes": kept.bytes, "answers": kept.answers, "bytes_per_answer": kept.bytes / kept.answers}
            say(NAME, "process", order="chosen", cache="in a file", **figures, **size, megabytes=private_megabytes())
    unshared(deciding, interests, items[: options.counted], learned)


def learn(deciding: Deciding, options: argparse.Namespace) -> OperatorStatistics:
    """What is learned from other items."""
    operators = deciding.operators("")
    decider = operators.new_decider(deciding.plan, OperatorStatistics())
    for batch in deciding.batches(list(make_news(options.seed, options.learning, week=1))):
        operators.note(decider, decider.decide(batch, deciding.matcher.match(batch)))
    learned = operators.caller.take_learned()
    operators.close()
    costs = {name: round(1e6 * use.seconds / max(1.0, use.calls), 1) for name, use in learned.operators.items()}
    say(NAME, "learned", items=options.learning, microseconds_of_a_call=costs, tests=len(learned.tests))
    return learned


def workload(deciding: Deciding, interests: Sequence[Interest], batches: Sequence[ItemBatch]) -> None:
    """What there is to decide."""
    disjuncts = deciding.operators("").new_decider(deciding.plan, OperatorStatistics()).disjuncts
    results = joined([deciding.matcher.match(batch) for batch in batches])
    items = sum(map(len, batches))
    operated = results.queries >= FIRST_OPERATOR_DISJUNCT
    predicates = [value for interest in interests for group in interest.groups for value in group]
    say(
        NAME,
        "workload",
        queries=len(interests),
        items=items,
        ways=len(disjuncts.disjunct_tests),
        predicates=len(predicates),
        distinct_calls=dict(Counter(call.operator for call in disjuncts.calls)),
        distinct_tests=len(disjuncts.tests),
        undecided_ways=float(operated.sum()) / items,
        undecided_queries=len(_undecided(results)) / items,
    )


def _undecided(matches: Matches) -> set[tuple[int, int]]:
    """The items, by row, and the queries that operators must decide for them."""
    rows = np.repeat(np.arange(len(matches)), np.diff(matches.offsets))
    operated = matches.queries >= FIRST_OPERATOR_DISJUNCT
    return set(zip(rows[operated].tolist(), _queries_of(matches.queries[operated]), strict=True))


def _queries_of(ids: Any) -> list[int]:
    return [int(value) for value in query_of(ids)]


def unshared(
    deciding: Deciding, interests: Sequence[Interest], items: Sequence[Item], learned: OperatorStatistics
) -> None:
    """What queries ask each for itself, in writing order until one predicate fails; counted by the answers."""
    by_id = {deciding.ids[interest.name]: interest for interest in interests}
    batch = ItemBatch.of(items, deciding.ids)
    results = deciding.matcher.match(batch)
    operators = deciding.operators("adaptive")
    decided = operators.new_decider(deciding.plan, learned).decide(batch, results)
    of_row: dict[int, list[int]] = {}
    for row, query in sorted(_undecided(results)):
        of_row.setdefault(row, []).append(query)
    asked: Counter[str] = Counter()
    accepted: list[list[int]] = [[] for _ in items]
    for row, queries in of_row.items():
        answers = _answers(operators, items[row], [by_id[query] for query in queries])
        for query in queries:
            holds, own = by_id[query].ask_alone(lambda entry: answers[entry.operator, entry.input])  # noqa: B023
            asked.update(entry.operator for entry in own)
            accepted[row] += [query] * holds
    operators.close()
    costs = {name.split()[0]: use.seconds / max(1.0, use.calls) for name, use in learned.operators.items()}
    count = max(1, len(items))
    say(
        NAME,
        "unshared",
        items=len(items),
        asked=asked.total() / count,
        model_calls=sum(asked[name] for name in MODELS) / count,
        asked_by_operator={name: round(number / count, 2) for name, number in sorted(asked.items())},
        operator_wall_seconds_for_1000=1_000 * sum(costs.get(value, 0.0) * asked[value] for value in asked) / count,
        matches=sum(map(len, accepted)) / count,
        equal=digest(Matches.of(accepted)) == digest(decided.matches),
    )


def _answers(
    operators: Operators, item: Item, interests: Sequence[Interest]
) -> Mapping[tuple[str, str | None], Rows]:
    """Return all answers that the predicates of interests would get for an item, by operator and input."""
    wanted: dict[tuple[str, str | None], Predicate] = {}
    for interest in interests:
        wanted |= {(entry.operator, entry.input): entry for group in interest.groups for entry in group}
    questions = [
        Question((entry.operator, 1), item.attributes, entry.inputs(item.attributes)) for entry in wanted.values()
    ]
    answers = operators.caller.ask(questions)
    return {
        key: () if isinstance(answer, FailedCall) else answer for key, answer in zip(wanted, answers, strict=True)
    }


def spark(engine: Engine, folder: Path, options: argparse.Namespace) -> None:
    """Every order in Spark, on a copy of the root that has learned from other items."""
    accept(engine, list(make_news(options.seed, options.learning, week=1)))
    engine.run(once=True)
    for order in options.orders.split(","):
        own = folder / f"root-{order or 'chosen'}"
        shutil.copytree(engine.workspace.folder, own, ignore=shutil.ignore_patterns("spark"))  # sockets are no files
        with connect(own, master="local[2]", operator_order=order, operator_cache_bytes=1 << 30) as value:
            for cache in ("cold", "warm"):
                accept(value, list(make_news(options.seed, options.items, _AGAIN if cache == "warm" else 0)))
                _run(value, order or "chosen", cache)
        shutil.rmtree(own)


def accept(engine: Engine, items: Sequence[Item]) -> None:
    """Accept items, in files that two workers can share."""
    with engine.workspace.catalog.read() as connection:
        (source,) = [feed.id for feed in feeds.live_feeds(connection) if feed.name == "News"]
    for at in range(0, len(items), _PIECE // 2):
        engine.workspace.items.accept(source, items[at : at + _PIECE // 2])


def _run(engine: Engine, order: str, cache: str) -> None:
    """A bounded run over what waits."""
    with engine.workspace.catalog.read() as connection:
        before = len(match_segments.match_segments(connection))
    workers = Workers()
    workers.start()
    used, began = cpu_seconds(), time.perf_counter()
    engine.run(once=True)
    seconds = time.perf_counter() - began
    spent = {name: 1_000 * (value - used.get(name, 0.0)) for name, value in cpu_seconds().items()}
    workers.stop()
    with engine.workspace.catalog.read() as connection:
        segments = match_segments.match_segments(connection)[before:]
        totals = cache_totals(connection)
    items = max(1, sum(element.items for element in segments))
    counters: Counter[str] = Counter()
    for segment in segments:
        counters.update(segment.counters)
    say(
        NAME,
        "spark",
        order=order,
        cache=cache,
        items=items,
        batches=len(segments),
        calls=counters["operator_calls"] / items,
        rounds=counters["operator_rounds"],
        unknown=counters["operator_unknown"],
        matches=sum(element.matches for element in segments) / items,
        worker_cpu_seconds_for_1000=spent.get("workers", 0.0) / items,
        java_cpu_seconds_for_1000=spent.get("java", 0.0) / items,
        wall_seconds=seconds,
        cache_bytes=totals.bytes,
        cache_answers=totals.answers,
        largest_worker_megabytes=workers.largest,
    )


if __name__ == "__main__":
    main()
