"""Workers record progress within a batch: after each chunk of a slice, and after each call of operators."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.in_process import InProcess

from runnel.engine import connect
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.storage.file_storage import Storage, open_storage
from runnel.streaming.worker import match_buffer, operator_work
from runnel.streaming.worker.progress_mark import place_mark, read_mark, read_reports, report_work, touch_mark

MODULE = "tests.crash.city_operators"


@pytest.fixture
def _fresh_operators() -> Iterator[None]:
    operator_work.operators.cache_clear()
    yield
    operator_work.operators.cache_clear()


def test_each_touch_changes_the_progress_mark(tmp_path: Path) -> None:
    storage = open_storage(tmp_path.as_uri())
    touch_mark(storage)
    assert read_mark(storage) == 0, "only the runner creates the file"
    place_mark(storage)
    path = tmp_path / "private" / "progress"
    assert path.stat().st_mode & 0o077 == 0
    os.utime(path, ns=(1, 1))
    assert read_mark(storage) == 1
    touch_mark(storage)
    assert read_mark(storage) > 1


@pytest.mark.usefixtures("_fresh_operators")
def test_matching_a_slice_and_calling_operators_touch_the_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[str] = []

    def count_touches(kind: str) -> None:
        def touch(storage: Storage) -> None:
            touched.append(kind)
            touch_mark(storage)

        monkeypatch.setattr({"slice": match_buffer, "call": operator_work}[kind], "touch_mark", touch)

    count_touches("slice")
    count_touches("call")
    with connect(tmp_path / "workspace", operator_modules=(MODULE,)) as engine:
        OperatorEnvironment.of(engine.workspace.settings).keep(engine.workspace.storage)
        place_mark(engine.workspace.storage)
        before = read_mark(engine.workspace.storage)
        engine.execute(
            f"register feed Wire; register operator loudness(?level int) from '{MODULE}:loudness' reading volume;"
            "create feed Noisy from Wire where loudness(?level) and ?level > 4; subscribe to Noisy output log;"
        )
        engine.publish("Wire", [{"id": str(number), "volume": number} for number in range(30)])
        InProcess(engine, slice_items=10).match()
        assert read_mark(engine.workspace.storage) > before
    assert touched.count("slice") == 3
    assert touched.count("call") >= 3
    assert touched.index("call") < touched.index("slice"), "the mark is touched while a slice is being matched"


def test_reports_are_read_once_and_only_when_they_are_complete(tmp_path: Path) -> None:
    storage = open_storage(tmp_path.as_uri())
    report_work(storage, "nothing is written before the runner has placed the file")
    assert read_reports(storage, 0) == ([], 0)
    place_mark(storage)
    report_work(storage, "first")
    report_work(storage, "second\nline", logging.WARNING)
    reports, position = read_reports(storage, 0)
    assert reports == [(logging.INFO, "first"), (logging.WARNING, "second\nline")]
    with storage.local("private/progress").open("a") as file:
        file.write('{"level": 20')
    assert read_reports(storage, position) == ([], position)
    place_mark(storage)
    report_work(storage, "third")
    assert read_reports(storage, position)[0] == [(logging.INFO, "third")], "the file was placed again"
