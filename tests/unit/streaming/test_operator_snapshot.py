"""Snapshots of operators for workers: short texts in slices, and files with the declarations of operators."""

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
from runnel.streaming.worker.operator_work import load_declarations

DAY = 86_400
MAX_SNAPSHOT_BYTES = 200


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


def create_snapshot(snapshots: OperatorSnapshots, engine: Engine) -> OperatorSnapshot:
    with engine.workspace.catalog.read() as connection:
        return snapshots.create(connection, 0, 0)


def declaration_files(engine: Engine) -> list[Path]:
    return sorted(engine.workspace.storage.local("operators/declared").glob("*"))


def declared_names(engine: Engine, snapshot: OperatorSnapshot) -> list[str]:
    assert snapshot.declared is not None
    return [declaration.name for declaration in read_declarations(engine.workspace.storage, snapshot.declared)]


def test_there_is_no_snapshot_text_without_operators(engine: Engine) -> None:
    snapshot = create_snapshot(OperatorSnapshots(engine.workspace.storage, 1.0), engine)
    assert (snapshot, snapshot.dump(), declaration_files(engine)) == (OperatorSnapshot(), None, [])
    assert OperatorSnapshot.load(None) == OperatorSnapshot()
    assert load_declarations(engine.workspace.storage.url, None) == ()


@pytest.mark.parametrize("count", [1, 100])
def test_snapshot_text_does_not_grow_with_the_number_of_operators(engine: Engine, count: int) -> None:
    register(engine, *(f"operator{number}" for number in range(count)))
    text = create_snapshot(OperatorSnapshots(engine.workspace.storage, 0.5), engine).dump()
    assert text is not None
    assert len(text) <= MAX_SNAPSHOT_BYTES
    snapshot = OperatorSnapshot.load(text)
    assert snapshot.share == 0.5
    declared = load_declarations(engine.workspace.storage.url, snapshot.declared)
    assert sorted(declaration.name for declaration in declared) == sorted(
        f"operator{number}" for number in range(count)
    )
    assert declared is load_declarations(engine.workspace.storage.url, snapshot.declared), (
        "an unchanged file is read only once"
    )


def test_items_that_were_logged_again_survive_dump_and_load() -> None:
    snapshot = OperatorSnapshot(None, again={7: (1, 2), 9: ()})
    assert OperatorSnapshot.load(snapshot.dump()) == snapshot


def test_declarations_are_written_only_when_they_change(engine: Engine) -> None:
    snapshots = OperatorSnapshots(engine.workspace.storage, 1.0)
    register(engine, "mob")
    first = create_snapshot(snapshots, engine)
    (file,) = declaration_files(engine)
    written = file.stat().st_ino
    assert create_snapshot(snapshots, engine) == first
    assert file.stat().st_ino == written, "the file was not written again"
    register(engine, "boats")
    second = create_snapshot(snapshots, engine)
    assert declared_names(engine, first) == ["mob"], "a batch may still use the old snapshot"
    assert declared_names(engine, second) == ["boats", "mob"]
    with engine.workspace.catalog.write() as connection:
        drop_operator(connection, "boats")
    assert declared_names(engine, create_snapshot(snapshots, engine)) == ["boats", "mob"], (
        "an unfinished batch may call it"
    )


def test_files_with_declarations_are_deleted_after_a_day_without_use(engine: Engine) -> None:
    snapshots = OperatorSnapshots(engine.workspace.storage, 1.0)
    register(engine, "mob")
    create_snapshot(snapshots, engine)
    (used,) = declaration_files(engine)
    past = time.time() - DAY - 60
    os.utime(used, (past, past))
    create_snapshot(snapshots, engine)  # marks the file as used
    unused = used.with_name(f"{'0' * 32}.json")
    recent = used.with_name(f"{'1' * 32}.json")
    for file, age in ((unused, DAY + 60), (recent, DAY - 3600)):
        file.write_text("[]")
        os.utime(file, (time.time() - age, time.time() - age))
    register(engine, "boats")
    snapshot = create_snapshot(
        OperatorSnapshots(engine.workspace.storage, 1.0), engine
    )  # as a preview does in another process
    kept = engine.workspace.storage.local(snapshot.declared or "")
    assert declaration_files(engine) == sorted([used, recent, kept])


def test_deleted_or_damaged_declarations_are_written_again(engine: Engine) -> None:
    snapshots = OperatorSnapshots(engine.workspace.storage, 1.0)
    register(engine, "mob")
    snapshot = create_snapshot(snapshots, engine)
    (file,) = declaration_files(engine)
    file.unlink()
    assert declared_names(engine, create_snapshot(snapshots, engine)) == ["mob"]
    file.write_bytes(file.read_bytes().replace(b"mob_pattern", b"mob_patterns"))
    with pytest.raises(CorruptDataError, match="digest differs"):
        declared_names(engine, snapshot)
    # After a failure, a run restarts with a new reader, and thus with a new OperatorSnapshots.
    assert declared_names(engine, create_snapshot(OperatorSnapshots(engine.workspace.storage, 1.0), engine)) == [
        "mob"
    ]
