"""The runner with a stub in place of Spark's streaming query: stopping, failures, retries and cleanup."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from runnel.catalog.store import leases
from runnel.engine import Engine, connect
from runnel.engine.run import query_supervisor, runner
from runnel.engine.run.run_state import RunState
from runnel.engine.run.runner import Progress, Runner
from runnel.errors import (
    CatalogUnavailableError,
    CorruptDataError,
    FencedError,
    LineageConflictError,
    RunnelError,
    SparkLostError,
    StorageFullError,
)
from runnel.sources.acquire import Acquisition
from runnel.sources.contract import SourceReader
from runnel.storage.workspace_marker import MARKER
from runnel.streaming.worker.failures import Failure


class _Query:
    """A stub of a streaming query that does nothing, or fails with a reason."""

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
    with connect(tmp_path / "workspace") as opened:
        opened.execute("register feed Wire; subscribe to Wire output log;")
        opened.publish("Wire", [{"id": "1"}])
        yield opened


def _runner(engine: Engine, monkeypatch: pytest.MonkeyPatch, reason: str | None) -> Runner:
    monkeypatch.setattr(query_supervisor, "start_query", lambda spark, job, port, once: _Query(reason))
    monkeypatch.setattr(runner, "_DRAIN_SECONDS", 0.2)
    return Runner(engine.workspace, lambda: _SPARK, engine._parts())


def _loops() -> list[str]:
    """Return the names of this test's runner loops that still run, without threads of earlier tests."""
    threads = [thread for thread in threading.enumerate() if thread not in _Query.before]
    return [thread.name for thread in threads if thread.name.startswith("runnel-")]


def test_stopped_run_ends_query_and_loops_and_releases_lease(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)
    threading.Timer(0.3, made.stop).start()
    assert made.run(once=False).state == "stopped"
    assert (_Query.stopped, _loops()) == (1, [])
    assert engine.status().runner == "none"


def test_failed_run_ends_query_and_loops_and_releases_lease(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)

    def report(progress: Progress) -> None:
        if progress.state == "running":
            raise ValueError("the caller's own mistake")

    with pytest.raises(ValueError, match="own mistake"):
        made.run(once=False, report=report)
    assert (_Query.stopped, _loops()) == (1, [])
    assert engine.status().runner == "none"


def test_bounded_run_can_be_stopped(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)

    def stop_while_the_query_is_waited_for() -> None:
        _Query.waited_for.wait()
        made.stop()

    threading.Thread(target=stop_while_the_query_is_waited_for, daemon=True).start()
    assert made.run(once=True).lag == 1
    assert _Query.stopped >= 1


class _Reader(SourceReader):
    """The reader of a plug-in, which raises an error or returns None instead of an Acquisition."""

    name, pause = "csv", 60.0

    def __init__(self, error: Exception | None, has_period: bool) -> None:
        self._error = error
        self.has_period = has_period
        self.rounds = 0

    def read(self, *, once: bool = False, progressed: Callable[[], None] = lambda: None) -> Acquisition:
        self.rounds += 1
        if self._error is not None:
            raise self._error
        return None  # type: ignore[return-value]


def _bounded_run(engine: Engine, monkeypatch: pytest.MonkeyPatch, *readers: _Reader) -> Runner:
    """Return a bounded run that ends before matching starts."""
    parts = replace(engine._parts(), readers=readers)
    made = Runner(engine.workspace, lambda: _SPARK, parts)
    monkeypatch.setattr(made, "_start_spark", lambda supervisor, report: False)
    return made


@pytest.mark.parametrize("has_period", [False, True])
@pytest.mark.parametrize("error", [KeyError("HOME"), OSError(5, "Input/output error"), None])
def test_bounded_run_continues_after_any_error_of_a_reader(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception | None,
    has_period: bool,
) -> None:
    broken, other = _Reader(error, has_period), _Reader(error, has_period)
    made = _bounded_run(engine, monkeypatch, broken, other)
    assert made.run(once=True).state == "stopped"
    assert (broken.rounds, other.rounds) == (1, 1)
    assert made.run_state.total("turns failed") == 2
    assert caplog.text.count("csv failed") == 2


@pytest.mark.parametrize("error", [FencedError("taken over"), StorageFullError("the disk is full")])
def test_bounded_run_ends_if_a_reader_is_fenced_or_the_disk_is_full(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, error: RunnelError
) -> None:
    with pytest.raises(type(error)):
        _bounded_run(engine, monkeypatch, _Reader(error, False)).run(once=True)


def test_bounded_run_continues_after_the_catalog_was_unavailable(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _runner(engine, monkeypatch, None)
    calls: list[str] = []

    def notice_progress(self: query_supervisor.StreamingQuerySupervisor) -> None:
        calls.append("catalog")
        if len(calls) == 1:
            raise CatalogUnavailableError("the catalog is unavailable")
        made.stop()

    monkeypatch.setattr(query_supervisor.StreamingQuerySupervisor, "notice_progress", notice_progress)
    assert made.run(once=True).state == "stopped"
    assert len(calls) > 1


def test_failed_bounded_run_ends_its_query(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)

    def notice_progress(self: query_supervisor.StreamingQuerySupervisor) -> None:
        raise FencedError("another runner has taken over this workspace")

    monkeypatch.setattr(query_supervisor.StreamingQuerySupervisor, "notice_progress", notice_progress)
    with pytest.raises(FencedError):
        made.run(once=True)
    assert _Query.stopped == 1


def _spark_error_text(error: Exception) -> str:
    """Return the text of a Spark error that was caused by an error in a Python worker."""
    return f"Traceback\n  {error}\nThe above exception was the cause:\n{Failure.of(error).line()}\n  at org.apache"


@pytest.mark.parametrize(
    ("reason", "error", "starts"),
    [
        (_spark_error_text(CorruptDataError("plans/1 cannot be read")), CorruptDataError, 1),
        (_spark_error_text(FencedError("epoch 1 is over")), FencedError, 1),
        ("an unexpected error", RunnelError, 5),
        ("an item says: runnel.errors.FencedError: epoch 1 is over", RunnelError, 5),
        (_spark_error_text(RunnelError(_spark_error_text(FencedError("an item says so")))), RunnelError, 5),
        (_spark_error_text(LineageConflictError("batch 0 begins at 7")), RunnelError, 5),
    ],
)
def test_permanent_errors_end_the_run(
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
        with engine.workspace.catalog.write() as connection:
            connection.exec_driver_sql("update leases set expires = 1")
            leases.acquire(connection, 60)

    def report(progress: Progress) -> None:
        if progress.state == "running":
            take_over()

    with pytest.raises(FencedError):
        made.run(once=False, report=report)
    assert _loops() == []


def test_run_waits_while_the_disk_is_full(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)
    progress, turns = made.progress, iter([False, False, True, True])
    states: list[str] = []

    def progress_or_full_disk() -> Progress:
        if made.run_state.state == "running" and next(turns, False):
            raise StorageFullError("no disk space left for the catalog")
        return progress()

    def report(now: Progress) -> None:
        states.append(now.state)

    monkeypatch.setattr(made, "progress", progress_or_full_disk)
    threading.Timer(5.0, made.stop).start()
    made.run(once=False, report=report)
    assert states.count("running") >= 2
    assert next(turns, None) is None, "the run must have met the full disk"


@pytest.mark.parametrize("once", [True, False])
def test_stopped_run_does_not_open_spark(engine: Engine, monkeypatch: pytest.MonkeyPatch, once: bool) -> None:
    _runner(engine, monkeypatch, None)
    opened: list[str] = []
    made = Runner(engine.workspace, lambda: opened.append("Spark"), engine._parts())
    made.stop()
    assert made.run(once=once).state == "stopped"
    assert (opened, _Query.started, _loops()) == ([], 0, [])
    assert engine.status().runner == "none"


@pytest.mark.parametrize("once", [True, False])
def test_run_stopped_while_spark_opens_starts_no_query(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    _runner(engine, monkeypatch, None)

    def open_spark() -> object:
        made.stop()
        return _SPARK

    made = Runner(engine.workspace, open_spark, engine._parts())
    assert made.run(once=once).lag == 1
    assert (_Query.started, _loops()) == (0, [])


@pytest.mark.parametrize("once", [True, False])
def test_stopping_a_run_aborts_the_start_of_spark(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    _runner(engine, monkeypatch, None)
    aborted = threading.Event()
    monkeypatch.setattr(runner, "abort_start", aborted.set)

    def open_spark() -> object:
        made.stop()
        assert aborted.wait(60)
        raise SparkLostError("Spark's JVM was killed by signal 9 (out of memory?)")

    made = Runner(engine.workspace, open_spark, engine._parts())
    assert made.run(once=once).state == "stopped"
    assert (_Query.started, _loops()) == (0, [])


@pytest.mark.parametrize("once", [True, False])
def test_end_of_the_jvm_of_a_stopped_run_is_not_a_failure(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    """A service manager sends its signal to every process of a run."""
    made = _runner(engine, monkeypatch, None)

    class Ended(_Query):
        isActive = property(lambda self: self._end())  # noqa: N815

        def __init__(self) -> None:
            pass

        def _end(self) -> bool:
            made.stop()
            raise SparkLostError("Spark's JVM was ended by signal 15")

        def awaitTermination(self, seconds: float) -> bool:  # noqa: N802
            return self._end()

    monkeypatch.setattr(query_supervisor, "start_query", lambda spark, job, port, once: Ended())
    assert made.run(once=once).state == "stopped"
    assert _loops() == []


@pytest.mark.parametrize("once", [True, False])
def test_stopping_a_run_aborts_a_restart_of_spark(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    _runner(engine, monkeypatch, None)
    aborted = threading.Event()
    monkeypatch.setattr(runner, "abort_start", aborted.set)
    monkeypatch.setattr(query_supervisor, "_RESTART_SECONDS", 0.01)
    opened: list[str] = []

    def open_spark() -> object:
        opened.append("Spark")
        if len(opened) > 1:
            made.stop()
            assert aborted.wait(60)
        raise SparkLostError("Spark's JVM was killed by signal 9; out of memory?")

    made = Runner(engine.workspace, open_spark, engine._parts())
    assert made.run(once=once).state == "stopped"
    assert (len(opened), _loops()) == (2, [])


def test_run_that_cannot_start_releases_its_lease(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)
    marker = engine.workspace.storage.local(MARKER)
    marker.write_bytes(b"damaged")
    with pytest.raises(CorruptDataError, match="is damaged"):
        made.run(once=True)
    assert _loops() == []
    assert engine.status().runner == "none"


@pytest.mark.parametrize("once", [True, False])
def test_spark_is_restarted_five_times_before_the_run_fails(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    _runner(engine, monkeypatch, None)
    waits: list[float] = []
    opened: list[str] = []

    def open_spark() -> object:
        opened.append("Spark")
        raise SparkLostError("Spark's JVM was killed by signal 9 (out of memory?)")

    made = Runner(engine.workspace, open_spark, engine._parts())
    monkeypatch.setattr(made._stop, "wait", lambda seconds=None: waits.append(seconds))
    with pytest.raises(SparkLostError, match="killed by signal 9"):
        made.run(once=once)
    assert (len(opened), waits, _loops()) == (6, [2.0, 4.0, 8.0, 16.0, 32.0], [])


def test_progress_resets_the_count_of_spark_losses(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)
    monkeypatch.setattr(made._stop, "wait", lambda seconds=None: False)
    supervisor = query_supervisor.StreamingQuerySupervisor(
        engine.workspace, leases.Lease("runner", 1, ""), made.run_state, made._stop
    )
    supervisor.open(lambda: _SPARK)
    matched = iter(range(10))
    monkeypatch.setattr(
        "runnel.engine.run.query_supervisor.match_segments.matched_upto", lambda connection: next(matched)
    )
    for _ in range(10):
        supervisor._reopen(SparkLostError("killed"))
    assert made.run_state.total("Spark restarts") == 10


class _SimulatedTime:
    """A simulated clock that also replaces a run's stop event, so that its threads sleep by this clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self._changed = threading.Condition()
        self._sleepers: dict[int, float] = {}
        self._stopped = False

    def __call__(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return self._stopped

    def set(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        thread = threading.get_ident()
        with self._changed:
            self._sleepers[thread] = self.now + seconds
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._stopped or thread not in self._sleepers)
            return self._stopped

    def advance(self, seconds: float, *, sleepers: int, then: int | None = None) -> None:
        """Advance the clock when `sleepers` threads sleep, and wait until as many (or `then`) sleep again."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._sleepers) == sleepers, timeout=60)
            self.now += seconds
            self._sleepers = {thread: until for thread, until in self._sleepers.items() if until > self.now}
            self._changed.notify_all()
            expected = sleepers if then is None else then
            assert self._changed.wait_for(lambda: len(self._sleepers) == expected, timeout=60)


def _use_simulated_time(made: Runner) -> _SimulatedTime:
    simulated = _SimulatedTime()
    made._stop = simulated  # type: ignore[assignment]
    made.run_state = RunState(simulated, stall_seconds=600)
    return simulated


_SLEEPERS = 10
"""Nine runner loops, two of them for sources, and the thread that watches the query."""


def test_healthy_runner_stays_live_for_ten_minutes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)
    simulated = _use_simulated_time(made)
    running = threading.Thread(target=made.run, kwargs={"once": False}, daemon=True)
    running.start()
    try:
        for _ in range(60):
            simulated.advance(10, sleepers=_SLEEPERS)
            health = made.health()
            assert (health.live, health.ready, health.reasons) == (True, True, ())
    finally:
        made.stop()
        running.join(60)
    assert simulated.now == 600


def test_only_the_stuck_loop_is_reported(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _runner(engine, monkeypatch, None)
    simulated = _use_simulated_time(made)
    deliver, released = made._deliver, threading.Event()

    def hang() -> None:
        if simulated.now >= 60:
            released.wait()
        deliver()

    monkeypatch.setattr(made, "_deliver", hang)
    running = threading.Thread(target=made.run, kwargs={"once": False}, daemon=True)
    running.start()
    try:
        for _ in range(5):
            simulated.advance(10, sleepers=_SLEEPERS)
        assert made.health().live
        simulated.advance(10, sleepers=_SLEEPERS, then=_SLEEPERS - 1)
        verdicts = []
        for _ in range(54):
            simulated.advance(10, sleepers=_SLEEPERS - 1)
            verdicts.append((simulated.now, made.health()))
        failing = [(now, health) for now, health in verdicts if not health.live]
        assert [now for now, _ in failing] == [float(now) for now in range(190, 610, 10)]
        assert {len(health.reasons) for _, health in failing} == {1}
        assert failing[0][1].reasons == ("runnel-deliver is stuck: its turn is overdue by 130 seconds",)
    finally:
        released.set()
        made.stop()
        running.join(60)


def test_stuck_matching_is_reported_while_all_loops_run(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = _runner(engine, monkeypatch, None)
    simulated = _use_simulated_time(made)
    running = threading.Thread(target=made.run, kwargs={"once": False}, daemon=True)
    running.start()
    try:
        for _ in range(61):  # the query is watched from the first step on
            simulated.advance(10, sleepers=_SLEEPERS)
            assert made.health().live
        simulated.advance(10, sleepers=_SLEEPERS)
        stuck = "matching is stuck: 1 items wait, and there was no progress for 610 seconds"
        assert made.health().reasons == (stuck,)
        assert not made.health().live
        supervisor = made._supervisor
        assert supervisor is not None
        supervisor.notice_progress()
        supervisor.notice_progress()
        assert len([record for record in caplog.records if "matching is stuck" in record.message]) == 1
    finally:
        made.stop()
        running.join(60)
