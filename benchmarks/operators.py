"""Measure orders of operator calls: calls per event, next to a lower bound for all orders. Prints JSON lines.

    python -m benchmarks.operators [--parts figure4,figure5,…] [--events 100] [--bounded 5] [--seed 1]

Parts are the figures of section 5 (`figure4` to `figure8`), `costs` (calls that cost differently), `bookkeeping` (CPU
time of the orders themselves at 80,000 ways) and `subscribe` (keeping chains in order while ways come and go). Calls
and bounds are counts, the same on every machine; times are CPU times of one core. Every order follows the same
events, drawn from the chances, and all accept the same number of ways, or the line says so.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from benchmarks.measuring import say
from benchmarks.operator_bounds import lower_bound
from benchmarks.operator_workloads import MATCHING, Workload, expected_matches, make_problem

from runnel.arrays import Array
from runnel.matching.operators.orders.advance import RANKS
from runnel.matching.operators.orders.problem import OrderProblem
from runnel.matching.operators.orders.registry import installed_orders
from runnel.matching.operators.orders.simulate import Simulation, draw_truths
from runnel.papers.operators.chains import Chains
from runnel.papers.operators.kruskal import kruskal
from runnel.papers.operators.sweep import Sweep, pack_truths

ORDERS = {**installed_orders(), "kruskal": kruskal}
SIZES = (2_000, 10_000, 20_000, 40_000, 80_000)
_TIMES = 4
Made = TypeVar("Made")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--bounded", type=int, default=5, help="events for which the bound is computed")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for part in options.parts.split(","):
        for workload in PARTS[part](Workload(seed=options.seed)):
            MEASURES.get(part, compare)(part, workload, options)


def compare(part: str, workload: Workload, options: argparse.Namespace) -> None:
    """Calls and cost per event of every order, and of the bound for some of the events."""
    problem = make_problem(workload)
    truths = draw_truths(problem, options.events, workload.seed + 1)
    bounds = [lower_bound(problem, truth) for truth in truths[: options.bounded]]
    about = _about(workload, problem) | {"events": options.events}
    bound = float(np.mean([value.value for value in bounds])) if bounds else float("nan")
    gap = max((value.gap for value in bounds), default=float("nan"))
    say("operators", part, order="bound", cost=bound, relaxation_gap=gap, bounded=len(bounds), **about)
    accepted: Array | None = None
    for name, make in ORDERS.items():
        try:
            order = make(problem)
        except ValueError as error:
            say("operators", part, order=name, refused=str(error), **about)
            continue
        followed = Simulation(problem, order).follow(truths)
        accepted = followed.accepted if accepted is None else accepted
        say(
            "operators",
            part,
            order=name,
            calls=float(followed.calls.mean()),
            cost=float(followed.costs.mean()),
            to_bound=float(followed.costs[: len(bounds)].mean() / bound),
            matches=float(followed.accepted.mean()),
            equal=bool(np.array_equal(accepted, followed.accepted)),
            **about,
        )


def bookkeeping(part: str, workload: Workload, options: argparse.Namespace) -> None:
    """What an order takes itself, in CPU time for an event, when calls take nothing."""
    problem = make_problem(workload)
    truths = draw_truths(problem, options.events, workload.seed + 1)
    for name, make in ORDERS.items():
        if name in ("kruskal", "naive"):
            continue
        order, building = _timed(partial(make, problem))
        simulation = Simulation(problem, order)
        simulation.follow(truths[:1])
        followed, spent = _best(partial(simulation.follow, truths))
        say(
            "operators",
            part,
            order=name,
            build_seconds=building,
            microseconds=1e6 * spent / len(truths),
            calls=float(followed.calls.mean()),
            entries=float(followed.touched.mean()),
            **_about(workload, problem),
        )
        if order.kind is RANKS:
            packed = pack_truths(truths)
            at_once, building = _timed(partial(Sweep, problem, order))
            at_once.follow(packed[:1], min(64, len(truths)))
            (calls, accepted), spent = _best(partial(at_once.follow, packed, len(truths)))
            equal = bool(np.array_equal(calls, followed.calls) and np.array_equal(accepted, followed.accepted))
            swept = {"microseconds": 1e6 * spent / len(truths), "calls": float(calls.mean()), "equal": equal}
            swept |= {"build_seconds": building}
            say("operators", part, order=f"{name}, 64 events at once", **swept, **_about(workload, problem))


def subscribe(part: str, workload: Workload, options: argparse.Namespace) -> None:
    """Ways come and go among 80,000; after each the order is asked for, or after a hundred."""
    problem = make_problem(workload)
    chains, building = _timed(lambda: Chains.of(problem))
    chosen = np.random.default_rng(workload.seed).choice(problem.disjuncts, 1_000, replace=False)
    added = [
        problem.tests_of_disjunct(disjunct).copy() for disjunct in chosen.tolist()
    ]  # as popular as those that there are
    chains.remove(chains.add(added[0]))
    chains.order()
    for every in (1, 100):
        disjuncts: list[int] = []
        _, adding = _timed(partial(_add_all, chains, added, every, disjuncts))
        _, removing = _timed(partial(_remove_all, chains, disjuncts, every))
        say(
            "operators",
            part,
            build_seconds=building,
            order_asked_after=every,
            microseconds_per_subscribe=1e6 * adding / len(added),
            microseconds_per_unsubscribe=1e6 * removing / len(added),
            **_about(workload, problem),
        )


def _add_all(chains: Chains, added: list[Array], every: int, disjuncts: list[int]) -> None:
    for number, tests in enumerate(added):
        disjuncts.append(chains.add(tests))
        if number % every == every - 1:
            chains.order()


def _remove_all(chains: Chains, disjuncts: list[int], every: int) -> None:
    for number, disjunct in enumerate(disjuncts):
        chains.remove(disjunct)
        if number % every == every - 1:
            chains.order()


def _timed(work: Callable[[], Made]) -> tuple[Made, float]:
    began = time.process_time()
    made = work()
    return made, time.process_time() - began


def _best(work: Callable[[], Made]) -> tuple[Made, float]:
    """The least time of several: other work on the machine makes it longer, nothing makes it shorter."""
    results = [_timed(work) for _ in range(_TIMES)]
    return results[0][0], min(spent for _, spent in results)


def _about(workload: Workload, problem: OrderProblem) -> dict[str, object]:
    return {
        "ways": workload.ways,
        "calls_in_all": workload.calls,
        "popularity": workload.popularity,
        "longest": workload.longest,
        "spread": workload.spread,
        "expected_matches": expected_matches(problem),
    }


def _figure4(base: Workload) -> Iterator[Workload]:
    yield from (replace(base, ways=disjuncts) for disjuncts in SIZES)


def _figure5(base: Workload) -> Iterator[Workload]:
    yield from (replace(base, ways=disjuncts, exponent=1.0) for disjuncts in SIZES)


def _figure6(base: Workload) -> Iterator[Workload]:
    yield from (
        replace(base, ways=20_000, calls=calls, exponent=1.0) for calls in (2_000, 5_000, 10_000, 20_000, 30_000)
    )


def _figure7(base: Workload) -> Iterator[Workload]:
    yield from (replace(base, ways=20_000, calls=5_000, longest=longest, exponent=1.0) for longest in (5, 7, 9, 11))


def _figure7_equal(base: Workload) -> Iterator[Workload]:
    """The same with one chance for all tests, by which a way of mean length matches as often as is wanted."""
    for entry in _figure7(base):
        yield replace(entry, chance=MATCHING ** (2 / (entry.shortest + entry.longest)))


def _figure8(base: Workload) -> Iterator[Workload]:
    yield from (replace(base, ways=20_000, calls=5_000, exponent=exponent) for exponent in (0.0, 0.8, 1.0, 1.2))


def _costs(base: Workload) -> Iterator[Workload]:
    yield from (replace(base, exponent=exponent, spread=1.5) for exponent in (0.0, 1.0))


def _largest(base: Workload) -> Iterator[Workload]:
    yield from (replace(base, exponent=exponent) for exponent in (0.0, 1.0))


PARTS: dict[str, Callable[[Workload], Iterator[Workload]]] = {
    "figure4": _figure4,
    "figure5": _figure5,
    "figure6": _figure6,
    "figure7": _figure7,
    "figure7_equal": _figure7_equal,
    "figure8": _figure8,
    "costs": _costs,
    "bookkeeping": _largest,
    "subscribe": _largest,
}
MEASURES = {"bookkeeping": bookkeeping, "subscribe": subscribe}

if __name__ == "__main__":
    main()
