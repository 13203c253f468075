"""Answers to `explain`: how a feed is matched, what that shares with others, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from runnel.algebra.nodes.query import Node
from runnel.catalog.declared import feeds
from runnel.catalog.declared.operators import callable_operators
from runnel.catalog.learned.operator_statistics import learned_operators
from runnel.catalog.learned.query_costs import known_costs
from runnel.catalog.logs import plan_versions
from runnel.catalog.logs.plan_versions import PlanRow
from runnel.engine.actors import Actor, feed_named, matched_since, names_for
from runnel.engine.answers import Answer, Rendering
from runnel.engine.ask.show import feed_state
from runnel.engine.planning.ports import QueryPlacement, plan_port
from runnel.engine.workspace import Workspace
from runnel.errors import NotFoundError
from runnel.matching.compile.temporary_plan import TemporaryPlan
from runnel.model.feed import Feed
from runnel.model.learned.operator_statistics import OperatorStatistics
from runnel.optimizer.describe import wrapped
from runnel.optimizer.optimize import Step, optimize
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load

if TYPE_CHECKING:
    from runnel.matching.explain.explain_operators import ExplainedOperators
    from runnel.matching.explain.explain_query import PlanExplanation


@dataclass(frozen=True, slots=True)
class Explanation(Answer):
    """The answer to `explain`: how a feed is matched, and which work it shares with other feeds.

    `state` says which plan is explained. `pictures` maps paths of written drawings to the names of their source
    feeds.
    """

    feed: str
    statement: str
    is_matched: bool
    state: str
    query: PlanExplanation
    steps: tuple[PlanStep, ...] = ()
    measured: MeasuredCost | None = None
    operators: ExplainedOperators | None = None
    placement: QueryPlacement | None = None
    pictures: Mapping[str, str] = field(default_factory=dict)

    def render(self) -> Rendering:
        """The parts of the explanation, one after the other."""
        lines = (
            self.statement,
            self.state,
            *(line for step in self.steps for line in step.lines()),
            *self.query.lines(),
            *([self.measured.told()] if self.measured else ()),
            *(self.operators.lines() if self.operators else ()),
            *(self.placement.lines() if self.placement else ()),
            *(f"drawn: {path} ({sources})" for path, sources in self.pictures.items()),
        )
        data = {
            "feed": self.feed,
            "statement": self.statement,
            "matched": self.is_matched,
            **self.query.to_json(),
            "steps": [{"pass": step.name, "plan": step.plan} for step in self.steps],
            "measured": asdict(self.measured) if self.measured else None,
            "operators": self.operators.to_json() if self.operators else None,
            "partition": self.placement.to_json() if self.placement else None,
            **({"pictures": dict(self.pictures)} if self.pictures else {}),
        }
        return Rendering(f"explain feed {self.feed}", data, lines)


def explain_feed(workspace: Workspace, name: str, actor: Actor, *, steps: bool = False) -> Explanation:
    """How a feed is matched: its part of the shared plan, what finds it there, and what it shares with others.

    A feed that nobody subscribes to is in no plan. It is compiled alone, to show how it would be matched. For owners
    all feeds are compiled alone, because sharing in the plan reveals the queries of others. With `steps` the feed's
    plan is shown after each pass of the optimizer, compiled alone for everybody.
    """
    with _planned(workspace, name, actor) as planned:
        # Imported here, as the compiler of kernels takes a second to load.
        from runnel.matching.explain.explain_query import explain_query

        return Explanation(
            planned.feed.name,
            planned.feed.statement,
            planned.is_live,
            planned.state,
            explain_query(planned.feed.id, planned.plan, planned.names),
            tuple(_passes(planned)) if steps else (),
            _measured(workspace, planned),
            _operators(workspace, planned, actor),
            _placement(workspace, planned),
        )


def _operators(workspace: Workspace, planned: _Planned, actor: Actor) -> ExplainedOperators | None:
    """How operators decide a feed, where any do. Owners see declared costs: the learned ones count others' calls."""
    if not len(planned.plan.operators):
        return None
    from runnel.matching.explain.explain_operators import explain_operators

    with workspace.catalog.read() as connection:
        declared = callable_operators(connection)
        learned = learned_operators(connection) if actor.is_admin else OperatorStatistics()
    return explain_operators(planned.plan, planned.feed.id, declared, learned)


@dataclass(frozen=True, slots=True)
class PlanStep:
    """The plan of a feed after a pass of the optimizer; no lines where the pass has changed nothing."""

    name: str
    plan: list[str]

    def lines(self) -> list[str]:
        """As text."""
        return wrapped([f"after {self.name}:", *(f"  {line}" for line in self.plan or ("the same",))])


def _passes(planned: _Planned) -> list[PlanStep]:
    steps: list[Step] = []
    optimize([PlanQuery(planned.feed.id)], planned.definitions, steps=steps)
    plans = [[], *(step.lines(planned.names) for step in steps)]
    return [
        PlanStep(step.name, [] if after == before else after)
        for step, (before, after) in zip(steps, pairwise(plans), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """What a query costs, as sampled items showed it; the cost of what queries share is divided among them."""

    milliseconds: float
    sampled: float
    part: str

    def told(self) -> str:
        """As text.

        >>> MeasuredCost(0.25, 40.0, "title contains 'rock'").told()
        "measured: 0.250 ms per 1,000 items (40 sampled), mostly for: title contains 'rock'"
        """
        mostly = self.part or "being evaluated for every item"
        cost = f"{self.milliseconds:,.3f} ms per 1,000 items ({self.sampled:,.0f} sampled)"
        return f"measured: {cost}, mostly for: {mostly}"


def _measured(workspace: Workspace, planned: _Planned) -> MeasuredCost | None:
    """What a feed of the shared plan was measured to cost; None where it is not among the most expensive ones."""
    if planned.row is None:
        return None
    with workspace.catalog.read() as connection:
        known = {one.query: one.cost for one in known_costs(connection)}
    found = known.get(planned.feed.id)
    return None if found is None else MeasuredCost(found.milliseconds, found.items, found.cost.part)


def _placement(workspace: Workspace, planned: _Planned) -> QueryPlacement | None:
    """Where a feed is, where the shared plan is distributed over workers."""
    if planned.row is None:
        return None
    port = plan_port(planned.row.distribution)
    return port.explain(workspace, planned.row, planned.plan, planned.feed.id, planned.names)


def picture_feed(workspace: Workspace, name: str, actor: Actor) -> dict[str, str]:
    """The filter trees that match a feed, as SVG pictures by the names of the sources.

    Sources with the same predicates share a picture. What an actor may not know of others is in no picture.
    """
    from runnel.matching.compile.build_matcher import matcher_name
    from runnel.matching.explain.explain_query import draw_query

    with _planned(workspace, name, actor) as planned:
        drawn = draw_query(planned.feed.id, planned.plan, planned.names)
        matcher = matcher_name(planned.plan)
    if not drawn:
        hint = "it reads no source, or its sources have too many predicates"
        if matcher != "tree":
            hint = f'it is matched by {matcher}; the setting `matcher = "tree"` matches by filter trees'
        raise NotFoundError(f"there is no filter tree of {name} to draw", hint=hint)
    return drawn


@dataclass(frozen=True, slots=True)
class _Planned:
    """A feed in a plan: the shared one, or one of its own."""

    feed: Feed
    is_live: bool
    names: Mapping[int, str]
    definitions: Mapping[int, Node]
    plan: Plan
    state: str
    row: PlanRow | None = None
    """The version, where the plan is the shared one."""


@contextmanager
def _planned(workspace: Workspace, name: str, actor: Actor) -> Iterator[_Planned]:
    with workspace.catalog.read() as connection:
        feed = feed_named(connection, name, actor)
        current = plan_versions.current_plan(connection)
        is_live = feed.id in matched_since(connection, actor, [feed.id])
        names = names_for(connection, actor)
        definitions = feeds.definitions(connection, [feed.id], with_paused=True)
    if actor.is_admin and is_live and not feed.paused and current is not None:
        plan = load(workspace.storage, PlanVersion.of(current))
        yield _Planned(feed, is_live, names, definitions, plan, f"plan version {current.version}", current)
        return
    state = f"{feed_state(feed, is_live, actor)}; compiled alone it would be:"
    with TemporaryPlan([PlanQuery(feed.id)], definitions, matcher=workspace.settings.matcher) as alone:
        yield _Planned(feed, is_live, names, definitions, alone, state)
