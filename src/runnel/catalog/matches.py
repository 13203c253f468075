"""The match log's manifest: lineages, segments, parts. It, not Spark's checkpoint, is the truth of progress."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from runnel.catalog import leases, schema
from runnel.catalog.connection import now
from runnel.errors import LineageConflict
from runnel.model.segment import MatchPart

_g, _p, _n = schema.match_segments.c, schema.match_parts.c, schema.lineages.c


@dataclass(frozen=True, slots=True)
class MatchSegment:
    """The matches of one micro-batch, keyed (lineage, batch): a run of items matched with one plan version."""

    lineage: int
    batch: int
    first_sequence: int
    last_sequence: int
    plan: int
    items: int
    matches: int
    counters: dict[str, int] = field(default_factory=dict)
    committed: int = 0


@dataclass(frozen=True, slots=True)
class Lineage:
    """A run of batches with one checkpoint. `job` says which form of the job wrote the checkpoint."""

    id: int
    job: str
    after_sequence: int


def matched_upto(connection: Connection) -> int:
    """The last sequence whose matches are committed; 0 if there is none."""
    return int(connection.execute(select(func.max(_g.last_sequence))).scalar() or 0)


def commit_segment(connection: Connection, segment: MatchSegment, parts: Sequence[MatchPart], *, epoch: int) -> bool:
    """Publish a batch: False if it was there already. Raises Fenced, or LineageConflict if it does not fit."""
    leases.check(connection, epoch)
    there = connection.execute(
        select(schema.match_segments).where(_g.lineage == segment.lineage, _g.batch == segment.batch)
    ).one_or_none()
    if there is not None:
        if (there.first_sequence, there.last_sequence) == (segment.first_sequence, segment.last_sequence):
            return False  # the batch was committed before a crash, and Spark replays it
        raise LineageConflict(
            f"batch {segment.batch} of lineage {segment.lineage} was {there.first_sequence}-{there.last_sequence},"
            f" not {segment.first_sequence}-{segment.last_sequence}"
        )
    last = matched_upto(connection)
    if segment.first_sequence != last + 1:
        raise LineageConflict(
            f"batch {segment.batch} of lineage {segment.lineage} begins at {segment.first_sequence},"
            f" the log ends at {last}"
        )
    connection.execute(
        insert(schema.match_segments).values(
            lineage=segment.lineage,
            batch=segment.batch,
            first_sequence=segment.first_sequence,
            last_sequence=segment.last_sequence,
            plan=segment.plan,
            items=segment.items,
            matches=segment.matches,
            counters=json.dumps(segment.counters),
            epoch=epoch,
            committed=now(connection),
        )
    )
    for part in parts:
        connection.execute(
            insert(schema.match_parts).values(
                path=part.path,
                lineage=segment.lineage,
                batch=segment.batch,
                first_sequence=part.first_sequence,
                last_sequence=part.last_sequence,
                bytes=part.bytes,
            )
        )
    return True


def match_segments(connection: Connection, after: int = 0, upto: int | None = None) -> list[MatchSegment]:
    """The committed segments that hold sequences in (after, upto], in order."""
    query = select(schema.match_segments).where(_g.last_sequence > after).order_by(_g.first_sequence)
    if upto is not None:
        query = query.where(_g.first_sequence <= upto)
    return [
        MatchSegment(
            row.lineage,
            row.batch,
            row.first_sequence,
            row.last_sequence,
            row.plan,
            row.items,
            row.matches,
            json.loads(row.counters),
            row.committed,
        )
        for row in connection.execute(query)
    ]


def match_parts(connection: Connection, after: int, upto: int) -> list[MatchPart]:
    """The files with matches of sequences in (after, upto], in order."""
    query = (
        select(schema.match_parts)
        .where(_p.last_sequence > after, _p.first_sequence <= upto)
        .order_by(_p.first_sequence)
    )
    return [
        MatchPart(row.path, row.first_sequence, row.last_sequence, row.bytes) for row in connection.execute(query)
    ]


def part_paths(connection: Connection) -> set[str]:
    """Every file that the manifest names."""
    return {row.path for row in connection.execute(select(_p.path))}


def plan_of_sequence(connection: Connection, sequence: int) -> int | None:
    """The plan version with which an item was matched, if it was."""
    query = select(_g.plan).where(_g.first_sequence <= sequence, _g.last_sequence >= sequence)
    return connection.execute(query).scalar_one_or_none()


def last_plan(connection: Connection) -> int:
    """The plan version of the last committed segment; 0 if there is none."""
    query = select(_g.plan).order_by(_g.last_sequence.desc()).limit(1)
    return int(connection.execute(query).scalar_one_or_none() or 0)


def match_count(connection: Connection) -> int:
    """How many matches the log holds."""
    return int(connection.execute(select(func.sum(_g.matches))).scalar() or 0)


def current_lineage(connection: Connection) -> Lineage | None:
    """The lineage that may go on."""
    query = select(schema.lineages).where(_n.abandoned.is_(None)).order_by(_n.id.desc()).limit(1)
    row: Any = connection.execute(query).one_or_none()
    return None if row is None else Lineage(row.id, row.job, row.after_sequence)


def start_lineage(connection: Connection, job: str, *, reason: str) -> Lineage:
    """Abandon the current lineage, if any, and start one after the last committed sequence."""
    connection.execute(
        update(schema.lineages).where(_n.abandoned.is_(None)).values(abandoned=now(connection), reason=reason)
    )
    after = matched_upto(connection)
    result = connection.execute(
        insert(schema.lineages).values(job=job, after_sequence=after, created=now(connection)).returning(_n.id)
    )
    return Lineage(int(result.scalar_one()), job, after)


def last_batch(connection: Connection, lineage: int) -> int | None:
    """The last committed batch of a lineage."""
    return connection.execute(select(func.max(_g.batch)).where(_g.lineage == lineage)).scalar()
