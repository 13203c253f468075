"""Snapshots for workers: short texts in slices, and files with the declarations of operators."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.catalog.declared.operators import drop_operator, register_operator
from runnel.engine import Engine, connect
from runnel.errors import CorruptDataError
from runnel.model.operator import OperatorDeclaration, Parameter
from runnel.streaming.operator_snapshot import OperatorSnapshot, OperatorSnapshots, read_declarations
from runnel.streaming.worker.operator_work import declarations_at

DAY = 86_400
LONGEST = 200
"""Bytes in every slice, however many operators there are."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with connect(tmp_path / "workspace", create=True) as opened:
        yield opened


def register(engine: Engine, *names: str) -> None:
    parameters = (Parameter("place", "input"), Parameter("people", "result", "int"))
    with engine.workspace.catalog.write() as connection:
        for name in names:
            configuration = (("model", "model.onnx"),)
            register_operator(
                connection,
                OperatorDeclaration(name, 0, "city.vision:mob_pattern", parameters, configuration=configuration),
            )


def made_by(snapshots: OperatorSnapshots, engine: Engine) -> OperatorSnapshot:
    with engine.workspace.catalog.read() as connection:
        return snapshots.brief(connection, 0, 0)


def files(engine: Engine) -> list[Path]:
    return sorted(engine.workspace.storage.local("operators/declared").glob("*"))


def names(engine: Engine, snapshot: OperatorSnapshot) -> list[str]:
    assert snapshot.declared is not None
    return [one.name for one in read_declarations(engine.workspace.storage, snapshot.declared)]


def test_without_operators_slices_carry_nothing(engine: Engine) -> None:
    snapshot = made_by(OperatorSnapshots(engine.workspace.storage, 1.0), engine)
    assert (snapshot, snapshot.dump(), files(engine)) == (OperatorSnapshot(), None, [])
    assert OperatorSnapshot.load(None) == OperatorSnapshot()
    assert declarations_at(engine.workspace.storage.url, None) == ()


@pytest.mark.parametrize("count", [1, 100])
def test_slices_are_short_however_many_operators_there_are(engine: Engine, count: int) -> None:
    register(engine, *(f"operator{number}" for number in range(count)))
    text = made_by(OperatorSnapshots(engine.workspace.storage, 0.5), engine).dump()
    assert text is not None
    assert len(text) <= LONGEST
    snapshot = OperatorSnapshot.load(text)
    assert snapshot.share == 0.5
    declared = declarations_at(engine.workspace.storage.url, snapshot.declared)
    assert sorted(one.name for one in declared) == sorted(f"operator{number}" for number in range(count))
    assert declared is declarations_at(engine.workspace.storage.url, snapshot.declared), "one file is read once"


def test_items_in_the_log_again_survive_the_text() -> None:
    snapshot = OperatorSnapshot(None, again={7: (1, 2), 9: ()})
    assert OperatorSnapshot.load(snapshot.dump()) == snapshot


def test_declarations_are_written_once_until_they_change(engine: Engine) -> None:
    snapshots = OperatorSnapshots(engine.workspace.storage, 1.0)
    register(engine, "mob")
    first = made_by(snapshots, engine)
    (file,) = files(engine)
    written = file.stat().st_ino
    assert made_by(snapshots, engine) == first
    assert file.stat().st_ino == written, "the file was not written again"
    register(engine, "boats")
    second = made_by(snapshots, engine)
    assert names(engine, first) == ["mob"], "batches with the old plan can still be matched"
    assert names(engine, second) == ["boats", "mob"]
    with engine.workspace.catalog.write() as connection:
        drop_operator(connection, "boats")
    assert names(engine, made_by(snapshots, engine)) == ["boats", "mob"], "an unfinished batch may call it"


def test_declarations_are_removed_after_a_day_without_use(engine: Engine) -> None:
    snapshots = OperatorSnapshots(engine.workspace.storage, 1.0)
    register(engine, "mob")
    made_by(snapshots, engine)
    (used,) = files(engine)
    past = time.time() - DAY - 60
    os.utime(used, (past, past))
    made_by(snapshots, engine)  # marks the file as used
    unused = used.with_name(f"{'0' * 32}.json")
    recent = used.with_name(f"{'1' * 32}.json")
    for file, age in ((unused, DAY + 60), (recent, DAY - 3600)):
        file.write_text("[]")
        os.utime(file, (time.time() - age, time.time() - age))
    register(engine, "boats")
    snapshot = made_by(
        OperatorSnapshots(engine.workspace.storage, 1.0), engine
    )  # as a preview does in another process
    kept = engine.workspace.storage.local(snapshot.declared or "")
    assert files(engine) == sorted([used, recent, kept])


def test_a_file_that_was_removed_or_damaged_is_written_again(engine: Engine) -> None:
    snapshots = OperatorSnapshots(engine.workspace.storage, 1.0)
    register(engine, "mob")
    snapshot = made_by(snapshots, engine)
    (file,) = files(engine)
    file.unlink()
    assert names(engine, made_by(snapshots, engine)) == ["mob"]
    file.write_bytes(file.read_bytes().replace(b"mob_pattern", b"mob_patterns"))
    with pytest.raises(CorruptDataError, match="does not have the declarations"):
        names(engine, snapshot)
    # A run that failed starts again with a reader of its own.
    assert names(engine, made_by(OperatorSnapshots(engine.workspace.storage, 1.0), engine)) == ["mob"]
