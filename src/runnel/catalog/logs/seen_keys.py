"""The keys that distinct feeds have seen, each with the last item that had it.

They are read before a batch is committed and written in the transaction that commits it, so they are always
consistent with the match log. A key is a digest, from which the item's values cannot be recovered.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, delete, func, select

from runnel.catalog.logs import match_segments
from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks
from runnel.catalog.store.sequencer import log_clock
from runnel.model.seen_key import SeenKey

_k, _i = schema.seen_keys.c, schema.item_segments.c
_MARKS = {"sqlite": ["?"], "postgresql": ["%s"]}
_REMEMBER = """insert into seen_keys (key, feed, sequence, accepted, expires) values ({}, {}, {}, {}, {})
    on conflict (key) do update set sequence = excluded.sequence, accepted = excluded.accepted,
    expires = excluded.expires"""


def seen_keys(connection: Connection, keys: Collection[bytes]) -> dict[bytes, SeenKey]:
    """Return the keys that were seen. A key includes its feed, so feeds have no keys in common."""
    query = select(schema.seen_keys)
    rows = (row for chunk in chunks(sorted(keys)) for row in connection.execute(query.where(_k.key.in_(chunk))))
    return {
        bytes(row.key): SeenKey(row.feed, bytes(row.key), row.sequence, row.accepted, row.expires) for row in rows
    }


def remember_keys(connection: Connection, keys: Sequence[SeenKey]) -> None:
    """Record the last item of every key."""
    if not keys:
        return
    # A batch may have a hundred thousand keys while other writers wait, so pass them directly to the driver, in the
    # order in which the database stores them.
    rows = sorted((seen.key, seen.feed, seen.sequence, seen.accepted, seen.expires) for seen in keys)
    connection.exec_driver_sql(_REMEMBER.format(*_MARKS[connection.dialect.name] * 5), rows)


def forget_keys(connection: Connection, limit: int) -> int:
    """Delete up to `limit` keys that no longer make items duplicates, and keys of dropped feeds. Return their number.

    The decision depends on the acceptance time of the items that are still to be matched, which may be long ago.
    """
    waiting = select(func.min(_i.accepted)).where(
        _i.retired.is_(None), _i.last_sequence > match_segments.matched_upto(connection)
    )
    earliest = connection.execute(waiting).scalar()
    # Use the log's time, because clocks of machines differ and may be set back.
    before = log_clock(connection) if earliest is None else min(int(earliest), log_clock(connection))
    dropped = select(schema.feeds.c.id).where(schema.feeds.c.dropped.is_not(None))
    gone = 0
    for condition in (_k.expires <= before, _k.feed.in_(dropped)):
        expired = connection.execute(select(_k.key).where(condition).limit(limit - gone)).scalars().all()
        for chunk in chunks(expired):
            connection.execute(delete(schema.seen_keys).where(_k.key.in_(chunk)))
        gone += len(expired)
        if gone >= limit:
            break
    return gone


def count_keys(connection: Connection, feed: int) -> int:
    """Count the keys of a feed."""
    query = select(func.count()).select_from(schema.seen_keys).where(_k.feed == feed)
    return int(connection.execute(query).scalar_one())
