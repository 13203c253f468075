"""Damaged or missing partitions are created again from the base, and no query is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.unit.scaleout.planning.partitioned_workspaces import (
    DECLARED,
    assert_divided_alike,
    current,
    epoch,
    move_everything,
)

from runnel.engine import Engine, connect
from runnel.engine.planning.ports import repair_distributions
from runnel.errors import CorruptDataError
from runnel.logs.garbage import remove_orphans
from runnel.plan.store import ARRAYS
from runnel.scaleout.partitioning import ASSIGNMENT, MANIFEST, read_assignment, read_partitioning
from runnel.scaleout.planning.partition_plan import (
    ensure_partitioning,
    partition_queries,
    publish_partitioning,
)
from runnel.scaleout.planning.stream_knowledge import StreamKnowledge


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with connect(tmp_path / "workspace", partitions=3) as opened:
        opened.execute(DECLARED)
        yield opened


def _file(engine: Engine, path: str) -> Path:
    results = engine.workspace.storage.local(path)
    results.chmod(0o644)
    return results


def _remove(engine: Engine, piece: str) -> None:
    shutil.rmtree(engine.workspace.storage.local(piece))


def _shorten(engine: Engine, piece: str) -> None:
    path = _file(engine, f"{piece}/{ARRAYS}")
    path.write_bytes(path.read_bytes()[:-100])


def _flip(engine: Engine, piece: str) -> None:
    path = _file(engine, f"{piece}/{ARRAYS}")
    data = bytearray(path.read_bytes())
    data[-70] ^= 255
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [_remove, _shorten, _flip])
@pytest.mark.parametrize("which", [0, 2])
def test_damaged_partition_is_created_again(
    engine: Engine, damage: Callable[[Engine, str], None], which: int
) -> None:
    held, before = epoch(engine), current(engine)
    assert not repair_distributions(engine.workspace, held)
    assert current(engine) == before, "there was nothing to repair"
    damage(engine, before.pieces[which])
    assert repair_distributions(engine.workspace, held)
    after = current(engine)
    assert (after.base, after.delta, after.version) == (before.base, before.delta, before.version + 1)
    assert before.pieces[which] not in after.pieces
    assert_divided_alike(engine, after)


def test_starting_runner_detects_missing_files(engine: Engine) -> None:
    before = current(engine)
    assert ensure_partitioning(engine.workspace, epoch(engine)) is None
    _remove(engine, before.pieces[1])
    done = ensure_partitioning(engine.workspace, epoch(engine))
    assert done is not None
    assert_divided_alike(engine, current(engine))


def test_damage_in_an_old_version_does_not_repartition_the_current_one(engine: Engine) -> None:
    held, before = epoch(engine), current(engine)
    move_everything(engine, held)
    after = current(engine)
    gone = next(piece for piece in before.pieces if piece not in after.pieces)
    _remove(engine, gone)
    assert repair_distributions(engine.workspace, held), (
        "a batch that started with the old version has to be planned again"
    )
    assert current(engine) == after


def test_partitions_deleted_by_garbage_collection_are_not_published(engine: Engine) -> None:
    held, row = epoch(engine), current(engine)
    made = partition_queries(engine.workspace, row.base, 2, StreamKnowledge())
    assert remove_orphans(engine.workspace.catalog, engine.workspace.storage, older_than=-1) > 0
    assert publish_partitioning(engine.workspace, held, row, made) is None
    assert current(engine) == row
    made = partition_queries(engine.workspace, row.base, 2, StreamKnowledge())
    assert publish_partitioning(engine.workspace, held, row, made) == row.version + 1


@pytest.mark.parametrize("left", [0, 10, 200, 700, -1, -30])
def test_truncated_assignment_is_reported(engine: Engine, left: int) -> None:
    folder = current(engine).distribution or ""
    path = _file(engine, f"{folder}/{ASSIGNMENT}")
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(CorruptDataError, match="assignment") as refused:
        read_assignment(engine.workspace.storage, folder)
    assert "partitions = 1" in (refused.value.hint or "")


@pytest.mark.parametrize("wrong", ["pickle", "array", "flat", "text", "lengths"])
def test_invalid_assignment_file_is_rejected(engine: Engine, wrong: str) -> None:
    folder = current(engine).distribution or ""
    path = _file(engine, f"{folder}/{ASSIGNMENT}")
    ones = np.ones(3, dtype=np.int64)
    columns: dict[str, object] = dict.fromkeys(("query_ids", "partitions", "groups"), ones) | {
        "microseconds": np.ones(3)
    }
    instead: dict[str, object] = {
        "pickle": np.array([print], dtype=object),
        "flat": np.int64(3),
        "text": np.array(["a", "b", "c"]),
        "lengths": np.ones(2, dtype=np.int64),
    }
    with path.open("wb") as file:
        if wrong == "array":
            np.save(file, ones)
        else:
            np.savez(file, **columns | {"groups": instead[wrong]})  # type: ignore[arg-type]
    with pytest.raises(CorruptDataError, match="assignment"):
        read_assignment(engine.workspace.storage, folder)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": 1}', "", '{"format": 1, "strategy": "grouped"}'])
def test_invalid_manifest_is_rejected(engine: Engine, text: str) -> None:
    folder = current(engine).distribution or ""
    _file(engine, f"{folder}/{MANIFEST}").write_text(text)
    with pytest.raises(CorruptDataError, match="is not a partitioning"):
        read_partitioning(engine.workspace.storage, folder)
