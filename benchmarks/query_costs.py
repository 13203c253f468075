"""What it costs to sample the cost of queries, beside matching itself. A JSON line for every figure.

    python -m benchmarks.query_costs [--queries 100000] [--dear 50] [--items 20000] [--slice 1000] [--seed 7]

`matching` is the plan's matcher over slices of items, `sampling` the closer look at one item of each, of which a
runner does eight a minute; `dear` queries with a regular expression are among the others, and the run fails unless
they are what the samples show as dearest.
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
    parser.add_argument("--dear", type=int, default=50)
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
        dear = range(FIRST_QUERY + options.queries, FIRST_QUERY + options.queries + options.dear)
        ranked = sorted(costs.queries, key=lambda query: -costs.queries[query].nanoseconds)
        messages = sum(cost.nanoseconds for cost in costs.queries.values()) / max(1.0, costs.items)
        say(
            "query_costs",
            "sampling beside matching",
            queries=options.queries,
            dear=options.dear,
            items=options.items,
            matching_cpu_seconds=matching,
            sampling_cpu_seconds=sampling,
            first_sample_cpu_seconds=first,
            sample_cpu_milliseconds=1e3 * sampling / max(1.0, costs.items),
            sampled_items=costs.items,
            matching_microseconds_per_item=1e6 * matching / options.items,
            told_microseconds_per_item=messages / 1e3,
            dear_among_dearest=sum(query in dear for query in ranked[: options.dear]),
        )
        if not set(ranked[: options.dear]) <= set(dear):
            sys.exit("the dear queries are not the dearest")


def _plan(storage: FileStorage, options: argparse.Namespace) -> Plan:
    """The plain queries as the base, the dear ones as its delta."""
    queries = make_queries("M", options.queries, options.seed)
    compile_base(storage, "base", queries.plan_queries(), queries.definitions())
    first = FIRST_QUERY + options.queries
    dear: dict[int, Node] = {
        first + number: Filter(Read(SOURCE), RegularExpression(Attribute("text"), f"(?i)q{number}[aeiou]+z"))
        for number in range(options.dear)
    }
    compile_delta(storage, "delta", map(PlanQuery, dear), dear, (), "base")
    return load(storage, PlanVersion(1, "base", "delta"))


if __name__ == "__main__":
    main()
