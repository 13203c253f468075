"""Variables of graph patterns: joins, filters, inputs of operators, and bindings of matches."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.algebra.graphs.edges import Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import graph_bindings
from runnel.algebra.graphs.rdf_terms import plain_value
from runnel.algebra.nodes.attributes import Ago
from runnel.algebra.nodes.calls import Arithmetic, Call, Constraint, Given, Literally, Relation, Variable
from runnel.algebra.nodes.encode import decode_expression, encode_expression
from runnel.algebra.nodes.expressions import And, Expression, Not, Or
from runnel.algebra.nodes.query import Filter, Read
from runnel.algebra.nodes.terms import Term
from runnel.algebra.semantics.bindings import MAX_INPUTS, Answers, solutions, truth
from runnel.algebra.semantics.close_conditions import close_condition
from runnel.algebra.semantics.evaluate import accepts, holds_as_written
from runnel.errors import InvalidConditionError
from runnel.matching.patterns.item_search import FamilySearch
from runnel.model.graph import RdfGraph, read_ntriples
from runnel.model.item import Attributes
from runnel.model.operator import Rows

XSD = "http://www.w3.org/2001/XMLSchema#"
PAGES = read_ntriples(
    f"""
    <urn:a> <urn:year> "2003"^^<{XSD}integer> .
    <urn:b> <urn:year> "2010"^^<{XSD}integer> .
    <urn:a> <urn:place> "Bronx" .
    <urn:b> <urn:place> "Queens" .
    <urn:b> <urn:place> <urn:nowhere> .
    <urn:a> <urn:by> <urn:b> .
    """
)
ITEM: Attributes = {"graph": (PAGES,), "title": ("rock",)}


def edge(subject: str, label: str, object: str) -> Edge:
    return Edge(*(Variable(pair[1:]) if pair[0] == "?" else pair for pair in (subject, label, object)))


YEAR = Graph((edge("?p", "<urn:year>", "?y"),))
PLACE = Graph((edge("?p", "<urn:place>", "?where"),))


def nobody(call: Call) -> Rows | None:
    raise AssertionError(f"{call} was asked")


def found(condition: Expression, answers: Answers = nobody) -> list[dict[str, object]]:
    return [dict(sorted(solution.items())) for solution in solutions(condition, ITEM, answers)]


def test_blocks_that_share_variables_form_one_pattern() -> None:
    both = And((YEAR, PLACE))
    closed = close_condition(both)
    assert isinstance(closed, Graph)
    assert set(closed.edges) == {*YEAR.edges, *PLACE.edges}
    assert {(entry["p"], entry["where"]) for entry in found(both)} == {
        ("urn:a", "Bronx"),
        ("urn:b", "Queens"),
        ("urn:b", "urn:nowhere"),
    }


def test_blocks_without_shared_variables_are_evaluated_separately() -> None:
    other = Graph((edge("?q", "<urn:by>", "?r"),))
    assert close_condition(And((YEAR, other))) == And((YEAR, other))
    assert {(entry["p"], entry["q"]) for entry in found(And((YEAR, other)))} == {
        ("urn:a", "urn:a"),
        ("urn:b", "urn:a"),
    }


def test_blank_nodes_of_different_blocks_are_different() -> None:
    year = Graph((edge("?p", "<urn:year>", "?_:x"),))
    place = Graph((edge("?p", "<urn:place>", "?_:x"),))
    assert {entry["p"] for entry in found(And((year, place)))} == {"urn:a", "urn:b"}
    assert all(set(value) == {"p"} for value in found(And((year, place))))


def test_shared_variables_are_joined_even_if_no_bindings_are_requested() -> None:
    late = Graph((edge("?p", "<urn:year>", f'"2010"^^<{XSD}integer>'),))
    bronx = Graph((edge("?p", "<urn:place>", '"Bronx"'),))
    node = Filter(Read(1), And((late, bronx)))
    assert accepts(Filter(Read(1), late), 1, ITEM, {})
    assert accepts(Filter(Read(1), bronx), 1, ITEM, {})
    assert not accepts(node, 1, ITEM, {})


def test_variables_under_not_are_local() -> None:
    condition = And((YEAR, Not(And((PLACE, Graph((edge("?p", "<urn:by>", "<urn:c>"),)))))))
    assert {entry["p"] for entry in found(condition)} == {"urn:a", "urn:b"}
    assert all(set(value) == {"p", "y"} for value in found(condition))


def test_comparison_outside_a_block_becomes_its_filter() -> None:
    condition = And((YEAR, Constraint(Variable("y"), ">", Literally(2003.0))))
    closed = close_condition(condition)
    assert isinstance(closed, Graph)
    assert closed.filter is not None
    assert found(condition) == [{"p": "urn:b", "y": 2010.0}]


def test_comparison_of_variables_of_two_blocks_joins_them() -> None:
    other = Graph((edge("?q", "<urn:year>", "?z"),))
    condition = And((YEAR, other, Constraint(Variable("y"), "<", Variable("z"))))
    assert found(condition) == [{"p": "urn:a", "q": "urn:b", "y": 2003.0, "z": 2010.0}]


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint(Arithmetic("*", Variable("y"), Literally(2.0)), ">", Literally(10.0)),
        Constraint(Variable("y"), ">", Literally(Ago(timedelta(days=2)))),
    ],
)
def test_comparison_that_no_filter_can_express_is_rejected_with_a_hint(constraint: Constraint) -> None:
    with pytest.raises(InvalidConditionError) as refused:
        close_condition(And((YEAR, constraint)))
    assert "filter(" in (refused.value.hint or "")


def test_constraint_on_an_unbound_variable_is_rejected() -> None:
    with pytest.raises(InvalidConditionError, match="is not bound here"):
        close_condition(And((YEAR, Constraint(Variable("z"), ">", Literally(1.0)))))


_constants = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4),  # a value has no NUL
    st.booleans(),
    st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(lambda text: text.replace(tzinfo=UTC)),
)
_relations: st.SearchStrategy[Relation] = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


@settings(max_examples=60, deadline=None)
@given(_constants, _constants, _relations)
def test_filter_is_equivalent_to_its_constraint_on_plain_values(
    left: object, right: object, relation: Relation
) -> None:
    from runnel.algebra.graphs.constraint_filters import _term, as_filter
    from runnel.algebra.semantics.bindings import satisfied

    term = _term(left)  # type: ignore[arg-type]
    assert term is not None
    constraint = Constraint(Variable("o"), relation, Literally(right))  # type: ignore[arg-type]
    messages = as_filter(constraint)
    assert messages is not None
    held = bool(graph_bindings(Graph((edge("?s", "<urn:p>", "?o"),), messages), [("<urn:s>", "<urn:p>", term)]))
    assert held == satisfied(constraint, {"o": plain_value(term)})


@settings(max_examples=60, deadline=None)
@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2026, 1, 4)),
    st.dates(date(2026, 1, 1), date(2026, 1, 4)),
    _relations,
    st.booleans(),
)
def test_comparison_with_a_day_covers_the_whole_day(
    moment: datetime, day: date, relation: Relation, turned: bool
) -> None:
    from runnel.algebra.graphs.constraint_filters import as_filter
    from runnel.algebra.semantics.bindings import satisfied

    sides = (Literally(day), Variable("o")) if turned else (Variable("o"), Literally(day))
    constraint = Constraint(sides[0], relation, sides[1])
    messages = as_filter(constraint)
    assert messages is not None
    for term in (f'"{moment.isoformat()}Z"^^<{XSD}dateTime>', f'"{moment.date()}"^^<{XSD}date>'):
        held = bool(graph_bindings(Graph((edge("?s", "<urn:p>", "?o"),), messages), [("<urn:s>", "<urn:p>", term)]))
        assert held == satisfied(constraint, {"o": plain_value(term)})


@pytest.mark.parametrize(
    ("term", "differs"),
    [
        (f'"2026-01-02"^^<{XSD}date>', False),
        (f'"2026-01-03"^^<{XSD}date>', True),
        (f'"2026-01-02T23:59:59Z"^^<{XSD}dateTime>', False),
        (f'"2026-01-03T00:00:00Z"^^<{XSD}dateTime>', True),
        ('"2026-01-02"', True),
        ('"cold"@en', True),
        (f'"5"^^<{XSD}integer>', True),
        (f'"true"^^<{XSD}boolean>', True),
        ("<urn:x>", True),
        ("_:x", True),
        ('"odd"^^<urn:type>', False),  # it may be equal: an error, as in a filter
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_other_terms_differ_from_a_day(term: str, differs: bool, turned: bool) -> None:
    day, own = Literally(date(2026, 1, 2)), Variable("o")
    apart = Constraint(day, "!=", own) if turned else Constraint(own, "!=", day)
    condition = And((Graph((edge("?s", "<urn:p>", "?o"),)), apart))
    item: Attributes = {"graph": (RdfGraph.of([("<urn:s>", "<urn:p>", term)]),)}
    assert holds_as_written(condition, item) is differs
    closed = close_condition(condition)
    assert isinstance(closed, Graph)
    assert FamilySearch(item).holds(closed) is differs
    assert decode_expression(encode_expression(closed)) == closed


REGION = Call("region", (Given("where", "text"), Variable("n")), 1, (1,))


def region(call: Call) -> Rows | None:
    (where,) = (entry.value for entry in call.inputs if isinstance(entry, Literally))
    return {"Bronx": ((1.0,), (2.0,)), "Queens": ((3.0,),), "urn:nowhere": ()}[str(where)]


def test_operator_is_called_for_every_solution_of_a_pattern() -> None:
    messages = [(entry["p"], entry["where"], entry["n"]) for entry in found(And((PLACE, REGION)), region)]
    assert sorted(messages, key=repr) == [("urn:a", "Bronx", 1.0), ("urn:a", "Bronx", 2.0), ("urn:b", "Queens", 3.0)]


def test_operator_is_not_called_with_a_value_of_another_type() -> None:
    call = Call("region", (Given("y", "text"), Variable("n")), 1, (1,))
    assert found(And((YEAR, call))) == []
    whole = Call("whole", (Given("y", "int"),), 1)
    assert {entry["y"] for entry in found(And((YEAR, whole)), lambda call: ((),))} == {2003.0, 2010.0}


def test_failed_call_leaves_the_term_unknown_unless_another_solution_satisfies_it() -> None:
    def without_bronx(call: Call) -> Rows | None:
        return None if Literally("Bronx") in call.arguments else region(call)

    condition = close_condition(And((PLACE, REGION)))
    assert truth(condition, ITEM, without_bronx) is True
    many = close_condition(And((PLACE, REGION, Constraint(Variable("n"), ">", Literally(5.0)))))
    assert truth(many, ITEM, region) is False
    assert truth(many, ITEM, without_bronx) is None
    assert truth(Not(many), ITEM, without_bronx) is None


def test_operator_is_not_called_without_a_solution() -> None:
    none = Graph((edge("?p", "<urn:none>", "?where"),))
    assert truth(close_condition(And((none, REGION))), ITEM, nobody) is False
    assert truth(close_condition(Not(And((none, REGION)))), ITEM, nobody) is True


def test_too_many_inputs_leave_the_term_unknown() -> None:
    triples = [("<urn:a>", "<urn:place>", f'"{number}"') for number in range(MAX_INPUTS + 1)]
    item: Attributes = {"graph": (RdfGraph.of(triples),)}
    assert truth(close_condition(And((PLACE, REGION))), item, lambda call: ((1.0,),)) is None
    fewer: Attributes = {"graph": (RdfGraph.of(triples[1:]),)}
    assert truth(close_condition(And((PLACE, REGION))), fewer, lambda call: ((1.0,),)) is True


def test_input_that_no_pattern_binds_is_rejected() -> None:
    with pytest.raises(InvalidConditionError) as refused:
        close_condition(And((YEAR, REGION)))
    assert "?where" in str(refused.value)
    with pytest.raises(InvalidConditionError):
        close_condition(Or((PLACE, REGION)))


def test_stored_form_of_a_term_does_not_depend_on_variable_names() -> None:
    first = close_condition(And((PLACE, REGION)))
    second = close_condition(
        And(
            (
                Call("region", (Given("b", "text"), Variable("c")), 1, (1,)),
                Graph((edge("?a", "<urn:place>", "?b"),)),
            )
        )
    )
    assert isinstance(first, Term)
    assert isinstance(second, Term)
    assert (first.names, second.names) == (("p", "where", "n"), ("a", "b", "c"))
    assert encode_expression(first) == encode_expression(second)
    assert decode_expression(encode_expression(first)) == replace(first, names=())
    assert decode_expression(encode_expression(And((PLACE, REGION)))) == And((PLACE, REGION))


_labels = st.sampled_from(["<urn:p>", "<urn:q>"])
_nodes = st.sampled_from(["?x", "?y", "?z", "?_:b", "<urn:1>", "<urn:2>"])
_edges = st.builds(edge, _nodes, _labels, _nodes)
_graphs = st.builds(Graph, st.lists(_edges, min_size=1, max_size=2).map(tuple))
_leaves: st.SearchStrategy[Expression] = st.one_of(
    _graphs,
    st.builds(Constraint, st.sampled_from([Variable("x"), Variable("y")]), _relations, st.just(Variable("z"))),
)


def _wider(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(And, several), st.builds(Or, several), st.builds(Not, inner))


_triples = st.lists(
    st.tuples(
        *(
            st.sampled_from(value)
            for value in (["<urn:1>", "<urn:2>"], ["<urn:p>", "<urn:q>"], ["<urn:1>", "<urn:2>"])
        )
    ),
    max_size=5,
)


@settings(max_examples=80, deadline=None)
@given(st.recursive(_leaves, _wider, max_leaves=5), _triples)
def test_closed_condition_is_equivalent(condition: Expression, triples: list[tuple[str, str, str]]) -> None:
    try:
        closed = close_condition(condition)
    except InvalidConditionError:
        return
    item: Attributes = {"graph": (RdfGraph.of(triples),)}
    assert truth(closed, item, nobody) == bool(solutions(condition, item, nobody))
    assert close_condition(closed) == closed
