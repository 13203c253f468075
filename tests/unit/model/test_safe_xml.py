"""Parsing of untrusted XML: no declarations, limited depth and size."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import BrokenDocumentError
from runnel.model.safe_xml import MAX_DEPTH, parse_xml, refuse_declarations

ENTITY = '<!ENTITY a "b">'


@pytest.mark.parametrize(
    "text",
    [
        f"<!DOCTYPE a [{ENTITY}]><a/>",
        f'<!DOCTYPE a SYSTEM "x" [{ENTITY}]><a/>',
        f'<!DOCTYPE a PUBLIC "]>" "x" [{ENTITY}]><a/>',
        f"<?xml version='1.0'?><!-- <a> --><?pi <a> ?>\n<!DOCTYPE a [{ENTITY}]><a/>",
        f"<!doctype a [{ENTITY}]><a/>",
        "<!DOCTYPE a [",
        "<!DOCTYPE a",
        '<!DOCTYPE a "x',
        f"<!DOCTYPE rdf:RDF [{ENTITY}]><rdf:RDF/>",
    ],
)
def test_declarations_are_rejected(text: str) -> None:
    with pytest.raises(BrokenDocumentError, match="must not contain declarations"):
        refuse_declarations(text, "a.rdf")
    with pytest.raises(BrokenDocumentError):
        parse_xml(text, "a.rdf")


@pytest.mark.parametrize(
    "text",
    [
        "<a/>",
        '<!DOCTYPE a SYSTEM "http://muse.example/a.dtd"><a/>',
        f"<a><![CDATA[<!DOCTYPE a [{ENTITY}]>]]></a>",
        f"<!-- <!DOCTYPE a [{ENTITY}]> --><a/>",
    ],
)
def test_text_that_looks_like_a_declaration_is_accepted(text: str) -> None:
    refuse_declarations(text, "a.xml")
    assert parse_xml(text, "a.xml").tag == "a"


def test_declaration_is_reported_with_its_line() -> None:
    with pytest.raises(BrokenDocumentError) as caught:
        refuse_declarations("<!-- -->\n\n<!DOCTYPE a [<!ENTITY b 'c'>]><a/>", "a.xml")
    assert caught.value.place == "a.xml:3"
    assert caught.value.hint


@given(st.integers(1, MAX_DEPTH + 20))
@settings(deadline=None, max_examples=30)
def test_depth_is_limited(depth: int) -> None:
    text = "<a>" * depth + "</a>" * depth
    if depth <= MAX_DEPTH:
        assert parse_xml(text, "a.xml").tag == "a"
    else:
        with pytest.raises(BrokenDocumentError, match=f"more than {MAX_DEPTH} levels deep"):
            parse_xml(text, "a.xml")


def test_elements_are_counted_while_parsing() -> None:
    # The document is malformed after the limit. An error about the limit shows that parsing stopped there.
    with pytest.raises(BrokenDocumentError, match="more than 100 elements"):
        parse_xml("<a>" + "<b/>\n" * 20_000 + "<broken", "a.xml", max_elements=100)


@given(st.text(max_size=200))
@settings(deadline=None, max_examples=200)
def test_any_text_is_a_tree_or_a_broken_document(text: str) -> None:
    for document in (text, f"<a>{text}</a>", f"<!DOCTYPE {text}><a/>"):
        with suppress(BrokenDocumentError):
            assert parse_xml(document, "a.xml") is not None
