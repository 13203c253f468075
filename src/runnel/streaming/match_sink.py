"""The match log as a Spark streaming sink.

The matching step has written parts under names that no other attempt uses; the commit makes them exist, in one
transaction that checks the runner's epoch. A batch that Spark replays finds itself committed and changes nothing.
Gates are resolved just before (see `resolve_batch`), and what they remember is part of the same transaction.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from runnel.errors import RunnelError
from runnel.model.segment import MatchPart
from runnel.storage.file_storage import Storage
from runnel.streaming.job import Job
from runnel.streaming.ports import stream_port
from runnel.streaming.worker.failures import reporting_failures

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from runnel.catalog.logs.match_segments import MatchSegment
    from runnel.catalog.store.connection import Catalog
    from runnel.streaming.resolve_batch import ResolvedBatch

FORMAT = "runnel_matches"


@dataclass
class PartsWritten(WriterCommitMessage):  # type: ignore[misc]
    """What a task tells the commit: its parts, what they hold, and the claims of each."""

    parts: list[MatchPart] = field(default_factory=list)
    plan: int = 0
    matches: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, int, str]] = field(default_factory=list)
    observed: list[dict[str, Any]] = field(default_factory=list)
    claims: list[bytes | None] = field(default_factory=list)
    operators: list[dict[str, Any]] = field(default_factory=list)
    work: dict[int, Counter[str]] = field(default_factory=dict)


class MatchSink(DataSource):  # type: ignore[misc]
    """The format `runnel_matches`; its option `job` says which root and how."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> MatchWriter:  # noqa: N802
        return MatchWriter(Job.load(self.options["job"]))


class MatchWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Commits batches."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[Any]) -> PartsWritten:
        """In a task: what the matching step wrote, and says of it, goes to the commit."""
        written = PartsWritten()
        for batch in iterator:
            for row in batch.to_pylist():
                told = json.loads(row["part"])
                written.parts.append(MatchPart(**told["part"]))
                written.plan = told["plan"]
                written.matches += told["matches"]
                written.counters.update(told["counters"])
                written.observed += told["observed"]
                written.failures += [tuple(one) for one in told["failures"]]
                written.claims.append(row["claims"])
                for number, took in told["work"].items():
                    written.work.setdefault(int(number), Counter()).update(took)
                if "learned" in told:
                    written.operators.append({name: told[name] for name in ("undecided", "learned", "answers")})
        return written

    def commit(self, messages: Sequence[PartsWritten | None], batchId: int) -> None:  # noqa: N803
        """In the driver: the batch becomes a segment, once."""
        with reporting_failures(self._job.storage):
            self._commit(messages, batchId)

    def _commit(self, messages: Sequence[PartsWritten | None], batch: int) -> None:
        from runnel.catalog.learned.stream_statistics import note
        from runnel.catalog.logs.match_segments import commit_segment
        from runnel.catalog.logs.quarantine import EVALUATION, Quarantined, add_quarantined
        from runnel.model.learned.stream_statistics import merged_observations

        written = [message for message in messages if message is not None and message.parts]
        if not written:
            return
        parts = [part for message in written for part in message.parts]
        storage = self._job.open_storage()
        # Spark commits every batch in a process of its own: a connection that is left open is never used again.
        with closing(self._job.open_catalog()) as catalog:
            resolved = self._resolve(catalog, storage, parts, written)
            segment = self._segment(batch, parts, written, 0 if resolved is None else resolved.added)
            with catalog.write() as connection:
                kept = parts if resolved is None else resolved.parts
                # Under the lock: who collects orphans removes none that is named by then.
                if not all(storage.local(part.path).exists() for part in kept):
                    raise RunnelError("a part of the batch was removed before it could be committed")
                if not commit_segment(connection, segment, kept, epoch=self._job.epoch):
                    return
                if resolved is not None:
                    resolved.store_states(connection, segment.first_sequence)
                self._note_operators(connection, segment, written)
                self._note_work(connection, segment, written)
                note(connection, merged_observations(one for message in written for one in message.observed))
                for sequence, query, reason in (one for message in written for one in message.failures):
                    add_quarantined(
                        connection,
                        Quarantined(EVALUATION, f"item {sequence}", reason, query=query, sequence=sequence),
                    )

    def _note_operators(self, connection: Connection, segment: MatchSegment, written: Sequence[PartsWritten]) -> None:
        told = [one for message in written for one in message.operators]
        if told:
            from runnel.streaming.note_operators import note_operators

            note_operators(connection, told, (segment.first_sequence, segment.last_sequence))

    def _note_work(self, connection: Connection, segment: MatchSegment, written: Sequence[PartsWritten]) -> None:
        """Note what the parts of the batch's plan took, where it has any."""
        work: dict[int, Counter[str]] = {}
        for message in written:
            for number, took in message.work.items():
                work.setdefault(number, Counter()).update(took)
        if work:
            from runnel.catalog.logs.plan_versions import plan_by_version

            plan = plan_by_version(connection, segment.plan)
            if plan is not None:
                stream_port(plan.distribution).note_work(connection, plan, work)

    def _resolve(
        self, catalog: Catalog, storage: Storage, parts: Sequence[MatchPart], written: Sequence[PartsWritten]
    ) -> ResolvedBatch | None:
        """The batch with its gates resolved, if any of its items reach a gate."""
        claims = [one for message in written for one in message.claims]
        if not any(claims):
            return None
        from runnel.streaming.resolve_batch import resolve_batch

        return resolve_batch(catalog, storage, self._job.lineage, parts, claims)

    def _segment(
        self, batch: int, parts: Sequence[MatchPart], written: Sequence[PartsWritten], added: int
    ) -> MatchSegment:
        from runnel.catalog.logs.match_segments import MatchSegment

        first, last = min(one.first_sequence for one in parts), max(one.last_sequence for one in parts)
        counters: Counter[str] = Counter()
        for message in written:
            counters.update(message.counters)
        return MatchSegment(
            self._job.lineage,
            batch,
            first,
            last,
            written[0].plan,
            last - first + 1,
            sum(message.matches for message in written) + added,
            dict(counters),
        )

    def abort(self, messages: Sequence[PartsWritten | None], batchId: int) -> None:  # noqa: N803
        """Parts of a failed attempt are orphans; they are collected later."""
