"""Statistics of operators: observations of batches in, costs and probabilities out.

An observation is a short row, written in the transaction that commits its batch, so that it counts once. When enough
rows are waiting, the next one merges all of them into the first row, whose size is bounded.
"""

from __future__ import annotations

import json
import zlib

from sqlalchemy import Connection, delete, func, insert, select

from runnel.catalog.store import schema
from runnel.catalog.store.connection import now
from runnel.model.learned.operator_statistics import OperatorStatistics

_MAX_NOTES = 32
"""Maximum number of waiting rows. The next one merges them."""

_MAX_BYTES = 1 << 24
_DAY = 86_400 * 1_000_000
_c = schema.operator_learning.c


def note_operators(connection: Connection, observed: OperatorStatistics) -> None:
    """Record the observations of a batch, in the transaction of its commit."""
    if not observed:
        return
    count = connection.execute(select(func.count()).select_from(schema.operator_learning)).scalar_one()
    if count > _MAX_NOTES:
        observed = _folded(connection).then(observed).bounded()
        connection.execute(delete(schema.operator_learning))
    packed = zlib.compress(json.dumps(observed.to_json(), separators=(",", ":")).encode(), 1)
    connection.execute(insert(schema.operator_learning).values(content=packed, noted=now(connection)))


def learned_operators(connection: Connection) -> OperatorStatistics:
    """Return the statistics of operators."""
    return _folded(connection).bounded()


def _folded(connection: Connection) -> OperatorStatistics:
    """Merge all rows. Each loses weight by the observations after it and by its age."""
    known, before = OperatorStatistics(), 0
    for row in connection.execute(select(_c.content, _c.noted).order_by(_c.id)):
        known = known.then(_unpacked(row.content), days=(row.noted - before) / _DAY if before else 0.0)
        before = row.noted
    return known.then(OperatorStatistics(), days=(now(connection) - before) / _DAY) if before else known


def _unpacked(content: bytes) -> OperatorStatistics:
    """Decode a row. A damaged row gives empty statistics, so that it never fails a batch."""
    try:
        return OperatorStatistics.from_json(json.loads(zlib.decompressobj().decompress(content, _MAX_BYTES)))
    except (zlib.error, ValueError, RecursionError):
        return OperatorStatistics()
