"""The optimizer's entry point, which runs the passes in order (RoSeS §4.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter

from runnel.algebra.nodes.query import Node
from runnel.errors import RunnelError
from runnel.optimizer.check_draft import check_draft
from runnel.optimizer.describe import describe_draft
from runnel.optimizer.draft import Draft
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.optimizer.passes.flatten_views import flatten_views
from runnel.optimizer.passes.normalize_predicates import normalize_predicates
from runnel.optimizer.passes.push_filters import push_filters
from runnel.optimizer.passes.push_negations import push_negations
from runnel.optimizer.passes.share_predicates import share_predicates
from runnel.optimizer.passes.split_operators import split_operators
from runnel.plan.logical_plan import CostRecord, LogicalPlan, PlanQuery

Pass = Callable[[Draft, OptimizerSettings], Draft]

PASSES: tuple[Pass, ...] = (
    flatten_views,
    push_filters,
    split_operators,
    push_negations,
    normalize_predicates,
    share_predicates,
)


@dataclass(frozen=True, slots=True)
class Step:
    """The draft after one pass."""

    name: str
    draft: Draft

    def lines(self, feeds: Mapping[int, str]) -> list[str]:
        """Return the draft as text. `feeds` has the names of feeds by ID."""
        return describe_draft(self.draft, feeds)


def optimize(
    queries: Iterable[PlanQuery],
    definitions: Mapping[int, Node],
    *,
    settings: OptimizerSettings | None = None,
    steps: list[Step] | None = None,
) -> LogicalPlan:
    """Compile queries into a logical plan. `definitions` has the nodes of the virtual feeds.

    `steps` collects the draft after each pass, for `explain --steps`.

    >>> from runnel.algebra.nodes.query import Read
    >>> optimize([PlanQuery(7), PlanQuery(8)], {7: Read(1), 8: Read(1)}).counts["predicates"]
    1
    """
    limits = settings or OptimizerSettings()
    # If a feed occurs several times, the last entry wins.
    distinct = {query.id: query for query in queries}
    draft = Draft(tuple(sorted(distinct.values(), key=lambda query: query.id)), definitions)
    costs = []
    for run_pass in PASSES:
        started = perf_counter()
        draft = run_pass(draft, limits)
        costs.append(CostRecord(run_pass.__name__, perf_counter() - started, _counters(draft)))
        check_draft(draft, run_pass.__name__)
        if steps is not None:
            steps.append(Step(run_pass.__name__, draft))
    if draft.logical is None:
        raise RunnelError("the optimizer passes produced no plan")
    return replace(draft.logical, costs=tuple(costs), gates=draft.gates, operators=draft.operators)


def _counters(draft: Draft) -> dict[str, int]:
    counters = {"queries": len(draft.queries), "nodes": len(draft.nodes.nodes), "formulas": len(draft.formulas)}
    if draft.branches is not None:
        counters["branches"] = len(draft.branches)
    if draft.normal_forms is not None:
        counters["normal_forms"] = len(draft.normal_forms)
        counters["inexact"] = sum(not form.exact for form in draft.normal_forms.values())
    return counters if draft.logical is None else counters | draft.logical.counts
