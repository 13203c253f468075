"""The manifest of the match log: lineages, segments, parts. It records progress, and not Spark's checkpoint."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise, takewhile
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, or_, select, update

from runnel.catalog.store import counters, leases, schema
from runnel.catalog.store.connection import chunks, now
from runnel.errors import LineageConflictError
from runnel.model.segment import MatchPart

_g, _p, _n = schema.match_segments.c, schema.match_parts.c, schema.lineages.c
_FIND = select(schema.match_segments).where(_g.lineage == bindparam("of"), _g.batch == bindparam("number"))
_LAST = select(func.max(_g.last_sequence))
_ADD, _ADD_PART = insert(schema.match_segments), insert(schema.match_parts)
_DAY = 86_400_000_000
_MAX_LEVEL = 3


@dataclass(frozen=True, slots=True)
class MatchSegment:
    """The matches of one micro-batch, identified by (lineage, batch): a range of items matched with one
    plan version.
    """

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
class KeptPart:
    """A file of matches in the manifest: its range, age and, if present, its index by query."""

    path: str
    first_sequence: int
    last_sequence: int
    bytes: int
    lineage: int
    batch: int
    level: int
    committed: int
    by_query: str | None

    @property
    def began(self) -> int:
        """When the first of its batches was committed."""
        return self.committed


@dataclass(frozen=True, slots=True)
class Lineage:
    """A series of batches with one checkpoint. `job` identifies the form of the job that wrote the checkpoint."""

    id: int
    job: str
    after_sequence: int


def matched_upto(connection: Connection) -> int:
    """Return the last sequence whose matches are committed, or 0."""
    return int(connection.execute(_LAST).scalar() or 0)


def commit_segment(connection: Connection, segment: MatchSegment, parts: Sequence[MatchPart], *, epoch: int) -> bool:
    """Commit a batch. Return False if it was already committed.

    Raise FencedError if the lease was lost, or LineageConflictError if the batch does not continue the log. Parts
    with exactly the same sequences are layers: a reader combines their matches.
    """
    leases.check(connection, epoch)
    _check_layers(segment, parts)
    committed = connection.execute(_FIND, {"of": segment.lineage, "number": segment.batch}).one_or_none()
    if committed is not None:
        if (committed.first_sequence, committed.last_sequence) == (segment.first_sequence, segment.last_sequence):
            return False  # Spark replays a batch that was committed before a crash
        raise LineageConflictError(
            f"batch {segment.batch} of lineage {segment.lineage} is already committed with the sequences"
            f" {committed.first_sequence}-{committed.last_sequence}, not"
            f" {segment.first_sequence}-{segment.last_sequence}"
        )
    last = matched_upto(connection)
    if segment.first_sequence != last + 1:
        raise LineageConflictError(
            f"batch {segment.batch} of lineage {segment.lineage} begins at sequence {segment.first_sequence}, but the"
            f" match log ends at {last}"
        )
    moment = now(connection)
    row = {
        "lineage": segment.lineage,
        "batch": segment.batch,
        "first_sequence": segment.first_sequence,
        "last_sequence": segment.last_sequence,
        "plan": segment.plan,
        "items": segment.items,
        "matches": segment.matches,
        "counters": json.dumps(segment.counters),
        "epoch": epoch,
        "committed": moment,
    }
    connection.execute(_ADD, row)
    counters.add_to_counter(connection, counters.MATCHES, segment.matches)
    for name in (counters.OPERATOR_CALLS, counters.OPERATOR_UNKNOWN):
        counters.add_to_counter(connection, name, segment.counters.get(name, 0))
    for part in parts:
        _add_part(connection, part, segment.lineage, segment.batch, level=0, committed=moment)
    return True


def _check_layers(segment: MatchSegment, parts: Sequence[MatchPart]) -> None:
    """Check that parts have the same items or none in common, without gaps. Otherwise matches would be lost or
    repeated.
    """
    ranges = sorted({(part.first_sequence, part.last_sequence) for part in parts})
    for (first, last), (other, until) in pairwise(ranges):
        if other != last + 1:
            raise LineageConflictError(
                f"the parts {first}-{last} and {other}-{until} of batch {segment.batch} of lineage {segment.lineage}"
                " overlap or leave a gap"
            )
    if ranges and (ranges[0][0], ranges[-1][1]) != (segment.first_sequence, segment.last_sequence):
        raise LineageConflictError(
            f"batch {segment.batch} of lineage {segment.lineage} has the sequences"
            f" {segment.first_sequence}-{segment.last_sequence}, but its parts have {ranges[0][0]}-{ranges[-1][1]}"
        )


def _add_part(
    connection: Connection,
    part: MatchPart,
    lineage: int,
    batch: int,
    *,
    level: int,
    committed: int,
    by_query: str | None = None,
) -> None:
    row = {
        "path": part.path,
        "lineage": lineage,
        "batch": batch,
        "first_sequence": part.first_sequence,
        "last_sequence": part.last_sequence,
        "bytes": part.bytes,
        "level": level,
        "committed": committed,
        "by_query": by_query,
    }
    connection.execute(_ADD_PART, row)


def match_segments(connection: Connection, after: int = 0, upto: int | None = None) -> list[MatchSegment]:
    """Return the committed segments with sequences in (after, upto], in order."""
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


def match_parts(connection: Connection, after: int, upto: int, *, limit: int | None = None) -> list[KeptPart]:
    """Return the files with matches of items in (after, upto], in order: at most `limit`, plus all layers of the
    last.
    """
    return _parts_where(connection, (_p.last_sequence > after, _p.first_sequence <= upto), limit)


def _parts_where(
    connection: Connection, conditions: Sequence[ColumnElement[bool]], limit: int | None
) -> list[KeptPart]:
    """Return live files in order. Layers have the same last sequence, and a limit does not separate them."""
    live = (_p.retired.is_(None), *conditions)
    query = select(schema.match_parts).where(*live).order_by(_p.last_sequence, _p.path)
    if limit is not None:
        first = select(_p.last_sequence).where(*live).order_by(_p.last_sequence).limit(limit).subquery()
        query = query.where(_p.last_sequence <= select(func.max(first.c.last_sequence)).scalar_subquery())
    return [_part(row) for row in connection.execute(query)]


def most_per_item(connection: Connection, after: int, upto: int) -> float:
    """Return the highest average of matches per item of the batches with sequences in (after, upto], or 0."""
    average = func.max(_g.matches * 1.0 / _g["items"])
    query = select(average).where(_g.last_sequence > after, _g.first_sequence <= upto, _g["items"] > 0)
    return float(connection.execute(query).scalar() or 0.0)


def small_parts(connection: Connection, limit: int) -> list[KeptPart]:
    """Return files that do not yet cover a whole day, in order: at most `limit`, plus all layers of the last."""
    return _parts_where(connection, (_p.level < _MAX_LEVEL,), limit)


def replace_parts(
    connection: Connection, old: Sequence[KeptPart], part: MatchPart, level: int, by_query: str | None
) -> bool:
    """Replace several files by one. Return False if one of them is no longer in the log."""
    time, retired = now(connection), 0
    for chunk in chunks([part.path for part in old]):
        statement = update(schema.match_parts).where(_p.path.in_(chunk), _p.retired.is_(None)).values(retired=time)
        retired += connection.execute(statement).rowcount
    _add_part(
        connection,
        part,
        old[-1].lineage,
        old[-1].batch,
        level=level,
        committed=old[0].committed,
        by_query=by_query,
    )
    return retired == len(old)


def set_level(connection: Connection, part: KeptPart, level: int, by_query: str | None) -> None:
    """Change the level of a file, and set its index by query if it has one now."""
    statement = update(schema.match_parts).where(_p.path == part.path)
    connection.execute(statement.values(level=level, by_query=by_query))


def live_part(connection: Connection, path: str) -> KeptPart | None:
    """Return the live part whose file or index has this path."""
    query = select(schema.match_parts).where(or_(_p.path == path, _p.by_query == path), _p.retired.is_(None))
    row = connection.execute(query).first()
    return None if row is None else _part(row)


def retired_within(connection: Connection, part: KeptPart) -> list[KeptPart]:
    """Return the retired files whose items are all in a part, among them those from which it was merged."""
    inside = (_p.first_sequence >= part.first_sequence, _p.last_sequence <= part.last_sequence)
    query = select(schema.match_parts).where(_p.retired.is_not(None), *inside).order_by(_p.path)
    return [_part(row) for row in connection.execute(query)]


def revive_parts(connection: Connection, part: KeptPart, parts: Sequence[KeptPart]) -> bool:
    """Replace a file by the retired files from which it was merged. Return False if one of them is gone."""
    paths = [part.path for part in parts]
    there = sum(
        len(connection.execute(select(_p.path).where(_p.path.in_(chunk), _p.retired.is_not(None))).all())
        for chunk in chunks(paths)
    )
    if there != len(paths):
        return False
    for chunk in chunks(paths):
        connection.execute(update(schema.match_parts).where(_p.path.in_(chunk)).values(retired=None))
    connection.execute(update(schema.match_parts).where(_p.path == part.path).values(retired=now(connection)))
    return True


def lose_part(connection: Connection, part: KeptPart) -> None:
    """Remove a damaged file from the log. Its batches stay committed."""
    connection.execute(delete(schema.match_parts).where(_p.path == part.path))


def is_live(connection: Connection, path: str) -> bool:
    """Return whether a file is part of the log now."""
    query = select(_p.path).where(_p.path == path, _p.retired.is_(None))
    return connection.execute(query).first() is not None


def retired_parts(connection: Connection, before: int, *, limit: int | None = None) -> list[tuple[str, str | None]]:
    """Return the paths of files that were retired at or before a time, each with the path of its index by query."""
    query = select(_p.path, _p.by_query).where(_p.retired <= before).limit(limit)
    return [(row.path, row.by_query) for row in connection.execute(query)]


def forget_parts(connection: Connection, paths: Collection[str]) -> None:
    """Delete the rows of retired files that are gone."""
    for chunk in chunks(sorted(paths)):
        connection.execute(delete(schema.match_parts).where(_p.path.in_(chunk), _p.retired.is_not(None)))


def part_paths(connection: Connection) -> set[str]:
    """Return all files in the manifest, including retired ones and indexes."""
    rows = connection.execute(select(_p.path, _p.by_query)).all()
    return {path for row in rows for path in (row.path, row.by_query) if path}


def read_queries(connection: Connection, silent: Collection[str] = ()) -> set[int]:
    """Return the queries whose matches are read by query: those with a period, that lag, or that wait.

    Subscribers of the `silent` kinds get no messages; they read the match log.
    """
    held, own = schema.subscriptions.c, schema.cursors.c
    slow = or_(held.period.is_not(None), held.paused == 1, held.kind.in_(silent), own.subscription.is_not(None))
    query = (
        select(held.feed)
        .join(schema.cursors, own.subscription == held.id, isouter=True)
        .where(held.ended.is_(None), slow)
        .distinct()
    )
    return {row.feed for row in connection.execute(query)}


def merge_segments(connection: Connection, before: int, limit: int) -> int:
    """Merge rows of consecutive segments of the same lineage, plan and day. Return how many rows were removed.

    Only rows that were committed before a time are merged, and never the last one: a batch that Spark replays is the
    last of its lineage and must find its row. Items keep the plan with which they were matched.
    """
    start = counters.read_counter(connection, counters.MERGED)
    query = select(schema.match_segments).where(_g.last_sequence >= start).order_by(_g.last_sequence).limit(limit)
    last = matched_upto(connection)
    candidates = connection.execute(query).all()
    rows = list(takewhile(lambda row: row.committed < before and row.last_sequence < last, candidates))
    merged = 0
    for _, alike in groupby(rows, key=lambda row: (row.lineage, row.plan, row.committed // _DAY)):
        merged += _merge(connection, list(alike))
    if rows:
        counters.set_counter(connection, counters.MERGED, rows[-1].last_sequence)
    return merged


def _merge(connection: Connection, rows: Sequence[Any]) -> int:
    """Merge rows into the last of them."""
    *others, last = rows
    if not others:
        return 0
    counters: dict[str, int] = {}
    for row in rows:
        for name, value in json.loads(row.counters).items():
            counters[name] = counters.get(name, 0) + value
    for chunk in chunks([row.last_sequence for row in others]):
        connection.execute(delete(schema.match_segments).where(_g.last_sequence.in_(chunk)))
    connection.execute(
        update(schema.match_segments)
        .where(_g.last_sequence == last.last_sequence)
        .values(
            first_sequence=others[0].first_sequence,
            items=sum(row.items for row in rows),
            matches=sum(row.matches for row in rows),
            counters=json.dumps(counters),
        )
    )
    return len(others)


def retain_matches(connection: Connection, upto: int) -> int:
    """Delete files and segments that contain only sequences up to `upto`. Return the number of files."""
    connection.execute(delete(schema.match_segments).where(_g.last_sequence <= upto))
    old = (_p.retired.is_(None), _p.last_sequence <= upto)
    return connection.execute(update(schema.match_parts).where(*old).values(retired=now(connection))).rowcount


def plan_of_sequence(connection: Connection, sequence: int) -> int | None:
    """Return the plan version with which an item was matched, or None."""
    query = select(_g.plan, _g.first_sequence).where(_g.last_sequence >= sequence).order_by(_g.last_sequence)
    row = connection.execute(query.limit(1)).one_or_none()
    return None if row is None or row.first_sequence > sequence else int(row.plan)


def last_plan(connection: Connection) -> int:
    """Return the plan version of the last committed segment, or 0."""
    query = select(_g.plan).order_by(_g.last_sequence.desc()).limit(1)
    return int(connection.execute(query).scalar_one_or_none() or 0)


def last_segment_start(connection: Connection) -> int | None:
    """Return the first sequence of the last committed segment, where a replayed batch starts reading."""
    query = select(_g.first_sequence).order_by(_g.last_sequence.desc()).limit(1)
    return connection.execute(query).scalar_one_or_none()


def match_count(connection: Connection) -> int:
    """Count all matches that were ever recorded."""
    return counters.read_counter(connection, counters.MATCHES)


def current_lineage(connection: Connection) -> Lineage | None:
    """Return the current lineage, or None."""
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
    """Return the last committed batch of a lineage."""
    return connection.execute(select(func.max(_g.batch)).where(_g.lineage == lineage)).scalar()


def forget_lineages(connection: Connection, before: int) -> int:
    """Delete lineages that were abandoned before a time and have no segments left. Return their number."""
    used = select(_g.lineage).distinct()
    statement = delete(schema.lineages).where(_n.abandoned < before, _n.id.not_in(used))
    return connection.execute(statement).rowcount


def _part(row: Any) -> KeptPart:
    return KeptPart(
        row.path,
        row.first_sequence,
        row.last_sequence,
        row.bytes,
        row.lineage,
        row.batch,
        row.level,
        row.committed,
        row.by_query,
    )
