"""Canonical text: golden files, and round trips of generated statements of every kind."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.algebra.generated_atoms import text_atoms
from tests.unit.language.generated_graph_patterns import graph_patterns
from tests.unit.language.generated_operators import constraints, operator_calls, registrations

from runnel.algebra.nodes.attributes import PARTS, WHOLE, Ago, Attribute, Constant
from runnel.algebra.nodes.durations import UNITS, render_duration
from runnel.algebra.nodes.encode import encode_expression
from runnel.algebra.nodes.expressions import (
    AtomRelation,
    Between,
    Compare,
    Exists,
    Expression,
    In,
    Truth,
    conjunction,
    disjunction,
    negation,
)
from runnel.algebra.nodes.render import NOW, RESERVED
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_script, print_statement
from runnel.language.syntax.statements import (
    Condition,
    Confirm,
    CreateFeed,
    Drop,
    DropOperator,
    DropPrefix,
    Explain,
    ExplainMessage,
    FeedTerm,
    GroupTerm,
    MaterializeFeed,
    Name,
    Pause,
    Preview,
    QueryText,
    RegisterFeed,
    RegisterPrefix,
    Renew,
    Replay,
    RotateKey,
    Show,
    Statement,
    Subscribe,
    Unsubscribe,
    Why,
)
from runnel.model.item import MOMENTS, clean_text

GOLDEN = Path(__file__).parents[2] / "golden" / "statements.txt"


def golden_pairs() -> list[tuple[str, str]]:
    lines = [line for line in GOLDEN.read_text(encoding="utf-8").splitlines() if line and not line.startswith("--")]
    pairs = list(zip(lines[::2], lines[1::2], strict=True))
    assert all(text.startswith("input ") and other.startswith("canonical ") for text, other in pairs)
    return [(value[6:].strip(), other[10:].strip()) for value, other in pairs]


@pytest.mark.parametrize(("written", "canonical"), golden_pairs())
def test_canonical_text_equals_golden_file(written: str, canonical: str) -> None:
    (parsed,) = parse(written)
    assert print_statement(parsed.statement) == canonical
    assert parse(canonical)[0].statement == parsed.statement


bare = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
anything = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=8)
name_texts = (bare | st.sampled_from(sorted(RESERVED)) | anything.map(lambda text: clean_text(text).strip())).filter(
    bool
)
names = name_texts.map(Name)
prefix_names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,5}", fullmatch=True).map(lambda text: Name(f"x{text}"))
variables = bare.map(Name)
kinds = bare.map(str.lower).filter(lambda word: word not in RESERVED)
targets = anything.filter(lambda text: bool(text.strip()))
durations = st.builds(
    lambda count, unit: timedelta(seconds=count * UNITS[unit]), st.integers(1, 90), st.sampled_from(sorted(UNITS))
)
numbers = (st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000).map(float)).map(
    lambda x: x + 0.0
)
texts = st.text(max_size=8).map(clean_text)
days = st.dates()
instants = st.datetimes(timezones=st.just(UTC))
ages = durations.map(Ago) | st.just(NOW)
operators: st.SearchStrategy[AtomRelation] = st.sampled_from(["=", "<", "<=", ">", ">="])
attribute_texts = name_texts.filter(lambda name: name != WHOLE.name) | st.just(WHOLE.name)
attributes = (attribute_texts | st.sampled_from(sorted(MOMENTS))).map(Attribute)
part_attributes = st.builds(Attribute, attribute_texts, st.sampled_from(PARTS))


def constants(attribute: Attribute) -> st.SearchStrategy[Constant]:
    """Return the constants that an attribute can be compared with: numbers for date parts, no texts for dates."""
    if attribute.part is not None:
        return numbers
    fitting: st.SearchStrategy[Constant] = numbers | st.booleans() | days | instants
    return fitting if attribute.name in MOMENTS else fitting | texts


def betweens(attribute: Attribute) -> st.SearchStrategy[Expression]:
    of_numbers = st.builds(lambda a, b: Between(attribute, min(a, b), max(a, b)), numbers, numbers)
    of_days = st.builds(lambda a, b: Between(attribute, min(a, b), max(a, b)), days, days)
    of_instants = st.builds(lambda a, b: Between(attribute, min(a, b), max(a, b)), instants, instants)
    of_ages = st.builds(lambda a, b: Between(attribute, *sorted([a, b], key=lambda age: -age.length)), ages, ages)
    return of_numbers if attribute.part is not None else of_numbers | of_days | of_instants | of_ages


def lists(attribute: Attribute) -> st.SearchStrategy[Expression]:
    unique = st.lists(constants(attribute), min_size=1, max_size=4, unique_by=lambda value: (type(value), value))
    return unique.map(lambda results: In(attribute, tuple(results)))


def compares(attribute: Attribute) -> st.SearchStrategy[Expression]:
    equal = st.builds(Compare, st.just(attribute), operators, constants(attribute))
    if attribute.part is not None:
        return equal
    return equal | st.builds(Compare, st.just(attribute), operators.filter(lambda sign: sign != "="), ages)


operator_parts: st.SearchStrategy[Expression] = operator_calls(
    name_texts,
    name_texts.filter(lambda name: name != WHOLE.name),
    numbers | texts | st.booleans() | days | instants,
) | constraints(numbers, texts | st.booleans() | days | instants, ages)
located = attributes | part_attributes
atoms: st.SearchStrategy[Expression] = (
    text_atoms(attributes)
    | located.flatmap(compares)
    | located.flatmap(betweens)
    | located.flatmap(lists)
    | st.builds(Exists, located)
    | st.builds(Truth, st.booleans())
    | operator_parts
    | graph_patterns
)
expressions = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(conjunction)
        | st.lists(inner, min_size=2, max_size=3).map(disjunction)
        | inner.map(negation)
    ),
    max_leaves=8,
)
terms = st.recursive(
    st.builds(FeedTerm, names, st.none() | variables),
    lambda inner: st.builds(GroupTerm, st.lists(inner, min_size=1, max_size=3).map(tuple), st.none() | variables),
    max_leaves=6,
)


def where(scoped: list[Condition], plain: Expression | None) -> tuple[Condition, ...]:
    return (*scoped, *([Condition(None, plain)] if plain is not None else []))


conditions = st.builds(
    where, st.lists(st.builds(Condition, variables, expressions), max_size=3), st.none() | expressions
)
creates = st.builds(CreateFeed, names, st.builds(QueryText, terms, conditions), st.booleans())
maybe = st.none() | durations
numbered = st.integers(0, 2**63 - 1)
statements: st.SearchStrategy[Statement] = st.one_of(
    names.map(RegisterFeed),
    st.builds(RegisterFeed, names, targets, maybe),
    st.builds(MaterializeFeed, names, names, targets),
    creates,
    st.builds(Subscribe, names, kinds, st.none() | targets, maybe, maybe, maybe, st.none() | targets),
    st.builds(lambda number, length: Renew(number, lifetime=length), numbered, maybe),
    st.builds(lambda ticket, length: Renew(ticket=ticket, lifetime=length), targets, maybe),
    numbered.map(RotateKey),
    targets.map(Replay),
    st.builds(Confirm, numbered, st.none() | targets),
    numbered.map(lambda number: Replay(subscription=number)),
    targets.map(ExplainMessage),
    targets.map(lambda ticket: Unsubscribe(ticket=ticket)),
    numbered.map(Unsubscribe),
    st.builds(lambda feed, kind: Unsubscribe(feed=feed, kind=kind), names, st.none() | kinds),
    st.builds(lambda feed, kind, target: Unsubscribe(feed=feed, kind=kind, target=target), names, kinds, targets),
    st.builds(Drop, names, st.booleans()),
    st.builds(DropOperator, names, st.booleans()),
    st.builds(RegisterPrefix, prefix_names, st.sampled_from(["http://muse.example/terms#", "urn:it's:"])),
    prefix_names.map(DropPrefix),
    registrations(names, name_texts, targets, texts, durations),
    st.builds(lambda paused, feed: Pause(paused, feed=feed), st.booleans(), names),
    st.builds(lambda paused, number: Pause(paused, subscription=number), st.booleans(), st.integers(0, 10**9)),
    st.sampled_from(
        [
            Show("feeds"),
            Show("subscriptions"),
            Show("quarantine"),
            Show("dead letters"),
            Show("operators"),
            Show("prefixes"),
        ]
    ),
    names.map(lambda name: Show("feed", name)),
    names.map(lambda name: Show("operator", name)),
    st.builds(Explain, names),
    st.builds(Why, anything, names),
    st.builds(lambda query, back: Preview(query=query, back=back), creates, maybe),
    st.builds(lambda feed, back: Preview(feed=feed, back=back), names, maybe),
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(statements)
def test_printed_statement_parses_to_an_equal_statement(statement: Statement) -> None:
    text = print_statement(statement)
    (parsed,) = parse(text)
    assert parsed.statement == statement
    assert print_statement(parsed.statement) == text
    assert text.endswith(";")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(expressions)
def test_conditions_keep_the_types_of_their_constants(expression: Expression) -> None:
    statement = CreateFeed(Name("F"), QueryText(FeedTerm(Name("A")), (Condition(None, expression),)))
    (parsed,) = parse(print_statement(statement))
    assert isinstance(parsed.statement, CreateFeed)
    (results,) = parsed.statement.query.conditions
    assert json.dumps(encode_expression(results.expression)) == json.dumps(encode_expression(expression))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(statements, max_size=5))
def test_a_printed_script_parses_to_its_statements(script: list[Statement]) -> None:
    assert [parsed.statement for parsed in parse(print_script(script))] == script


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "1 second"),
        (59, "59 seconds"),
        (60, "1 minute"),
        (90, "90 seconds"),
        (5400, "90 minutes"),
        (7200, "2 hours"),
        (86400, "1 day"),
        (604800, "7 days"),
        (31536000, "365 days"),
    ],
)
def test_durations_are_printed_in_the_largest_unit_that_divides_them(seconds: int, text: str) -> None:
    assert render_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize("duration", [timedelta(0), timedelta(seconds=-5), timedelta(milliseconds=1500)])
def test_invalid_durations_are_rejected(duration: timedelta) -> None:
    with pytest.raises(ValueError, match="positive whole number of seconds"):
        render_duration(duration)


def test_dates_are_printed_exactly() -> None:
    expression = Between(Attribute("x"), date(26, 1, 2), datetime(2026, 11, 15, 9, 30, tzinfo=UTC))
    statement = CreateFeed(Name("F"), QueryText(FeedTerm(Name("A")), (Condition(None, expression),)))
    assert print_statement(statement).endswith("x between date '0026-01-02' and date '2026-11-15T09:30:00Z';")
    assert parse(print_statement(statement))[0].statement == statement
