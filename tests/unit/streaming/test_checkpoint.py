"""Which checkpoints a run resumes from, and which it abandons, even if they contain garbage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.model.segment import MatchPart
from runnel.storage.file_storage import FileStorage
from runnel.streaming.checkpoint import reason_not_to_resume
from runnel.streaming.streaming_query import checkpoint_path, choose_lineage


def _write_planned_batch(folder: Path, batch: int, sequence: int) -> None:
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    notes = json.dumps({"batchWatermarkMs": 0, "conf": {}})
    offset = json.dumps({"sequence": sequence, "plan": 1})
    (folder / "offsets" / str(batch)).write_text(f"v1\n{notes}\n{offset}")
    (folder / "metadata").write_text('{"id":"a7ccaf10"}')


def _write_finished_batch(folder: Path, batch: int) -> None:
    (folder / "commits").mkdir(parents=True, exist_ok=True)
    (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def _write_checkpoint(folder: Path, batches: int, *, finished: int) -> Path:
    """Write a checkpoint with batches of ten items each, of which the first `finished` are finished."""
    for batch in range(batches):
        _write_planned_batch(folder, batch, 10 * (batch + 1))
    for batch in range(finished):
        _write_finished_batch(folder, batch)
    return folder


def test_checkpoint_is_resumed_wherever_the_runner_died(tmp_path: Path) -> None:
    assert reason_not_to_resume(tmp_path / "none", None, 0) is None, "a lineage that has just begun"
    assert reason_not_to_resume(_write_checkpoint(tmp_path / "a", 1, finished=0), None, 0) is None, (
        "died before the first commit"
    )
    assert reason_not_to_resume(_write_checkpoint(tmp_path / "b", 3, finished=2), 1, 20) is None, (
        "died with a batch planned"
    )
    assert reason_not_to_resume(_write_checkpoint(tmp_path / "c", 3, finished=2), 2, 30) is None, (
        "died after the commit, before Spark recorded it"
    )
    assert reason_not_to_resume(_write_checkpoint(tmp_path / "d", 3, finished=3), 2, 30) is None, (
        "died between batches"
    )


@pytest.mark.parametrize(
    ("batches", "finished", "committed", "matched", "words"),
    [
        (0, 0, 2, 30, "missing"),
        (2, 2, 2, 30, "behind"),
        (3, 3, 1, 20, "not in the match log"),
        (3, 3, None, 0, "not in the match log"),
        (3, 3, 2, 31, "ends at item 30"),
        (3, 2, 1, 30, "ends at item 20"),
        (1, 0, None, 10, "next batch of the checkpoint ends at item 10"),
    ],
)
def test_checkpoint_that_disagrees_with_the_match_log_is_abandoned(
    tmp_path: Path, batches: int, finished: int, committed: int | None, matched: int, words: str
) -> None:
    reason = reason_not_to_resume(_write_checkpoint(tmp_path / "x", batches, finished=finished), committed, matched)
    assert reason is not None
    assert words in reason


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    file=st.sampled_from(["offsets/2", "offsets/1", "commits/2", "metadata"]),
    garbage=st.one_of(
        st.binary(max_size=60),
        st.sampled_from(
            [b"", b"v1", b"v2\n{}\n{}", b"v1\n{}\n{}", b"v1\n[]\n3", b'v1\n{"conf":{}}\n{"sequence":30}', b"{}"]
        ),
    ),
)
def test_damaged_checkpoint_is_abandoned_and_raises_no_error(tmp_path: Path, file: str, garbage: bytes) -> None:
    shutil.rmtree(tmp_path / "x", ignore_errors=True)
    folder = _write_checkpoint(tmp_path / "x", 3, finished=3)
    (folder / file).write_bytes(garbage)
    if file == "commits/2" and garbage.startswith(b"v1\n{"):
        return  # Spark can read this
    assert reason_not_to_resume(folder, 2, 30) == "the checkpoint cannot be read"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog(f"sqlite:///{tmp_path / 'catalog.sqlite'}")
    catalog.migrate()
    yield catalog
    catalog.close()


def test_lineage_with_another_checkpoint_format_is_abandoned(catalog: Catalog, tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    with catalog.write() as connection:
        lease = leases.acquire(connection, 60)
        old = match_segments.start_lineage(connection, "match/0", reason="first run")
        segment = MatchSegment(old.id, 0, 1, 10, 1, 10, 0)
        match_segments.commit_segment(connection, segment, [MatchPart("p", 1, 10, 1)], epoch=lease.epoch)
    _write_checkpoint(storage.local(checkpoint_path(old.id)), 1, finished=1)
    fresh = choose_lineage(catalog, storage, epoch=lease.epoch)
    assert (fresh.id > old.id, fresh.after_sequence) == (True, 10)
    assert choose_lineage(catalog, storage, epoch=lease.epoch) == fresh, "a second start continues the new lineage"
