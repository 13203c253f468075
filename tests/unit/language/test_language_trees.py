"""Tree patterns in the language: spans and hints of refusals, names, prefixes and limits."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.algebra.nodes.expressions import Not
from runnel.algebra.trees.steps import Complement, NameTest, Step
from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.errors import InvalidConditionError, StatementError, UnknownNameError
from runnel.language.binding.bind_query import bind_query
from runnel.language.binding.expand_prefixes import expand_prefixes
from runnel.language.grammar.parser import parse
from runnel.language.printing import print_statement
from runnel.language.syntax.parameters import Parameters
from runnel.language.syntax.statements import CreateFeed

BEFORE = "create feed F from A where "


def statement(text: str) -> CreateFeed:
    (parsed,) = parse(f"{BEFORE}{text};")
    return cast(CreateFeed, parsed.statement)


def pattern(text: str) -> TreePattern:
    return cast(TreePattern, statement(text).query.conditions[0].expression)


def names(text: str) -> list[NameTest]:
    tests: list[NameTest] = []
    condition = pattern(text).condition
    while isinstance(condition, Step):
        tests.append(condition.test)
        condition = cast(Step, condition.condition)
    return tests


# The refused token is between « and ».
REFUSALS = [
    ("tree //a[«1»]", "positions are not supported; compare the value of a node: [/rank = 1]"),
    ("tree //a/text«(»)", "write [. = 'ACME'] to compare the text of a node, and !val to bind it"),
    ("tree //a[«text»() = 'x']", "write [. = 'ACME'] to compare the text of a node, and !val to bind it"),
    ("tree //a[«b» = 'x']", "write [/b …] for a child, or [//b …] for any node below"),
    ("tree //a[/c and «b»]", "write [/b …] for a child, or [//b …] for any node below"),
    ("tree //a[«@»b = 'x']", "write a slash before an attribute: [/@id = 'x']"),
    ("tree //a[«contains»(., 'x')]", "functions are not supported; write a comparison such as"),
    ("tree //a[«count»(/b) > 2]", "functions are not supported; write a comparison such as"),
    ("tree //a[«]»", "write a condition in the brackets"),
    ("tree //a/following-sibling«:»:b", "the only axes are / and //"),
    ("tree //a/«.».", "steps lead only to nodes below"),
    ("tree //a «|» //b", "write two conditions: tree … or tree …"),
    ("tree //a «=» 'x'", "compare a node inside brackets: //company[. = 'ACME']"),
    ("tree //a «contains» 'x'", "compare a node inside brackets"),
    ("tree //a!«foo»", "write !val for the text of a node, !cont for its XML or JSON, or !id for its position"),
    ("tree //a[/b]«!»val", "marks follow the name of a step"),
    ("tree //«{»urn:x}a", "write a namespace in double quotes"),
    ("tree //a!val as «$»x", "variables begin with ?"),
    ("tree «of» content //a", "conditions read the trees of the attribute tree"),
    ("tree «exists»", 'write the attribute in double quotes: "tree" exists'),
    ("tree «=» 'x'", 'write the attribute in double quotes: "tree" exists'),
    ("tree «news»", "begin with / for the root or // for any node: tree //news"),
    ("tree //a[«.» ]", None),
    ("tree //a[/b «=» ]", None),
]


@pytest.mark.parametrize(("marked", "hint"), REFUSALS)
def test_syntax_errors_point_to_the_token_and_have_a_hint(marked: str, hint: str | None) -> None:
    text = marked.replace("«", "").replace("»", "")
    with pytest.raises(StatementError) as refused:
        statement(text)
    assert refused.value.span is not None
    if hint is not None:
        assert refused.value.span.column == 1 + len(BEFORE) + marked.index("«")
        assert str(refused.value.hint).startswith(hint)


INVALID = [
    ("tree «/»@x", "a document has no attributes", "write /*/@name, or //@name for any element"),
    ("tree //@x«/»y", "attributes contain no nodes", "end the path here"),
    ("tree //@x[«/»y]", "attributes contain no nodes", "end the path here"),
    ("tree //@x«!»cont", "attributes have no content", "write !val"),
    ("tree «//»*!val", "cannot be the name of a variable", "name the variable: !val as ?value"),
    ("tree «//»a-b!val", "cannot be the name of a variable", "name the variable: !val as ?value"),
    ("tree «//»a!val[/a!id]", "two marks bind ?a", "name one of them: !val as ?other"),
    ("tree //a[not /b«!»val]", "steps under `not` bind no variables", "remove the mark"),
    ("tree //a[/c or /b«!»val]", "steps under `or` bind no variables", "remove the mark"),
    ("tree //a[«/»b!val or /c]", "steps under `or` bind no variables", "remove the mark"),
    ("tree //a[/b!val «!=» 3]", "binds no variables", "compare the node: [/qty!val[. != 5]]"),
    ("tree [«.» = 'x']", "a document has no value", "compare its root"),
    ("tree //a[/b = «now»]", "cannot be compared with relative times", "write a date as"),
    ("tree //a[. > «true»]", "truth values have no order", "compare them with = or !="),
    ("tree //a[. between «5» and 3]", "the lower bound of between is above", "swap the two bounds"),
    ("tree //a[. matches '«(»']", "invalid regular expression", "the syntax is that of RE2"),
    ('tree //«"{urn:x}"»', "must be followed by a name", 'write "{http://muse.example/}news"'),
]


@pytest.mark.parametrize(("marked", "message", "hint"), INVALID)
def test_invalid_patterns_are_refused_with_span_and_hint(marked: str, message: str, hint: str) -> None:
    with pytest.raises(StatementError) as refused:
        statement(marked.replace("«", "").replace("»", ""))
    assert message in refused.value.message
    assert refused.value.span is not None
    assert refused.value.span.column == 1 + len(BEFORE) + marked.index("«")
    assert str(refused.value.hint).startswith(hint)


def test_names_may_have_hyphens_dots_letters_of_any_script_and_namespaces() -> None:
    assert names("tree /a-b.c//größe/*//@x-1") == [
        NameTest("a-b.c"),
        NameTest("größe"),
        NameTest(),
        NameTest("x-1", None, True),
    ]
    assert names('tree //"first name"/"{urn:x}t"/"{}{key"/from/@*') == [
        NameTest("first name"),
        NameTest("t", "urn:x"),
        NameTest("{key", ""),
        NameTest("from"),
        NameTest(None, None, True),
    ]
    assert names("tree //dc:creator/@xml:lang") == [
        NameTest("creator", "http://purl.org/dc/elements/1.1/"),
        NameTest("lang", "http://www.w3.org/XML/1998/namespace", True),
    ]


def test_namespaces_of_prefixes_are_looked_up_when_the_query_is_bound() -> None:
    created = statement("tree //media:thumbnail[/x:y] and not tree //a")
    assert "//media:thumbnail/x:y" in print_statement(created)
    assert parse(print_statement(created))[0].statement == created
    expanded = expand_prefixes(created.query, lambda: {"media": "urn:m", "x": "urn:y"})
    text = print_statement(CreateFeed(created.name, expanded))
    assert 'tree //"{urn:m}thumbnail"/"{urn:y}y" and not tree //a' in text
    assert cast(CreateFeed, parse(text)[0].statement).query.conditions == expanded.conditions
    assert expand_prefixes(expanded) is expanded
    with pytest.raises(UnknownNameError, match="there is no prefix x:") as refused:
        expand_prefixes(created.query, lambda: {"media": "urn:m"})
    assert str(refused.value.hint).startswith("define it: register prefix x as")
    assert refused.value.span is not None
    assert refused.value.span.column == 1 + len(BEFORE) + len("tree //media:thumbnail[/")
    with pytest.raises(UnknownNameError, match="there is no prefix x:"):
        bind_query(created.query, {"A": 1}.get, lambda: ["A"])


def test_steps_and_nesting_are_limited() -> None:
    assert pattern("tree " + "/a" * 64).size == 64
    with pytest.raises(InvalidConditionError, match="at most 64 steps") as refused:
        pattern("tree " + "/a" * 65)
    assert refused.value.span is not None
    with pytest.raises(InvalidConditionError, match="at most 32 variables"):
        pattern("tree //a" + "".join(f"[/b!val as ?v{number}]" for number in range(33)))
    for opening in ("(", "not "):
        with pytest.raises(StatementError, match="nest"):
            pattern(f"tree //a[{opening * 60}/b")


def test_patterns_are_conditions_like_others() -> None:
    assert statement("not tree //a").query.conditions[0].expression == Not(pattern("tree //a"))
    assert isinstance(pattern("tree //a[/b <> 'x']").condition, Step)
    assert pattern("tree //a[/b <> 'x']") == pattern("tree //a[not /b = ' x ']")
    assert pattern("tree //a[not not /b]") != pattern("tree //a[/b]")
    assert isinstance(pattern("tree [not //a]").condition, Complement)
    (parsed,) = parse(f"{BEFORE}tree //a[/b = :word];", parameters=Parameters({"word": "x"}))
    assert cast(CreateFeed, parsed.statement).query == statement("tree //a[/b = 'x']").query


FRAGMENTS = (
    *("//", "/", "a", "*", "@", "[", "]", "(", ")", "and", "or", "not", "!", "val", "cont", "as", "?x", "=", "'x'"),
    *("5", ".", "..", "in", "between", '"b c"', ":", "tree", "contains"),
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12))
def test_any_sequence_of_fragments_parses_or_is_refused(fragments: list[str]) -> None:
    text = f"tree //a{' '.join(fragments)}"
    refusal: StatementError | None = None
    try:
        found = statement(text).query.conditions[0].expression
    except StatementError as refused:
        refusal = refused
    if refusal is not None:
        assert refusal.span is not None
    elif isinstance(found, TreePattern):
        assert pattern(found.render()) == found
