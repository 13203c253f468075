"""Stored costs of queries, on every supported database: merged, weighted by age, limited, and deleted."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Connection, func, select, update
from tests import catalog_rows

from runnel.algebra.nodes.query import Read
from runnel.catalog.declared import feeds
from runnel.catalog.learned import query_costs
from runnel.catalog.store import schema
from runnel.catalog.store.connection import Catalog, now
from runnel.model.feed import FeedKind
from runnel.model.learned.query_costs import HALF_LIFE_DAYS, HALF_LIFE_ITEMS, Cost, Costs
from runnel.testing import FakeClock


@pytest.fixture
def declared(timed: Catalog) -> tuple[int, int]:
    """A source feed and a query on it."""
    with timed.write() as connection:
        source = catalog_rows.add_feed(connection, "Wire", FeedKind.SOURCE, "register feed Wire;")
        query = catalog_rows.add_feed(connection, "Rock", FeedKind.VIRTUAL, "create feed Rock …;", node=Read(source))
    return source, query


def cost_of(query: int, milliseconds: float, items: float = 100) -> Costs:
    """Costs of a query that takes this many milliseconds per thousand items."""
    return Costs(items, {query: Cost(milliseconds * 1e3 * items, "RegularExpression", "title matches 'a'")})


def learn(connection: Connection, *several: Costs) -> list[query_costs.KnownCost]:
    for value in several:
        query_costs.learn(connection, value, now(connection))
    return query_costs.known_costs(connection)


def test_sampled_costs_are_stored(timed: Catalog, declared: tuple[int, int]) -> None:
    _, query = declared
    with timed.write() as connection:
        (known,) = learn(connection, cost_of(query, 12, 100))
    assert known.query == query
    assert known.cost.items == 100
    assert known.cost.milliseconds == pytest.approx(10), "a guess of nothing weighs as much as twenty items"
    assert known.cost.cost[1:] == ("RegularExpression", "title matches 'a'")


def test_older_samples_have_less_weight(timed: Catalog, declared: tuple[int, int], clock: FakeClock) -> None:
    _, query = declared
    with timed.write() as connection:
        learn(connection, cost_of(query, 12))
        clock.advance(timedelta(days=HALF_LIFE_DAYS))
        (known,) = learn(connection, Costs(1, {}))
        assert known.cost.items == pytest.approx(51, rel=1e-2)
        (known,) = learn(connection, Costs(HALF_LIFE_ITEMS, {}))
    assert known.cost.milliseconds < 0.2


def test_replaced_or_dropped_query_starts_without_costs(
    timed: Catalog, declared: tuple[int, int], clock: FakeClock
) -> None:
    source, query = declared
    with timed.write() as connection:
        learn(connection, cost_of(query, 12))
        sampled = now(connection)
        clock.advance(timedelta(minutes=1))
        feed = feeds.feed_by_id(connection, query)
        assert feed is not None
        feeds.replace_feed(connection, feed, "create feed Rock from Wire;", Read(source))
        assert query_costs.known_costs(connection) == []
        query_costs.learn(connection, cost_of(query, 12), sampled)
        assert query_costs.known_costs(connection) == [], "sampled before it was replaced"
        assert len(learn(connection, cost_of(query, 1))) == 1
        feeds.drop_feed(connection, query)
        assert query_costs.known_costs(connection) == []
        assert learn(connection, cost_of(query, 1)) == []


def test_only_the_most_expensive_queries_are_kept(timed: Catalog, declared: tuple[int, int]) -> None:
    source, _ = declared
    with timed.write() as connection:
        made = [
            catalog_rows.add_feed(connection, f"Q{n}", FeedKind.VIRTUAL, f"create feed Q{n} …;", node=Read(source))
            for n in range(300)
        ]
        several = Costs(50, {query: Cost(1.0 + n, "Walk", "") for n, query in enumerate(made)})
        known = learn(connection, several)
        assert len(known) == 256
        assert known[0].query == made[-1]
        assert connection.execute(select(func.count()).select_from(schema.costs)).scalar_one() == 256


def test_slow_query_is_reported_once_until_it_was_fast(timed: Catalog, declared: tuple[int, int]) -> None:
    _, query = declared
    with timed.write() as connection:
        learn(connection, cost_of(query, 500, 5))
        assert query_costs.newly_slow(connection, 5.0) == [], "a few items say little"
        learn(connection, cost_of(query, 60))
        assert [cost.query for cost in query_costs.newly_slow(connection, 5.0)] == [query]
        assert query_costs.newly_slow(connection, 5.0) == []
        learn(connection, cost_of(query, 60))
        assert query_costs.newly_slow(connection, 5.0) == []
        learn(connection, Costs(50 * HALF_LIFE_ITEMS, {}))
        assert query_costs.newly_slow(connection, 5.0) == []
        learn(connection, cost_of(query, 1e9))
        assert [cost.query for cost in query_costs.newly_slow(connection, 5.0)] == [query]


def test_damaged_row_is_ignored(timed: Catalog, declared: tuple[int, int]) -> None:
    _, query = declared
    with timed.write() as connection:
        learn(connection, cost_of(query, 12))
        for content in ("", "[]", '{"items": -1}', '{"items": 1, "nanoseconds": "x", "kind": 1, "part": 2}'):
            connection.execute(update(schema.costs).values(content=content))
            assert query_costs.known_costs(connection)[0].cost.milliseconds == 0
        assert learn(connection, cost_of(query, 12))[0].cost.milliseconds > 1
