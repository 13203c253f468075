"""The index of tree patterns against their definition: keys, doubts, solutions, stored layouts and limits."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.algebra.generated_trees import json_trees, patterns, trees

from runnel.algebra.trees.steps import NameTest, Step, TreeCondition, all_of
from runnel.algebra.trees.tree_patterns import TreePattern
from runnel.arrays import Array, Rows
from runnel.language.grammar.parser import parse
from runnel.language.syntax.statements import CreateFeed
from runnel.matching.filters.atoms.item_columns import ItemColumns
from runnel.matching.trees import tree_part
from runnel.matching.trees.match_single import TreeItemSearch
from runnel.matching.trees.tree_index import TREE_INDEX
from runnel.matching.trees.tree_layout import TreeLayout
from runnel.matching.trees.tree_part import TreePart
from runnel.model.item import Item, Value, attributes_of
from runnel.model.item_batch import ItemBatch
from runnel.model.trees.document_tree import DocumentTree

CASES = settings(max_examples=150, deadline=None, derandomize=True)

_trees = st.one_of(trees, trees, json_trees)


def pattern(text: str) -> TreePattern:
    (parsed,) = parse(f"create feed F from News where {text};")
    return cast(TreePattern, cast(CreateFeed, parsed.statement).query.conditions[0].expression)


def columns_of(*items: list[DocumentTree]) -> ItemColumns:
    made = [
        Item("News", str(n), {"title": ("x",), **({"tree": tuple(each)} if each else {})})
        for n, each in enumerate(items)
    ]
    return ItemColumns(ItemBatch.of(made, {"News": 1}))


def part_of(*patterns: TreePattern, **limits: int) -> TreePart:
    layout = TreeLayout.of([each.canonical() for each in patterns])
    return TreePart(layout, layout.keys.astype(np.int64), **limits)


def pairs(rows: Array, keys: Array) -> set[tuple[int, int]]:
    return set(zip(rows.tolist(), keys.tolist(), strict=True))


@CASES
@given(st.lists(patterns(), min_size=1, max_size=8), st.lists(st.lists(_trees, max_size=2), min_size=1, max_size=4))
def test_index_finds_the_patterns_that_hold(patterns: list[TreePattern], items: list[list[DocumentTree]]) -> None:
    part = part_of(*patterns)
    found = part.keys(columns_of(*items))
    wanted = {
        (row, key)
        for row, values in enumerate(items)
        for key, each in enumerate(patterns)
        if any(map(each.holds, values))
    }
    assert pairs(found.rows, found.keys) == wanted
    assert not len(found.doubted_rows)
    stored = TREE_INDEX.stored({**part.layout.arrays(), **part.layout.seldom()}, len(patterns))
    assert stored is not None
    again = TREE_INDEX.matcher(stored, part.layout.keys).keys(columns_of(*items))
    assert pairs(again.rows, again.keys) == wanted


@CASES
@given(st.lists(patterns(), min_size=1, max_size=4), st.lists(st.lists(_trees, max_size=2), min_size=1, max_size=3))
def test_solutions_are_those_of_the_definition(patterns: list[TreePattern], items: list[list[DocumentTree]]) -> None:
    part = part_of(*patterns)
    columns = columns_of(*items)
    asked = [(row, atom) for row in range(len(items)) for atom in range(len(patterns))]
    rows, atoms = (np.array(each, dtype=np.int64) for each in zip(*asked, strict=True))
    found = part.solutions(columns, rows, atoms)
    told: dict[int, list[dict[str, Value]]] = {}
    for number, index in enumerate(found.pairs.tolist()):
        names = [str(variable) for variable in range(1, 1 + len(patterns[asked[index][1]].variables()))]
        values = [dict(zip(names, map(found.value, row), strict=True)) for row in found.rows(number).tolist()]
        told.setdefault(index, []).extend(values)
    for index, (row, atom) in enumerate(asked):
        canonical = patterns[atom].canonical()
        wanted = [canonical.binding(each) for value in items[row] for each in canonical.solutions(value)]
        assert sorted(map(repr, told.get(index, []))) == sorted(map(repr, wanted))
        search = TreeItemSearch({"tree": tuple(items[row])} if items[row] else {})
        assert search.holds(canonical) is bool(wanted)
        assert [canonical.binding(each) for each in search.found(canonical).solutions] == wanted
    assert np.all(found.is_whole)


def test_patterns_are_found_by_their_rarest_feature() -> None:
    texts = ["tree //news[/company = 'ACME']", "tree //news/author", "tree //news", "tree //*[. = 'ACME']"]
    layout = TreeLayout.of([pattern(text) for text in texts])
    labels, values = list(layout.labels.texts()), list(layout.texts.texts())
    anchors = [layout.features[anchor].tolist() if anchor >= 0 else None for anchor in layout.anchors.tolist()]
    assert anchors[0] == [labels.index("/company"), -1, values.index("ACME")]
    assert anchors[1] == [labels.index("/author"), labels.index("/news"), -1]
    assert anchors[3] is None
    assert layout.counters == {"tree patterns": 4, "tree steps": 6, "unanchored tree patterns": 1}
    known = TreeLayout.of([pattern("tree //a[/b = 'x']")], frequencies={" /b=x": 0.9, " /b": 0.9, " /a": 0.1})
    label, parent, text = known.features[known.anchors[0]].tolist()
    assert [list(known.labels.texts())[label], list(known.labels.texts())[parent], text] == ["/b", "/a", -1]


def test_equal_steps_are_shared() -> None:
    layout = TreeLayout.of([pattern("tree //a/b[/c = 'x']/d"), pattern("tree //e[//b[/c = 'x']/d!val]")])
    assert len(layout.steps) == 5


def test_costly_evaluations_are_doubted_and_others_decided() -> None:
    wide = DocumentTree.read("<a>" + "<b><c>1</c></b>" * 2_000 + "</a>")
    part = part_of(pattern("tree //b[/c = '1']"), pattern("tree //a"), most=100)
    found = part.keys(columns_of([wide], [DocumentTree.read("<b><c>1</c></b>")]))
    assert pairs(found.rows, found.keys) == {(0, 1), (1, 0)}
    assert pairs(found.doubted_rows, found.doubted_keys) == {(0, 0)}
    part = part_of(*(pattern(f"tree //b[/c = '{number}']") for number in (1, 1, 1, 2)), most_per_tree=100)
    found = part.keys(columns_of([wide]))
    assert pairs(found.rows, found.keys) | pairs(found.doubted_rows, found.doubted_keys) == {(0, 0), (0, 1), (0, 2)}


def test_a_value_that_holds_settles_the_doubt_about_another() -> None:
    wide = DocumentTree.read("<a>" + "<b><c>1</c></b>" * 2_000 + "</a>")
    part = part_of(pattern("tree //b[/c = '1']"), most=100)
    found = part.keys(columns_of([wide, DocumentTree.read("<b><c>1</c></b>")]))
    assert pairs(found.rows, found.keys) == {(0, 0)}
    assert not len(found.doubted_rows)


def test_lists_are_computed_again_if_the_space_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_part, "_LEAST_SPACE", 0)
    monkeypatch.setattr(tree_part, "_LISTS", 4)
    tree = DocumentTree.read("<a>" + "<b k='1'><c>1</c></b>" * 50 + "</a>")
    many = [pattern(f"tree //b[@k = '{n % 2}'][/c = '{n % 3}']".replace("[@", "[/@")) for n in range(12)]
    found = part_of(*many).keys(columns_of([tree]))
    assert pairs(found.rows, found.keys) == {(0, key) for key, each in enumerate(many) if each.holds(tree)}
    assert pairs(found.rows, found.keys) == {(0, 1), (0, 7)}


def test_pattern_of_many_steps_on_a_large_tree_is_decided() -> None:
    tree = DocumentTree.read("<a>" + "<a><a><a><a></a></a></a></a>" * 10_000 + "<b></b></a>")
    inner: TreeCondition | None = None
    for _ in range(63):
        inner = Step("//", NameTest("a"), condition=inner)
    deep = TreePattern(cast(TreeCondition, all_of((cast(TreeCondition, inner), Step("//", NameTest("b"))))))
    found = part_of(deep, pattern("tree //a//a//a//a//a/b"), pattern("tree //a//a//a//a/a")).keys(columns_of([tree]))
    assert pairs(found.rows, found.keys) == {(0, 2)}
    assert not len(found.doubted_rows)


def test_damaged_layouts_are_refused() -> None:
    layout = TreeLayout.of([pattern("tree //a[/b = 'x' or not /c > 3]"), pattern("tree [not /b]")])
    arrays = {**layout.arrays(), **layout.seldom()}
    assert TREE_INDEX.stored({}, 2) is None
    assert TREE_INDEX.stored(arrays, 2) is not None
    for name in (
        "steps",
        "programs.values",
        "step_programs.values",
        "pattern_steps.values",
        "anchors",
        "keys",
        "features",
    ):
        damaged = arrays[f"tree.{name}"].copy()
        damaged[-1] = 99
        with pytest.raises(ValueError, match=r"tree\."):
            TREE_INDEX.stored({**arrays, f"tree.{name}": damaged}, 2)
    for programs in ([[0, 0, 12, 0]], [[9, 0]], [[2, 0, 12, 0]]):
        broken = replace(layout, programs=Rows.of([*programs, [1, 0]]))
        with pytest.raises(ValueError, match=r"tree\.programs"):
            TREE_INDEX.stored({**broken.arrays(), **broken.seldom()}, 2)
    with pytest.raises(KeyError):
        TREE_INDEX.stored({name: array for name, array in arrays.items() if name != "tree.steps"}, 2)


def test_words_are_labels_and_short_texts() -> None:
    tree = DocumentTree.read("<a k='1'><b>x</b></a>")
    assert TREE_INDEX.words([tree, "rock"]) == {" /a", " @k", " @k=1", " /b", " /b=x"}


def test_texts_are_no_trees() -> None:
    part = part_of(pattern("tree //a"), pattern("tree [not //a]"))
    batch = ItemBatch.of([Item("News", "1", attributes_of({"title": "<a/>"}))], {"News": 1})
    found = part.keys(ItemColumns(batch))
    assert not len(found.rows)
