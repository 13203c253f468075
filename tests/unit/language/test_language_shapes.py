"""The fast way to read many statements: the same statements, places and errors as the plain parser, on anything."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.language.test_language_printing import golden_pairs, statements

from runnel.algebra.graphs.edges import comparisons
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.nodes.calls import Call, Variable, variables_of
from runnel.algebra.nodes.render import RESERVED
from runnel.algebra.semantics.close_conditions import leaves
from runnel.errors import Span, StatementError
from runnel.language.binding.result_types import parts_of
from runnel.language.grammar.parser import parse, parse_plainly, parse_shapes
from runnel.language.printing import print_statement
from runnel.language.syntax.iri_prefixes import PrefixedName
from runnel.language.syntax.statements import CreateFeed, Parsed
from runnel.model.item import MAX_NAME


def same(text: str, *, must_be_read: bool = False) -> list[Parsed] | None:
    """Both ways say the same of a text, to the last place; gives what the fast one found."""
    fast = parse_shapes(text)
    try:
        plain = parse_plainly(text)
    except StatementError:
        plain = None
    if plain is None:
        assert fast is None, "read although it is refused"
    if fast is not None:
        assert fast == plain
        assert repr(fast) == repr(plain), "places or types differ"
        assert operator_places(fast) == operator_places(plain or []), "calls or variables stand elsewhere"
    assert fast is not None or not must_be_read
    return fast


def operator_places(script: list[Parsed]) -> list[Span | None]:
    """Where calls, variables and graph patterns stand, which no comparison looks at."""
    found: list[Span | None] = []
    for one in script:
        if isinstance(one.statement, CreateFeed):
            for condition in one.statement.query.conditions:
                for part in parts_of(condition.expression, with_negated=True):
                    found += [part.place] if isinstance(part, Call) else []
                    found += [variable.place for variable in variables_of(part)]
                for leaf in leaves(condition.expression):
                    found += graph_places(leaf) if isinstance(leaf, Graph) else []
    return found


def graph_places(graph: Graph) -> list[Span | None]:
    nodes = [node for edge in graph.edges for node in edge.nodes]
    nodes += [node for one in comparisons(graph.filter) for node in (one.left, one.right)]
    return [graph.place, *(node.place for node in nodes if isinstance(node, Variable | PrefixedName))]


def told(text: str) -> tuple[object, ...]:
    try:
        return (repr(parse(text)),)
    except StatementError as error:
        return type(error), error.message, error.hint, error.span, error.text


def told_plainly(text: str) -> tuple[object, ...]:
    try:
        return (repr(parse_plainly(text)),)
    except StatementError as error:
        return type(error), error.message, error.hint, error.span, error.text


BLANKS = ["\n", " ", "\r\n\t", "\ufeff", "\u200b", " -- a comment; with 'quotes\n", "--\n", "\u2003"]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(statements, st.sampled_from(BLANKS)), min_size=1, max_size=6))
def test_statements_of_every_kind_are_read_as_the_parser_reads_them(script: list[tuple[object, str]]) -> None:
    text = "".join(blank + print_statement(one) for one, blank in script)  # type: ignore[arg-type]
    assert same(text, must_be_read=True) is not None


@pytest.mark.parametrize("written", [one for one, _ in golden_pairs()])
def test_golden_statements_in_a_script(written: str) -> None:
    text = written if written.rstrip().endswith(";") else f"{written}\n;"
    assert same(f"show feeds;\n{text}\n  show\nfeeds;", must_be_read=True)


PIECES = [
    *(
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
    ),
    *("a", "Wire", "contains", "between", "exists", "date", "now", "days", "ago", "5", "5.", ".5", "+5", "1e3", "0x"),
    *(
        "'x'",
        "'it''s'",
        "''",
        '"n"',
        '"',
        "'",
        "$v",
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
    ),
    *("--c\n", ";", ";;", "é", "naïve", "createé", "A" * (MAX_NAME + 1), "\ufeff", "\n", "every", "FROM", "tagged"),
    *(
        "graph",
        "graph {",
        "{",
        "}",
        "graph { ?x ?y ?z }",
        "graph{?x a 'it\\'s;'}",
        "GRAPH -- {\n{ _:x <urn:it's--> 5 . }",
    ),
    *("filter(?x > 5)", "optional {", "<urn:a>", "ex:a", "?x ex:a ?y .", "&&"),
    *("f(", "f(true)", "g()", "?x", "?", "?x > 5", "* 2", "/", "+", "?x-2", "register operator", "cost", "40", "ms"),
]


@settings(deadline=None, max_examples=150)
@given(st.lists(statements, min_size=1, max_size=3), st.integers(0), st.lists(st.sampled_from(PIECES), max_size=3))
def test_damaged_scripts_are_refused_in_the_same_words(script: list[object], seed: int, pieces: list[str]) -> None:
    text = "\n".join(map(print_statement, script))  # type: ignore[arg-type]
    chance = random.Random(seed)
    for piece in pieces:
        at = chance.randrange(len(text) + 1)
        text = text[:at] + f" {piece} " + text[at + chance.randrange(4) :]
    same(text)
    assert told(text) == told_plainly(text)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=14))
@example(["create", "feed", "a", "from", "a", "where", "a", ".5", ";"])
@example(["create", "feed", "a", "from", "a", "where", "a", "=", "5.", "days", "ago", ";"])
@example(["create", "feed", "where", "from", "a", ";"])
def test_what_is_thrown_together_means_the_same(pieces: list[str]) -> None:
    for text in (" ".join(pieces), "".join(pieces), " ".join(["show feeds;", *pieces, ";"])):
        same(text)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.sampled_from([*sorted(RESERVED), "a", "feeds", "show", "Day", "days", "ago"]), min_size=2, max_size=2)
)
def test_words_are_special_only_where_the_grammar_expects_them(words: list[str]) -> None:
    """Statements of one outline after the other: a name that is also a keyword is another shape, or the same."""
    text = "".join(
        f"create feed {one} from {two} where {two} = 5 and {one} contains '{one}';\n"
        for one in words
        for two in words
    )
    same(text)
    for one in words:
        for two in words:
            same(f"create feed {one} from {two} where {two} = 5 and {one} contains '{one}';")


def test_one_bad_statement_among_many_is_found_at_its_place() -> None:
    good = "".join(f"create feed Q{n} from News where title contains 'w{n}' and n > {n};\n" for n in range(200))
    for bad in (
        "create feed Q form News;",
        "create feed R from News where n between 5 and 2;",
        "drop",
        "explain feed A",
    ):
        text = f"{good}{bad}\n"
        with pytest.raises(StatementError) as refused:
            parse(text)
        assert refused.value.span is not None
        assert refused.value.span.line == 201
        assert told(text) == told_plainly(text)


def test_many_statements_of_one_shape_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"create feed Q{n} from News where title contains 'w{n}' and n > {n};\n" for n in range(300))
    expected = parse_plainly(text)
    monkeypatch.setattr("runnel.language.grammar.parser.parse_plainly", lambda text: pytest.fail("read plainly"))
    found = parse(text)
    assert found == expected
    first, last = found[0].statement, found[-1].statement
    assert isinstance(first, CreateFeed)
    assert isinstance(last, CreateFeed)
    assert (last.name.text, last.name.span.line, last.name.span.column) == ("Q299", 300, 13)


def test_operators_are_read_by_outline_with_their_places() -> None:
    text = "".join(
        f"create feed Q{n} from News where title contains 'w{n}' and not (near('p{n}', ?x) and ?x + 1 < {n}.5)\n"
        f"  and (n > {n} or f{n}(true, title)) and ?y in ('a', 'b{n}') and g(?y);\n"
        for n in range(200)
    )
    found = same(text, must_be_read=True)
    assert found is not None
    places = operator_places(found[-1:])
    assert len(places) == len([place for place in places if place is not None]) == 8
    assert {place.line for place in places if place is not None} == {399, 400}


def test_graph_patterns_are_read_by_outline_with_their_places() -> None:
    text = "".join(
        f"create feed Q{n} from News where title contains 'w{n}' and graph {{ ?x ex:p{n} {n} ;\n"
        " rdf:value 'it\\'s;' .\n"
        f' filter(?x != <urn:a;b--{n}>) -- ; not \'\n }} and not (n > {n} or graph {{ ex:a ?y "}}" }});\n'
        for n in range(200)
    )
    found = same(text, must_be_read=True)
    assert found is not None
    places = operator_places(found[-1:])
    assert {place.line for place in places if place is not None} == {797, 799, 800}
    assert None not in places


@pytest.mark.parametrize(
    "condition",
    ["f(true) and true", "(f(true))", "?x = true or f(?x)", "not f(true)", "f(true, ?x) and (true and ?x = false)"],
)
def test_truth_values_as_arguments_are_no_conditions(condition: str) -> None:
    known = "create feed A from B where true; create feed A from B where (true) and a = true;\n"
    assert same(f"{known}create feed A from B where {condition};\n" * 2, must_be_read=True)


def test_a_script_without_common_shapes_goes_to_the_plain_parser() -> None:
    lines = []
    for n in range(1000):  # the bits of n say how each of ten atoms is written
        atoms = (f"a contains '{bit}'" if n >> bit & 1 else f"not a = {bit}" for bit in range(10))
        lines.append(f"create feed Q{n} from News where {' and '.join(atoms)};")
    text = "\n".join(lines)
    assert parse_shapes(text) is None
    assert parse(text) == parse_plainly(text)
