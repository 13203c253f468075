"""Comparisons of RDF terms, compared with an RDF store, and cases that only the SPARQL specification defines."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from tests.unit.algebra.generated_graphs import compared_by_store, iris, literals, set_apart, terms, typed

from runnel.algebra.graphs.rdf_terms import KnownTerm, Sort, compare_terms, known_term, plain_value
from runnel.algebra.nodes.calls import RELATIONS, Relation

X = "<urn:x>"


@settings(deadline=None, max_examples=1000)
@given(terms, terms)
def test_comparisons_equal_those_of_an_rdf_store(left: str, right: str) -> None:
    answers = compared_by_store(left, right)
    for relation in RELATIONS:
        if not set_apart(left, relation, right):
            assert compare_terms(left, relation, right) is answers[relation], relation


@settings(deadline=None, max_examples=300)
@given(literals)
def test_literal_equals_itself_unless_it_is_nan(term: str) -> None:
    assert compare_terms(term, "=", term) is not (known_term(term).key != known_term(term).key)
    assert compare_terms(term, "=", X) is False


@settings(deadline=None, max_examples=300)
@given(terms, terms)
def test_relations_are_consistent_with_each_other(left: str, right: str) -> None:
    """Mirrored relations agree, `!=` is the complement of `=`, and either all or no order relations are errors."""
    turned: dict[Relation, Relation] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
    answers = {relation: compare_terms(left, relation, right) for relation in RELATIONS}
    for relation in RELATIONS:
        assert answers[relation] is compare_terms(right, turned[relation], left)
    assert answers["!="] is (None if answers["="] is None else not answers["="])
    assert len({answers[relation] is None for relation in ("<", "<=", ">", ">=")}) == 1
    if answers["<"] is not None and not any(known_term(term).key != known_term(term).key for term in (left, right)):
        assert [answers["<"], answers["="], answers[">"]].count(True) == 1


@pytest.mark.parametrize(
    ("left", "relation", "right", "expected"),
    [
        # Runnel's numbers are doubles, whatever type they have.
        (typed("0.1", "float"), "=", typed("0.1", "decimal"), False),
        (typed(2**53, "integer"), "=", typed(2**53 + 1, "integer"), True),
        (typed("9" * 400, "integer"), "=", typed("INF", "double"), True),
        # NaN is neither less nor greater than anything, and not equal to itself.
        (typed("NaN", "double"), "<", typed(1, "integer"), False),
        (typed("NaN", "double"), ">=", typed("NaN", "float"), False),
        (typed("NaN", "double"), "!=", typed("NaN", "double"), True),
        (typed("-0.0", "double"), "=", typed("0", "integer"), True),
        # Booleans are ordered; texts with a language and terms without a value are not.
        (typed("false", "boolean"), "<", typed("1", "boolean"), True),
        ('"a"@en', "<", '"b"@en', None),
        ('"a"@en', "<=", '"a"@en', None),
        ('"a"@en', "=", '"a"', False),
        (X, "<=", X, None),
        ("_:b", ">=", "_:b", None),
        ("_:b", "=", "_:b", True),
        ("_:b", "!=", "_:c", True),
        ("_:b", "!=", '"b"', True),
        ("_:b", "!=", '"b"^^<urn:type:x>', True),
        # A literal of an unknown type equals itself, and is known to differ only from texts with a language.
        ('"a"^^<urn:type:x>', "=", '"a"^^<urn:type:x>', True),
        ('"a"^^<urn:type:x>', "!=", '"b"^^<urn:type:x>', None),
        ('"a"^^<urn:type:x>', "!=", typed(1, "integer"), None),
        ('"a"^^<urn:type:x>', "!=", '"a"@en', True),
        ('"a"^^<urn:type:x>', "!=", X, True),
        (typed("12:00:00", "time"), "!=", typed("13:00:00", "time"), None),
        (typed("one", "integer"), "!=", typed(1, "integer"), None),
        # Literals of different known types are unequal.
        ('"1"', "!=", typed(1, "integer"), True),
        ('"1"', "<", typed(2, "integer"), None),
        (typed("2020-01-01", "date"), "=", typed("2020-01-01T00:00:00Z", "dateTime"), False),
        (typed("2020-01-01", "date"), "<", typed("2020-01-02T00:00:00Z", "dateTime"), None),
        # A time without a zone is in UTC.
        (typed("2020-01-01T00:00:00", "dateTime"), "=", typed("2020-01-01T00:00:00Z", "dateTime"), True),
        (typed("2020-01-01T00:00:00", "dateTime"), "<", typed("2020-01-01T00:30:00Z", "dateTime"), True),
        (typed("2020-01-01", "date"), ">", typed("2020-01-01+01:00", "date"), True),
        # Fractions of a second are compared up to the microsecond.
        (typed("2020-01-01T00:00:00.0000001Z", "dateTime"), "=", typed("2020-01-01T00:00:00Z", "dateTime"), True),
        (typed("2020-01-01T00:00:00.000001Z", "dateTime"), ">", typed("2020-01-01T00:00:00Z", "dateTime"), True),
        # 24:00:00 is the end of a day, and later times are invalid.
        (typed("2020-02-28T24:00:00Z", "dateTime"), "=", typed("2020-02-29T00:00:00Z", "dateTime"), True),
        (typed("-0001-12-31T24:00:00Z", "dateTime"), "=", typed("0000-01-01T00:00:00Z", "dateTime"), True),
        (typed("12020-01-01", "date"), ">", typed("9999-12-31", "date"), True),
    ],
)
def test_comparisons_that_the_sparql_specification_defines(
    left: str, relation: Relation, right: str, expected: bool | None
) -> None:
    assert compare_terms(left, relation, right) is expected


@pytest.mark.parametrize(
    "term",
    [
        typed("2020-01-01T24:00:00.5Z", "dateTime"),
        typed("2020-01-01T24:00:01Z", "dateTime"),
        typed("2020-01-01T00:00:00+15:00", "dateTime"),
        typed("2020-01-01T00:00:00+14:01", "dateTime"),
        typed("2020-01-01T00:00:00+01:60", "dateTime"),
        typed("2020-01-01T00:00:60Z", "dateTime"),
        typed("2021-02-29", "date"),
        typed("02020-01-01", "date"),
        typed("9" * 5000 + "-01-01", "date"),
        typed("Inf", "double"),
        typed("+NaN", "double"),
        typed("٣", "integer"),
        typed("1\\n", "integer"),
        typed("true\\n", "boolean"),
        '"1"^^<integer:>',
        '"1"^^<urn:decimal>',
    ],
)
def test_invalid_text_of_a_type_has_no_known_value(term: str) -> None:
    assert known_term(term) == KnownTerm(Sort.OTHER, term)


def test_hostile_literal_takes_linear_time() -> None:
    """A backtracking regular expression would need exponential time for this text."""
    for text in ("0" * 1_000_000 + "x", "1" * 1_000_000, "2020-01-01T00:00:00." + "0" * 1_000_000 + "x"):
        for name in ("integer", "decimal", "double", "dateTime", "date", "boolean"):
            assert known_term(typed(text, name)).sort in (Sort.OTHER, Sort.NUMBER)


@pytest.mark.parametrize(
    ("term", "value"),
    [
        ("<urn:x>", "urn:x"),
        ("_:b1", "_:b1"),
        ('"say \\"hi\\"\\n"', 'say "hi"\n'),
        ('"cold"@en', "cold"),
        ('"\\u0000nothing"', "nothing"),
        ('"a"^^<urn:type:x>', "a"),
        (typed("007", "integer"), 7.0),
        (typed("INF", "double"), "INF"),
        (typed("NaN", "float"), "NaN"),
        (typed("9" * 400, "integer"), "9" * 400),
        (typed("1", "boolean"), True),
        (typed("no", "boolean"), "no"),
        (typed("2020-01-01T01:00:00.250001+01:00", "dateTime"), datetime(2020, 1, 1, 0, 0, 0, 250001, tzinfo=UTC)),
        (typed("2020-01-01", "date"), datetime(2020, 1, 1, tzinfo=UTC)),
        (typed("0001-01-01T00:00:00+14:00", "dateTime"), "0001-01-01T00:00:00+14:00"),
        (typed("12020-01-01", "date"), "12020-01-01"),
        (typed("-0044-03-15", "date"), "-0044-03-15"),
        (typed("9999-12-31T24:00:00Z", "dateTime"), "9999-12-31T24:00:00Z"),
    ],
)
def test_plain_values(term: str, value: object) -> None:
    shown = plain_value(term)
    assert (type(shown), shown) == (type(value), value)


@settings(deadline=None, max_examples=500)
@given(literals | iris)
def test_every_term_has_a_plain_value(term: str) -> None:
    shown = plain_value(term)
    assert not isinstance(shown, float) or math.isfinite(shown)
    assert not isinstance(shown, datetime) or shown.tzinfo is UTC
    assert not isinstance(shown, str) or "\0" not in shown
