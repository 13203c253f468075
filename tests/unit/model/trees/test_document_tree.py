"""Trees as values: canonical texts, limits, and hostile documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from runnel.errors import InvalidItemError
from runnel.model.item import Item, attributes_of
from runnel.model.item_batch import ItemBatch
from runnel.model.trees.canonical_json import parse_json, render_json, render_number
from runnel.model.trees.document_tree import MAX_NAMESPACE, MAX_NODES, DocumentTree
from runnel.model.trees.tree_nodes import nodes_of

CASES = settings(max_examples=200, deadline=None, derandomize=True)

NEWS = '<news id="7"><company>ACME</company><s><headline>Up <b>5</b></headline></s></news>'


def read(text: str) -> DocumentTree:
    return DocumentTree.read(text, place="item 1")


BODY = "<s><headline>Up <b>5</b></headline></s></news>"


@pytest.mark.parametrize(
    "other",
    [
        f"<?xml version='1.0'?><!-- a --><news  id='7' ><company >ACME</company>{BODY}",
        f'\ufeff \n<news id="7"><?go?><company><![CDATA[ACM]]>&#69;</company>{BODY}',
        f'<!DOCTYPE news><news xmlns:x="urn:unused" id="7"><company>ACME</company>{BODY}',
    ],
)
def test_documents_that_differ_in_notation_are_equal(other: str) -> None:
    assert read(other) == read(NEWS) == NEWS


def test_namespaces_are_declared_where_they_are_used() -> None:
    one = '<a xmlns:x="urn:x"><x:b/></a>'
    assert read(one) == read('<a><x:b xmlns:x="urn:x"/></a>') == '<a><x:b xmlns:x="urn:x"></x:b></a>'


def test_long_namespaces_are_refused_because_the_canonical_text_repeats_them() -> None:
    longest = "u:" + "x" * (MAX_NAMESPACE - 2)
    assert DocumentTree.read(f"<p:r xmlns:p='{longest}'/>")
    siblings = "<p:a/>" * 1_000
    for text in (f"<r xmlns:p='{longest}x'>{siblings}</r>", f"<r xmlns:p='{longest}x' p:a=''/>"):
        with pytest.raises(InvalidItemError, match="a namespace of more than 256 characters"):
            DocumentTree.read(text)


def test_json_is_canonical() -> None:
    # Keys are sorted by UTF-16 code units, so a surrogate pair comes before U+FF5E.
    assert read('{"\uff5e": 1, "a": [1e2, "\\u0041", null, true], "\\ud83d\\ude00": "e\u0301"}') == (
        '{"a":[100,"A",null,true],"\U0001f600":"\u00e9","\uff5e":1}'
    )
    assert read('[{"x": -0}]') == '[{"x":0}]'


@pytest.mark.parametrize(
    ("number", "text"),
    [
        # The examples of RFC 8785, appendix B.
        (-0.0, "0"),
        (5e-324, "5e-324"),
        (-1.7976931348623157e308, "-1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"),
        (999999999999999700000.0, "999999999999999700000"),
        (1e21, "1e+21"),
        (9.999999999999997e-7, "9.999999999999997e-7"),
        (0.000001, "0.000001"),
        (333333333.3333332, "333333333.3333332"),
        (0.1, "0.1"),
    ],
)
def test_numbers_are_written_as_in_ecmascript(number: float, text: str) -> None:
    assert render_number(number) == text


_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
_json: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.just(3), _texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("abé", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@CASES
@given(_json)
def test_canonical_json_is_stable_and_equal_to_the_value(value: Any) -> None:
    canonical = render_json(parse_json(json.dumps(value)))
    assert render_json(parse_json(canonical)) == canonical
    assert parse_json(json.dumps(json.loads(canonical))) == parse_json(canonical)


_names = st.sampled_from(["a", "b", "x:c", "é"])


@st.composite
def xml_documents(draw: st.DrawFn, depth: int = 0) -> str:
    name = draw(_names)
    letters = st.sampled_from(
        ["a", " ", "\n", "&lt;", "&#13;", "e\u0301", "<!-- c -->", "<?p?>", "<![CDATA[>]]>", "\u0338"]
    )
    text = "".join(draw(st.lists(letters, max_size=4)))
    attributes = draw(
        st.dictionaries(
            st.sampled_from(["k", "l", "x:m", "xml:lang"]), letters.filter(lambda t: "<" not in t), max_size=3
        )
    )
    written = "".join(f' {key}="{value}"' for key, value in attributes.items())
    children = [] if depth > 2 else draw(st.lists(xml_documents(depth=depth + 1), max_size=2))
    declared = ' xmlns:x="urn:x"' if depth == 0 or draw(st.booleans()) else ""
    return f"<{name}{declared}{written}>{text}{''.join(children)}{text}</{name}>"


@CASES
@given(xml_documents())
def test_canonical_xml_is_stable_and_has_the_same_nodes(text: str) -> None:
    tree = read(text)
    assert read(tree) == tree
    root = etree.fromstring(tree)
    elements = list(root.iter())
    nodes = nodes_of(tree)
    numbers = [node for node in range(len(nodes)) if not nodes.attributes[node]]
    assert len(numbers) == len(elements)
    assert len(nodes) == len(elements) + sum(len(element.attrib) for element in elements)
    for node, element in zip(numbers, elements, strict=True):
        name = etree.QName(element)
        assert (nodes.names[node], nodes.namespaces[node]) == (name.localname, name.namespace or "")
        assert nodes.text(node) == element.xpath("normalize-space(.)")
        assert read(nodes.content(node)) == nodes.content(node)


def test_nodes_of_json_have_the_names_of_their_keys_and_arrays() -> None:
    nodes = nodes_of(read('{"lines": [{"sku": "A", "qty": 1}, {"sku": "B"}], "open": true, "tags": [["x"], []]}'))
    assert nodes.names == ["json", "lines", "qty", "sku", "lines", "sku", "open", "tags", "tags", "tags"]
    assert nodes.parents == [-1, 0, 1, 1, 0, 4, 0, 0, 7, 0]
    assert [nodes.number(2), nodes.number(3), nodes.text(6), nodes.text(7)] == [1.0, None, "true", "x"]
    assert nodes.content(1) == '{"qty":1,"sku":"A"}'
    assert nodes.path(8) == "/1/4/1"
    assert list(nodes.children(-1)) == [0]


def test_text_of_an_element_contains_no_attributes() -> None:
    nodes = nodes_of(read('<a k=" v  w ">x<b l="y">z</b> </a>'))
    assert [nodes.text(node) for node in range(len(nodes))] == ["xz", "v w", "z", "y"]
    assert [nodes.length(node) for node in range(len(nodes))] == [3, 6, 1, 1]
    assert [nodes.is_leaf(node) for node in range(len(nodes))] == [False, True, True, True]
    assert nodes.content(2) == '<b l="y">z</b>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rock", "a tree is an XML document, a JSON object or a JSON array, not 'rock'"),
        ("<a>", "not well-formed XML"),
        ("{", "not valid JSON"),
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ('{"a": NaN}', "NaN is not a JSON value"),
        ("[1e999]", "a number is too large"),
        ('["\\ud800"]', "a lone surrogate"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 101 + "]" * 101, "nested more than 100 levels deep"),
        ("<a>" * 101 + "</a>" * 101, "nested more than 100 levels deep"),
        (f"<a>{'<b/>' * MAX_NODES}</a>", "more than 65535 elements"),
        ("<a>" + '<b c="1"/>' * 40_000 + "</a>", "80,001 elements and attributes, more than 65,535"),
        (f"[{'0,' * MAX_NODES}0]", "65,537 elements and attributes"),
        (f"<a>{'>' * 300_000}</a>", "1,200,007 bytes, more than 1,048,576"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "must not contain declarations"),
        ('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>', "must not contain declarations"),
        ("<a>&b;</a>", "not well-formed XML"),
        ('<!DOCTYPE a SYSTEM "a.dtd"><a>&b;</a>', "the entity &b; is unknown"),
        ('<a xmlns="news"/>', "no canonical form"),
    ],
)
def test_invalid_and_hostile_documents_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidItemError) as refused:
        read(text)
    assert message in refused.value.message
    assert str(refused.value.place).startswith("item 1")


def test_tree_of_an_item_survives_an_item_file() -> None:
    attributes = attributes_of({"title": "Up", "tree": [NEWS, '{"a": 1}', " "]})
    assert attributes["tree"] == (read(NEWS), read('{"a":1}'))
    (restored,) = ItemBatch.of([Item("News", "1", attributes)], {"News": 1}).attributes()
    assert restored == attributes
    assert [type(value) for value in restored["tree"]] == [DocumentTree, DocumentTree]


def test_paths_count_attributes_and_siblings_and_do_not_walk_them() -> None:
    nodes = nodes_of(DocumentTree.read('<r k="1"><a/><b><c/><c/></b></r>'))
    paths = dict(zip(map(nodes.path, range(len(nodes))), nodes.names, strict=True))
    assert paths == {"/1": "r", "/1/1": "k", "/1/2": "a", "/1/3": "b", "/1/3/1": "c", "/1/3/2": "c"}
    wide = nodes_of(DocumentTree.read(f"<r>{'<a/>' * 1_000}</r>"))
    wide.ends.clear()
    assert wide.path(1_000) == "/1/1000", "the ends of siblings are not read"
