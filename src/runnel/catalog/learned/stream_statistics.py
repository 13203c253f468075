"""Statistics of the stream, per source feed and in total.

In: observations of workers in a batch, recorded in the transaction that commits it, so that they count once. Out:
statistics. The observations are short and many; `learn` merges them from time to time. Sizes are bounded per feed, in
total, and in the number of waiting observations.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, select

from runnel.catalog.store import schema
from runnel.catalog.store.connection import chunks, now
from runnel.model.learned.stream_statistics import StreamSample, merged

WHOLE_STREAM = 0
"""A feed id that represents all source feeds together."""

_WORDS_OF_ALL, _ATOMS_OF_ALL = 32_768, 4_096
_WORDS_OF_FEED, _ATOMS_OF_FEED = 1_024, 128
"""What is kept of the whole stream, and of a feed: there may be very many feeds."""

_MAX_NOTES = 1_000
"""Maximum number of waiting observations. Further ones are dropped, so that a catalog without a runner
does not grow.
"""

_MAX_BYTES = 1 << 24
_DAY = 86_400 * 1_000_000
_s, _o = schema.statistics.c, schema.observations.c


def note(connection: Connection, observed: Mapping[int, StreamSample]) -> None:
    """Record the observations of a batch, by feed."""
    content = {str(feed): sample.to_json() for feed, sample in observed.items() if sample.items > 0}
    if content and _waiting(connection) < _MAX_NOTES:
        connection.execute(insert(schema.observations).values(content=_packed(content), created=now(connection)))


def learn(connection: Connection) -> int:
    """Merge all waiting observations. Return their number."""
    rows = connection.execute(select(_o.id, _o.content).order_by(_o.id)).all()
    if not rows:
        return 0
    noted: dict[int, list[StreamSample]] = {}
    for row in rows:
        for name, sample in _unpacked(row.content).items():
            if name.isdecimal():
                noted.setdefault(int(name), []).append(StreamSample.from_json(sample))
    live = _of_live_feeds(connection, {feed: merged(several) for feed, several in noted.items()})
    for feed, sample in (live | {WHOLE_STREAM: merged(live.values())}).items():
        _keep(connection, feed, sample)
    connection.execute(delete(schema.observations).where(_o.id <= rows[-1].id))
    return len(rows)


def learned(connection: Connection, feeds: Iterable[int] | None = None) -> dict[int, StreamSample]:
    """Return the statistics of these feeds, or of all. WHOLE_STREAM counts as a feed. Unknown feeds are omitted."""
    query = select(_s.feed, _s.content)
    if feeds is None:
        rows = list(connection.execute(query))
    else:
        wanted = chunks(sorted(set(feeds)))
        rows = [row for chunk in wanted for row in connection.execute(query.where(_s.feed.in_(chunk)))]
    return {row.feed: StreamSample.from_json(_unpacked(row.content)) for row in rows}


def word_frequencies(connection: Connection) -> dict[str, float]:
    """Return the share of items that contain a word, for each observed word."""
    known = learned(connection, [WHOLE_STREAM]).get(WHOLE_STREAM)
    return {} if known is None else dict(known.frequencies())


def forget_dropped(connection: Connection) -> int:
    """Delete the statistics of dropped feeds. Return their number."""
    feed = schema.feeds.c
    is_dropped = exists().where(feed.id == _s.feed, feed.dropped.is_not(None))
    return connection.execute(delete(schema.statistics).where(is_dropped)).rowcount


def _waiting(connection: Connection) -> int:
    return int(connection.execute(select(func.count()).select_from(schema.observations)).scalar_one())


def _of_live_feeds(connection: Connection, observed: dict[int, StreamSample]) -> dict[int, StreamSample]:
    """Omit feeds that were dropped in the meantime."""
    column = schema.feeds.c
    query = select(column.id).where(column.dropped.is_(None))
    results = (connection.execute(query.where(column.id.in_(chunk))).scalars() for chunk in chunks(sorted(observed)))
    live = {feed for rows in results for feed in rows}
    return {feed: sample for feed, sample in observed.items() if feed in live}


def _keep(connection: Connection, feed: int, fresh: StreamSample) -> None:
    """Merge observations into a row. Old ones lose weight, and only the most frequent words and atoms stay."""
    moment = now(connection)
    row = connection.execute(select(_s.content, _s.learned).where(_s.feed == feed)).one_or_none()
    known = StreamSample()
    if row is not None:
        known = StreamSample.from_json(_unpacked(row.content))
        known = known.decayed(items=fresh.items, days=(moment - row.learned) / _DAY)
    words, atoms = (_WORDS_OF_ALL, _ATOMS_OF_ALL) if feed == WHOLE_STREAM else (_WORDS_OF_FEED, _ATOMS_OF_FEED)
    content = _packed(known.merge(fresh).bounded(words=words, atoms=atoms).to_json())
    connection.execute(delete(schema.statistics).where(_s.feed == feed))
    connection.execute(insert(schema.statistics).values(feed=feed, content=content, learned=moment))


def _packed(content: dict[str, Any]) -> bytes:
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 1)


def _unpacked(content: bytes) -> dict[str, Any]:
    """Decode a row. A damaged row gives empty statistics, so that it never fails a batch."""
    try:
        decoded = json.loads(zlib.decompressobj().decompress(content, _MAX_BYTES))
    except (zlib.error, ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
