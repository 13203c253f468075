"""Queries of every family over several feeds, and items for them: what the benchmark of a cluster matches.

In: sizes and a seed. Out: one logical plan, made directly (a million queries in minutes, kept on the disk between
runs), and items in the order in which they come. The feed `News` has texts and the filters of workload M; the feeds
`Events1` and so on have attributes only, and a query asks one of them; `Pages` has graphs, and patterns of the graph
workload without bindings. Some queries over events ask a built-in operator how far away something is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from benchmarks.event_workload import make_event_queries, make_events
from benchmarks.graph_workload import Workload, make_patterns, publications_of
from benchmarks.workloads import FIRST_QUERY, SOURCE, make_items, make_queries, spread

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Call, Constraint, Literally, Variable
from runnel.algebra.nodes.expressions import And, Compare
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.arrays import IDENTIFIER, Array, Rows, Texts, row_offsets
from runnel.model.graph import GRAPH
from runnel.model.item import Item
from runnel.optimizer.optimize import optimize
from runnel.plan.logical_plan import LogicalPlan, PlanQuery
from runnel.plan.operator_table import OperatorTable

NEWS = SOURCE
EVENTS = NEWS + 1
"""The catalog ids of the first feeds; those of events are one after the other, and `Pages` comes behind them."""

FIRST = 1_000
"""The catalog id of the first query."""

GRADES = 10
"""The number of grades of events. Operators are called for the events of one grade."""

OPERATOR = "register operator near(place text, ?metres number) from 'distance' reading latitude, longitude;"
_PLACES = 40
_REACH = 500_000.0


@dataclass(frozen=True)
class Mix:
    """How many queries there are, and of what kind; the parts that are left over are filters over `News`."""

    queries: int
    events: float = 0.3
    graphs: float = 0.1
    operators: int = 100
    event_feeds: int = 8
    topics: int = 150
    seed: int = 7

    @property
    def pages(self) -> int:
        """The catalog id of the feed with graphs."""
        return EVENTS + self.event_feeds

    @property
    def feeds(self) -> dict[str, int]:
        """All feeds by name, in the order in which they must be registered."""
        events = {f"Events{number + 1}": EVENTS + number for number in range(self.event_feeds)}
        return {"News": NEWS, **events, "Pages": self.pages}

    @property
    def counts(self) -> dict[str, int]:
        """How many queries of each family there are."""
        operators = min(self.operators, self.queries // 10)
        events, graphs = int(self.events * self.queries), int(self.graphs * self.queries)
        text = self.queries - operators - events - graphs
        return {"text": text, "events": events, "graphs": graphs, "operators": operators}

    @property
    def name(self) -> str:
        """A file name that tells mixes apart."""
        sizes = "-".join(map(str, self.counts.values()))
        return f"mix-{sizes}-{self.event_feeds}-{self.topics}-{self.seed}"


# ---- queries ----


def kept_plan(mix: Mix, folder: Path | None) -> LogicalPlan:
    """The plan of a mix, from the folder where it was kept before, or made and kept there."""
    if folder is None:
        return make_plan(mix)
    place = folder / f"{mix.name}.npz"
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        arrays = make_plan(mix).arrays()
        part = place.with_suffix(".part.npz")
        np.savez(part, **arrays)  # type: ignore[arg-type]
        part.rename(place)
    with np.load(place, allow_pickle=False) as stored:
        return LogicalPlan.stored({name: stored[name] for name in stored.files})


def make_plan(mix: Mix) -> LogicalPlan:
    """The logical plan of all queries of a mix.

    >>> plan = make_plan(Mix(queries=200))
    >>> len(plan.operators), plan.counts["queries"], len(plan.scopes)
    (20, 200, 10)
    """
    counts = mix.counts
    first = FIRST
    plans: list[LogicalPlan] = []
    text = make_queries("M", counts["text"], mix.seed).logical()
    events = spread(make_event_queries(counts["events"], mix.seed).logical(), mix.event_feeds)
    for plan, source in ((text, NEWS), (events, EVENTS)):
        plans.append(moved(plan, source - SOURCE, first - FIRST_QUERY))
        first += len(plan.query_ids)
    patterns = make_patterns(Workload(counts["graphs"], topics=mix.topics, seed=mix.seed))
    asked: dict[int, Node] = {
        first + number: Filter(Read(mix.pages), pattern) for number, pattern in enumerate(patterns)
    }
    plans.append(optimize(map(PlanQuery, asked), asked))
    operated = dict(enumerate(operator_queries(mix), first + len(asked)))
    plans.append(optimize(map(PlanQuery, operated), operated))
    return joined_plans([plan for plan in plans if len(plan.query_ids)])


def operator_queries(mix: Mix) -> Iterator[Node]:
    """Queries over events of one grade near a place; forty places, so that some ask the same."""
    draw = random.Random(mix.seed)
    for number in range(mix.counts["operators"]):
        place = draw.randrange(_PLACES)
        where = f"{35 + place % 8 * 3}, {-5 + place // 8 * 6}"
        metres = Variable("metres")
        call = Call("near", (Literally(where), metres), version=1, results=(1,))
        near = Constraint(metres, "<", Literally(float(draw.randrange(1, 10)) * _REACH / 10))
        grade = Compare(Attribute("grade"), "=", float(draw.randrange(GRADES)))
        yield Filter(Read(EVENTS + number % mix.event_feeds), And((grade, call, near)))


def moved(plan: LogicalPlan, sources: int, queries: int) -> LogicalPlan:
    """The same plan with other ids of sources and queries; it has no ways."""
    return replace(
        plan,
        scopes=Rows(plan.scopes.offsets, plan.scopes.values + sources),
        query_ids=plan.query_ids + queries,
    )


def joined_plans(plans: Sequence[LogicalPlan]) -> LogicalPlan:
    """Plans that have no atom, source or query in common as one; at most one of them has operators, none gates."""
    ids = np.concatenate([plan.query_ids for plan in plans])
    order = np.argsort(ids, kind="stable")
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    atoms = _firsts([len(plan.atoms) for plan in plans])
    clauses = _firsts([len(plan.clauses) for plan in plans])
    predicates = _firsts([len(plan.predicates) for plan in plans])
    queries = _firsts([len(plan.query_ids) for plan in plans])
    sources, scopes = np.unique(np.concatenate([plan.scopes.values for plan in plans]), return_inverse=True)
    if len(scopes) != sum(len(plan.scopes) for plan in plans):
        raise ValueError("a scope of a plan that is joined here has one source")
    of_targets = _shifted(
        [plan.target_scopes for plan in plans], _firsts([len(plan.scopes) for plan in plans]), np.int64
    )
    if any(len(plan.formulas) or len(plan.gates) or len(plan.bound_patterns) for plan in plans):
        raise ValueError("plans with formulas, gates or bindings are not joined here")
    operated = [plan.operators for plan in plans if len(plan.operators)]
    return LogicalPlan(
        atoms=_texts([plan.atoms for plan in plans]),
        clauses=_rows([plan.clauses for plan in plans], [2 * first for first in atoms]),
        predicates=_rows([plan.predicates for plan in plans], clauses),
        predicate_formulas=np.concatenate([plan.predicate_formulas for plan in plans]),
        formula_kinds=plans[0].formula_kinds,
        formulas=plans[0].formulas,
        scopes=Rows(row_offsets(np.ones(len(sources))), sources),
        target_predicates=_shifted([plan.target_predicates for plan in plans], predicates),
        target_scopes=scopes[of_targets].astype(IDENTIFIER),
        targets=_placed(_rows([plan.targets for plan in plans], queries), places),
        query_ids=ids[order],
        query_since=np.concatenate([plan.query_since for plan in plans])[order],
        operators=operated[0] if operated else OperatorTable(),
    )


def _firsts(counts: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(counts).tolist()[:-1]]


def _shifted(arrays: Sequence[Array], firsts: Sequence[int], dtype: type[np.integer] = IDENTIFIER) -> Array:
    return np.concatenate([array + first for array, first in zip(arrays, firsts, strict=True)]).astype(dtype)


def _rows(rows: Sequence[Rows], firsts: Sequence[int]) -> Rows:
    lengths = np.concatenate([entry.lengths for entry in rows])
    return Rows(row_offsets(lengths), _shifted([entry.values for entry in rows], firsts))


def _placed(rows: Rows, places: Array) -> Rows:
    return Rows(rows.offsets, places[rows.values].astype(IDENTIFIER))


def _texts(texts: Sequence[Texts]) -> Texts:
    lengths = np.concatenate([np.diff(text.offsets) for text in texts])
    return Texts(row_offsets(lengths), np.concatenate([text.data for text in texts]))


# ---- items ----


def items_of(mix: Mix, count: int, seed: int, prefix: str) -> Iterator[tuple[int, list[Item]]]:
    """Yield the given number of items in order of arrival: a third each of texts, events and graphs, in small groups.

    The same seed gives the same items; `prefix` begins their ids, so that they can be accepted once more.

    >>> found = list(items_of(Mix(queries=10), 90, 1, "a"))
    >>> sum(len(some) for _, some in found), len({feed for feed, _ in found})
    (90, 10)
    """
    third = -(-count // 3)
    streams = {"News": _news(third, seed, prefix), "Pages": _pages(mix, third, seed, prefix)}
    each = -(-third // mix.event_feeds)
    for number in range(mix.event_feeds):
        name = f"Events{number + 1}"
        streams[name] = _events(name, each, [seed, number], prefix)
    order = _turns(mix)
    left = count
    while left > 0:
        name, wanted = next(order)
        values = list(islice(streams[name], min(wanted, left)))
        left -= len(values)
        if values:
            yield mix.feeds[name], values


_AT_ONCE, _EVENTS_AT_ONCE = 512, 256
"""Items of a feed that come one after the other: a worker reads them as one slice."""


def _turns(mix: Mix) -> Iterator[tuple[str, int]]:
    """The feeds in the order in which they have items, and how many: as many texts as graphs and events."""
    events = cycle(f"Events{number + 1}" for number in range(mix.event_feeds))
    while True:
        yield "News", _AT_ONCE
        yield next(events), _EVENTS_AT_ONCE
        yield "Pages", _AT_ONCE
        yield next(events), _EVENTS_AT_ONCE


def _news(count: int, seed: int, prefix: str) -> Iterator[Item]:
    for number, record in enumerate(make_items(count, seed).records()):
        yield Item("News", f"{prefix}-{number}", {name: (value,) for name, value in record.items() if name != "id"})


def _events(name: str, count: int, seed: Sequence[int], prefix: str) -> Iterator[Item]:
    dice = np.random.default_rng([*seed, 5])
    grades = dice.integers(0, GRADES, count).tolist()
    points = dice.uniform((35.0, -5.0), (60.0, 30.0), (count, 2)).tolist()
    events = make_events(count, 1_000 * seed[0] + seed[1]).records()
    for number, (record, grade, (latitude, longitude)) in enumerate(zip(events, grades, points, strict=True)):
        more = {"grade": float(grade), "latitude": latitude, "longitude": longitude}
        yield Item(name, f"{prefix}-{number}", {key: (value,) for key, value in (record | more).items()})


def _pages(mix: Mix, count: int, seed: int, prefix: str) -> Iterator[Item]:
    # The topics are those of the patterns; which of them publications are about is drawn by the seed as well.
    workload = Workload(publications=10 * count, topics=mix.topics, seed=mix.seed)
    graphs = islice(publications_of(workload), seed % 7 * count, None)
    for number, graph in enumerate(islice(graphs, count)):
        yield Item("Pages", f"{prefix}-{number}", {GRAPH: (graph,)})
