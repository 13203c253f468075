"""Binding a statement: the result is current until one of the names that it uses gets another value."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from runnel.algebra.nodes.query import reads
from runnel.catalog.declared.bulk_insert import encode_feed
from runnel.engine.declare.bind_statement import bind
from runnel.errors import UnknownNameError
from runnel.language.grammar.parser import parse
from runnel.language.syntax.statements import CreateFeed, Name
from runnel.model.operator import OperatorDeclaration


@dataclass
class StubNames:
    """Names of feeds and prefixes."""

    feeds: dict[str, int] = field(default_factory=lambda: {"Wire": 7, "Other": 8})
    iris: dict[str, str] = field(default_factory=lambda: {"ex": "https://ex.example/"})

    def feed_id(self, name: str) -> int | None:
        return self.feeds.get(name)

    def names(self) -> list[str]:
        return sorted(self.feeds)

    def operator(self, name: str) -> OperatorDeclaration | None:
        return None

    def operator_names(self) -> list[str]:
        return []

    def prefixes(self) -> dict[str, str]:
        return self.iris

    def refuse_table(self, name: Name) -> None:
        """None of the names is a table."""


def _create(text: str) -> CreateFeed:
    [parsed] = parse(text)
    assert isinstance(parsed.statement, CreateFeed)
    return parsed.statement


def test_bind_returns_node_text_and_stored_form() -> None:
    bound = bind(_create("create or replace feed Rock from Wire where title contains 'rock'"), StubNames(), 1)
    assert set(reads(bound.node)) == {7}
    assert bound.text == "create feed Rock from Wire where title contains 'rock';"
    assert bound.encoded == encode_feed(bound.node)
    with pytest.raises(UnknownNameError, match="Wier"):
        bind(_create("create feed Rock from Wier"), StubNames(), 1)


def test_bound_query_is_current_while_its_names_keep_their_values() -> None:
    names = StubNames()
    bound = bind(_create("create feed Rock from Wire where title contains 'rock'"), names, 1)
    names.feeds["Other"], names.iris["ex"] = 9, "https://changed.example/"
    assert bound.is_current(names), "the query uses neither of these names"
    names.feeds["Wire"] = 10
    assert not bound.is_current(names)
    del names.feeds["Wire"]
    assert not bound.is_current(names)


def test_bound_query_depends_on_prefixes_only_if_it_uses_them() -> None:
    names = StubNames()
    bound = bind(_create("create feed Rock from Wire where graph { ?x ex:name 'a' }"), names, 1)
    assert bound.is_current(names)
    names.iris = {"ex": "https://changed.example/"}
    assert not bound.is_current(names)
