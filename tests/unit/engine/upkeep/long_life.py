"""A workspace that a test drives step by step, with a model of its expected content, for maintenance and backups."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import insert, text

from runnel.catalog.delivery import ledger
from runnel.catalog.logs import item_segments as item_manifest
from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store import leases, schema
from runnel.catalog.store.connection import now
from runnel.engine.workspace import Workspace, create_workspace
from runnel.logs.matches.match_files import match_records, write_part
from runnel.model.bindings import Binding, bounded
from runnel.model.item import Item, attributes_of
from runnel.model.match import Matches
from runnel.testing import FakeClock

FEED = 1
QUERIES = range(2, 8)
BOUND = 4


def queries_of(sequence: int) -> list[int]:
    """Return the queries that an item matches, computed from its sequence."""
    return [query for query in QUERIES if (sequence * 2654435761 + query * 40503) % 97 < 30]


def bindings_of(sequence: int) -> dict[int, list[Binding]]:
    """Return bindings by query, computed from the sequence, including queries that the item does not match."""
    return {} if sequence % 4 else {BOUND: [{"n": float(sequence)}, {"n": "<&>"}]}


@dataclass
class LongLife:
    """A workspace, its clock and its runner's lease. `plans` and `times` are the model, by sequence."""

    workspace: Workspace
    clock: FakeClock
    epoch: int = 0
    plan: int = 1
    lineage: int = 1
    batch: int = -1
    plans: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    last_batch: tuple[MatchSegment, list[Any]] | None = None

    @staticmethod
    def make(folder: Path, **settings: Any) -> LongLife:
        clock = FakeClock()
        workspace = create_workspace(folder, clock=clock, **settings)
        with workspace.catalog.write() as connection:
            epoch = leases.acquire(connection, 1e9).epoch
            lineage = match_segments.start_lineage(connection, "test", reason="test").id
            connection.execute(
                insert(schema.subscriptions),
                [
                    {"feed": 2, "kind": "jsonl", "period": 10, "since": 0, "due": 10**18, "paused": 0, "created": 0},
                    {"feed": 3, "kind": "log", "period": None, "since": 0, "due": None, "paused": 0, "created": 0},
                ],
            )
        return LongLife(workspace, clock, epoch=epoch, lineage=lineage)

    @property
    def matched(self) -> int:
        return max(self.plans, default=0)

    def accept(self, count: int) -> None:
        """Accept new items in one segment."""
        first = len(self.times) + 1
        items = [Item("A", str(n), attributes_of({"title": f"item {n}"})) for n in range(first, first + count)]
        assert self.workspace.items.accept(FEED, items).accepted == count
        with self.workspace.catalog.read() as connection:
            moment = max(now(connection), max(self.times.values(), default=0))
        self.times |= dict.fromkeys(range(first, first + count), moment)

    def match(self, count: int, parts: int = 1) -> None:
        """Match the next items as one batch with `parts` parts."""
        first, last = self.matched + 1, min(self.matched + count, len(self.times))
        if last < first:
            return
        pieces = [part for part in np.array_split(np.arange(first, last + 1), parts) if len(part)]
        written = [
            write_part(
                self.workspace.storage,
                self.lineage,
                [
                    match_records(
                        part,
                        Matches.of([queries_of(int(n)) for n in part]),
                        {n: bindings_of(n) for n in part.tolist()},
                    )
                ],
                (int(part[0]), int(part[-1])),
            )
            for part in pieces
        ]
        self.batch += 1
        total = sum(len(queries_of(n)) for n in range(first, last + 1))
        segment = MatchSegment(
            self.lineage, self.batch, first, last, self.plan, last - first + 1, total, {"checks": total}
        )
        self.last_batch = (segment, written)
        assert self.commit_again(), "a new batch is new"
        self.plans |= dict.fromkeys(range(first, last + 1), self.plan)

    def commit_again(self) -> bool:
        """Commit the last batch again, like Spark does after a crash. Return whether it was new."""
        assert self.last_batch is not None
        with self.workspace.catalog.write() as connection:
            return match_segments.commit_segment(connection, *self.last_batch, epoch=self.epoch)

    def new_lineage(self) -> None:
        with self.workspace.catalog.write() as connection:
            self.lineage = match_segments.start_lineage(connection, "test", reason="test").id
        self.batch = -1

    def deliver(self) -> None:
        """Record that all matched items are delivered."""
        with self.workspace.catalog.write() as connection:
            ledger.set_cursor(connection, ledger.SHARED, self.matched)
            ledger.set_cursor(connection, 1, self.matched)

    def advance(self, **by: float) -> None:
        self.clock.advance(timedelta(**by))

    @property
    def retained(self) -> int:
        with self.workspace.catalog.read() as connection:
            return item_manifest.retained_upto(connection)

    # --- what must hold --------------------------------------------------------------------------------------------

    def check(self, workspace: Workspace | None = None, after: int = 0, upto: int | None = None) -> None:
        """Check that all retained items and matches of a range are read as they were written."""
        workspace = workspace or self.workspace
        with workspace.catalog.read() as connection:
            retained = item_manifest.retained_upto(connection)
        upto = len(self.times) if upto is None else upto
        kept = [n for n in range(max(after, retained) + 1, upto + 1) if n in self.times]
        read = [item for batch in workspace.items.read(after, upto) for item in batch.items({})]
        assert [(item.sequence, item.id, item.first("title")) for item in read] == [
            (n, str(n), f"item {n}") for n in kept
        ]
        assert [int(item.time.timestamp() * 1e6) for item in read if item.time] == [self.times[n] for n in kept]
        chosen = kept[::3]
        assert [int(n) for batch in workspace.items.get(chosen) for n in batch.sequences] == chosen
        self._check_matches(workspace, after, upto, [n for n in kept if n in self.plans])

    def _check_matches(self, workspace: Workspace, after: int, upto: int, kept: list[int]) -> None:
        expected = [(n, query) for n in kept for query in queries_of(n)]
        results = [
            (int(n), query)
            for rows in workspace.matches.read(after, upto)
            for n, query in zip(*rows.of_queries(QUERIES), strict=True)
        ]
        assert results == expected
        by_query = workspace.matches.of_queries([*QUERIES, 99], after, upto)
        assert {query: values.tolist() for query, values in by_query.items()} == {
            query: of for query in QUERIES if (of := [n for n in kept if query in queries_of(n)])
        }
        bound = {n: bounded(bindings_of(n)[BOUND]) for n in kept if bindings_of(n) and BOUND in queries_of(n)}
        assert workspace.matches.bindings(BOUND, kept) == bound
        assert workspace.matches.bindings(BOUND + 1, kept) == {}
        with workspace.catalog.read() as connection:
            assert [match_segments.plan_of_sequence(connection, n) for n in kept] == [self.plans[n] for n in kept]
            assert match_segments.match_count(connection) == sum(len(queries_of(n)) for n in self.plans)
            assert match_segments.matched_upto(connection) == self.matched
            assert connection.execute(text("select count(*) from match_segments")).scalar_one() == len(
                match_segments.match_segments(connection)
            )
