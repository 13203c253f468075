"""The seen-set forgets an id only when its source cannot show it any more; what a hub pushes is not the page."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from sqlalchemy import insert, update

from runnel.catalog.logs import item_segments
from runnel.catalog.store import schema
from runnel.engine import connect
from runnel.testing import FakeClock

DAYS = 31


def test_push_does_not_expire_items_that_the_feed_still_contains(tmp_path: Path) -> None:
    clock = FakeClock()
    with connect(tmp_path / "root", clock=clock) as engine:
        engine.execute("register feed Wire;")
        engine.publish("Wire", [{"id": "old"}])
        catalog = engine.workspace.catalog
        with catalog.write() as connection:
            poll = {"address": "https://news.example/", "due": 0, "failures": 0, "requests": 1, "unchanged": 0}
            changed = int(clock() * 1e6)
            connection.execute(insert(schema.polls).values(feed=1, changed=changed, **poll))
        clock.advance(timedelta(days=DAYS))
        engine.publish("Wire", [{"id": "pushed"}])
        today = int(clock() // 86_400)
        with catalog.read() as connection:
            assert item_segments.expired_seen(connection, today - 1, 10) == []
        with catalog.write() as connection:
            connection.execute(update(schema.polls).values(changed=int(clock() * 1e6)))
        with catalog.read() as connection:
            assert len(item_segments.expired_seen(connection, today - 1, 10)) == 1, "the page was read whole since"
