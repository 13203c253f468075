"""Measure the cost of sampling query costs, next to matching itself. Prints one JSON line per figure.

    python -m benchmarks.query_costs [--queries 100000] [--expensive 50] [--items 20000] [--slice 1000] [--seed 7]

`matching` is the plan's matcher over slices of items, `sampling` the measurement of one item of each slice, which a
runner does eight times per minute; `expensive` queries with a regular expression are added, and the run fails unless
the samples show them as the most expensive.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measuring import say
from benchmarks.workloads import FIRST_QUERY, SOURCE, make_items, make_queries

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import RegularExpression
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compile_delta
from runnel.matching.costs.sample_costs import CostSampler
from runnel.model.learned.query_costs import Costs, merged_costs
from runnel.model.learned.sampling import scattered
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--expensive", type=int, default=50)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--slice", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        plan = _plan(FileStorage(Path(folder).as_uri()), options)
        matcher, sampler = build_matcher(plan), CostSampler(plan)
        slices = make_items(options.items).batches(options.slice)
        matcher.match(slices[0])
        started = time.process_time()
        sampler.sample(slices[0], 0)  # loops are compiled, and what is made once is made
        first = time.process_time() - started
        matching = sampling = 0.0
        costses: list[Costs] = []
        for number, items in enumerate(slices):
            started = time.process_time()
            matcher.match(items)
            matched = time.process_time()
            costses.append(sampler.sample(items, scattered(1 + number * options.slice)))
            matching, sampling = matching + matched - started, sampling + time.process_time() - matched
        costs = merged_costs(costses)
        expensive = range(FIRST_QUERY + options.queries, FIRST_QUERY + options.queries + options.expensive)
        ranked = sorted(costs.queries, key=lambda query: -costs.queries[query].nanoseconds)
        messages = sum(cost.nanoseconds for cost in costs.queries.values()) / max(1.0, costs.items)
        say(
            "query_costs",
            "sampling next to matching",
            queries=options.queries,
            expensive=options.expensive,
            items=options.items,
            matching_cpu_seconds=matching,
            sampling_cpu_seconds=sampling,
            first_sample_cpu_seconds=first,
            sample_cpu_milliseconds=1e3 * sampling / max(1.0, costs.items),
            sampled_items=costs.items,
            matching_microseconds_per_item=1e6 * matching / options.items,
            told_microseconds_per_item=messages / 1e3,
            expensive_among_top=sum(query in expensive for query in ranked[: options.expensive]),
        )
        if not set(ranked[: options.expensive]) <= set(expensive):
            sys.exit("the samples do not show the expensive queries as the most expensive")


def _plan(storage: FileStorage, options: argparse.Namespace) -> Plan:
    """Compile the plain queries as the base and the expensive ones as its delta."""
    queries = make_queries("M", options.queries, options.seed)
    compile_base(storage, "base", queries.plan_queries(), queries.definitions())
    first = FIRST_QUERY + options.queries
    expensive: dict[int, Node] = {
        first + number: Filter(Read(SOURCE), RegularExpression(Attribute("text"), f"(?i)q{number}[aeiou]+z"))
        for number in range(options.expensive)
    }
    compile_delta(storage, "delta", map(PlanQuery, expensive), expensive, (), "base")
    return load(storage, PlanVersion(1, "base", "delta"))


if __name__ == "__main__":
    main()
