"""The match log as a Spark streaming sink.

The matching step has written parts with names that are unique to its attempt. The commit adds them to the match log,
in one transaction that checks the runner's epoch. If Spark replays a committed batch, the commit changes nothing.
Gates are resolved just before the commit (see `resolve_batch`), and their states are stored in the same transaction.
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

_MAX_READERS = 100
"""The number of feeds for which the failure of a hidden feed that they read is reported."""


@dataclass
class PartsWritten(WriterCommitMessage):  # type: ignore[misc]
    """The report of a task to the commit: the parts that it wrote, and the results that go into the catalog.

    `claims` has the encoded claims of each part, `failures` has (sequence, query, reason), `work` the load by
    partition.
    """

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
    """The Spark data source `runnel_matches`. Its option `job` is the text of a `Job`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> MatchWriter:  # noqa: N802
        return MatchWriter(Job.load(self.options["job"]))


class MatchWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Collects the reports of tasks, and commits batches."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[Any]) -> PartsWritten:
        """Collect the descriptions of the parts that this task has written. Runs in a task."""
        written = PartsWritten()
        for batch in iterator:
            for row in batch.to_pylist():
                description = json.loads(row["part"])
                written.parts.append(MatchPart(**description["part"]))
                written.plan = description["plan"]
                written.matches += description["matches"]
                written.counters.update(description["counters"])
                written.observed += description["observed"]
                written.failures += [tuple(failure) for failure in description["failures"]]
                written.claims.append(row["claims"])
                for partition, load in description["work"].items():
                    written.work.setdefault(int(partition), Counter()).update(load)
                if "learned" in description:
                    written.operators.append(
                        {name: description[name] for name in ("undecided", "learned", "answers")}
                    )
        return written

    def commit(self, messages: Sequence[PartsWritten | None], batchId: int) -> None:  # noqa: N803
        """Add the batch to the match log as a segment, unless this was done before. Runs in the driver."""
        with reporting_failures(self._job.storage):
            self._commit(messages, batchId)

    def _commit(self, messages: Sequence[PartsWritten | None], batch: int) -> None:
        from runnel.catalog.learned.stream_statistics import note
        from runnel.catalog.logs.match_segments import commit_segment
        from runnel.model.learned.stream_statistics import merged_observations

        written = [message for message in messages if message is not None and message.parts]
        if not written:
            return
        parts = [part for message in written for part in message.parts]
        storage = self._job.open_storage()
        # Spark commits each batch in a new process, so a connection that stays open would never be used again.
        with closing(self._job.open_catalog()) as catalog:
            resolved = self._resolve(catalog, storage, parts, written)
            segment = self._segment(batch, parts, written, 0 if resolved is None else resolved.added)
            with catalog.write() as connection:
                final_parts = parts if resolved is None else resolved.parts
                new_files = [part.path for part in parts] if resolved is None else resolved.new_files()
                # Check under the write lock: the deletion of orphans needs the lock, too, and spares committed files.
                for path in new_files:
                    if not storage.local(path).exists():
                        raise RunnelError(f"the file {path} was deleted before its batch was committed")
                if not commit_segment(connection, segment, final_parts, epoch=self._job.epoch):
                    return
                if resolved is not None:
                    resolved.store(connection, segment.first_sequence)
                self._note_operators(connection, segment, written)
                self._note_work(connection, segment, written)
                note(connection, merged_observations(sample for message in written for sample in message.observed))
                failures = [failure for message in written for failure in message.failures]
                self._quarantine(connection, [*failures, *(resolved.failures if resolved else ())])

    def _quarantine(self, connection: Connection, failures: Sequence[tuple[int, int, str]]) -> None:
        """Quarantine items for the queries that failed on them: (sequence, query, reason).

        Nobody sees a hidden feed, so the failure of one is reported for the feeds that read it.
        """
        from runnel.catalog.declared.feeds import hidden_among, visible_readers
        from runnel.catalog.logs.quarantine import EVALUATION, Quarantined, add_quarantined

        hidden = hidden_among(connection, {query for _, query, _ in failures}) if failures else set()
        readers = {query: sorted(visible_readers(connection, [query]))[:_MAX_READERS] for query in hidden}
        rows = {
            (sequence, reader): reason
            for sequence, query, reason in failures
            for reader in readers.get(query, (query,))
        }
        for (sequence, query), reason in rows.items():
            entry = Quarantined(EVALUATION, f"item {sequence}", reason, query=query, sequence=sequence)
            add_quarantined(connection, entry)

    def _note_operators(self, connection: Connection, segment: MatchSegment, written: Sequence[PartsWritten]) -> None:
        reports = [report for message in written for report in message.operators]
        if reports:
            from runnel.streaming.note_operators import note_operators

            note_operators(connection, reports, (segment.first_sequence, segment.last_sequence))

    def _note_work(self, connection: Connection, segment: MatchSegment, written: Sequence[PartsWritten]) -> None:
        """Record the load of each partition of the batch's plan, if the plan has partitions."""
        work: dict[int, Counter[str]] = {}
        for message in written:
            for partition, load in message.work.items():
                work.setdefault(partition, Counter()).update(load)
        if work:
            from runnel.catalog.logs.plan_versions import plan_by_version

            plan = plan_by_version(connection, segment.plan)
            if plan is not None:
                stream_port(plan.distribution).note_work(connection, plan, work)

    def _resolve(
        self, catalog: Catalog, storage: Storage, parts: Sequence[MatchPart], written: Sequence[PartsWritten]
    ) -> ResolvedBatch | None:
        """Resolve the gates of the batch, or return None if it has no claims."""
        claims = [encoded for message in written for encoded in message.claims]
        if not any(claims):
            return None
        from runnel.streaming.resolve_batch import resolve_batch

        return resolve_batch(catalog, storage, self._job.lineage, written[0].plan, parts, claims)

    def _segment(
        self, batch: int, parts: Sequence[MatchPart], written: Sequence[PartsWritten], added: int
    ) -> MatchSegment:
        from runnel.catalog.logs.match_segments import MatchSegment

        first, last = min(part.first_sequence for part in parts), max(part.last_sequence for part in parts)
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
        """Do nothing: the files of a failed attempt are orphans, which garbage collection deletes later."""
