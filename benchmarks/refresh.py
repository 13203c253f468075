"""Refresh under limited bandwidth, simulated: which feeds to poll if the number of requests per minute is limited.

    python benchmarks/refresh.py [--feeds 10000] [--days 5] [--budgets 30 100 300 1000] [--seed 7] [--plot FILE]

Feeds of six kinds publish for some days; every policy gets the same items and the same number of requests a minute
and learns only from what its own polls find. Missed items are those that left a feed's document before a
poll. A JSON line for every policy and budget: `missed_share` of all published items, `staleness_seconds` from
publication to the poll that found an item (mean over items that were found), and `lateness_seconds`, where a missed
item counts too, until the poll that came too late for it. The oracle chooses by the same formula with the true
current rates, but does not know the items.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runnel.sources.web_feeds.publishing_rates import DAY, HOUR, Numbers, curves, learn, start_rows
from runnel.sources.web_feeds.refresh import PublishingModel, choose, index, urgency, urgency_of_curves

MINUTE = 60.0
START = 20_000 * DAY  # a moment at midnight, so that hours of the day are what they are called
Indices = NDArray[np.intp]


def say(figure: str, **values: Any) -> dict[str, Any]:
    """Print one figure as a line of JSON."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
    line = {"benchmark": "refresh", "figure": figure, **rounded}
    print(json.dumps(line), flush=True)
    return line


@dataclass(frozen=True, slots=True)
class Town:
    """Feeds and all that they will publish: true rates per minute, and every item's minute, feed by feed."""

    kinds: NDArray[np.str_]
    capacity: Numbers
    rates: NDArray[np.float32]
    offsets: NDArray[np.int64]
    minutes: NDArray[np.int32]
    summed: NDArray[np.int64]

    @property
    def feeds(self) -> int:
        return len(self.kinds)

    @property
    def ticks(self) -> int:
        return len(self.rates)


KINDS = {"steady": 0.40, "daily": 0.20, "bursty": 0.14, "dead": 0.20, "awakened": 0.03, "fast": 0.03}


def build_town(feeds: int, days: int, seed: int) -> Town:
    """A town of feeds, the same for the same seed."""
    chance = np.random.default_rng(seed)
    kinds = chance.choice(list(KINDS), size=feeds, p=list(KINDS.values()))
    ticks = days * 1440
    # Most feeds publish little and a few very much (log-normal); the median is four items a day.
    base = np.exp(chance.normal(np.log(4.0), 1.3, feeds)) / 1440
    rates = np.zeros((ticks, feeds), dtype=np.float32)
    hours = (np.arange(ticks) // 60) % 24
    for feed in range(feeds):
        rates[:, feed] = base[feed] * _shape(str(kinds[feed]), base[feed] * 1440, ticks, hours, chance)
    arrivals = chance.poisson(rates)
    counts = arrivals.sum(axis=0, dtype=np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    minutes = np.concatenate(
        [np.repeat(np.arange(ticks, dtype=np.int32), arrivals[:, number]) for number in range(feeds)]
    )
    capacity = chance.choice([10.0, 15.0, 20.0, 30.0, 50.0, 100.0], size=feeds, p=[0.3, 0.2, 0.2, 0.1, 0.15, 0.05])
    summed = np.concatenate([[0], np.cumsum(minutes, dtype=np.int64)])
    return Town(kinds, capacity, rates, offsets, minutes, summed)


def _shape(kind: str, daily: float, ticks: int, hours: NDArray[Any], chance: np.random.Generator) -> Any:
    """The rate over time, relative to the feed's base rate."""
    match kind:
        case "daily":
            wakes = chance.integers(24)
            return np.where((hours - wakes) % 24 < chance.integers(8, 13), 2.2, 0.02)
        case "bursty":
            factor = np.full(ticks, 0.15)
            for begin in np.flatnonzero(chance.random(ticks) < 1 / (1.5 * 1440)):
                factor[begin : begin + chance.integers(40, 360)] = chance.uniform(15, 60)
            return factor
        case "dead":
            return 0.0
        case "awakened":
            factor = np.zeros(ticks)
            factor[chance.integers(ticks // 4, 3 * ticks // 4) :] = chance.uniform(5, 40) * 4 / max(daily, 0.5)
            return factor
        case "fast":
            return chance.uniform(150, 1500) / daily
        case _:
            return 1.0


Found = tuple[Indices, Numbers, Numbers, Numbers]
"""Which feeds were polled, the seconds since their last polls, new items and items held."""


class Policy:
    """Chooses feeds, minute by minute, and learns from what was found."""

    def __init__(self, town: Town, budget: int, seed: int) -> None:
        self.town, self.budget = town, budget
        self.chance = np.random.default_rng(seed)

    def pick(self, tick: int, waited: Numbers) -> Indices:
        raise NotImplementedError

    def learn(self, tick: int, results: Found) -> None:
        """Most learn nothing."""


class Uniform(Policy):
    """Any feed is as good as any other."""

    def pick(self, tick: int, waited: Numbers) -> Indices:
        return self.chance.choice(self.town.feeds, self.budget, replace=False)


class RoundRobin(Policy):
    """One after the other."""

    def pick(self, tick: int, waited: Numbers) -> Indices:
        return (tick * self.budget + np.arange(self.budget)) % self.town.feeds


class RateProportional(Policy):
    """As often as a feed publishes, by the mean of all that its polls found: the most expected items first."""

    def __init__(self, town: Town, budget: int, seed: int) -> None:
        super().__init__(town, budget, seed)
        self.items = np.ones(town.feeds)
        self.seconds = np.full(town.feeds, HOUR)

    def pick(self, tick: int, waited: Numbers) -> Indices:
        return choose(self.items / self.seconds * waited, self.budget)

    def learn(self, tick: int, results: Found) -> None:
        feeds, elapsed, new, _ = results
        self.items[feeds] += np.where(elapsed > 0, new, 0.0)
        self.seconds[feeds] += elapsed


class Runnel(Policy):
    """The policy of `runnel.sources.web_feeds.refresh`."""

    def __init__(self, town: Town, budget: int, seed: int) -> None:
        super().__init__(town, budget, seed)
        self.rows = start_rows(np.full(town.feeds, HOUR))
        self.curves = curves(self.rows)

    def pick(self, tick: int, waited: Numbers) -> Indices:
        return choose(urgency_of_curves(self.curves, waited, START + tick * MINUTE), self.budget)

    def learn(self, tick: int, results: Found) -> None:
        feeds, elapsed, new, held = results
        at = np.full(len(feeds), START + tick * MINUTE)
        after = learn(self.rows[feeds], at, elapsed, new, held)
        self.rows[feeds], self.curves[feeds] = after, curves(after)


class Oracle(Policy):
    """The same index over the true rates, with all that changes them."""

    def __init__(self, town: Town, budget: int, seed: int) -> None:
        super().__init__(town, budget, seed)
        self.items = np.zeros(town.feeds)
        self.waiting = np.zeros(town.feeds)

    def pick(self, tick: int, waited: Numbers) -> Indices:
        self.waiting += self.items * MINUTE
        self.items += self.town.rates[tick]
        return choose(index(self.items, self.waiting, np.sqrt(self.items), self.town.capacity, waited), self.budget)

    def learn(self, tick: int, results: Found) -> None:
        self.items[results[0]] = 0.0
        self.waiting[results[0]] = 0.0


POLICIES: dict[str, Callable[[Town, int, int], Policy]] = {
    "uniform": Uniform,
    "round_robin": RoundRobin,
    "rate_proportional": RateProportional,
    "runnel": Runnel,
    "oracle": Oracle,
}


@dataclass(slots=True)
class Account:
    """What became of the items."""

    found: int = 0
    missed: int = 0
    useless: int = 0
    stale_minutes: float = 0.0
    late_minutes: float = 0.0

    def add(self, town: Town, feeds: Indices, seen: Any, published: Any, tick: int) -> tuple[Numbers, Numbers]:
        """Poll some feeds: new items and held items of each."""
        new = published - seen
        taken = np.minimum(new, town.capacity[feeds]).astype(np.int64)
        ends = town.offsets[feeds] + published
        whole = town.summed[ends] - town.summed[town.offsets[feeds] + seen]
        fresh = town.summed[ends] - town.summed[ends - taken]
        self.found += int(taken.sum())
        self.missed += int((new - taken).sum())
        self.useless += int((new == 0).sum())
        self.stale_minutes += float((taken * tick - fresh).sum())
        self.late_minutes += float((new * tick - whole).sum())
        return taken.astype(float), town.capacity[feeds]  # every feed has a past, so its document is full


def simulate(town: Town, policy: Policy) -> Account:
    """The days of a town under a policy; at the end every feed is polled once, so that each item is accounted for."""
    account = Account()
    published = np.zeros(town.feeds, dtype=np.int64)
    seen = np.zeros(town.feeds, dtype=np.int64)
    polled = np.full(town.feeds, -1.0)
    order = np.repeat(np.arange(town.feeds), np.diff(town.offsets))[np.argsort(town.minutes, kind="stable")]
    ticks = np.searchsorted(np.sort(town.minutes), np.arange(town.ticks + 1))
    for tick in range(town.ticks):
        np.add.at(published, order[ticks[tick] : ticks[tick + 1]], 1)
        waited = np.where(polled >= 0, tick - polled, tick + 60.0) * MINUTE
        feeds = policy.pick(tick, waited)
        elapsed = np.where(polled[feeds] >= 0, (tick - polled[feeds]) * MINUTE, 0.0)
        new, held = account.add(town, feeds, seen[feeds], published[feeds], tick)
        seen[feeds], polled[feeds] = published[feeds], tick
        policy.learn(tick, (feeds, elapsed, new, held))
    account.add(town, np.arange(town.feeds), seen, published, town.ticks)
    return account


def compare(town: Town, budget: int, seed: int, names: Sequence[str]) -> list[dict[str, Any]]:
    """Every policy at one budget."""
    lines = []
    for name in names:
        started = time.perf_counter()
        account = simulate(town, POLICIES[name](town, budget, seed))
        requests = budget * town.ticks
        lines.append(
            say(
                "policy",
                policy=name,
                requests_per_minute=budget,
                published=account.found + account.missed,
                missed=account.missed,
                missed_share=account.missed / (account.found + account.missed),
                staleness_seconds=account.stale_minutes * MINUTE / max(1, account.found),
                lateness_seconds=account.late_minutes * MINUTE / (account.found + account.missed),
                requests_without_news=account.useless / requests,
                seconds=time.perf_counter() - started,
            )
        )
    return lines


def measure_speed(feeds: int, seed: int) -> None:
    """The time of one choice among all feeds, from what the catalog keeps."""
    chance = np.random.default_rng(seed)
    learned = [PublishingModel.start(float(period)) for period in chance.integers(60, 86_400, feeds)]
    waited = chance.uniform(0, 86_400, feeds)
    times = []
    for _ in range(20):
        started = time.perf_counter()
        choose(urgency(learned, waited, START), 600)
        times.append(time.perf_counter() - started)
    texts = [entry.to_text() for entry in learned[:500]]
    started = time.perf_counter()
    for text in texts:
        PublishingModel.from_text(text, 600).observed(at=START, elapsed=600, new=3, held=20).to_text()
    each = (time.perf_counter() - started) / len(texts)
    say("choice", feeds=feeds, milliseconds=1000 * min(times), microseconds_to_learn_from_a_poll=1e6 * each)


def plot(lines: Sequence[dict[str, Any]], feeds: int, path: Path) -> None:
    """Missed items and staleness against the budget."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "refresh", "svg.fonttype": "none", "font.family": "sans-serif"})
    from matplotlib import pyplot

    styles = {
        "uniform": ("uniform", "#9a9a9a", ":"),
        "round_robin": ("round robin", "#6b6b6b", "--"),
        "rate_proportional": ("rate-proportional", "#c77c11", "-."),
        "runnel": ("Runnel", "#1668a8", "-"),
        "oracle": ("knows the true rates", "#2b8a3e", ":"),
    }
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for name, (label, colour, style) in styles.items():
        rows = [line for line in lines if line["policy"] == name]
        budgets = [row["requests_per_minute"] for row in rows]
        axes[0].plot(
            budgets, [100 * row["missed_share"] for row in rows], style, marker="o", color=colour, label=label
        )
        axes[1].plot(budgets, [row["lateness_seconds"] / 60 for row in rows], style, marker="o", color=colour)
    axes[0].set_ylabel("missed items, %")
    axes[1].set_ylabel("mean lateness, minutes")
    axes[1].set_yscale("log")
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xlabel(f"requests a minute for {feeds:,} feeds")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feeds", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--budgets", type=int, nargs="+", default=[30, 100, 300, 1000])
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=list(POLICIES))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    measure_speed(options.feeds, options.seed)
    town = build_town(options.feeds, options.days, options.seed)
    items = np.diff(town.offsets)
    kinds = {kind: int((town.kinds == kind).sum()) for kind in KINDS}
    by_kind = {kind: int(items[town.kinds == kind].sum()) for kind in KINDS}
    say("town", feeds=options.feeds, days=options.days, items=int(items.sum()), kinds=kinds, items_by_kind=by_kind)
    lines = [line for budget in options.budgets for line in compare(town, budget, options.seed, options.policies)]
    if options.plot:
        plot(lines, options.feeds, options.plot)


if __name__ == "__main__":
    main()
