"""Joins in matching let pass, and annotate with, what the reference evaluator says, however the log is cut."""

from __future__ import annotations

from hypothesis import given, settings
from tests.unit.matching.gates.gated_worlds import GatedWorld
from tests.unit.matching.joins.joined_worlds import joined_worlds

from runnel.algebra.semantics.evaluate_log import evaluate_log
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.temporary_plan import TemporaryPlan
from runnel.matching.gates.ordered_matcher import OrderedMatcher
from runnel.plan.logical_plan import PlanQuery


@settings(max_examples=150, deadline=None, derandomize=True)
@given(world=joined_worlds())
def test_matches_and_annotations_are_those_of_the_definition(world: GatedWorld) -> None:
    queries = [PlanQuery(feed, since) for feed, since in sorted(world.since.items())]
    with TemporaryPlan(queries, world.definitions) as plan:
        matcher = OrderedMatcher(plan, build_matcher(plan))
        found: dict[int, set[int]] = {}
        for batch in world.batches():
            matches = matcher.match(batch)
            found |= {int(batch.sequences[row]): set(matches.row(row).tolist()) for row in range(len(batch))}
    expected = list(evaluate_log(world.items, world.definitions, world.since))
    assert found == {one.item.sequence: set(one.feeds) for one in expected}
    assert {key: {each.gate: each.newest for each in several} for key, several in matcher.annotations.items()} == {
        (feed, one.item.sequence): dict(joined) for one in expected for feed, joined in one.annotations.items()
    }
