"""Answers to `explain`: how a feed is matched, what that shares with others, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runnel.catalog.declared import feeds
from runnel.catalog.declared.operators import callable_operators
from runnel.catalog.learned.operator_statistics import learned_operators
from runnel.catalog.logs import plan_versions
from runnel.catalog.logs.plan_versions import PlanRow
from runnel.engine.actors import Actor, feed_named, matched_since, names_for
from runnel.engine.ask.show import feed_state
from runnel.engine.outcome import Outcome
from runnel.engine.trial.adhoc_matching import adhoc_plan
from runnel.engine.workspace import Workspace
from runnel.errors import NotFoundError
from runnel.matching.explain.explain_query import explain_query, part_of
from runnel.model.feed import Feed
from runnel.model.learned.operator_statistics import OperatorStatistics
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load

if TYPE_CHECKING:
    from runnel.engine.ask.explain_partition import ExplainedPartition
    from runnel.matching.explain.explain_operators import ExplainedOperators


def explain_feed(root: Workspace, name: str, actor: Actor) -> Outcome:
    """How a feed is matched: its part of the shared plan, its filter tree, and what it shares with others.

    A feed that nobody subscribes to is in no plan; it is compiled alone, to show what would become of it. So it is
    for everybody but the operator: what the plan shares tells what others want.
    """
    with _planned(root, name, actor) as planned:
        # Imported here, as the compiler of kernels takes a second to load.
        from runnel.matching.compile.expected_work import part_anchors

        part, _ = part_of(planned.plan, planned.feed.id, planned.names)
        anchors = part_anchors(part).clauses
        explained = explain_query(planned.feed.id, planned.plan, planned.names, anchors=anchors)
        feed = planned.feed
        asked, divided = _operators(root, planned, actor), _partition(root, planned)
        lines = (
            feed.statement,
            planned.state,
            *explained.lines(),
            *(asked.lines() if asked else ()),
            *(divided.lines() if divided else ()),
        )
        data = {
            "feed": feed.name,
            "statement": feed.statement,
            "matched": planned.is_live,
            **explained.to_json(),
            "operators": asked.to_json() if asked else None,
            "partition": divided.to_json() if divided else None,
        }
    return Outcome(f"explain feed {feed.name}", data, lines)


def _operators(root: Workspace, planned: _Planned, actor: Actor) -> ExplainedOperators | None:
    """How operators decide a feed, where any do. Owners see declared costs: the learned ones count others' calls."""
    if not len(planned.plan.operators):
        return None
    from runnel.matching.explain.explain_operators import explain_operators

    with root.catalog.read() as connection:
        declared = callable_operators(connection)
        learned = learned_operators(connection) if actor.is_admin else OperatorStatistics()
    return explain_operators(planned.plan, planned.feed.id, declared, learned)


def _partition(root: Workspace, planned: _Planned) -> ExplainedPartition | None:
    """Where a feed is, where the shared plan is divided over workers."""
    if planned.row is None or planned.row.partitioning is None:
        return None
    from runnel.engine.ask.explain_partition import explain_partition

    return explain_partition(root, planned.row, planned.plan, planned.feed.id, planned.names)


def picture_feed(root: Workspace, name: str, actor: Actor) -> dict[str, str]:
    """The filter trees in which a feed is, as SVG pictures by the names of the sources.

    Sources of which the same is asked share a picture. What an actor may not know of others is in no picture.
    """
    from runnel.papers.roses.explain_tree import MOST_PREDICATES, pictures

    with _planned(root, name, actor) as planned:
        drawn = pictures(planned.plan, planned.feed.id, planned.names)
    if not drawn:
        raise NotFoundError(
            f"there is no filter tree of {name} to draw",
            hint=f"it reads no source, or only sources with more than {MOST_PREDICATES:,} predicates",
        )
    return drawn


@dataclass(frozen=True, slots=True)
class _Planned:
    """A feed in a plan: the shared one, or one of its own."""

    feed: Feed
    is_live: bool
    names: Mapping[int, str]
    plan: Plan
    state: str
    row: PlanRow | None = None
    """The version, where the plan is the shared one."""


@contextmanager
def _planned(root: Workspace, name: str, actor: Actor) -> Iterator[_Planned]:
    with root.catalog.read() as connection:
        feed = feed_named(connection, name, actor)
        current = plan_versions.current_plan(connection)
        is_live = feed.id in matched_since(connection, actor, [feed.id])
        names = names_for(connection, actor)
        definitions = feeds.definitions(connection, [feed.id], with_paused=True)
    if actor.is_admin and is_live and not feed.paused and current is not None:
        plan = load(root.storage, PlanVersion.of(current))
        yield _Planned(feed, is_live, names, plan, f"plan version {current.version}", current)
        return
    state = f"{feed_state(feed, is_live, actor)}; compiled alone it would be:"
    with adhoc_plan([PlanQuery(feed.id)], definitions) as alone:
        yield _Planned(feed, is_live, names, alone, state)
