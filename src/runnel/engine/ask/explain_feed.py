"""The `explain` statement: describe how a feed is matched, what it shares with other feeds, and what it costs."""

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
from runnel.engine.actors import Actor, matched_since, names_for, stream_named
from runnel.engine.answers import Answer, Rendering
from runnel.engine.ask.explain_joins import ExplainedJoin, explain_joins
from runnel.engine.ask.name_hidden_feeds import name_hidden_feeds
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
    """The answer to `explain`: how a feed is matched, and what it shares with other feeds.

    `state` names the plan that is explained. `pictures` maps the path of each SVG file with a filter tree to the
    names of the sources that the tree serves.
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
    joins: tuple[ExplainedJoin, ...] = ()
    pictures: Mapping[str, str] = field(default_factory=dict)

    def render(self) -> Rendering:
        """Render the parts of the explanation in order."""
        lines = (
            self.statement,
            self.state,
            *(line for step in self.steps for line in step.lines()),
            *self.query.lines(),
            *wrapped(line for join in self.joins for line in join.lines()),
            *([self.measured.describe()] if self.measured else ()),
            *(self.operators.lines() if self.operators else ()),
            *(self.placement.lines() if self.placement else ()),
            *(f"filter tree: {path} ({sources})" for path, sources in self.pictures.items()),
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
            "joins": [join.to_json() for join in self.joins],
            **({"pictures": dict(self.pictures)} if self.pictures else {}),
        }
        return Rendering(f"explain feed {self.feed}", data, lines)


def explain_feed(workspace: Workspace, name: str, actor: Actor, *, steps: bool = False) -> Explanation:
    """Explain how a feed is matched: its part of the shared plan, the index entries that select it, and sharing.

    A feed without a subscription is in no plan. It is compiled alone, to show how it would be matched. For owners,
    every feed is compiled alone, because the shared plan would reveal the queries of other owners. With `steps`, the
    answer contains the feed's plan after each pass of the optimizer, always compiled alone.
    """
    with _planned_feed(workspace, name, actor) as planned:
        # Imported here, because the kernel compiler takes a second to load.
        from runnel.matching.explain.explain_query import explain_query

        return Explanation(
            planned.feed.name,
            planned.feed.statement,
            planned.is_live,
            planned.state,
            explain_query(planned.feed.id, planned.plan, planned.names),
            tuple(_plan_steps(planned)) if steps else (),
            _measured_cost(workspace, planned),
            _explain_operators(workspace, planned, actor),
            _explain_placement(workspace, planned),
            explain_joins(workspace, actor, planned.definitions, planned.names, is_live=planned.is_live),
        )


def _explain_operators(workspace: Workspace, planned: _PlannedFeed, actor: Actor) -> ExplainedOperators | None:
    """Explain how operators decide a feed, or return None if it uses none.

    Owners see declared costs only, because learned costs include the calls for other owners.
    """
    if not len(planned.plan.operators):
        return None
    from runnel.matching.explain.explain_operators import explain_operators

    with workspace.catalog.read() as connection:
        declared = callable_operators(connection)
        learned = learned_operators(connection) if actor.is_admin else OperatorStatistics()
    return explain_operators(planned.plan, planned.feed.id, declared, learned)


@dataclass(frozen=True, slots=True)
class PlanStep:
    """The plan of a feed after a pass of the optimizer. `plan` is empty if the pass changed nothing."""

    name: str
    plan: list[str]

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        return wrapped([f"after {self.name}:", *(f"  {line}" for line in self.plan or ("unchanged",))])


def _plan_steps(planned: _PlannedFeed) -> list[PlanStep]:
    steps: list[Step] = []
    optimize([PlanQuery(planned.feed.id)], planned.definitions, steps=steps)
    plans = [[], *(step.lines(planned.names) for step in steps)]
    return [
        PlanStep(step.name, [] if after == before else after)
        for step, (before, after) in zip(steps, pairwise(plans), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """The sampled cost of a query. The cost of work that queries share is divided among them."""

    milliseconds: float
    sampled: float
    part: str

    def describe(self) -> str:
        """Return the cost as text.

        >>> MeasuredCost(0.25, 40.0, "title contains 'rock'").describe()
        "measured: 0.250 ms per 1,000 items (40 sampled); most expensive condition: title contains 'rock'"
        """
        cause = f"most expensive condition: {self.part}" if self.part else "it is evaluated on every item"
        cost = f"{self.milliseconds:,.3f} ms per 1,000 items ({self.sampled:,.0f} sampled)"
        return f"measured: {cost}; {cause}"


def _measured_cost(workspace: Workspace, planned: _PlannedFeed) -> MeasuredCost | None:
    """Return the sampled cost of a feed of the shared plan, or None if no cost of it is recorded."""
    if planned.row is None:
        return None
    with workspace.catalog.read() as connection:
        costs = {known.query: known.cost for known in known_costs(connection)}
    cost = costs.get(planned.feed.id)
    return None if cost is None else MeasuredCost(cost.milliseconds, cost.items, cost.cost.part)


def _explain_placement(workspace: Workspace, planned: _PlannedFeed) -> QueryPlacement | None:
    """Return where the feed is placed if the shared plan is distributed over workers, otherwise None."""
    if planned.row is None:
        return None
    port = plan_port(planned.row.distribution)
    return port.explain(workspace, planned.row, planned.plan, planned.feed.id, planned.names)


def picture_feed(workspace: Workspace, name: str, actor: Actor) -> dict[str, str]:
    """Draw the filter trees that match a feed, and return them as SVG by the names of the sources.

    Sources with the same predicates share a picture. For an owner, pictures contain no queries of other owners.
    """
    from runnel.matching.compile.build_matcher import matcher_name
    from runnel.matching.explain.explain_query import draw_query

    with _planned_feed(workspace, name, actor) as planned:
        pictures = draw_query(planned.feed.id, planned.plan, planned.names)
        matcher = matcher_name(planned.plan)
    if not pictures:
        hint = "it reads no source, or its sources have too many predicates"
        if matcher != "tree":
            hint = f'it is matched by the matcher {matcher}; the setting `matcher = "tree"` uses filter trees'
        raise NotFoundError(f"{name} has no filter tree to draw", hint=hint)
    return pictures


@dataclass(frozen=True, slots=True)
class _PlannedFeed:
    """A feed in a plan: in the shared plan, or compiled alone."""

    feed: Feed
    is_live: bool
    names: Mapping[int, str]
    definitions: Mapping[int, Node]
    plan: Plan
    state: str
    row: PlanRow | None = None
    """The plan version if the plan is the shared one, otherwise None."""


@contextmanager
def _planned_feed(workspace: Workspace, name: str, actor: Actor) -> Iterator[_PlannedFeed]:
    with workspace.catalog.read() as connection:
        feed = stream_named(connection, name, actor)
        current = plan_versions.current_plan(connection)
        is_live = feed.id in matched_since(connection, actor, [feed.id])
        names = names_for(connection, actor)
        definitions = feeds.definitions(connection, [feed.id], with_paused=True)
    names = name_hidden_feeds(names, definitions)
    if actor.is_admin and is_live and not feed.paused and current is not None:
        plan = load(workspace.storage, PlanVersion.of(current))
        yield _PlannedFeed(feed, is_live, names, definitions, plan, f"plan version {current.version}", current)
        return
    state = f"{feed_state(feed, is_live, actor)}; compiled alone, the feed would be matched like this:"
    with TemporaryPlan([PlanQuery(feed.id)], definitions, matcher=workspace.settings.matcher) as alone:
        yield _PlannedFeed(feed, is_live, names, definitions, alone, state)
