"""Whole scripts: spans of statements, no errors other than StatementError, and linear time."""

from __future__ import annotations

import dataclasses
import random
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.language.test_language_printing import golden_pairs, statements

from runnel.algebra.nodes.calls import Call, Variable
from runnel.algebra.nodes.render import RESERVED, render_name
from runnel.errors import Span, StatementError, StatementSyntaxError
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_statement
from runnel.language.syntax.nesting import MAX_NESTING
from runnel.language.syntax.statements import CreateFeed, Name, Parsed, Statement
from runnel.model.item import MAX_NAME

BLANKS = ["\n", " ", "\r\n\t", "\ufeff", "\u200b", " -- a comment; with 'quotes\n", "--\n", "\u2003"]
WHERE = "create feed A from B where "


def spanned(node: object) -> Iterator[tuple[str, Span]]:
    """Yield the names, variables and calls in a node, with their spans."""
    match node:
        case Name(text, span):
            yield text, span
        case Variable(name, span) if span is not None:
            yield name, span
        case Call(operator, _, span=span) if span is not None:
            yield operator, span
    if isinstance(node, tuple | list):
        for part in node:
            yield from spanned(part)
    elif dataclasses.is_dataclass(node) and not isinstance(node, type):
        for field in dataclasses.fields(node):
            yield from spanned(getattr(node, field.name))


def written_at(lines: list[str], span: Span) -> str:
    return lines[span.line - 1][span.column - 1 : span.end_column - 1]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(statements, st.sampled_from(BLANKS)), min_size=1, max_size=6))
def test_every_span_of_a_script_contains_its_name(
    script: list[tuple[Statement, str]],
) -> None:
    text = "".join(blank + print_statement(statement) for statement, blank in script)
    parsed = parse(text)
    assert [entry.statement for entry in parsed] == [statement for statement, _ in script]
    lines = text.split("\n")
    for entry in parsed:
        assert print_statement(entry.statement).startswith(written_at(lines, entry.span))
        for name, span in spanned(entry.statement):
            shown = written_at(lines, span)
            assert shown in (name, render_name(name), f"${name}", f"?{name}", "[") or name.startswith("_:")


@pytest.mark.parametrize("written", [value for value, _ in golden_pairs()])
def test_spans_continue_over_the_statements_of_a_script(written: str) -> None:
    alone = parse(written)
    text = written if written.rstrip().endswith(";") else f"{written}\n;"
    (_, inside, last) = parse(f"show feeds;\n{text}\n  show\nfeeds;")
    assert inside.statement == alone[0].statement
    moved = [(name, Span(span.line + 1, span.column, span.end_column)) for name, span in spanned(alone[0].statement)]
    assert list(spanned(inside.statement)) == moved
    assert last.span.column == 3


PIECES = [
    *[
        "create",
        "feed",
        "from",
        "where",
        "subscribe",
        "to",
        "output",
        "log",
        "and",
        "or",
        "not",
        "in",
        "true",
        "item",
        "a",
        "Wire",
        "contains",
        "between",
        "exists",
    ],
    *[
        "date",
        "now",
        "days",
        "ago",
        "5",
        "5.",
        ".5",
        "+5",
        "-5",
        "1e3",
        "0x",
        "'x'",
        "'it''s'",
        "''",
        '"n"',
        '"',
        "'",
        "$v",
        "$v[",
        "$",
        "(",
        ")",
        "[",
        "]",
        ",",
        ".",
        "|",
        "=",
        "<>",
        "!=",
        "==",
        "-",
    ],
    *[
        ";",
        ";;",
        "é",
        "naïve",
        "createé",
        "every",
        "FROM",
        "tagged",
        "all",
        "feeds",
        "any",
        "pattern",
        "stemmed",
        "similar",
        "at",
        "least",
        "within",
        "last",
    ],
    *[
        "f(",
        "f(true)",
        "g()",
        "?x",
        "?",
        "?x",
        ">",
        "*",
        "/",
        "+",
        "?x-2",
        "register",
        "operator",
        "cost",
        "40",
        "ms",
        "graph",
        "{",
        "}",
        "&&",
        "||",
        "<urn:a>",
        "ex:a",
    ],
    *("--c\n", "A" * (MAX_NAME + 1), "\ufeff", "\n", "\0", "\ud800", "graph {", "graph { ?x ?y ?z }"),
    *("graph{?x a 'it\\'s;'}", "GRAPH -- {\n{ _:x <urn:it's--> 5 . }", "filter(?x > 5)", "optional {"),
]


def outcome(text: str) -> list[Parsed] | StatementError:
    """Return the statements or the StatementError. Any other exception fails the test."""
    try:
        return parse(text)
    except StatementError as error:
        refusal = error
    assert refusal.text == text
    assert refusal.span is not None
    assert 1 <= refusal.span.column < refusal.span.end_column
    assert refusal.render()
    return refusal


@settings(deadline=None, max_examples=200)
@given(st.lists(statements, min_size=1, max_size=3), st.integers(0), st.lists(st.sampled_from(PIECES), max_size=3))
def test_damaged_scripts_are_parsed_or_rejected(script: list[Statement], seed: int, pieces: list[str]) -> None:
    text = "\n".join(map(print_statement, script))
    chance = random.Random(seed)
    for piece in pieces:
        position = chance.randrange(len(text) + 1)
        text = text[:position] + f" {piece} " + text[position + chance.randrange(4) :]
    parsed = outcome(text)
    if isinstance(parsed, list):
        again = "\n".join(print_statement(entry.statement) for entry in parsed)
        assert [entry.statement for entry in parse(again)] == [entry.statement for entry in parsed]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=14))
@example(["create", "feed", "a", "from", "a", "where", "a", ".5", ";"])
@example(["create", "feed", "a", "from", "a", "where", "a", "=", "5.", "days", "ago", ";"])
def test_random_tokens_are_parsed_or_rejected(pieces: list[str]) -> None:
    for text in (" ".join(pieces), "".join(pieces), WHERE + " ".join(pieces), WHERE + "".join(pieces)):
        outcome(text)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=80))
def test_random_bytes_are_parsed_or_rejected(data: bytes) -> None:
    for encoding in ("latin-1", "utf-8"):
        outcome(data.decode(encoding, "surrogateescape"))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.sampled_from([*sorted(RESERVED), "a", "feeds", "show", "Day", "days", "ago"]), min_size=2, max_size=2)
)
def test_words_are_names_unless_reserved(words: list[str]) -> None:
    text = "".join(
        f"create feed {value} from {other} where {other} = 5 and {value} contains '{value}';\n"
        for value in words
        for other in words
    )
    # `item` begins a condition, but it cannot be the name of a feed.
    assert isinstance(outcome(text), list) == RESERVED.isdisjoint(word.lower() for word in words)


def test_error_has_the_span_of_the_bad_statement_among_many() -> None:
    good = "".join(f"create feed Q{n} from News where title contains 'w{n}' and n > {n};\n" for n in range(200))
    for bad in (
        "create feed Q form News;",
        "create feed R from News where n between 5 and 2;",
        "drop",
        "explain feed A",
    ):
        with pytest.raises(StatementError) as refused:
            parse(f"{good}{bad}\n")
        assert refused.value.span is not None
        assert refused.value.span.line == 201


def test_operators_and_graph_patterns_have_correct_spans_in_a_long_script() -> None:
    text = "".join(
        f"create feed Q{n} from News where not (near('p{n}', ?x) and ?x + 1 < {n}.5)\n"
        f" and graph {{ ?x ex:p{n} {n} ;\n rdf:value 'it\\'s;' .\n filter(?y != <urn:a;b--{n}>) . ?y a 5 }};\n"
        for n in range(200)
    )
    (*_, last) = parse(text)
    assert isinstance(last.statement, CreateFeed)
    lines = text.split("\n")
    results = [(name, span.line, written_at(lines, span)) for name, span in spanned(last.statement.query.conditions)]
    assert results == [
        ("near", 797, "near"),
        ("x", 797, "?x"),
        ("x", 797, "?x"),
        ("x", 798, "?x"),
        ("x", 798, "?x"),
        ("y", 800, "?y"),
        ("y", 800, "?y"),
    ]


@pytest.mark.parametrize(
    ("opening", "inner", "closing"),
    [
        ("(", "a = 1", ")"),
        ("not (", "a = 1", ")"),
        ("(a = 1 and ", "b = 2", ")"),
        ("?x > (", "1", ")"),
        ("(", "?x", ") > 3"),
        ("$b[(", "a = 1", ")]"),
    ],
)
def test_deep_nesting_is_rejected_before_the_stack_overflows(opening: str, inner: str, closing: str) -> None:
    text = f"create feed A from B as $b where {opening * 20_000}{inner}{closing * 20_000}"
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(_frames() + 12 * MAX_NESTING)
    try:
        refusal = outcome(text)
    finally:
        sys.setrecursionlimit(limit)
    assert isinstance(refusal, StatementError)


def _frames() -> int:
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


def test_quantities_and_conditions_share_the_nesting_limit() -> None:
    def nested(levels: int) -> str:
        return WHERE + "(" * 25 + "?x > " + "(" * (levels - 25) + "1" + ")" * levels

    assert len(parse(nested(MAX_NESTING))) == 1
    with pytest.raises(StatementSyntaxError, match="nested more than 50 levels deep"):
        parse(nested(MAX_NESTING + 1))


@pytest.mark.parametrize(
    "text",
    [
        "".join(f'drop feed "{"n" * 80}{number}" cascade;\n' for number in range(100_000)),
        WHERE + "a in (" + ", ".join(["'" + "x" * 90 + "'"] * 100_000) + ")",
        "show feeds; " + "-- a comment\n" * 800_000,
        "\n" * 10_000_000,
        "create feed A from B -- '\n" * 400_000,
    ],
    ids=["statements", "list", "comments", "blank lines", "an error"],
)
def test_ten_megabytes_take_linear_time(text: str) -> None:
    assert len(text) > 9_000_000
    started = time.process_time()
    outcome(text)
    assert time.process_time() - started < 30  # counting lines from the start for every span would take minutes
