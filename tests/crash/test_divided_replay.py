"""A driver crashes during a batch with partitions, and restarts after the partitions have changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.engine import Engine, connect
from tests.crash.harness import SCRIPT, Victim, deadly_storage, item, verify
from tests.unit.scaleout.planning.partitioned_workspaces import current, epoch, move_everything

pytestmark = [pytest.mark.crash, pytest.mark.spark]
PARTITIONS = 3


def _segments(engine: Engine) -> list[MatchSegment]:
    with engine.workspace.catalog.read() as connection:
        return match_segments.match_segments(connection)


def test_restart_replays_batch_with_its_original_partitions(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with connect(root, partitions=PARTITIONS) as engine:
        engine.execute(SCRIPT)
        engine.publish("Wire", [item(number) for number in range(70)])
        engine.publish("Other", [item(number) for number in range(70, 120)])

        # The batch is planned, and one of its parts is written. Nothing is committed.
        storage = deadly_storage(root, tmp_path / "counter", "matches/", "after")
        assert Victim(root, "--once", "--storage", storage, partitions=PARTITIONS).wait() != 0
        assert list(root.glob("checkpoints/*/offsets/0")) != []
        assert len(list(root.glob("matches/*/*"))) > 0
        assert _segments(engine) == []

        before = current(engine)
        move_everything(engine, epoch(engine))
        after = current(engine)
        assert before.distribution != after.distribution
        engine.publish("Wire", [item(number) for number in range(120, 150)])
        assert Victim(root, "--once", partitions=PARTITIONS).wait() == 0

        segments = _segments(engine)
        assert [(one.first_sequence, one.last_sequence) for one in segments] == [(1, 120), (121, 150)]
        assert [one.plan for one in segments] == [before.version, after.version]
        assert all(one.counters["copies"] > 0 for one in segments), "both batches were matched in partitions"
        verify(engine, 150)

        # It crashes during another batch, and a partition of that batch is deleted. The base still has all queries.
        engine.publish("Other", [item(number) for number in range(150, 200)])
        storage = deadly_storage(root, tmp_path / "counter", "matches/", "before")
        assert Victim(root, "--once", "--storage", storage, partitions=PARTITIONS).wait() != 0
        shutil.rmtree(root / after.pieces[1])
        assert Victim(root, "--once", partitions=PARTITIONS).wait() == 0
        segments = _segments(engine)
        assert segments[-1].last_sequence == 200
        assert segments[-1].lineage > segments[0].lineage
        assert segments[-1].plan == after.version + 1
        verify(engine, 200)
