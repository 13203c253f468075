"""Plans with operators agree with the reference evaluator, in every order, with bindings and with failures."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.matching.operators.decide.operator_worlds import (
    SIGNATURES,
    TEXTS,
    VALUES,
    OperatorWorld,
    conditions,
    operator_worlds,
)
from tests.unit.matching.operators.orders.order_cases import ORDERS

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Call, Literally, Variable
from runnel.algebra.nodes.encode import decode_expression, encode_expression
from runnel.algebra.nodes.expressions import And, Expression, Not, Or
from runnel.algebra.nodes.query import Filter, Node, Read
from runnel.algebra.semantics.bindings import Answers, asking, solutions, term_solutions, truth
from runnel.algebra.semantics.close_conditions import close_condition, terms_of
from runnel.algebra.semantics.evaluate import accepts
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compile_delta, compile_merged
from runnel.matching.operators.decide.decider import Decider, Decisions
from runnel.matching.operators.decide.disjuncts import OperatorDisjuncts
from runnel.matching.operators.plugins.contract import Answer, FailedCall, Question
from runnel.model.item import Attributes, Item
from runnel.model.operator import Rows
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-operators-")
STORAGE = FileStorage(Path(_root.name).as_uri())
CASES = settings(max_examples=30, deadline=None, derandomize=True)


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


@dataclass
class World:
    """Answers questions from a generated world, and records them."""

    world: OperatorWorld
    questions: list[Question] = field(default_factory=list)

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        self.questions += questions
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> Answer:
        arguments = tuple(
            Attribute("title") if isinstance(value, tuple) else Literally(value) for value in question.inputs
        )
        results = {"flag": 0, "count": 1, "pair": 2, "kind": 1}[question.operator[0]]
        places = tuple(range(len(arguments), len(arguments) + results))
        call = Call(question.operator[0], (*arguments, *[Variable("")] * results), question.operator[1], places)
        rows = self.world.says(call, question.attributes)
        return FailedCall("it failed") if rows is None else rows


def compiled(definitions: Mapping[int, Node], queries: Sequence[int]) -> Plan:
    folder = f"base-{next(_folders)}"
    compile_base(STORAGE, folder, [PlanQuery(query) for query in queries], definitions)
    return load(STORAGE, PlanVersion(1, folder))


def decided(plan: Plan, world: OperatorWorld, order: str) -> tuple[Decisions, World]:
    disjuncts = OperatorDisjuncts.of(plan.operators)
    problem = disjuncts.problem(lambda digest: 0.5, lambda operator: 1.0)
    asked = World(world)
    made = ORDERS[order](problem)
    decider = Decider(disjuncts, problem, lambda *_: made, asked)
    return decider.decide(world.batch, build_matcher(plan).match(world.batch)), asked


def expected(world: OperatorWorld, queries: Sequence[int]) -> list[list[int]]:
    feeds = world.batch.feeds.tolist()
    results = []
    for feed, attributes in zip(feeds, world.batch.attributes(), strict=True):
        holding = asking(world.answers(attributes))
        results.append(
            [query for query in queries if accepts(Read(query), feed, attributes, world.definitions, holding=holding)]
        )
    return results


def rows(decisions: Decisions) -> list[list[int]]:
    return [decisions.matches.row(row).tolist() for row in range(len(decisions.matches))]


@CASES
@given(operator_worlds((0, 0, 3)))
def test_every_order_agrees_with_the_evaluator(world: OperatorWorld) -> None:
    queries = sorted(world.definitions)
    plan = compiled(world.definitions, queries)
    for order in ORDERS:
        results, asked = decided(plan, world, order)
        assert rows(results) == expected(world, queries), order
        messages = [(id(question.attributes), question.operator, question.inputs) for question in asked.questions]
        assert len(set(messages)) == len(messages), "a call was asked twice for an item"


@CASES
@given(operator_worlds((0, 3)), st.data())
def test_deltas_and_merged_plans_lead_to_the_same_decisions(world: OperatorWorld, data: st.DataObject) -> None:
    queries = sorted(world.definitions)
    early = data.draw(st.lists(st.sampled_from(queries), unique=True))
    base = compiled(world.definitions, early)
    again = data.draw(st.lists(st.sampled_from(queries), unique=True))
    later = sorted({*(set(queries) - set(early)), *again})
    folder = f"delta-{next(_folders)}"
    compile_delta(STORAGE, folder, [PlanQuery(value) for value in later], world.definitions, set(), base.version.base)
    plan = load(STORAGE, PlanVersion(2, base.version.base, folder))
    assert rows(decided(plan, world, "adaptive")[0]) == expected(world, queries)
    merged = f"merged-{next(_folders)}"
    compile_merged(STORAGE, merged, plan)
    assert rows(decided(load(STORAGE, PlanVersion(3, merged)), world, "static_greedy")[0]) == expected(world, queries)
    gone = data.draw(st.sampled_from(queries))
    removed = load(STORAGE, PlanVersion(4, base.version.base, folder, (gone,)))
    left = [[value for value in row if value != gone] for row in expected(world, queries)]
    assert rows(decided(removed, world, "naive")[0]) == left


def _joined(*calls: tuple[str, str]) -> Expression:
    """Return a conjunction of calls without inputs, each with one result."""
    return And(tuple(Call(operator, (Variable(name),), 1, (0,)) for operator, name in calls))


SMALL = OperatorWorld({}, (Item("One", "1", {"title": ("rock",)}), Item("One", "2", {"title": ("jazz",)})), 5, 0)


@settings(CASES, max_examples=120)
@given(conditions(), operator_worlds())
@example(_joined(("count", "x"), ("count", "y")), SMALL)
@example(Or((_joined(("count", "x"), ("count", "y")), And((_joined(("count", "y")), Call("flag", (), 1))))), SMALL)
def test_bindings_equal_the_solutions_of_the_condition(condition: Expression, world: OperatorWorld) -> None:
    world = OperatorWorld({10: Filter(Read(1), condition)}, world.items, world.seed, 0)
    results, _ = decided(compiled(world.definitions, [10]), world, "adaptive")
    for row, (feed, attributes) in enumerate(zip(world.batch.feeds, world.batch.attributes(), strict=True)):
        wanted = solutions(condition, attributes, world.answers(attributes)) if feed == 1 else []
        named = [value for value in wanted if value]
        got = results.bindings.get(row, {}).get(10, [])
        assert _sorted([value for value in got if value]) == _sorted(named)
        assert (10 in results.matches.row(row)) == bool(wanted)


def _sorted(bindings: Sequence[Mapping[str, object]]) -> list[list[tuple[str, object]]]:
    return sorted((sorted(binding.items()) for binding in bindings), key=repr)


@CASES
@given(conditions(), operator_worlds((0, 2)))
def test_closing_a_condition_does_not_change_its_solutions(condition: Expression, world: OperatorWorld) -> None:
    again = decode_expression(encode_expression(condition))
    assert again == condition
    stored = encode_expression(close_condition(condition))
    assert encode_expression(decode_expression(stored)) == stored  # names of variables are no part of it
    if world.failing:
        return
    for attributes in world.batch.attributes():
        messages: Attributes = attributes
        holds = truth(close_condition(condition), messages, world.answers(messages))
        assert holds == bool(solutions(condition, messages, world.answers(messages)))


def test_an_undecided_query_is_reported_once_with_the_operator() -> None:
    definitions: dict[int, Node] = {10: Filter(Read(1), Call("flag", (), 1)), 11: Read(1)}
    world = OperatorWorld(definitions, operator_items(), 0, failing=1)
    results, _ = decided(compiled(definitions, [10, 11]), world, "adaptive")
    assert rows(results) == [[11], [11]]
    assert [(entry.row, entry.query, entry.operator, entry.reason) for entry in results.unknown] == [
        (0, 10, ("flag", 1), "it failed"),
        (1, 10, ("flag", 1), "it failed"),
    ]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(conditions(), operator_worlds((2,)))
def test_a_term_is_unknown_only_if_failed_calls_could_satisfy_it(condition: Expression, world: OperatorWorld) -> None:
    """Failed calls are replaced by no rows, and by all possible rows."""
    for term in terms_of(close_condition(condition)):
        for attributes in world.batch.attributes():
            answers = world.answers(attributes)
            results = term_solutions(term, answers)
            least = term_solutions(term, lambda call, value=answers: value(call) or ())  # type: ignore[misc]
            most = term_solutions(term, lambda call, value=answers: _all_rows(call, value))  # type: ignore[misc]
            assert least is not None
            assert most is not None
            if results is None:
                assert not least
            elif results:
                assert _sorted(results) == _sorted(least)
            else:
                assert not most


def _all_rows(call: Call, answers: Answers) -> Rows:
    messages = answers(call)
    values = TEXTS if call.operator == "kind" else VALUES
    return tuple(itertools.product(values, repeat=SIGNATURES[call.operator])) if messages is None else messages


@dataclass
class Said:
    """Answers by operator name. None means failure."""

    rows: Mapping[str, Rows | None]
    questions: list[Question] = field(default_factory=list)

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        self.questions += questions
        return [
            FailedCall("it failed") if (row := self.rows[question.operator[0]]) is None else row
            for question in questions
        ]

    def answer(self, call: Call) -> Rows | None:
        return self.rows[call.operator]


@pytest.mark.parametrize("order", sorted(ORDERS))
@pytest.mark.parametrize("failing", ["count", "kind"])
def test_a_call_without_rows_makes_a_join_false_even_if_another_failed(order: str, failing: str) -> None:
    both = _joined(("count", "x"), ("kind", "x"))
    definitions: dict[int, Node] = {
        10: Filter(Read(1), Not(both)),
        11: Filter(Read(1), And((Not(both), Call("flag", (), 1)))),
        12: Filter(Read(1), both),
        13: Filter(Read(1), Or((Not(both), Call("flag", (), 1)))),
    }
    plan = compiled(definitions, sorted(definitions))
    disjuncts = OperatorDisjuncts.of(plan.operators)
    problem = disjuncts.problem(lambda digest: 0.5, lambda operator: 1.0)
    batch = OperatorWorld(definitions, operator_items()[:1], 0, 0).batch
    made = ORDERS[order](problem)
    for other, matching, unknown in (((), [10, 11, 13], {12}), (((1.0,),), [13], {10, 11, 12})):
        messages = Said({failing: None, "flag": ((),)} | {"kind" if failing == "count" else "count": other})
        decisions = Decider(disjuncts, problem, lambda *_: made, messages).decide(
            batch, build_matcher(plan).match(batch)
        )
        assert rows(decisions) == [matching]
        # A query that must be true of a failed call is reported even if another call would have made it false.
        assert {entry.query for entry in decisions.unknown} | {12} == unknown
        (attributes,) = batch.attributes()
        for query, node in definitions.items():
            assert isinstance(node, Filter)
            wanted = truth(close_condition(node.condition), attributes, messages.answer)
            assert wanted is (True if query in matching else False if query == 12 and not other else None)


def operator_items() -> tuple[Item, ...]:
    return tuple(Item("One", str(number), {"title": ("rock",)}) for number in range(2))


def test_too_many_combinations_are_reported_as_undecided() -> None:
    condition = decode_expression(
        [
            "and",
            ["call", "count", 1, [1], ["constant", "i"], ["?", "x"]],
            ["call", "count", 1, [1], ["constant", "j"], ["?", "y"]],
            ["constraint", "=", ["?", "x"], ["+", ["?", "y"], ["constant", 0.5]]],
        ]
    )
    definitions: dict[int, Node] = {10: Filter(Read(1), condition), 11: Filter(Read(1), Not(condition))}
    world = OperatorWorld(definitions, operator_items()[:1], 0, failing=0)
    plan = compiled(definitions, [10, 11])
    disjuncts = OperatorDisjuncts.of(plan.operators)
    problem = disjuncts.problem(lambda digest: 0.5, lambda operator: 1.0)

    class Many:
        def ask(self, questions: Sequence[Question]) -> list[Answer]:
            return [tuple((float(number),) for number in range(1000)) for _ in questions]

    made = ORDERS["adaptive"](problem)
    decider = Decider(disjuncts, problem, lambda *_: made, Many())
    decisions = decider.decide(world.batch, build_matcher(plan).match(world.batch))
    assert rows(decisions) == [[]]
    assert {(entry.query, entry.passing) for entry in decisions.unknown} == {(10, False), (11, False)}
    assert all("too many combinations" in entry.reason for entry in decisions.unknown)


def test_operators_are_not_called_if_filters_decide() -> None:
    condition = decode_expression(["and", ["contains", "title", "zebra"], ["call", "flag", 1, []]])
    definitions: dict[int, Node] = {10: Filter(Read(1), condition)}
    world = OperatorWorld(definitions, operator_items(), 0, failing=0)
    results, asked = decided(compiled(definitions, [10]), world, "naive")
    assert rows(results) == [[], []]
    assert asked.questions == []
