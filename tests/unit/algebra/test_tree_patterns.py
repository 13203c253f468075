"""Tree patterns: the definition against lxml's XPath, printing, encoding, canonical forms, joins and constraints."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from tests.unit.algebra.generated_trees import equalities, json_trees, patterns, trees, xpath

from runnel.algebra.nodes.calls import Constraint, Literally, Variable
from runnel.algebra.nodes.encode import decode_expression, encode_expression
from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.item_patterns import Solution
from runnel.algebra.semantics.close_conditions import close_condition
from runnel.algebra.semantics.evaluate import holds
from runnel.algebra.trees.steps import (
    AllOf,
    Complement,
    Mark,
    NameTest,
    Step,
    TreeCondition,
    ValueTest,
    conjuncts_of,
    replace_steps,
)
from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.errors import InvalidConditionError, TooExpensiveError
from runnel.language.grammar.parser import parse
from runnel.language.syntax.statements import CreateFeed
from runnel.model.trees.document_tree import DocumentTree
from runnel.model.trees.tree_nodes import nodes_of

CASES = settings(max_examples=300, deadline=None, derandomize=True)

NEWS = DocumentTree.read(
    "<news><company>ACME</company><author>Ann</author><s><headline>Up <b>5</b></headline></s>"
    "<tag>ski</tag><tag>run</tag></news>"
)
ORDER = DocumentTree.read('{"id": "1", "lines": [{"sku": "A", "qty": 1}, {"sku": "B", "qty": 9}]}')


def condition(text: str) -> Expression:
    (parsed,) = parse(f"create feed F from News where {text};")
    return cast(CreateFeed, parsed.statement).query.conditions[0].expression


def pattern(text: str) -> TreePattern:
    return cast(TreePattern, condition(text))


def rows(text: str, tree: DocumentTree) -> list[dict[str, object]]:
    found = pattern(text)
    return [dict(found.binding(solution)) for solution in found.solutions(tree)]


def truths(tree: DocumentTree, *texts: str) -> list[bool]:
    return [holds(close_condition(condition(text)), {"tree": (tree,)}) for text in texts]


@CASES
@given(trees, patterns(equalities, is_marked=False))
def test_truth_equals_that_of_xpath(tree: DocumentTree, pattern: TreePattern) -> None:
    document = etree.fromstring(tree).getroottree()
    wanted = all(document.xpath(f"boolean({_from_document(part)})") for part in conjuncts_of(pattern.condition))
    assert pattern.holds(tree) is wanted


def _from_document(part: TreeCondition) -> str:
    # The path is absolute, so it begins at the document, the parent of the root.
    assert isinstance(part, Step)
    return xpath(part).removeprefix(".")


@CASES
@given(trees, patterns(equalities, is_path=True))
def test_nodes_of_a_path_equal_those_of_xpath(tree: DocumentTree, pattern: TreePattern) -> None:
    """The `id` of the first step binds exactly the nodes that XPath selects."""
    bare = replace_steps(pattern.condition, lambda step: Step(step.axis, step.test, (), step.condition))
    assert isinstance(bare, Step)
    marked = Step(bare.axis, bare.test, (Mark("id", Variable("n")),), bare.condition)
    ids = {TreePattern(marked).binding(solution)["n"] for solution in TreePattern(marked).solutions(tree)}
    selected = cast(list[object], etree.fromstring(tree).getroottree().xpath(_from_document(bare)))
    assert len(ids) == len(selected)
    nodes = nodes_of(tree)
    assert ids <= {nodes.path(node) for node in range(len(nodes))}


@CASES
@given(patterns())
def test_printed_pattern_parses_to_the_same_pattern(pattern: TreePattern) -> None:
    (parsed,) = parse(f"create feed F from News where title exists and not {pattern.render()};")
    conjunction = cast(CreateFeed, parsed.statement).query.conditions[0].expression
    assert conjunction == condition(f"title exists and not {pattern.render()}")
    assert condition(pattern.render()) == pattern


@CASES
@given(patterns(), st.one_of(trees, json_trees))
def test_canonical_and_stored_patterns_have_the_same_solutions(pattern: TreePattern, tree: DocumentTree) -> None:
    canonical = pattern.canonical()
    assert decode_expression(encode_expression(pattern)) == pattern
    assert decode_expression(encode_expression(canonical)) == canonical
    assert canonical.canonical() == canonical
    assert canonical.as_written().canonical() == canonical
    assert _sets(canonical.as_written(), tree) == _sets(pattern, tree)
    assert condition(canonical.render()) == canonical.as_written()
    assert pattern.holds(tree) is canonical.holds(tree)


def _sets(pattern: TreePattern, tree: DocumentTree) -> set[frozenset[tuple[str, str]]]:
    solutions: list[Solution] = list(pattern.solutions(tree))
    return {frozenset(solution.items()) for solution in solutions}


def test_patterns_that_differ_in_order_and_names_are_equal_in_canonical_form() -> None:
    one = pattern("tree //news[/author!val as ?who][/tag = 'ski' or /tag = 'run']")
    other = pattern("tree //news[/tag = 'run' or /tag = 'ski' or /tag = 'run']/author!val as ?name")
    assert one.canonical() == other.canonical()
    assert one.canonical().names == ("who",)
    assert one.canonical().render() == "tree //news[/tag = 'run' or /tag = 'ski']/author!val as ?who"


def test_bindings_are_texts_numbers_contents_and_positions() -> None:
    assert rows("tree //news[//company = 'ACME'][/author!val]//headline!cont", NEWS) == [
        {"author": "Ann", "headline": "<headline>Up <b>5</b></headline>"}
    ]
    assert rows("tree //b!val as ?n!id as ?where", NEWS) == [{"n": 5.0, "where": "/1/3/1/1"}]
    assert rows("tree /news/tag!val", NEWS) == [{"tag": "ski"}, {"tag": "run"}]
    assert rows("tree //lines!cont[/sku = 'B']/qty!val", ORDER) == [{"lines": '{"qty":9,"sku":"B"}', "qty": 9.0}]


def test_conditions_hold_within_one_node() -> None:
    assert truths(
        ORDER, "tree //lines[/sku = 'A'][/qty > 5]", "tree //lines[/sku = 'B'][/qty > 5]", "tree /json/id"
    ) == [False, True, True]


def test_comparisons_are_by_the_type_of_the_constant() -> None:
    tree = DocumentTree.read(
        "<r><n>7.0</n><t>007</t><d>2026-11-15T09:30:00Z</d><b>true</b><w>  rock \n concert</w></r>"
    )
    assert truths(
        tree,
        "tree //n[. = 7]",
        "tree //n[. = '7']",
        "tree //t[. = 7]",
        "tree //t[. = '007' and . < 'a']",
        "tree //d[. >= date '2026-11-15' and . < date '2026-11-15T10:00:00Z']",
        "tree //d[. = date '2026-11-16']",
        "tree //b[. = true]",
        "tree //w[. = ' rock  concert ']",
        "tree //w[. contains 'Concert' and . matches '^ro']",
        "tree //n[. between 6 and 8 and not . in (1, 'x')]",
        "tree //w[. > 0]",
    ) == [True, False, False, True, True, False, True, True, True, True, False]


def test_negated_comparison_means_that_no_node_has_the_value() -> None:
    assert truths(NEWS, "tree /news[/tag != 'ski']", "tree /news[/tag[. != 'ski']]", "tree /news[/none != 'x']") == [
        False,
        True,
        True,
    ]


def test_patterns_with_shared_variables_are_joined_on_equal_values() -> None:
    text = "tree //order/customer!val as ?c and tree //vip!val as ?c"
    joined = close_condition(condition(text))
    assert isinstance(joined, TreePattern)
    vip = DocumentTree.read("<x><order><customer>Ann</customer></order><vip>Bob</vip><vip>Ann</vip></x>")
    other = DocumentTree.read("<x><order><customer>Eve</customer></order><vip>Bob</vip></x>")
    assert [joined.holds(vip), joined.holds(other)] == [True, False]
    assert condition(joined.render()) == joined


def test_comparisons_outside_the_pattern_become_tests() -> None:
    closed = close_condition(condition("tree //lines[/sku = 'B']/qty!val and ?qty < 100 and 5 <= ?qty and ?qty != 7"))
    assert isinstance(closed, TreePattern)
    assert closed.holds(ORDER)
    assert not close_condition(condition("tree //lines/qty!val and ?qty > 9")).holds(ORDER)  # type: ignore[union-attr]
    with pytest.raises(InvalidConditionError, match="a tree pattern cannot evaluate") as refused:
        close_condition(condition("tree //a!cont and ?a > 3"))
    assert "!val" in str(refused.value.hint)
    assert pattern("tree //a!id").constrained([Constraint(Variable("a"), "=", Literally("/1"))])[1] != []


def test_joined_patterns_have_limits() -> None:
    step = Step("/", NameTest("a"), condition=ValueTest("=", ("x",)))
    many = [TreePattern(AllOf((step, Step("//", NameTest(f"n{number}"))))) for number in range(64)]
    with pytest.raises(InvalidConditionError, match="have 65 steps"):
        TreePattern.joined(many)
    assert TreePattern.joined(many[:63]).size == 64


def test_search_is_limited() -> None:
    tree = DocumentTree.read("<a>" * 60 + "</a>" * 60)
    costly = pattern("tree //a//a//a//a//a//a//b")
    with pytest.raises(TooExpensiveError, match="too many possible matches"):
        costly.holds(tree)


@pytest.mark.parametrize("text", ["tree //*[. contains 'jazz']", "tree //*!val as ?x", "tree //*!cont as ?x"])
def test_long_texts_count_as_many_attempts(text: str) -> None:
    tree = DocumentTree.read("<a>" * 99 + "rock " * 100_000 + "</a>" * 99)
    with pytest.raises(TooExpensiveError, match="too many possible matches"):
        list(pattern(text).solutions(tree))


def test_other_values_have_no_trees() -> None:
    assert not pattern("tree //a").holds("<a/>")
    assert pattern("tree [not //a]").holds(DocumentTree.read("<b/>"))
    assert isinstance(pattern("tree [not //a]").condition, Complement)
