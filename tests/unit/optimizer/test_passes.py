"""The optimizer passes: each keeps the matches, and its drafts equal its golden file."""

from __future__ import annotations

import doctest
import importlib
import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests.unit.optimizer.evaluate_draft import evaluate_draft
from tests.unit.optimizer.generated_worlds import NAMES, SOURCES, GeneratedWorld, worlds

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Call, Constraint, Literally, Variable
from runnel.algebra.nodes.expressions import And, Compare, Contains, Expression, In, Not, Or
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, ReadAll, Union
from runnel.algebra.nodes.render import render, render_attribute
from runnel.algebra.semantics.distinct import Distinct
from runnel.errors import CyclicFeedsError, RunnelError
from runnel.optimizer import optimize as optimizer
from runnel.optimizer.describe import describe_draft
from runnel.optimizer.draft import Branch, Draft
from runnel.optimizer.optimize import PASSES, Step, optimize
from runnel.optimizer.optimizer_settings import OptimizerSettings
from runnel.optimizer.passes.simplify_clauses import simplify_clauses
from runnel.plan.logical_plan import LogicalPlan, PlanQuery

GOLDEN = Path(__file__).parents[2] / "golden"
LIMITS = (OptimizerSettings(), OptimizerSettings(max_clauses=2, max_literals=4, max_constants=2))


def word(text: str) -> Expression:
    return Contains(Attribute("title"), tuple(text.split()))


def equals(value: str) -> Expression:
    return Compare(Attribute("category"), "=", value)


def price(above: float) -> Expression:
    return Compare(Attribute("price"), ">", above)


FLAG = Call("flag", (Literally("Bronx"),), 1)
MOB = Call("mob", (Variable("people"),), 1, (0,))
MANY = Constraint(Variable("people"), ">", Literally(50.0))

GOLDEN_VIEWS: dict[int, Node] = {
    # RoSeS §4.3, Figure 3: p3 is defined over p2, with an additional filter.
    10: Filter(Union((Read(1), Read(2))), And((word("a"), word("b")))),
    11: Filter(Union((Read(2), Read(3))), And((word("a"), word("c")))),
    12: Filter(Union((Read(11), Read(4))), word("d")),
    # The same source through two inputs; the same predicate as 10 in another order.
    13: Union((Filter(Read(1), word("a")), Filter(Read(1), equals("rock")), Filter(Read(2), word("a")))),
    14: Filter(Union((Read(2), Read(1))), And((word("b"), word("a"), word("b")))),
    # Negations, lists, contradictions and tautologies.
    15: Filter(Read(1), Not(Or((word("a"), And((word("b"), Not(price(3.0)))))))),
    16: Filter(Read(1), Or((In(Attribute("category"), ("rock", "jazz")), And((word("a"), equals("rock")))))),
    17: Filter(Filter(Read(1), word("a")), Not(word("a"))),
    18: Filter(Read(1), Or((word("a"), Not(word("a"))))),
    19: Filter(Read(1), Not(In(Attribute("category"), ("jazz", "rock", "jazz")))),
    20: Filter(Read(13), Or((And((word("a"), word("x"))), And((word("a"), word("y")))))),
    # Operators: a filter before them, an `or` between filter and operator, a negation, and a view over one.
    21: Filter(Union((Read(1), Read(2))), And((word("a"), MOB, MANY))),
    22: Filter(Read(1), Or((equals("rock"), And((word("b"), Not(FLAG), MOB))))),
    23: Filter(Read(21), FLAG),
}


def drafts(
    queries: list[PlanQuery], definitions: Mapping[int, Node], limits: OptimizerSettings
) -> list[tuple[str, Draft]]:
    results = [("definitions", Draft(tuple(queries), definitions))]
    for run in PASSES:
        results.append((run.__name__, run(results[-1][1], limits)))
    return results


@settings(max_examples=120, deadline=None, derandomize=True)
@given(worlds())
def test_every_pass_keeps_the_matches(world: GeneratedWorld) -> None:
    feeds = {name: feed for feed, name in NAMES.items()}
    queries = [PlanQuery(feed) for feed in sorted((*world.definitions, *SOURCES))]
    for limits in LIMITS:
        stages = drafts(queries, world.definitions, limits)
        for item in world.items:
            answers = [evaluate_draft(draft, feeds[item.feed], item.attributes) for _, draft in stages]
            for (name, _), answer in zip(stages[1:], answers[1:], strict=True):
                assert answer == answers[0], name


def _definition(node: Node) -> str:
    match node:
        case Read(feed):
            return str(feed)
        case ReadAll():
            raise AssertionError("groups are expanded before a plan is made")
        case Union(inputs):
            return f"({' | '.join(map(_definition, inputs))})"
        case Filter(inner, condition):
            return f"{_definition(inner)}[{render(condition)}]"
        case Gated(inner, rule):
            assert isinstance(rule, Distinct)
            return f"distinct({_definition(inner)}, {', '.join(map(render_attribute, rule.by))}, {rule.window})"


@pytest.mark.parametrize("position", range(len(PASSES)), ids=[run.__name__ for run in PASSES])
def test_each_pass_does_what_its_golden_file_shows(position: int, update_golden: bool) -> None:
    queries = [PlanQuery(feed) for feed in GOLDEN_VIEWS]
    stages = drafts(queries, GOLDEN_VIEWS, OptimizerSettings())
    (_, before), (name, after) = stages[position], stages[position + 1]
    first = [f"{feed}: {_definition(node)}" for feed, node in GOLDEN_VIEWS.items()]
    lines = ["-- before", *(describe_draft(before) if position else first), "-- after", *describe_draft(after)]
    text = "\n".join(lines) + "\n"
    path = GOLDEN / f"{name}.txt"
    if update_golden:
        path.write_text(text, "utf-8")
    assert path.read_text("utf-8") == text


def counts(queries: list[int], definitions: Mapping[int, Node]) -> dict[str, int]:
    return optimize([PlanQuery(feed) for feed in queries], definitions).counts


def test_equal_predicates_and_equal_scopes_are_shared() -> None:
    plan = optimize([PlanQuery(10), PlanQuery(14)], GOLDEN_VIEWS)
    assert plan.counts["queries"] == 2
    assert (plan.counts["targets"], plan.counts["predicates"], plan.counts["scopes"]) == (1, 1, 1)
    assert (plan.counts["clauses"], plan.counts["atoms"]) == (2, 2)


def test_a_query_that_contradicts_itself_has_no_target() -> None:
    plan = optimize([PlanQuery(17)], GOLDEN_VIEWS)
    assert plan.query_ids.tolist() == [17]
    assert plan.counts["targets"] == plan.counts["predicates"] == 0


def test_source_feed_can_be_a_query() -> None:
    plan = optimize([PlanQuery(1, since=9)], {})
    assert plan.scopes.row(0).tolist() == [1]
    assert (plan.counts["predicates"], plan.counts["clauses"]) == (1, 0)
    assert plan.query_since.tolist() == [9]


def test_diamonds_of_views_do_not_explode() -> None:
    views: dict[int, Node] = {100: Read(1)}
    for depth in range(1, 61):
        below = Read(99 + depth)
        views[100 + depth] = Union((Filter(below, word(f"a{depth}")), Filter(below, word(f"b{depth}"))))
    results = counts([160], views)
    assert (results["clauses"], results["atoms"], results["inexact_predicates"]) == (60, 120, 0)


def test_a_thousand_views_on_views_stay_within_the_recursion_limit() -> None:
    views: dict[int, Node] = {10: Filter(Read(1), word("z"))}
    for depth in range(11, 1211):
        views[depth] = Union((Filter(Read(depth - 1), word(f"a{depth}")), Filter(Read(1), word(f"b{depth}"))))
    steps: list[Step] = []
    plan = optimize([PlanQuery(1210)], views, steps=steps)
    assert plan.counts["inexact_predicates"] == 1
    attributes = {"title": (" ".join(f"a{depth}" for depth in range(700, 1211)) + " b699",)}
    draft = Draft((PlanQuery(1210),), views, logical=plan)
    assert evaluate_draft(draft, 1, attributes) == {1210}
    assert evaluate_draft(draft, 1, {"title": (attributes["title"][0].replace("a900", ""),)}) == set()
    assert max(len(line) for step in steps for line in step.lines({})) < 100_000


def test_a_deeply_nested_condition_is_read_without_recursion() -> None:
    condition: Expression = word("x")
    for depth in range(5000):
        condition = Not(condition) if depth % 2 else And((condition, word("y")))
    assert counts([10], {10: Filter(Read(1), condition)})["queries"] == 1


def test_exponential_normal_form_becomes_inexact_and_keeps_its_formula() -> None:
    parts = tuple(And((word(f"a{n}"), word(f"b{n}"))) for n in range(20))
    plan = optimize([PlanQuery(10)], {10: Filter(Read(1), And((Or(parts), word("anchor"))))})
    assert plan.counts["inexact_predicates"] == 1
    assert plan.counts["clauses"] <= OptimizerSettings().max_clauses
    draft = Draft((PlanQuery(10),), {}, logical=plan)
    assert evaluate_draft(draft, 1, {"title": ("anchor a7 b7",)}) == {10}
    assert evaluate_draft(draft, 1, {"title": ("anchor a7 b8",)}) == set()


def test_cycle_of_views_is_rejected() -> None:
    with pytest.raises(CyclicFeedsError, match="reads itself"):
        optimize([PlanQuery(10)], {10: Read(11), 11: Union((Read(1), Read(10)))})


def test_clauses_are_simplified() -> None:
    a, b, c = 2, 4, 6
    assert simplify_clauses([frozenset([a]), frozenset([a ^ 1])]) == {frozenset()}
    assert simplify_clauses([frozenset([a, a ^ 1]), frozenset([b, c]), frozenset([b, c, a])]) == {frozenset([b, c])}
    assert simplify_clauses([frozenset([a]), frozenset([a ^ 1, b]), frozenset([b ^ 1, c])]) == {
        frozenset([a]),
        frozenset([b]),
        frozenset([c]),
    }


class CountedClause(frozenset[int]):
    """A clause that counts how often it is compared with others."""

    compared = 0

    def __le__(self, other: object) -> bool:
        CountedClause.compared += 1
        return frozenset.__le__(self, other)  # type: ignore[operator]


@pytest.mark.parametrize("width", [1, 2, 3])
def test_simplifying_many_clauses_does_not_compare_each_with_each(width: int) -> None:
    CountedClause.compared = 0
    clauses = [
        CountedClause([2] * (width > 2) + [20 * n + 10 * k for k in range(1, width + 1)]) for n in range(5_000)
    ]
    assert len(simplify_clauses(clauses)) == len(clauses)
    assert CountedClause.compared <= 3 * len(clauses)


def test_simplifying_drops_exactly_the_clauses_that_contain_another() -> None:
    chosen = random.Random(7)
    for _ in range(300):
        clauses = {frozenset(2 * chosen.randrange(1, 9) for _ in range(chosen.randrange(2, 6))) for _ in range(12)}
        clauses = {clause for clause in clauses if len(clause) > 1}
        minimal = {value for value in clauses if not any(other < value for other in clauses)}
        assert simplify_clauses(clauses) == minimal


def test_error_names_the_pass_that_breaks_an_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_sources(draft: Draft, limits: OptimizerSettings) -> Draft:
        return Draft(draft.queries, draft.definitions, draft.formulas, branches=(Branch(0, 1, ()),))

    monkeypatch.setattr(optimizer, "PASSES", (lose_sources,))
    with pytest.raises(RunnelError, match="lose_sources"):
        optimize([PlanQuery(10)], {10: Read(1)})


def test_steps_and_costs_are_recorded_for_every_pass() -> None:
    steps: list[Step] = []
    plan: LogicalPlan = optimize([PlanQuery(12)], GOLDEN_VIEWS, steps=steps)
    names = [run.__name__ for run in PASSES]
    assert [step.name for step in steps] == names
    assert [cost.step for cost in plan.costs] == names
    assert steps[-1].lines({})[0].startswith("12 on 2, 3: ")
    assert steps[-1].lines({12: "Twelve", 2: "Two words"})[0].startswith('Twelve on "Two words", 3: ')
    assert plan.costs[-1].counters["atoms"] == 3


@pytest.mark.parametrize(
    "module",
    [
        "arrays",
        "optimizer.table_builder",
        "optimizer.formulas",
        "optimizer.optimize",
        "optimizer.passes.simplify_clauses",
        "matching.compile.compile_plan",
        "matching.filters.atoms.atom_tests",
        "matching.filters.atoms.key_frequency",
    ],
)
def test_the_examples_in_the_documentation_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"runnel.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
