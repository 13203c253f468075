"""Collect the data of a workspace's report from the catalog and the logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
from sqlalchemy import Connection

from runnel.arrays import Array
from runnel.catalog.access import consents
from runnel.catalog.declared import feeds, operators, subscriptions
from runnel.catalog.declared.subscriptions import moment_of
from runnel.catalog.delivery import delivery_health
from runnel.catalog.learned import operator_statistics
from runnel.catalog.logs import match_segments, plan_versions, quarantine
from runnel.catalog.logs.join_work import work_of_joins
from runnel.catalog.store.connection import now
from runnel.engine import Engine
from runnel.engine.ask.vitals import join_figures, operator_figures
from runnel.engine.planning.ports import read_figures
from runnel.errors import NotAllowedError
from runnel.model.feed import Feed, FeedKind, is_hidden
from runnel.model.learned.operator_statistics import operator_key
from runnel.plan.store import PlanVersion, load
from runnel.sinks.registry import find_sink
from runnel.web.report import (
    FeedFigures,
    JoinRow,
    JoinsUsed,
    NextStep,
    OperatorRow,
    OperatorsUsed,
    OutputFile,
    PlanSharing,
    QueryMatches,
    RunReport,
    SampleMatch,
    SummaryFigure,
    TimelinePoint,
)

_BUCKETS = 60
_SAMPLES = 5
_FAILURES = 50


@dataclass
class _Tally:
    """Counts of items and matches, from one pass over the logs."""

    by_query: Counter[int] = field(default_factory=Counter)
    items_by_feed: Counter[int] = field(default_factory=Counter)
    matches_by_feed: Counter[int] = field(default_factory=Counter)
    moments: list[tuple[datetime, int]] = field(default_factory=list)
    items: int = 0
    matches: int = 0


def collect_report(
    engine: Engine, title: str, *, next_steps: Sequence[tuple[str, str]] = (), notes: Sequence[SummaryFigure] = ()
) -> RunReport:
    """Collect the report of a workspace. For the admin only, because it shows queries and files of all owners."""
    if not engine.actor.is_admin:
        raise NotAllowedError(
            "only the admin can create a report", hint="`runnel queries` shows the matches of your own queries"
        )
    workspace = engine.workspace
    with workspace.catalog.read() as connection:
        declared = {feed.id: feed for feed in feeds.live_feeds(connection)}
        live = feeds.since_of(connection)
        segments = match_segments.match_segments(connection)
        quarantined = quarantine.quarantined_rows(connection, _FAILURES)
        disabled = delivery_health.disabled_subscriptions(connection, _FAILURES)
        unconfirmed = consents.unconfirmed_subscriptions(connection, _FAILURES)
        generated = moment_of(now(connection))
        operators_used, joins_used = _operators(connection), _joins(connection)
        plan = read_figures(workspace, connection, plan_versions.current_plan(connection))
        hidden = [feed for feed, name in feeds.feed_names(connection).items() if is_hidden(name)]
    tally = _count(engine, segments[-1].last_sequence if segments else 0, np.array(hidden, dtype=np.int64))
    ranked = sorted(
        (
            QueryMatches(declared[query].name, tally.by_query.get(query, 0))
            for query in live
            if query in declared and declared[query].kind is FeedKind.VIRTUAL
        ),
        key=lambda query: (-query.matches, query.name),
    )
    sharing = _sharing(engine, segments)
    return RunReport(
        title=title,
        generated=generated,
        figures=(*_figures(tally, len(ranked), sharing), *notes),
        timeline=_timeline(tally.moments),
        matches_per_query=tuple(ranked),
        sharing=sharing,
        distribution=plan.table(),
        operators=operators_used,
        joins=joins_used,
        feeds=tuple(
            FeedFigures(feed.name, tally.items_by_feed[feed.id], tally.matches_by_feed[feed.id])
            for feed in declared.values()
            if feed.kind is FeedKind.SOURCE
        ),
        outputs=_outputs(engine, tally),
        samples=_samples(engine, ranked, {feed.name: feed for feed in declared.values()}),
        failures=(
            *(f"subscription {number} is disabled: {reason}" for number, reason in disabled),
            *(f"subscription {number}: {reason}" for number, reason in unconfirmed),
            *(f"{entry.kind} {entry.place}: {entry.reason}" for entry in quarantined),
        ),
        next_steps=tuple(NextStep(command, purpose) for command, purpose in next_steps),
    )


def _count(engine: Engine, upto: int, hidden: Array) -> _Tally:
    """Count items, and matches of queries that are not hidden."""
    workspace, tally = engine.workspace, _Tally()
    match_counts: dict[int, int] = {}
    for rows in workspace.matches.read(0, upto):
        is_visible = ~np.isin(rows.queries, hidden)
        tally.by_query.update(rows.queries[is_visible].tolist())
        counts = np.diff(np.concatenate([[0], np.cumsum(is_visible)])[rows.offsets])
        match_counts.update(zip(rows.sequences.tolist(), counts.tolist(), strict=True))
    for batch in workspace.items.read(0, upto):
        for sequence, feed, item in zip(batch.sequences.tolist(), batch.feeds.tolist(), batch.items({}), strict=True):
            count = match_counts.get(sequence, 0)
            tally.items += 1
            tally.matches += count
            tally.items_by_feed[feed] += 1
            tally.matches_by_feed[feed] += count
            published = item.first("published")
            moment = published if isinstance(published, datetime) else item.time
            tally.moments.append((moment or datetime.fromtimestamp(0, UTC), count))
    return tally


def _timeline(moments: list[tuple[datetime, int]]) -> tuple[TimelinePoint, ...]:
    """Count items and matches in equal intervals. Ignore outliers (1970, 2099), which would stretch the time axis."""
    if not moments:
        return ()
    ordered = sorted(moments)
    edge = len(ordered) // 100
    early, late = ordered[edge][0], ordered[len(ordered) - 1 - edge][0]
    margin = late - early
    inner = [moment for moment, _ in ordered if early - margin <= moment <= late + margin]
    low, high = inner[0], inner[-1]
    step = max(timedelta(minutes=1), (high - low) / _BUCKETS)
    items: Counter[int] = Counter()
    matches: Counter[int] = Counter()
    for moment, count in ordered:
        if low <= moment <= high:
            bucket = int((moment - low) / step)
            items[bucket] += 1
            matches[bucket] += count
    return tuple(
        TimelinePoint(low + bucket * step, items[bucket], matches[bucket]) for bucket in range(max(items) + 1)
    )


def _figures(tally: _Tally, queries: int, sharing: PlanSharing) -> tuple[SummaryFigure, ...]:
    per_item = tally.matches / tally.items if tally.items else 0.0
    return (
        SummaryFigure("items matched", f"{tally.items:,}"),
        SummaryFigure("standing queries", f"{queries:,}", f"{sharing.distinct_predicates:,} distinct predicates"),
        SummaryFigure("matches", f"{tally.matches:,}", f"{per_item:.1f} per item"),
    )


def _sharing(engine: Engine, segments: Sequence[match_segments.MatchSegment]) -> PlanSharing:
    with engine.workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    if current is None:
        return PlanSharing()
    plan = load(engine.workspace.storage, PlanVersion.of(current))
    counts: Counter[str] = Counter()
    for part in plan.parts:
        counts.update(part.logical.counts)
    counters: Counter[str] = Counter()
    for segment in segments:
        counters.update(segment.counters)
    return PlanSharing(
        queries=current.queries,
        distinct_predicates=counts["predicates"],
        distinct_clauses=counts["clauses"],
        distinct_atoms=counts["atoms"],
        naive_evaluations=counters["naive_evaluations"],
        candidates=counters["candidates"],
        clause_checks=counters["clause_checks"],
        atom_evaluations=counters["atom_evaluations"],
    )


def _operators(connection: Connection) -> OperatorsUsed | None:
    """Return the use of operators, or None if none is registered or used."""
    figures = operator_figures(connection)
    if not figures.are_used:
        return None
    queries, learned = operators.use_counts(connection), operator_statistics.learned_operators(connection)
    return OperatorsUsed(
        tuple(
            OperatorRow(
                name,
                queries[name],
                learned.cost(operator_key(name, operator.version), operator.cost.total_seconds()),
            )
            for name, operator in operators.live_operators(connection).items()
        ),
        calls=figures.calls,
        known_answers=figures.known_answers,
        unknown=figures.unknown,
        waiting=figures.waiting,
    )


def _joins(connection: Connection) -> JoinsUsed | None:
    """Return the work of joins, or None if there are no windows."""
    figures = join_figures(connection)
    if not figures.are_used:
        return None
    names = feeds.feed_names(connection)
    rows = []
    for feed, counted in work_of_joins(connection).items():
        queries = ", ".join(names[query] for query in feeds.visible_queries(connection, feed))
        work = counted.work
        if work.items and queries:
            rows.append(JoinRow(queries, work.items, work.candidates / work.items, work.joined / work.items))
    return JoinsUsed(tuple(rows), **asdict(figures))


def _outputs(engine: Engine, tally: _Tally) -> tuple[OutputFile, ...]:
    with engine.workspace.catalog.read() as connection:
        live = subscriptions.live_subscriptions(connection)
    limit = engine.workspace.settings.feed_entries
    return tuple(
        OutputFile(
            f"out/{subscription.target}" if not subscription.target.startswith("/") else subscription.target,
            subscription.kind,
            min(limit, tally.by_query[subscription.feed])
            if _keeps_newest(subscription.kind)
            else tally.by_query[subscription.feed],
        )
        for subscription in live
        if subscription.target is not None and (engine.workspace.out / subscription.target).exists()
    )


def _keeps_newest(kind: str) -> bool:
    sink = find_sink(kind)
    return sink is not None and sink.keeps_newest


def _samples(engine: Engine, ranked: Sequence[QueryMatches], declared: dict[str, Feed]) -> tuple[SampleMatch, ...]:
    """Explain one match each of a few queries, from those with the most matches to those with the fewest."""
    matching = [query for query in ranked if query.matches]
    chosen = [matching[len(matching) * index // _SAMPLES] for index in range(_SAMPLES)] if matching else []
    samples = []
    for query in dict.fromkeys(chosen):
        first = next(engine.matches(query.name), None)
        if first is not None:
            explained = engine.why(first.item.id, query.name)
            title = str(first.item.first("title") or first.item.id)
            samples.append(
                SampleMatch(
                    query.name,
                    declared[query.name].statement,
                    title,
                    first.item.feed,
                    explained.trace,
                )
            )
    return tuple(samples)
