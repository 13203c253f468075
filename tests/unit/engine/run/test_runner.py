"""The runner's own logic, with a query in place of Spark's: stopping, failing, retrying, letting go."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from runnel.catalog.store import leases
from runnel.engine import Engine, open_engine
from runnel.engine.run import query_keeper, runner
from runnel.engine.run.runner import Progress, Runner
from runnel.errors import CorruptDataError, FencedError, RunnelError, StorageFullError


class _Query:
    """A streaming query that does nothing, or fails for a reason."""

    started = 0
    stopped = 0
    waited_for = threading.Event()
    before: tuple[threading.Thread, ...] = ()

    def __init__(self, reason: str | None) -> None:
        type(self).started += 1
        self._reason = reason
        self.isActive = reason is None

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802
        self.waited_for.set()
        if self._reason is not None:
            raise RuntimeError(self._reason)
        time.sleep(seconds)
        return not self.isActive

    def exception(self) -> Exception | None:
        return None if self._reason is None else RuntimeError(self._reason)

    def stop(self) -> None:
        type(self).stopped += 1
        self.isActive = False


_SPARK = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    _Query.started = _Query.stopped = 0
    _Query.waited_for = threading.Event()
    _Query.before = tuple(threading.enumerate())
    with open_engine(tmp_path / "root") as opened:
        opened.execute("register feed Wire; subscribe to Wire output log;")
        opened.publish("Wire", [{"id": "1"}])
        yield opened


def _runner(engine: Engine, monkeypatch: pytest.MonkeyPatch, reason: str | None) -> Runner:
    monkeypatch.setattr(query_keeper, "start_query", lambda spark, job, once: _Query(reason))
    monkeypatch.setattr(runner, "_DRAIN_SECONDS", 0.2)
    return Runner(engine.root, lambda: _SPARK, engine._parts())


def _loops() -> list[str]:
    """The loops of this test's run that still turn; threads of tests before it are none of its matter."""
    return [one.name for one in threading.enumerate() if one.name.startswith("runnel-") and one not in _Query.before]


def test_a_stopped_run_lets_go_of_everything(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)
    threading.Timer(0.3, made.stop).start()
    assert made.run(once=False).state == "stopped"
    assert (_Query.stopped, _loops()) == (1, [])
    assert engine.status().runner == "none"


def test_a_run_that_raises_lets_go_of_everything(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)

    def report(progress: Progress) -> None:
        if progress.state == "running":
            raise ValueError("the caller's own mistake")

    with pytest.raises(ValueError, match="own mistake"):
        made.run(once=False, report=report)
    assert (_Query.stopped, _loops()) == (1, [])
    assert engine.status().runner == "none"


def test_a_bounded_run_can_be_stopped(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)

    def stop_while_the_query_is_waited_for() -> None:
        _Query.waited_for.wait()
        made.stop()

    threading.Thread(target=stop_while_the_query_is_waited_for, daemon=True).start()
    assert made.run(once=True).lag == 1
    assert _Query.stopped >= 1


@pytest.mark.parametrize(
    ("reason", "error", "starts"),
    [
        ("x\n  runnel.errors.CorruptDataError: plans/1 cannot be read\n", CorruptDataError, 1),
        ("runnel.errors.FencedError: epoch 1 is over", FencedError, 1),
        ("something nobody foresaw", RunnelError, 5),
        ("runnel.errors.LineageConflictError: batch 0 begins at 7", RunnelError, 5),
    ],
)
def test_what_cannot_be_mended_ends_the_run(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, reason: str, error: type[Exception], starts: int
) -> None:
    made = _runner(engine, monkeypatch, reason)
    monkeypatch.setattr(made._stop, "wait", lambda seconds=None: False)
    with pytest.raises(error):
        made.run(once=True)
    assert _Query.started == starts


def test_losing_the_lease_ends_the_run(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)

    def take_over() -> None:
        with engine.root.catalog.write() as connection:
            connection.exec_driver_sql("update leases set expires = 1")
            leases.acquire(connection, 60)

    def report(progress: Progress) -> None:
        if progress.state == "running":
            take_over()

    with pytest.raises(FencedError):
        made.run(once=False, report=report)
    assert _loops() == []


def test_a_full_disk_is_waited_for_wherever_it_shows(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)
    progress, turns = made.progress, iter([False, False, True, True])
    told: list[str] = []

    def full_at_times() -> Progress:
        if made.pulse.state == "running" and next(turns, False):
            raise StorageFullError("no room left for the catalog")
        return progress()

    def report(now: Progress) -> None:
        told.append(now.state)

    monkeypatch.setattr(made, "progress", full_at_times)
    threading.Timer(5.0, made.stop).start()
    made.run(once=False, report=report)
    assert told.count("running") >= 2
    assert next(turns, None) is None, "it must have met the full disk"
