"""Bindings that a plan computes equal those of the definition, with and, or, not, views, deltas and operators."""

from __future__ import annotations

import itertools
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.matching.operators.orders.order_cases import ORDERS
from tests.unit.optimizer.evaluate_draft import evaluate_logical

from runnel.algebra.graphs.edges import Comparison, Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Call, Constraint, Given, Literally, Relation, Variable
from runnel.algebra.nodes.expressions import And, Contains, Expression, Not, Or
from runnel.algebra.nodes.query import Filter, Node, Read, Union
from runnel.algebra.semantics.bindings import asking, solutions
from runnel.algebra.semantics.close_conditions import close_condition
from runnel.algebra.semantics.evaluate import accepts
from runnel.algebra.semantics.node_bindings import node_solutions
from runnel.errors import InvalidConditionError, TooExpensiveError
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_base, compute_layout
from runnel.matching.graphs.search import match_single
from runnel.matching.operators.decide.decider import Decider, Decisions
from runnel.matching.operators.decide.disjuncts import OperatorDisjuncts
from runnel.matching.operators.plugins.contract import Answer, FailedCall, Question
from runnel.matching.patterns.bind_variables import PatternBinder
from runnel.matching.patterns.item_search import FamilySearch
from runnel.model.bindings import bounded, decode_bindings, encode_bindings
from runnel.model.graph import RdfGraph
from runnel.model.item import Attributes, Item
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.model.operator import Rows
from runnel.optimizer.merge_plans import merge_plans
from runnel.optimizer.optimize import optimize
from runnel.plan.logical_plan import PlanQuery
from runnel.plan.store import Plan, PlanVersion, load
from runnel.sinks.show_bindings import bindings_json
from runnel.storage.file_storage import FileStorage

_folders = itertools.count()
_root = tempfile.TemporaryDirectory(prefix="runnel-bound-")
STORAGE = FileStorage(Path(_root.name).as_uri())
CASES = settings(max_examples=12, deadline=None, derandomize=True)
SOURCES = {"One": 1, "Two": 2}


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runnel.storage.file_storage.os.fsync", lambda handle: None)
        yield


def edge(subject: str, label: str, object: str) -> Edge:
    return Edge(*(Variable(pair[1:]) if pair[0] == "?" else pair for pair in (subject, label, object)))


_TERMS = ("<urn:1>", "<urn:2>", '"a"', '"b"', '"3"^^<http://www.w3.org/2001/XMLSchema#integer>')
_subjects = st.sampled_from(["?x", "?y", "?_:b", "<urn:1>"])
_objects = st.sampled_from(["?x", "?y", "?z", "?_:b", '"a"'])
_edges = st.builds(edge, _subjects, st.sampled_from(["<urn:p>", "<urn:q>", "?l"]), _objects)
_relations: st.SearchStrategy[Relation] = st.sampled_from(["=", "!=", "<", ">"])


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    edges = tuple(draw(st.lists(_edges, min_size=1, max_size=2)))
    bound = [node for value in edges for node in value.nodes if isinstance(node, Variable)]
    if not bound or draw(st.booleans()):
        return Graph(edges)
    return Graph(edges, Comparison(draw(st.sampled_from(bound)), draw(_relations), draw(st.sampled_from(_TERMS))))


_words = st.sampled_from([Contains(Attribute("title"), ("rock",)), Contains(Attribute("title"), ("jazz",))])
_calls: st.SearchStrategy[Expression] = st.one_of(
    st.builds(lambda name: Call("near", (Given(name, "text"), Variable("n")), 1, (1,)), st.sampled_from("xyz")),
    st.builds(lambda name: Call("near", (Literally("a"), Variable(name)), 1, (1,)), st.sampled_from("nz")),
    st.just(Call("flag", (Given("x", "text"),), 1)),
    st.just(Call("flag", (Literally("a"),), 1)),
)
_constraints = st.builds(Constraint, st.builds(Variable, st.sampled_from("xyn")), _relations, st.just(Literally("a")))


def _wider(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(And, several), st.builds(And, several), st.builds(Or, several), st.builds(Not, inner))


@st.composite
def conditions(draw: st.DrawFn, operators: bool = False) -> Expression:
    leaf: st.SearchStrategy[Expression] = st.one_of(graphs(), graphs(), _words, _constraints)
    if operators:
        leaf = st.one_of(leaf, _calls)
    expression = draw(st.recursive(leaf, _wider, max_leaves=5))
    try:
        close_condition(expression)
    except InvalidConditionError:
        assume(False)
    return expression


@st.composite
def nodes(draw: st.DrawFn, readable: Sequence[int], operators: bool = False) -> Node:
    parts: list[Node] = []
    names: set[str] = set()
    for feed in draw(st.lists(st.sampled_from(readable), min_size=1, max_size=2, unique=True)):
        condition = draw(st.one_of(st.none(), conditions(operators)))
        parts.append(Read(feed) if condition is None else Filter(Read(feed), condition))
        names |= _free(condition)
    whole: Node = parts[0] if len(parts) == 1 else Union(tuple(parts))
    if draw(st.booleans()):
        above = draw(conditions(operators))
        assume(not names & _free(above))  # which the language refuses
        return Filter(whole, above)
    return whole


def _free(condition: Expression | None) -> set[str]:
    from runnel.algebra.semantics.close_conditions import free_variables

    return set() if condition is None else free_variables(condition)


_triples = st.lists(
    st.tuples(
        st.sampled_from(["<urn:1>", "<urn:2>"]), st.sampled_from(["<urn:p>", "<urn:q>"]), st.sampled_from(_TERMS)
    ),
    max_size=6,
)


@st.composite
def items(draw: st.DrawFn) -> tuple[Item, ...]:
    results = []
    for number in range(draw(st.integers(1, 4))):
        attributes: dict[str, Any] = {"title": (draw(st.sampled_from(["rock", "jazz", "rock jazz"])),)}
        if draw(st.integers(0, 4)):
            attributes["graph"] = (RdfGraph.of(draw(_triples)),)
        results.append(Item(draw(st.sampled_from(sorted(SOURCES))), str(number), attributes))
    return tuple(results)


@dataclass
class Asked:
    """Answers by chance, but always the same; one in `failing` fails."""

    failing: int = 0
    questions: list[Question] = field(default_factory=list)

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        self.questions += questions
        return [
            self.said(question.operator[0], question.inputs, question.attributes) or FailedCall("it failed")
            for question in questions
        ]

    def said(self, operator: str, inputs: Sequence[object], attributes: Attributes) -> Rows | None:
        dice = zlib.crc32(repr((operator, inputs, sorted(attributes.items()))).encode())
        if self.failing and dice % self.failing == 0:
            return None
        if operator == "flag":
            return ((),) if dice >> 8 & 1 else _NOTHING
        return tuple((text,) for index, text in enumerate(("a", "b", "urn:1")) if dice >> (8 + index) & 1) or _NOTHING

    def answers(self, attributes: Attributes) -> Any:
        return lambda call: self.said(call.operator, tuple(entry.value for entry in call.inputs), attributes)


class _Nothing(tuple[Any, ...]):
    """No rows, which are an answer though they are false."""

    def __bool__(self) -> bool:
        return True


_NOTHING: Rows = _Nothing()


def batch_of(values: Sequence[Item]) -> ItemBatch:
    return ItemBatch.of(values, SOURCES)


def compiled(definitions: Mapping[int, Node], queries: Sequence[int]) -> Plan:
    folder = f"base-{next(_folders)}"
    compute_layout(optimize([PlanQuery(query) for query in queries], definitions)).write_base(STORAGE, folder)
    return load(STORAGE, PlanVersion(1, folder))


def matched(plan: Plan, batch: ItemBatch) -> Matches:
    """What a plan says, ways among it, without the arrays of matchers: these have tests of their own."""
    rows: list[list[int]] = []
    for feed, attributes in zip(batch.feeds.tolist(), batch.attributes(), strict=True):
        numbers: set[int] = set()
        for part in plan.parts:
            gone = set(part.queries.query_ids[plan.removed(part)].tolist())
            numbers |= evaluate_logical(part.logical, feed, attributes) - gone
        rows.append(sorted(numbers))
    return Matches.of(rows)


def decided(plan: Plan, batch: ItemBatch, asked: Asked, order: str = "adaptive") -> Decisions:
    disjuncts = OperatorDisjuncts.of(plan.operators)
    problem = disjuncts.problem(lambda digest: 0.5, lambda operator: 1.0)
    made = ORDERS[order](problem)
    return Decider(disjuncts, problem, lambda *_: made, asked).decide(batch, matched(plan, batch))


def told(plan: Plan, batch: ItemBatch, asked: Asked) -> tuple[list[list[int]], dict[tuple[int, int], Any]]:
    """The matches of every item, and all bindings by row and query."""
    results = decided(plan, batch, asked)
    by_row: dict[tuple[int, int], Any] = {}
    for row, of_row in results.bindings.items():
        by_row |= {(row, query): bounded(values) for query, values in of_row.items() if bounded(values).rows}
    for row, bound in PatternBinder(plan).bind(batch, results.matches).items():
        assert not any((row, query) in by_row for query in bound)
        by_row |= {(row, query): value for query, value in bound.items()}
    return [results.matches.row(row).tolist() for row in range(len(batch))], by_row


def expected(
    definitions: Mapping[int, Node], queries: Sequence[int], batch: ItemBatch
) -> tuple[list[list[int]], dict[tuple[int, int], Any]]:
    matches: list[list[int]] = []
    bound: dict[tuple[int, int], Any] = {}
    for row, (feed, attributes) in enumerate(zip(batch.feeds.tolist(), batch.attributes(), strict=True)):
        matches.append([value for value in queries if accepts(Read(value), feed, attributes, definitions)])
        for query in matches[-1]:
            rows = bounded(node_solutions(definitions[query], feed, attributes, definitions))
            if rows.rows:
                bound[row, query] = rows
    return matches, bound


@st.composite
def worlds(draw: st.DrawFn, operators: bool = False) -> tuple[dict[int, Node], tuple[Item, ...]]:
    definitions: dict[int, Node] = {}
    for feed in range(10, 10 + draw(st.integers(1, 3))):
        definitions[feed] = draw(nodes((1, 2, *definitions), operators))
    return definitions, draw(items())


@CASES
@given(worlds(), st.data())
def test_bindings_equal_the_definition_in_plans_deltas_and_after_compaction(
    world: tuple[dict[int, Node], tuple[Item, ...]], data: st.DataObject
) -> None:
    definitions, values = world
    batch, queries = batch_of(values), sorted(definitions)
    wanted = expected(definitions, queries, batch)
    early = data.draw(st.lists(st.sampled_from(queries), unique=True))
    base = compiled(definitions, early)
    later = sorted({*(set(queries) - set(early)), *data.draw(st.lists(st.sampled_from(queries), unique=True))})
    folder = f"delta-{next(_folders)}"
    logical = optimize([PlanQuery(value) for value in later], definitions)
    compute_layout(logical).write_delta(STORAGE, folder, set(), base.version.base)
    plan = load(STORAGE, PlanVersion(2, base.version.base, folder))
    assert told(plan, batch, Asked()) == wanted
    merged = f"merged-{next(_folders)}"
    compute_layout(merge_plans(plan)).write_base(STORAGE, merged)
    assert told(load(STORAGE, PlanVersion(3, merged)), batch, Asked()) == wanted
    gone = data.draw(st.sampled_from(queries))
    removed = load(STORAGE, PlanVersion(4, base.version.base, folder, (gone,)))
    left = [[value for value in row if value != gone] for row in wanted[0]]
    assert told(removed, batch, Asked()) == (left, {key: value for key, value in wanted[1].items() if key[1] != gone})


@CASES
@given(worlds(operators=True), st.sampled_from([0, 0, 3]))
def test_graphs_and_operators_agree_with_the_evaluator(
    world: tuple[dict[int, Node], tuple[Item, ...]], failing: int
) -> None:
    definitions, values = world
    batch, queries = batch_of(values), sorted(definitions)
    plan = compiled(definitions, queries)
    for order in ("adaptive", "naive"):
        asked = Asked(failing)
        results = decided(plan, batch, asked, order)
        for row, (feed, attributes) in enumerate(zip(batch.feeds.tolist(), batch.attributes(), strict=True)):
            holding = asking(Asked(failing).answers(attributes))
            wanted = [
                query for query in queries if accepts(Read(query), feed, attributes, definitions, holding=holding)
            ]
            assert results.matches.row(row).tolist() == wanted, order
        questions = [(id(question.attributes), question.operator, question.inputs) for question in asked.questions]
        assert len(set(questions)) == len(questions), "a question was asked twice for an item"


@CASES
@given(conditions(operators=True), items())
def test_bindings_of_graphs_and_operators_are_joined(condition: Expression, some: tuple[Item, ...]) -> None:
    batch = batch_of(some)
    _, bound = told(compiled({10: Filter(Read(1), condition)}, [10]), batch, Asked())
    for row, (feed, attributes) in enumerate(zip(batch.feeds.tolist(), batch.attributes(), strict=True)):
        rows = solutions(condition, attributes, Asked().answers(attributes)) if feed == 1 else []
        got = bound.get((row, 10))
        # Parts that differ by names alone are one where operators take part, and one of the names is told.
        wanted = bounded(rows).rows
        assert (got is not None) == bool(wanted)
        assert got is None or all(value in wanted or _renamed(value, wanted) for value in got.rows)


def _renamed(row: Mapping[str, object], wanted: Sequence[Mapping[str, object]]) -> bool:
    return any(
        set(row.values()) <= set(entry.values()) or set(entry.values()) <= set(row.values()) for entry in wanted
    )


def test_a_failure_for_one_value_is_reported_if_no_other_value_matches() -> None:
    pattern = Graph((edge("?p", "<urn:p>", "?where"),))
    call = Call("near", (Given("where", "text"), Variable("n")), 1, (1,))
    graph = RdfGraph.of([("<urn:1>", "<urn:p>", f'"{text}"') for text in ("good", "bad")])

    class Near:
        def ask(self, questions: Sequence[Question]) -> list[Answer]:
            return [FailedCall("gone") if question.inputs == ("bad",) else (("a",),) for question in questions]

    near: Any = Near()
    node = Filter(Read(1), And((pattern, call)))
    batch = batch_of([Item("One", "1", {"graph": (graph,)})])
    results = decided(compiled({10: node}, [10]), batch, near)
    assert results.matches.row(0).tolist() == [10]
    assert results.unknown == ()
    assert results.bindings[0][10] == [{"p": "urn:1", "where": "good", "n": "a"}]
    strict = Filter(Read(1), And((pattern, call, Constraint(Variable("n"), "=", Literally("b")))))
    results = decided(compiled({10: strict}, [10]), batch, near)
    assert results.matches.row(0).tolist() == []
    assert [(entry.query, entry.operator, entry.reason, entry.passing) for entry in results.unknown] == [
        (10, ("near", 1), "gone", True)
    ]


def test_too_many_values_are_reported_as_the_reason() -> None:
    pattern = Graph((edge("?p", "<urn:p>", "?where"),))
    call = Call("flag", (Given("where", "text"),), 1)
    graph = RdfGraph.of([("<urn:1>", "<urn:p>", f'"{number}"') for number in range(65)])
    batch = batch_of([Item("One", "1", {"graph": (graph,)})])
    asked = Asked()
    results = decided(compiled({10: Filter(Read(1), And((pattern, call)))}, [10]), batch, asked)
    assert results.matches.row(0).tolist() == []
    assert asked.questions == []
    assert ["64 different inputs" in entry.reason and not entry.passing for entry in results.unknown] == [True]


def test_a_query_takes_sixteen_bytes_and_none_without_variables() -> None:
    named = {feed: Filter(Read(1), Graph((edge("?p", "<urn:year>", f'"{feed}"'),))) for feed in range(100, 1100)}
    plan = compiled(named, sorted(named))
    table = plan.base.queries.bound_patterns
    assert sum(array.nbytes for name, array in table.arrays().items()) <= 16 * len(named) + 100
    plain = compiled({10: Filter(Read(1), Graph((edge("?_:p", "<urn:year>", '"1"'),)))}, [10])
    assert not PatternBinder(plain).is_needed
    assert plain.base.queries.bound_patterns.arrays() == {}


def test_an_endless_search_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_single, "MAX_STEPS", 1_000)
    triples = [(f"<urn:{left}>", "<urn:p>", f"<urn:{right}>") for left in range(20) for right in range(20)]
    names = [f"?v{number}" for number in range(7)]
    path = Graph(tuple(edge(value, "<urn:p>", other) for value, other in itertools.pairwise(names)))
    none = Graph((*path.edges, edge(names[-1], "<urn:q>", "?end")))
    graph = FamilySearch({"graph": (RdfGraph.of(triples),)})
    assert graph.rows(none) == []
    assert graph.rows(path) is None
    assert 0 < len(graph.first_rows(path)) <= 1_000


def test_bindings_contain_only_rows_of_matches() -> None:
    year = Graph((edge("?p", "<urn:year>", "?y"),))
    node = Filter(Read(1), And((year, Contains(Attribute("title"), ("rock",)))))
    compile_base(STORAGE, "whole", [PlanQuery(10)], {10: node})
    plan = load(STORAGE, PlanVersion(1, "whole"))
    graph = RdfGraph.of([("<urn:1>", "<urn:year>", '"1"')])
    batch = batch_of(
        [Item("One", str(n), {"title": (title,), "graph": (graph,)}) for n, title in enumerate(["rock", "jazz"])]
    )
    binder = PatternBinder(plan)
    matches = build_matcher(plan).match(batch)
    assert np.diff(matches.offsets).tolist() == [1, 0]
    assert {
        row: {query: entry.rows for query, entry in of.items()} for row, of in binder.bind(batch, matches).items()
    } == {0: {10: ({"p": "urn:1", "y": "1"},)}}


def test_patterns_under_two_negations_are_neither_joined_nor_bound() -> None:
    own, inner = Graph((edge("?x", "<urn:p>", "?y"),)), Graph((edge("?y", "<urn:q>", "?z"),))
    definitions: dict[int, Node] = {
        10: Filter(Read(1), And((own, Not(Not(inner))))),
        11: Filter(Read(1), Not(Not(inner))),
        12: Filter(Read(1), And((own, inner))),
    }
    triples = [("<urn:1>", "<urn:p>", "<urn:2>"), ("<urn:1>", "<urn:q>", '"a"')]
    batch = batch_of([Item("One", "1", {"graph": (RdfGraph.of(triples),)})])
    matches, bound = told(compiled(definitions, [10, 11, 12]), batch, Asked())
    assert (matches, bound) == expected(definitions, [10, 11, 12], batch)
    assert matches == [[10, 11]]
    assert {query: entry.rows for (_, query), entry in bound.items()} == {10: ({"x": "urn:1", "y": "urn:2"},)}


def test_a_match_with_too_many_bindings_is_marked_as_partial() -> None:
    own, other = Graph((edge("?x", "<urn:p>", "?y"),)), Graph((edge("?a", "<urn:q>", "?b"),))
    near = Call("near", (Literally("a"), Variable("n")), 1, (1,))
    definitions: dict[int, Node] = {
        10: Filter(Read(1), own),
        11: Filter(Read(1), And((own, other))),
        12: Filter(Read(1), Or((own, other))),
        13: Filter(Read(1), And((own, near))),
        14: Filter(Read(1), other),
    }
    queries = sorted(definitions)
    for count, is_whole in ((300, True), (301, False), (10_001, False)):
        triples = [(f"<urn:{n}>", "<urn:p>", f'"{n}"') for n in range(count)]
        attributes = {"graph": (RdfGraph.of([*triples, ("<urn:1>", "<urn:q>", '"a"')]),)}
        batch = batch_of([Item("One", "1", attributes)])

        class _Near(Asked):
            def said(self, operator: str, inputs: Sequence[object], attributes: Attributes) -> Rows | None:
                return (("b",),)

        plan = compiled(definitions, queries)
        results = decided(plan, batch, _Near())
        bound = dict(PatternBinder(plan).bind(batch, results.matches)[0])
        bound |= {query: bounded(values) for query, values in results.bindings_by_query(np.array([0]))[0].items()}
        assert bound[14].is_whole
        for query in (10, 13):
            assert (bound[query].is_whole, bound[query].count) == (is_whole, min(count, 300)), query
        # Queries of several patterns, or of another shape, are looked through further.
        for query in (11, 12):
            assert bound[query].is_whole == (count <= 10_000), query
            assert bound[query].count >= min(count, 300)
        assert decode_bindings(encode_bindings(bound) or "") == bound


def test_bindings_that_take_too_long_are_reported_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    either = Or((Graph((edge("?x", "<urn:p>", "?y"),)), Graph((edge("?x", "<urn:q>", "?y"),))))
    definitions: dict[int, Node] = {10: Filter(Read(1), either)}
    batch = batch_of([Item("One", "1", {"graph": (RdfGraph.of([("<urn:1>", "<urn:p>", '"a"')]),)})])
    plan = compiled(definitions, [10])

    def too_long(*_: object) -> None:
        raise TooExpensiveError("too long")

    monkeypatch.setattr("runnel.matching.patterns.bind_variables.node_solutions", too_long)
    bound = PatternBinder(plan).bind(batch, matched(plan, batch))[0][10]
    assert (bound.rows, bound.is_whole) == ((), False)
    assert bindings_json(bound) == {"bindings": [], "bindings_incomplete": True}
    assert decode_bindings(encode_bindings({10: bound}) or "") == {10: bound}
