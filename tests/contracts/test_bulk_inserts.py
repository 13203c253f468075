"""Bulk inserts of feeds and subscriptions, and their numbers, on every supported database."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select
from tests import catalog_rows

from runnel.algebra.nodes.query import Read, Union
from runnel.catalog.access import signing_keys
from runnel.catalog.declared import feeds, subscriptions, tags
from runnel.catalog.declared.bulk_insert import NewFeed, NewSubscription, add_feeds, add_subscriptions, encode_feed
from runnel.catalog.declared.changes import changes, next_number, note_change
from runnel.catalog.delivery import ledger
from runnel.catalog.store import schema
from runnel.catalog.store.connection import Catalog
from runnel.model.feed import FeedKind


def test_single_and_bulk_inserts_share_one_numbering(catalog: Catalog) -> None:
    with catalog.write() as connection:
        assert next_number(connection, "feeds") == 1
        assert catalog_rows.add_feed(connection, "One", FeedKind.SOURCE, "register feed One;") == 1
        assert next_number(connection, "feeds") == 2
        add_feeds(connection, [NewFeed(n, f"F{n}", FeedKind.SOURCE, "") for n in range(2, 1300)], 0)
        assert next_number(connection, "feeds") == 1300
        assert catalog_rows.add_feed(connection, "Last", FeedKind.SOURCE, "register feed Last;") == 1300
        feeds.drop_feed(connection, 1300)
    with catalog.read() as connection:
        assert next_number(connection, "feeds") == 1301, "a number is not given twice"


def test_rolled_back_inserts_leave_nothing(catalog: Catalog) -> None:
    def declare() -> None:
        with catalog.write() as connection:
            add_feeds(connection, [NewFeed(1, "One", FeedKind.SOURCE, "")], 0)
            note_change(connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        declare()
    with catalog.write() as connection:
        assert feeds.live_feeds(connection) == []
        assert changes(connection) == 0
        note_change(connection)
        note_change(connection)
        assert changes(connection) == 2


def test_bulk_inserted_feeds_equal_single_inserts(catalog: Catalog) -> None:
    node = Union((Read(1), Read(2), Read(1)))
    new = [
        NewFeed(1, "A", FeedKind.SOURCE, "register feed A;", "https://a.example/", every=timedelta(hours=1)),
        NewFeed(2, "B", FeedKind.SOURCE, "register feed B;"),
        NewFeed(3, "C", FeedKind.VIRTUAL, "c", node=node, encoded=encode_feed(node), tags=("x", "y")),
    ]
    with catalog.write() as connection:
        add_feeds(connection, new, 7, {3})
        results = feeds.live_feeds(connection)
        assert [
            (result.id, result.name, result.kind, result.statement, result.address, result.every)
            for result in results
        ] == [(entry.id, entry.name, entry.kind, entry.statement, entry.address, entry.every) for entry in new]
        assert feeds.definitions(connection) == {3: node}
        assert feeds.since_of(connection) == {3: 7}
        assert feeds.all_sources(connection, [3]) == {1, 2, 3}
        assert tags.tags_of(connection, [1, 2, 3]) == {3: ("x", "y")}
        assert feeds.feeds_by_names(connection, ["A", "C", "Z"]) == {"A": results[0], "C": results[2]}


def test_bulk_inserted_subscriptions_start_at_the_end_of_the_log(catalog: Catalog) -> None:
    day = timedelta(days=1)
    new = [
        NewSubscription(1, 5, "log", None),
        NewSubscription(2, 5, "log", None, since=3, has_cursor=True),
        NewSubscription(3, 6, "webhook", "https://a.example/", day, 2 * day, ticket=b"t", since=90, key=b"k" * 32),
    ]
    with catalog.write() as connection:
        add_subscriptions(connection, new, 10)
        first, second, third = subscriptions.live_subscriptions(connection)
        assert [first.since, second.since, third.since] == [10, 3, 10]
        assert ledger.cursor(connection, 2) == 3
        assert ledger.cursor(connection, 1) is None
        assert third.every == day
        assert third.expires is not None
        assert subscriptions.subscription_by_ticket(connection, b"t") == third
        assert signing_keys.keys_of(connection, [1, 2, 3]) == {3: (b"k" * 32,)}
        assert subscriptions.live_targets(connection) == {"https://a.example/": 3}
        assert next_number(connection, "subscriptions") == 4
        assert connection.execute(select(schema.subscriptions.c.due)).scalars().all().count(None) == 2
