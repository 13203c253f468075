"""Metrics for Prometheus: one view of the catalog and the counts of the run, in its text format.

In: a workspace and its run. Out: the text of a scrape. A scrape must stay cheap even in a workspace that is years
old, so nothing here counts rows. It reads counters, the ends of indexes, and partial indexes of unfinished work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from runnel.engine.ask.vitals import read_vitals
from runnel.engine.planning.ports import GAUGES
from runnel.engine.run.health import Health, Watched
from runnel.engine.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric: its name, kind and description, and the name of its label, if it has one."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    label: str | None = None


METRICS: Final = (
    Figure("runnel_up", "gauge", "1 if all runner loops make progress, otherwise 0."),
    Figure("runnel_ready", "gauge", "1 if new items are matched, otherwise 0."),
    Figure("runnel_items_accepted", "gauge", "Sequence of the newest accepted item."),
    Figure("runnel_items_matched", "gauge", "Sequence up to which items are matched."),
    Figure("runnel_items_lag", "gauge", "Accepted items that wait for matching."),
    Figure("runnel_plan_version", "gauge", "Version of the current plan."),
    Figure("runnel_plan_queries", "gauge", "Queries in the current plan."),
    Figure("runnel_batch_seconds", "gauge", "Seconds since the last batch was committed."),
    Figure("runnel_messages_open", "gauge", "Recorded messages that are not delivered yet."),
    Figure("runnel_messages_dead", "gauge", "Dead letters: messages that were given up."),
    Figure(
        "runnel_subscriptions_disabled",
        "gauge",
        "Disabled subscriptions: nothing is sent until they are resumed.",
    ),
    Figure("runnel_subscriptions_unconfirmed", "gauge", "Subscriptions of owners whose targets have not confirmed."),
    Figure("runnel_feeds_failing", "gauge", "Source feeds whose last look failed."),
    Figure(
        "runnel_feeds_stopped",
        "gauge",
        "Web feeds that are no longer polled, because their publishers have discontinued them.",
    ),
    Figure("runnel_quarantine_last", "gauge", "Number of the newest quarantine entry. Each entry increments it."),
    Figure("runnel_lease_epoch", "gauge", "Epoch of the runner's lease, which increases with each takeover."),
    Figure("runnel_room_bytes", "gauge", "Free bytes on the disk with the workspace's files."),
    Figure("runnel_operators", "gauge", "Registered operators."),
    Figure("runnel_operator_calls", "gauge", "Answered operator calls, including those answered from the cache."),
    Figure(
        "runnel_operator_unknown",
        "gauge",
        "Number of times that a query could not be decided for an item because an operator failed.",
    ),
    Figure("runnel_operator_waiting", "gauge", "Items for which failed operators are retried later."),
    Figure("runnel_operator_cache_answers", "gauge", "Cached answers of operators, in files."),
    Figure("runnel_operator_cache_bytes", "gauge", "Bytes of the files with cached answers of operators."),
    Figure("runnel_windows", "gauge", "Windows of joins whose items are in files."),
    Figure("runnel_window_items", "gauge", "Items in the files of windows."),
    Figure("runnel_window_bytes", "gauge", "Bytes of the files of windows."),
    Figure("runnel_join_items", "gauge", "How often an item reached a join so far."),
    Figure("runnel_join_candidates", "gauge", "Window items that joins have compared with items so far."),
    *(Figure(name, "gauge", meaning) for name, meaning in GAUGES.items()),
    Figure("runnel_run", "counter", "Events of this run, by kind (label `what`).", "what"),
)
"""All metrics. The reference page is generated from this list."""


class _Scrape:
    """A collector for one scrape."""

    def __init__(self, values: dict[str, float], health: Health) -> None:
        self._values = values
        self._health = health

    def collect(self) -> Iterable[Metric]:
        for figure in METRICS:
            if figure.kind == "counter":
                counter = CounterMetricFamily(figure.name, figure.help, labels=[figure.label or ""])
                for kind, value in sorted(self._health.counts.items()):
                    counter.add_metric([kind], value)
                yield counter
            elif figure.name in self._values:
                yield GaugeMetricFamily(figure.name, figure.help, value=self._values[figure.name])


def render_metrics(workspace: Workspace, run: Watched) -> tuple[bytes, str]:
    """Return the text of a scrape and its media type."""
    health = run.health()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(_values(workspace, health), health))
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


def _values(workspace: Workspace, health: Health) -> dict[str, float]:
    vitals = read_vitals(workspace)
    values: dict[str, float | None] = {
        "runnel_up": health.live,
        "runnel_ready": health.ready,
        "runnel_items_accepted": vitals.accepted,
        "runnel_items_matched": vitals.matched,
        "runnel_items_lag": vitals.lag,
        "runnel_plan_version": vitals.plan_version,
        "runnel_plan_queries": vitals.plan_queries,
        "runnel_batch_seconds": vitals.batch_seconds,
        "runnel_messages_open": vitals.messages_open,
        "runnel_messages_dead": vitals.messages_dead,
        "runnel_subscriptions_disabled": vitals.subscriptions_disabled,
        "runnel_subscriptions_unconfirmed": vitals.subscriptions_unconfirmed,
        "runnel_feeds_failing": vitals.feeds_failing,
        "runnel_feeds_stopped": vitals.feeds_stopped,
        "runnel_quarantine_last": vitals.quarantine_last,
        "runnel_lease_epoch": vitals.lease_epoch,
        "runnel_room_bytes": vitals.room_bytes,
        "runnel_operators": vitals.operators.registered,
        "runnel_operator_calls": vitals.operators.calls,
        "runnel_operator_unknown": vitals.operators.unknown,
        "runnel_operator_waiting": vitals.operators.waiting,
        "runnel_operator_cache_answers": vitals.operators.known_answers,
        "runnel_operator_cache_bytes": vitals.operators.known_bytes,
        "runnel_windows": vitals.joins.windows,
        "runnel_window_items": vitals.joins.window_items,
        "runnel_window_bytes": vitals.joins.window_bytes,
        "runnel_join_items": vitals.joins.items,
        "runnel_join_candidates": vitals.joins.candidates,
        **vitals.distribution,
    }
    return {name: float(value) for name, value in values.items() if value is not None}
