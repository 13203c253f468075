"""What was learned of operators: notes in the commits of batches in, costs and chances out.

A note is a short row, written in the transaction that commits its batch, so that it counts once. When some notes
wait, the next one folds them into the first row, which is what is known. Its size is bounded.
"""

from __future__ import annotations

import json
import zlib

from sqlalchemy import Connection, delete, func, insert, select

from runnel.catalog.store import schema
from runnel.catalog.store.connection import now
from runnel.model.learned.operator_statistics import OperatorStatistics

_MOST_NOTES = 32
"""Notes that may wait; the next one folds them."""

_MOST_BYTES = 1 << 24
_DAY = 86_400 * 1_000_000
_c = schema.operator_learning.c


def note_operators(connection: Connection, observed: OperatorStatistics) -> None:
    """Note what was observed in a batch; in the transaction of its commit."""
    if not observed:
        return
    count = connection.execute(select(func.count()).select_from(schema.operator_learning)).scalar_one()
    if count > _MOST_NOTES:
        observed = _folded(connection).then(observed).bounded()
        connection.execute(delete(schema.operator_learning))
    packed = zlib.compress(json.dumps(observed.to_json(), separators=(",", ":")).encode(), 1)
    connection.execute(insert(schema.operator_learning).values(content=packed, noted=now(connection)))


def learned_operators(connection: Connection) -> OperatorStatistics:
    """What is known of operators."""
    return _folded(connection).bounded()


def _folded(connection: Connection) -> OperatorStatistics:
    """All rows together; each fades by what came after it, and by its age."""
    known, before = OperatorStatistics(), 0
    for row in connection.execute(select(_c.content, _c.noted).order_by(_c.id)):
        known = known.then(_unpacked(row.content), days=(row.noted - before) / _DAY if before else 0.0)
        before = row.noted
    return known.then(OperatorStatistics(), days=(now(connection) - before) / _DAY) if before else known


def _unpacked(content: bytes) -> OperatorStatistics:
    """What was packed, or nothing: a damaged row costs time, never a batch."""
    try:
        return OperatorStatistics.from_json(json.loads(zlib.decompressobj().decompress(content, _MOST_BYTES)))
    except (zlib.error, ValueError, RecursionError):
        return OperatorStatistics()
