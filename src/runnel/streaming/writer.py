"""The match log as a Spark streaming sink.

Tasks write parts under names that no other attempt uses; the commit makes them exist, in one transaction that checks
the runner's epoch. A batch that Spark replays finds itself committed and changes nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from runnel.errors import RunnelError
from runnel.log.match_files import MATCH_SCHEMA, write_part
from runnel.model.segment import MatchPart
from runnel.streaming.job import Job

FORMAT = "runnel_matches"


@dataclass
class PartWritten(WriterCommitMessage):  # type: ignore[misc]
    """What a task tells the commit: its part, and what it holds."""

    part: MatchPart | None
    plan: int
    matches: int
    counters: dict[str, int]
    failures: list[tuple[int, int, str]]
    observed: list[dict[str, Any]]


class MatchLogSink(DataSource):  # type: ignore[misc]
    """The format `runnel_matches`; its option `job` says which root and how."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> MatchLogWriter:  # noqa: N802
        return MatchLogWriter(Job.load(self.options["job"]))


class MatchLogWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes parts and commits batches."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[Any]) -> PartWritten:
        """In a task: all blocks of the partition become one part."""
        blocks: list[Any] = []
        firsts: list[int] = []
        lasts: list[int] = []
        counters: Counter[str] = Counter()
        failures: list[tuple[int, int, str]] = []
        observed: list[dict[str, Any]] = []
        plan = matches = 0
        for batch in iterator:
            for row in batch.to_pylist():
                blocks.append(pa.ipc.read_record_batch(pa.py_buffer(row["block"]), MATCH_SCHEMA))
                firsts.append(row["first_sequence"])
                lasts.append(row["last_sequence"])
                counters.update(json.loads(row["counters"]))
                observed.append(json.loads(row["observed"]))
                failures.extend(tuple(one) for one in json.loads(row["failures"]))
                plan = row["plan"]
                matches += row["matches"]
        if not blocks:
            return PartWritten(None, 0, 0, {}, [], [])
        part = write_part(self._job.open_storage(), self._job.lineage, blocks, (min(firsts), max(lasts)))
        return PartWritten(part, plan, matches, dict(counters), failures, observed)

    def commit(self, messages: Sequence[PartWritten | None], batchId: int) -> None:  # noqa: N803
        """In the driver: the batch becomes a segment, once."""
        from runnel.catalog.inspection import EVALUATION, Quarantined, put_aside
        from runnel.catalog.matches import MatchSegment, commit_segment
        from runnel.catalog.statistics import note
        from runnel.model.statistics import merged_observations

        written = [message for message in messages if message is not None and message.part is not None]
        if not written:
            return
        parts = [message.part for message in written if message.part is not None]
        first, last = min(p.first_sequence for p in parts), max(p.last_sequence for p in parts)
        counters: Counter[str] = Counter()
        for message in written:
            counters.update(message.counters)
        segment = MatchSegment(
            self._job.lineage,
            batchId,
            first,
            last,
            written[0].plan,
            last - first + 1,
            sum(message.matches for message in written),
            dict(counters),
        )
        storage = self._job.open_storage()
        if not all(storage.local(part.path).exists() for part in parts):
            raise RunnelError("a part of the batch was removed before it could be committed")
        # Spark commits every batch in a process of its own: a connection that is left open is never used again.
        with closing(self._job.open_catalog()) as catalog, catalog.write() as connection:
            if commit_segment(connection, segment, parts, epoch=self._job.epoch):
                note(connection, merged_observations(one for message in written for one in message.observed))
                for sequence, query, reason in (one for message in written for one in message.failures):
                    put_aside(
                        connection,
                        Quarantined(EVALUATION, f"item {sequence}", reason, query=query, sequence=sequence),
                    )

    def abort(self, messages: Sequence[PartWritten | None], batchId: int) -> None:  # noqa: N803
        """Parts of a failed attempt are orphans; they are collected later."""
