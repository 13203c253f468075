"""Operators in the catalog: registrations, versions, and the queries that use each operator, on every database."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy.exc import IntegrityError
from tests import catalog_rows

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.calls import Call, Literally, Variable
from runnel.algebra.nodes.expressions import And, Compare, Contains, Expression, Not, Or
from runnel.algebra.nodes.query import Filter, Gated, Node, Read, Union
from runnel.algebra.nodes.terms import Term
from runnel.algebra.semantics.distinct import Distinct
from runnel.catalog.declared import feeds, operators
from runnel.catalog.declared.bulk_insert import NewFeed, add_feeds, encode_feed
from runnel.catalog.store.connection import Catalog
from runnel.model.feed import FeedKind
from runnel.model.operator import Budget, OperatorDeclaration, Parameter

WHOLE = OperatorDeclaration(
    "mobPattern",
    0,
    "city.vision:mob_pattern",
    (Parameter("place", "input", "text"), Parameter("field", "attribute"), Parameter("people", "result", "int")),
    release="2.1",
    cost=timedelta(microseconds=1500),
    pure=False,
    reads=("title", "größe"),
    batch=7,
    time_limit=timedelta(seconds=2),
    concurrency=4,
    budget=Budget(100, 2.5),
    on_error="retry",
    retry_for=timedelta(hours=3),
    configuration=(("key", "it's"), ("other", "naïve\nlines")),
)


def asking(*names: str, source: int = 1) -> Node:
    return Filter(Read(source), And(tuple(Call(name, (Variable("x"),), 1, (0,)) for name in names)))


def create(catalog: Catalog, name: str, node: Node) -> int:
    with catalog.write() as connection:
        return catalog_rows.add_feed(connection, name, FeedKind.VIRTUAL, f"create feed {name} …;", node=node)


def test_registration_round_trip(catalog: Catalog) -> None:
    with catalog.write() as connection:
        registered = operators.register_operator(connection, WHOLE)
    assert registered == WHOLE.as_version(1)
    with catalog.read() as connection:
        assert operators.operator_named(connection, "mobPattern") == registered
        assert operators.operator_named(connection, "mobpattern") is None
        assert operators.live_operators(connection) == {"mobPattern": registered}


def test_versions_increase_and_old_versions_stay(catalog: Catalog) -> None:
    with catalog.write() as connection:
        for number in range(3):
            operators.register_operator(connection, OperatorDeclaration("f", 0, f"a:b{number}"))
        operators.register_operator(connection, OperatorDeclaration("a", 9, "distance"))
    with catalog.read() as connection:
        operator = operators.operator_named(connection, "f")
        assert operator is not None
        assert (operator.version, operator.source) == (3, "a:b2")
        assert list(operators.live_operators(connection)) == ["a", "f"]
        wanted = {("f", 1), ("f", 3), ("f", 4), ("g", 1)}
        held = operators.operator_versions(connection, wanted)
        assert {key: entry.source for key, entry in held.items()} == {("f", 1): "a:b0", ("f", 3): "a:b2"}


def test_versions_continue_after_a_name_was_dropped(catalog: Catalog) -> None:
    with catalog.write() as connection:
        operators.register_operator(connection, OperatorDeclaration("f", 0, "a:b"))
        operators.drop_operator(connection, "f")
        assert operators.operator_named(connection, "f") is None
        assert operators.live_operators(connection) == {}
        assert ("f", 1) in operators.operator_versions(connection, [("f", 1)])
        assert operators.register_operator(connection, OperatorDeclaration("f", 0, "a:c")).version == 2


def test_only_one_version_of_a_name_is_live(catalog: Catalog) -> None:
    from sqlalchemy import text

    with catalog.write() as connection:
        operators.register_operator(connection, OperatorDeclaration("f", 0, "a:b"))
    statement = text("insert into operators (name, version, content, created) values ('f', 2, '{}', 0)")
    with pytest.raises(IntegrityError), catalog.write() as connection:
        connection.execute(statement)


def test_queries_that_use_an_operator_are_found(catalog: Catalog) -> None:
    both = create(catalog, "Both", asking("f", "g"))
    only = create(
        catalog, "Only", Union((Read(1), Gated(asking("g"), Distinct((Attribute("title"),), timedelta(days=1)))))
    )
    create(catalog, "None", Filter(Read(1), Contains(Attribute("title"), ("call",))))
    with catalog.write() as connection:
        assert operators.users_of(connection, "f") == {both}
        assert operators.users_of(connection, "g") == {both, only}
        assert operators.use_counts(connection) == {"f": 1, "g": 2}
        assert operators.use_counts(connection, {12345}) == {}
        feed = feeds.feed_by_id(connection, both)
        assert feed is not None
        feeds.replace_feed(connection, feed, "create feed Both …;", asking("h"))
        assert operators.users_of(connection, "f") == set()
        assert operators.users_of(connection, "h") == {both}
        feeds.drop_feed(connection, only)
        assert operators.users_of(connection, "g") == set()
        assert catalog_rows.operators_of(connection, both) == ["h"]


def test_uses_of_many_feeds_are_written_in_bulk(catalog: Catalog) -> None:
    conditions: list[Expression] = [
        Or((Not(Call("f", (Literally("x"),), 1)), Compare(Attribute("a"), "=", 1.0))),
        Compare(Attribute("call", "year"), "=", 2026.0),
        Contains(Attribute("call"), ("call",)),
        Compare(Attribute("a"), "=", '["call",'),
        Term((Call("g", (), 1),)),
    ]
    nodes = [Filter(Read(1), condition) for condition in conditions]
    new = [
        NewFeed(number, f"F{number}", FeedKind.VIRTUAL, "…;", node=node, encoded=encode_feed(node))
        for number, node in enumerate(nodes, 1)
    ]
    with catalog.write() as connection:
        add_feeds(connection, new, 0)
        assert operators.use_counts(connection) == {"f": 1, "g": 1}
        assert operators.users_of(connection, "f") == {1}


def test_nodes_are_replaced_as_new_revisions(catalog: Catalog) -> None:
    made = [create(catalog, f"F{number}", asking("f", source=number + 1)) for number in range(3)]
    with catalog.write() as connection:
        feed = feeds.feed_by_id(connection, made[0])
        assert feed is not None
        feeds.pause_feed(connection, feed, paused=True)
        feeds.set_since(connection, {made[1]: 5})
        old = operators.current_nodes(connection, made[:2])
        assert old == {made[0]: asking("f", source=1), made[1]: asking("f", source=2)}
        newer = {value: Filter(Read(9), Call("f", (Variable("x"),), 2, (0,))) for value in made[:2]}
        operators.replace_nodes(connection, newer)
    with catalog.read() as connection:
        results = {value: feeds.feed_by_id(connection, value) for value in made}
        assert [result.revision for result in results.values() if result] == [3, 2, 1]
        assert [result.paused for result in results.values() if result] == [True, False, False]
        assert next(result.statement for result in results.values() if result) == "create feed F0 …;"
        assert operators.current_nodes(connection, made) == {**newer, made[2]: asking("f", source=3)}
        assert feeds.definitions_at(connection, made[2], 10**6)[made[2]] == asking("f", source=3)
        assert feeds.since_of(connection, made) == {made[1]: 5}
