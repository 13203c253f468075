"""Graph patterns in the language: parsing, printing and error messages."""

from __future__ import annotations

import pyoxigraph
import pytest
from hypothesis import given, settings
from tests.unit.language.generated_graph_patterns import graph_patterns

from runnel.algebra.graphs.edges import MAX_EDGES, MAX_VARIABLES, AllOf, AnyOf, Comparison, Complement, Edge
from runnel.algebra.graphs.graph_patterns import Graph
from runnel.algebra.graphs.graph_solutions import solve
from runnel.algebra.nodes.calls import Variable
from runnel.algebra.nodes.expressions import And, Not
from runnel.algebra.nodes.item_patterns import is_local
from runnel.errors import InvalidConditionError, Span, StatementError, StatementSyntaxError, UnknownNameError
from runnel.language.binding.bind_query import bind_query
from runnel.language.binding.expand_prefixes import expand_prefixes
from runnel.language.grammar.parser import parse
from runnel.language.graphs.iri_prefixes import PREDEFINED_PREFIXES
from runnel.language.graphs.read_graph import read_graph
from runnel.language.syntax.script_tokens import BLOCK, TOKEN, Token
from runnel.language.syntax.statements import CreateFeed
from runnel.model.graph import read_ntriples

XSD = "http://www.w3.org/2001/XMLSchema#"
PREFIX = "prefix ex: <http://muse.example/>"


def read(block: str) -> Graph:
    """Parse the content of a block."""
    (parsed,) = parse(f"create feed F from A where graph {{ {block} }};")
    assert isinstance(parsed.statement, CreateFeed)
    expression = (
        expand_prefixes(parsed.statement.query, lambda: {"ex": "http://muse.example/"}).conditions[0].expression
    )
    assert isinstance(expression, Graph)
    return expression


def refused(condition: str) -> StatementError:
    text = f"create feed F from A where {condition};"
    with pytest.raises(StatementError) as error:
        parse(text)
    assert error.value.text == text
    assert error.value.span is not None
    return error.value


def ex(name: str) -> str:
    return f"<http://muse.example/{name}>"


def number(text: str, kind: str = "integer") -> str:
    return f'"{text}"^^<{XSD}{kind}>'


def test_example_of_the_paper() -> None:
    # Section 1: pages of projects that ProfA supervises, in a range of years.
    batches = read(
        "?page ex:project ex:RSSFilter . ex:RSSFilter ex:supervisor ex:ProfA ; ex:year ?x . "
        "filter(?x > 2003 and ?x != 2010)"
    )
    page, x = Variable("page"), Variable("x")
    assert batches.edges == (
        Edge(page, ex("project"), ex("RSSFilter")),
        Edge(ex("RSSFilter"), ex("supervisor"), ex("ProfA")),
        Edge(ex("RSSFilter"), ex("year"), x),
    )
    assert batches.filter == AllOf((Comparison(x, ">", number("2003")), Comparison(x, "!=", number("2010"))))


@pytest.mark.parametrize(
    ("written", "term"),
    [
        ("5", number("5")),
        ("-05", number("-05")),
        ("+5.50", number("+5.50", "decimal")),
        (".5", number(".5", "decimal")),
        ("1e3", number("1e3", "double")),
        ("2.5E-1", number("2.5E-1", "double")),
        ("true", number("true", "boolean")),
        ("FALSE", number("false", "boolean")),
        ("'it\\'s'", '"it\'s"'),
        ('"say \\"hi\\" \\\\ \\t \\u00e9\\U0001f3b8"', '"say \\"hi\\" \\\\ \\t é🎸"'),
        ("'a\\nb'", '"a\\nb"'),
        ("''", '""'),
        ("'Chat'@FR-be", '"Chat"@fr-be'),
        (f"'x'^^<{XSD}string>", '"x"'),
        ("'x' ^^ xsd:string", '"x"'),
        ("'2026-11-15'^^xsd:date", f'"2026-11-15"^^<{XSD}date>'),
        ("'5'^^ex:grade", f'"5"^^{ex("grade")}'),
        ("<urn:caf\\u00e9>", "<urn:café>"),
        ("ex:", ex("")),
        ("ex:a.b-c_d:e%2Fé", ex("a.b-c_d:e%2Fé")),
        ("foaf:Person", "<http://xmlns.com/foaf/0.1/Person>"),
        ("?a", Variable("a")),
        ("_:a.b", Variable("_:a.b")),
        ("[]", Variable("_:anonymous1")),
    ],
)
def test_objects_of_edges(written: str, term: str | Variable) -> None:
    for block in (f"?x ex:p {written}", f"?x ex:p {written}.", f"{PREFIX}?x ex:p {written};."):
        assert [edge.object for edge in read(block).edges] == [term]


@pytest.mark.parametrize(
    ("block", "edges"),
    [
        ("?x a ex:Page", [("?x", "rdf:type", "ex:Page")]),
        ("ex:a ?p ex:b.ex:c?p ex:d", [("ex:a", "?p", "ex:b.ex:c"), ("?p", "ex:d", "")]),
        ("?x ex:p ?y.?y ex:q ?z.", [("?x", "ex:p", "?y"), ("?y", "ex:q", "?z")]),
        ("?x ex:p ?y, ?z ; a ?k ;; ex:q 1", [("?x", "ex:p", o) for o in ("?y", "?z")] + [("?x", "rdf:type", "?k")]),
        ("prefix foaf: <urn:f#> ?x foaf:p ?y . prefix foaf: <urn:g#> ?x foaf:p ?y", []),
    ],
)
def test_separators_of_edges(block: str, edges: list[tuple[str, str, str]]) -> None:
    if edges and edges[-1][2] == "":
        assert refused(f"graph {{ {block} }}")  # a name may hold dots, as in SPARQL
        return
    results = read(block).edges
    if not edges:
        assert [edge.label for edge in results] == ["<urn:f#p>", "<urn:g#p>"]
    for edge, (subject, label, object) in zip(results, edges, strict=False):
        shown = [f"?{node.name}" if isinstance(node, Variable) else node for node in edge.nodes]
        full = {"rdf:type": f"<{PREDEFINED_PREFIXES['rdf']}type>"}
        wanted = [
            ex(text[3:]) if text.startswith("ex:") else full.get(text, text) for text in (subject, label, object)
        ]
        assert shown == wanted


X, Y = Variable("x"), Variable("y")
LOW, HIGH = Comparison(Y, ">", number("1")), Comparison(Y, "<", number("9"))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("?y > 1", LOW),
        ("1 < ?y", LOW),
        ("?y>1&&?y<9", AllOf((LOW, HIGH))),
        ("?y > 1 AND ?y < 9 or ?x = ?y", AnyOf((AllOf((LOW, HIGH)), Comparison(X, "=", Y)))),
        ("?y > 1 && (?y < 9 || ?x = ?y)", AllOf((LOW, AnyOf((HIGH, Comparison(X, "=", Y)))))),
        ("(?y > 1 and (?y < 9))", AllOf((LOW, HIGH))),
        ("not ?y > 1", Complement(LOW)),
        ("not not ?y > 1", Complement(Complement(LOW))),
        ("!(?y > 1) and ?y < 9", AllOf((Complement(LOW), HIGH))),
        ("?y <> 1", Comparison(Y, "!=", number("1"))),
        ("?y in (1)", Comparison(Y, "=", number("1"))),
        ("?y in (1, ex:a, 1)", AnyOf((Comparison(Y, "=", number("1")), Comparison(Y, "=", ex("a"))))),
        ("?y not in (1, ?x)", AllOf((Comparison(Y, "!=", number("1")), Comparison(Y, "!=", X)))),
        ("?x<?y and ?y>'b'", AllOf((Comparison(X, "<", Y), Comparison(Y, ">", '"b"')))),
        ("?x=<urn:a>", Comparison(X, "=", "<urn:a>")),
    ],
)
def test_filters_are_parsed(written: str, meant: object) -> None:
    for block in (
        f"?x ex:p ?y filter({written})",
        f"filter ( {written} ) . ?x ex:p ?y",
        f"?x ex:p ?y;filter({written}).",
    ):
        assert read(block).filter == meant


def test_several_filters_are_joined() -> None:
    assert read("?x ex:p ?y filter(?y > 1) filter(?y < 9)").filter == AllOf((LOW, HIGH))
    assert read("filter(?y > 1) ?x ex:p ?y . filter(?y < 9 or ?y > 1)").filter == AllOf((LOW, AnyOf((HIGH, LOW))))


def test_comments_are_skipped_and_keywords_ignore_case() -> None:
    batches = read("?x -- the page; 'a }\n ex:p -- {\n <urn:a--b> . FILTER(?x != 2) -- done\n")
    assert batches.edges == (Edge(X, ex("p"), "<urn:a--b>"),)
    (parsed,) = parse("create feed F from A where not GRAPH--\n{?x a ?y} and $a[graph{?x a ?y}] and title = 'x'")
    assert isinstance(parsed.statement, CreateFeed)
    scoped, plain = parsed.statement.query.conditions
    assert isinstance(scoped.expression, Graph)
    assert isinstance(plain.expression, And)
    assert isinstance(plain.expression.parts[0], Not)


def test_spans_point_into_the_block() -> None:
    (parsed,) = parse("create feed F from A where\n  graph { ?x a\n   ?y ; ex:p _:z\n . filter(?y > 1) }")
    assert isinstance(parsed.statement, CreateFeed)
    expression = parsed.statement.query.conditions[0].expression
    assert isinstance(expression, Graph)
    assert expression.span == Span(2, 3, 8)
    spans = [node.span for edge in expression.edges for node in edge.nodes if isinstance(node, Variable)]
    assert spans == [Span(2, 11, 13), Span(3, 4, 6), Span(2, 11, 13), Span(3, 14, 17)]
    assert isinstance(expression.filter, Comparison)
    assert isinstance(expression.filter.left, Variable)
    assert expression.filter.left.span == Span(4, 11, 13)


@settings(deadline=None, max_examples=150)
@given(graph_patterns)
def test_printed_pattern_parses_to_the_same_pattern(graph: Graph) -> None:
    printed = graph.render()
    match = TOKEN.fullmatch(printed)
    assert match is not None
    assert match.lastgroup == BLOCK
    assert read_graph(Token(printed)) == graph
    (parsed,) = parse(f"create feed F from A where {printed};")
    assert isinstance(parsed.statement, CreateFeed)
    assert parsed.statement.query.conditions[0].expression == graph


DATA = """
<http://muse.example/a> <http://muse.example/p> <http://muse.example/b> .
<http://muse.example/b> <http://muse.example/p> <http://muse.example/a> .
<http://muse.example/a> <http://muse.example/year> "2003"^^<http://www.w3.org/2001/XMLSchema#integer> .
<http://muse.example/b> <http://muse.example/year> "2007.5"^^<http://www.w3.org/2001/XMLSchema#decimal> .
<http://muse.example/b> <http://muse.example/year> "soon" .
<http://muse.example/a> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://muse.example/Page> .
<http://muse.example/a> <http://muse.example/title> "it's \\"Rock\\"\\n" .
<http://muse.example/b> <http://muse.example/title> "Chat"@fr .
_:n <http://muse.example/p> "true"^^<http://www.w3.org/2001/XMLSchema#boolean> .
_:n <http://muse.example/title> "Chat" .
"""


@pytest.mark.parametrize(
    "block",
    [
        "?x ex:p ?y . ?y ex:p ?x",
        "?x ex:p ?y ; ex:year ?n . filter(?n >= 2003 && ?n < 2007.5)",
        "?x ex:year ?n . filter(!(?n = 2003))",
        '?x ex:year ?n . filter(?n not in (2003, "soon"))',
        "?x ex:year ?n . filter(?n IN (2003.0, 'soon') || ?n > 1e3)",
        "?x ex:year ?n filter(?n = 2003) ?x a ex:Page .",
        "?x ex:title 'it\\'s \"Rock\"\\n'",
        "?x ex:title 'Chat'@fr, ?t ; ex:p [], ?y .",
        "_:x ex:title ?t ; ex:p true",
        "?x ?label ?y . ?y ?label ?x . filter(?x != ex:a)",
        "ex:a ex:year 2003 . ?z ex:p ex:b",
        '<http://muse.example/a> ex:title "it\'s \\"Rock\\"\\u000A" . ?x a ?kind',
        "?x ex:year ?n . ?y ex:year ?m . filter(?n < ?m)",
    ],
)
def test_blocks_have_the_same_solutions_as_in_sparql(block: str) -> None:
    store = pyoxigraph.Store()
    store.load(DATA.encode(), pyoxigraph.RdfFormat.N_TRIPLES)
    asked = store.query(f"{PREFIX} select * where {{ {block} }}")
    assert isinstance(asked, pyoxigraph.QuerySolutions)
    names = [variable.value for variable in asked.variables]
    theirs = [{name: _shown(str(value[name])) for name in names} for value in asked]
    pattern = read(block)
    ours = [
        {name: _shown(term) for name, term in entry.items() if not is_local(name)}
        for entry in solve(pattern, read_ntriples(DATA).triples())
    ]
    assert ours
    assert _sorted(ours) == _sorted(theirs)


def _shown(term: str) -> str:
    return "_:n" if term.startswith("_:") else term


def _sorted(solutions: list[dict[str, str]]) -> list[list[tuple[str, str]]]:
    return sorted(sorted(solution.items()) for solution in solutions)


@pytest.mark.parametrize(
    ("condition", "at", "message", "hint"),
    [
        ("graph { }", "} }", "at least one edge", "a subject, a label and an object"),
        ("graph { filter(?x > 3) }", "} }", "at least one edge", ""),
        ("graph { ?x a ?y . filter(?yy > 3) }", "?yy", "no edge of this block has ?yy", "did you mean ?y?"),
        ("graph { 5 ex:p ?y }", "5", "a literal cannot be a subject", "only objects"),
        ("graph { ?x 'p' ?y }", "'p'", "a literal cannot be a label", "only objects"),
        ("graph { true a ?y }", "true", "cannot begin with true", ""),
        ("graph { ?x _:p ?y }", "_:p", "a blank node cannot be a label", "?p"),
        ("graph { ?x a _:y . filter(_:y = 3) }", "_:y = 3", "cannot be compared", "?y"),
        ("graph { ?x [] ?y }", "[]", "a blank node cannot be a label", "?label"),
        (
            "graph { ?x a ?y . optional { ?x ex:p ?z } }",
            "optional",
            "not supported in graph { … }: optional",
            "remove it",
        ),
        ("graph { ?x a ?y . minus { ?x ex:p ?z } }", "minus", "not supported", "and not graph"),
        ("graph { { ?x a ?y } union { ?x a ?z } }", "{ ?x a ?y }", "groups in braces", "or graph"),
        ("graph { ?x a ?y union }", "union", "not supported in graph { … }: union", "or graph"),
        ("graph { select ?x }", "select", "not supported in graph { … }: select", "edges"),
        ("graph { base <urn:a> ?x a ?y }", "base", "not supported in graph { … }: base", "prefix"),
        ("graph { ?x a ?y filter(regex(?y, 'a')) }", "regex", "functions such as regex(…)", "compare variables"),
        ("graph { ?x a ?y filter bound(?y) }", "bound", "functions such as bound(…)", ""),
        ("graph { ?x a ?y filter(xsd:int(?y) = 3) }", "xsd:int", "functions", ""),
        ("graph { ?x a ?y filter not exists { ?x a 3 } }", "not", "not exists", "and not graph"),
        ("graph { ?x a ?y filter(?y + 1 = 3) }", "+ 1", "calculations", ""),
        ("graph { ?x ex:p/ex:q ?y }", "/", "property paths", "a separate edge"),
        ("graph { ?x ^ex:p ?y }", "^", "property paths", ""),
        ("graph { ?x ex:p* ?y }", "*", "property paths", ""),
        ("graph { ?x (ex:p) ?y }", "(", "property paths", ""),
        ("graph { ?x ex:p (1 2) }", "(1", "lists", "rdf:first"),
        ("graph { ?x ex:p [ ex:q 1 ] }", "[ ex", "edges in brackets", "_:x"),
        ("graph { ?x <p> ?y }", "<p>", "<p> is not an absolute IRI", "prefix"),
        ("graph { ?x <urn:a b> ?y }", "<urn", "expected a label", "without spaces"),
        ("graph { ?x <urn:a\\u0020b> ?y }", "<urn", "it contains whitespace", ""),
        ("graph { prefix ex: <terms#> ?x ex:p ?y }", "<terms#>", "not an absolute IRI", ""),
        ("graph { prefix ex <urn:a> ?x ex:p ?y }", "ex <", "a prefix with its colon", "prefix ex:"),
        ("graph { ?x :p ?y }", ":p", "the empty prefix", "prefix : <"),
        ("graph { ?x a ?y ?z a ?y }", "?z", "expected `.`, `;`, `,` or `}` but found `?z`", "a dot missing"),
        ("graph { ?x a ?y and ?z a ?y }", "and", "expected `.`", "separate edges with a dot"),
        ("graph { ?x a 'it''s' }", "'s'", "expected `.`", "\\'"),
        ('graph { ?x a """long""" }', '"long"', "expected `.`", "one pair"),
        ("graph { ?x a 'open }", "'open", "no closing quote", "\\'"),
        ("graph { ?x a 'a\\qb' }", "\\q", "\\q is not a valid escape", "\\\\"),
        ("graph { ?x a '\\ud800' }", "'\\u", "not a valid Unicode escape", ""),
        ("graph { ?x a 'x'^^rdf:langString }", "'x'", "requires a language tag", ""),
        ("graph { ?x a 'x'^^?y }", "?y", "expected a type", ""),
        ("graph { ?x a }", "} }"[0], "expected an object", ""),
        ("graph { ?x }", "}", "expected a label", ""),
        ("graph { ?x year ?y }", "year", "expected a label", "have a prefix"),
        ("graph { ?x a year }", "year", "expected an object", "?year"),
        ("graph { $x a ?y }", "$", "expected a subject", "?x"),
        ("graph { ?x a ?y # comment\n }", "#", "expected `.`", "--"),
        ("graph { ?x a ?y . fliter(?y = 1) }", "fliter", "expected an edge", "did you mean filter?"),
        ("graph { ?x a ?y . filter ?y = 1 }", "?y = 1", "expected `(`", "filter(?x"),
        ("graph { ?x a ?y . filter(?y) }", ") }", "expected a comparison", ""),
        ("graph { ?x a ?y . filter(?y == 1) }", "= 1", "expected a comparison", "= once"),
        ("graph { ?x a ?y . filter(?y between 1 and 2) }", "between", "expected a comparison", "?x >= 2003"),
        ("graph { ?x a ?y . filter(!?y = 1) }", "?y = 1", "after `!`", "parentheses"),
        ("graph { ?x a ?y . filter(?y = 1 }", "} }"[0], "expected `and`, `or` or `)`", "column 52 is not closed"),
        ("graph { ?x a ?y . filter(?y in 1) }", "1)", "expected `(`", "?x in (2003"),
        ("graph { ?x a ?y . filter(?y in ()) }", "))", "a variable or a constant", ""),
        ("graph { ?x a ?y . filter(1 = 2) }", "1 = 2", "a comparison of two constants", ""),
        ("graph { ?x a ?y .. }", ". }", "expected a subject", ""),
        ("graph { ?x a ?y . graph { ?x a 3 } }", "graph { ?x a 3", "not supported", "one graph"),
        ("graph", "graph", "expected a condition", "in braces"),
        ("graph exists", "graph", "expected a condition", '"graph"'),
        ("grpah { ?x a ?y }", "{", "but found `{`", "braces"),
        ("title contains graph { ?x a ?y }", "graph", "a text in single quotes", "a complete condition"),
        ("graph { ?x a ?y } graph { ?x a ?z }", "graph { ?x a ?z", "expected `and`", "`and`"),
        ("graph { ?x a 'a\0b' }", "\0", "NUL", ""),
    ],
)
def test_mistakes_are_rejected_with_span_and_hint(condition: str, at: str, message: str, hint: str) -> None:
    problem = refused(condition)
    text = problem.text or ""
    assert message in problem.message, problem.message
    assert hint in (problem.hint or ""), problem.hint
    assert problem.span is not None
    where = at if at in text else at[0]
    line = text.split("\n")[problem.span.line - 1]
    assert line[problem.span.column - 1 :].startswith(where[:1]), (line, problem.span)
    assert isinstance(problem, StatementSyntaxError | InvalidConditionError | UnknownNameError)


@pytest.mark.parametrize(
    "rest", ["", " ;\nshow feeds;", " ; -- }", " . optional { ?x a ?z }", " 'a;b'", " ;\n drop feed B"]
)
def test_unclosed_block_is_reported(rest: str) -> None:
    text = f"show feeds;\ncreate feed F from A where graph {{ ?x a ?y{rest};\nshow feeds;"
    with pytest.raises(StatementError) as error:
        parse(text)
    assert error.value.span is not None
    assert error.value.span.line >= 2
    assert "the { at line 2, column 34 is not closed" in (error.value.hint or "") or "optional" in rest


def test_limits_on_edges_and_variables() -> None:
    edges = " . ".join(f"?x ex:p {n}" for n in range(MAX_EDGES))
    assert len(read(edges).edges) == MAX_EDGES
    assert "at most 64 edges" in refused(f"graph {{ {edges} . ?x a 1 }}").message
    variables = " . ".join(f"?v{n} ex:p 1" for n in range(MAX_VARIABLES))
    assert len(read(variables).edges) == MAX_VARIABLES
    assert "at most 32 variables" in refused(f"graph {{ {variables} . [] a 1 }}").message
    assert "at most" in refused(f"graph {{ ?{'v' * 500} a 1 }}").message


def test_limits_on_nesting() -> None:
    deep = "(" * 50 + "?x = 1" + ")" * 50
    assert read(f"?x a ?y filter({deep})").filter == Comparison(X, "=", number("1"))
    assert "levels deep" in refused(f"graph {{ ?x a ?y filter(({deep})) }}").message
    assert "levels deep" in refused(f"graph {{ ?x a ?y filter({'not ' * 51} ?x = 1) }}").message
    grown = "?x = 1"
    for _ in range(26):  # as printed `a and (…) or b` has two pairs of parentheses for each of these
        grown = f"?y = 2 and ({grown}) or ?y = 3"
    assert "levels deep" in refused(f"graph {{ ?x a ?y filter({grown}) }}").message


@pytest.mark.parametrize(
    "text",
    [
        "graph {" * 20_000,
        "graph { ?x a 'a" * 20_000,
        "graph { ?x a " + "'\\" * 50_000,
        "graph { ?x a <" + "<a" * 50_000,
        "graph { ?x a ex:" + "." * 100_000,
        "graph { ?x a ?y " + "-- }\n" * 50_000,
        "graph { ?x a ?y filter(" + "(" * 50_000,
        "graph { ?x a ?y filter(" + "not " * 50_000,
        "graph { ?x a ?y filter(" + "!" * 50_000,
        "graph { ?x a ?y ;" + ";" * 50_000,
        "graph " + "-- \n" * 50_000,
        "{" * 50_000,
        "graph {" + "{}" * 50_000 + "}",
        "graph { ?x a " + "1, " * 50_000,
    ],
)
def test_hostile_blocks_are_rejected(text: str) -> None:
    with pytest.raises(StatementError):
        parse(f"create feed F from A where {text};")
    with pytest.raises(StatementError):
        parse("show feeds;" * 60 + f"create feed F from A where {text};")


def test_unknown_prefixes_are_rejected_when_prefixes_are_expanded() -> None:
    (parsed,) = parse("create feed F from A where x = 1 and (y = 2 or not graph { ?x rdfs:label 'a'^^exx:t })")
    assert isinstance(parsed.statement, CreateFeed)
    query = parsed.statement.query
    with pytest.raises(UnknownNameError, match="there is no prefix exx:") as error:
        bind_query(query, {"A": 1}.get, list)
    assert error.value.span == Span(1, 79, 84)
    assert "prefix exx: <" in (error.value.hint or "")
    with pytest.raises(UnknownNameError) as error:
        expand_prefixes(query, lambda: {"exy": "urn:", "other": "urn:"})
    assert error.value.hint == "did you mean exy?"
    written = expand_prefixes(query, lambda: {"exx": "urn:t#"})
    assert "^^<urn:t#t>" in str(written)
    assert expand_prefixes(written) is written
