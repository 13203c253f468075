"""Plug-ins in sandboxes that loop, crash, exceed their memory, send invalid replies or print too much."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.matching.operators.ask.asked_plugins import plugins

from runnel.matching.operators.plugins import operator_process as host_module
from runnel.matching.operators.plugins.contract import FailedCall, OperatorCall, OperatorContext
from runnel.matching.operators.plugins.operator_process import (
    MEGABYTES,
    OperatorHostError,
    OperatorProcess,
    OperatorThread,
    open_operator_host,
)

__all__ = ["plugins"]

MODULES = ("city",)
CONTEXT = OperatorContext()
Opened = Callable[..., OperatorProcess]


@pytest.fixture
def opened(plugins: Path) -> Iterator[Opened]:
    """Opens hosts for functions of `city.vision`, and closes them."""
    made: list[OperatorProcess] = []

    def make(function: str, context: OperatorContext = CONTEXT, megabytes: int = MEGABYTES) -> OperatorProcess:
        made.append(OperatorProcess(f"city.vision:{function}", context, MODULES, megabytes))
        return made[-1]

    yield make
    for entry in made:
        entry.close()


def mood(word: str) -> OperatorCall:
    return OperatorCall({"mood": (word,)})


def has_ended(process: int) -> bool:
    """Return whether a process does not exist or is a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_process_answers_batch_after_batch(opened: Opened) -> None:
    host = opened("echo")
    calls = [OperatorCall({"title": ("Muse", 2.0)}, (True, ("a", "b"))), OperatorCall({})]
    for _ in range(2):
        assert host.answer(calls, 20) == [[["Muse"], ["2.0"], ["True"], ["('a', 'b')"]], []]
    assert host.process != os.getpid()
    (rows,) = opened("process").answer([OperatorCall({})], 20)
    assert rows != [[os.getpid()]]


def test_output_of_a_plug_in_does_not_disturb_its_replies(opened: Opened) -> None:
    assert opened("moody").answer([mood("print")] * 5, 20) == [[[1.0]]] * 5


@pytest.mark.parametrize("word", ["loop", "sleep"])
def test_a_process_that_exceeds_the_time_limit_is_replaced(word: str, opened: Opened) -> None:
    host = opened("moody")
    host.prepare()
    process = host.process
    assert process is not None
    with pytest.raises(OperatorHostError, match=r"more than 0\.3 seconds") as failed:
        host.answer([mood(word)], 0.3)
    assert failed.value.kind == "late"
    assert has_ended(process)
    assert host.answer([OperatorCall({})], 20) == [[[1.0]]]
    assert host.process != process


def test_a_process_that_is_killed_during_a_batch_is_replaced(opened: Opened) -> None:
    host = opened("moody")
    host.prepare()
    process = host.process
    assert process is not None
    killer = threading.Timer(0.3, lambda: os.kill(process, signal.SIGKILL))
    killer.start()
    with pytest.raises(OperatorHostError, match="signal 9") as failed:
        host.answer([mood("sleep")], 30)
    killer.join()
    assert failed.value.kind == "died"
    assert host.answer([OperatorCall({})], 20) == [[[1.0]]]


def test_a_process_that_is_killed_while_idle_is_replaced_without_a_failure(opened: Opened) -> None:
    host = opened("moody")
    host.prepare()
    process = host.process
    assert process is not None
    os.kill(process, signal.SIGKILL)
    while not has_ended(process):
        time.sleep(0.01)
    assert host.answer([OperatorCall({})], 20) == [[[1.0]]]


def test_the_reason_contains_the_last_line_of_output(opened: Opened) -> None:
    with pytest.raises(OperatorHostError, match="code 3: gone fishing") as failed:
        opened("moody").answer([mood("exit")], 20)
    assert failed.value.kind == "died"
    with pytest.raises(OperatorHostError, match="code 4: gone swimming"):
        opened("moody").answer([mood("say")], 20)


def test_the_memory_of_a_process_is_limited(opened: Opened) -> None:
    host = opened("moody", megabytes=512)
    with pytest.raises(OperatorHostError, match="more than 512 MB of memory") as failed:
        host.answer([mood("memory")], 20)
    assert failed.value.kind == "died"
    assert host.answer([OperatorCall({})], 20) == [[[1.0]]]


def test_an_answer_that_cannot_be_encoded_fails_only_its_call(opened: Opened) -> None:
    good, bad, failed = opened("moody").answer([OperatorCall({}), mood("object"), mood("raise")], 20)
    assert good == [[1.0]]
    assert isinstance(bad, FailedCall)
    assert not bad.passing
    assert failed == FailedCall("ValueError: a bad day")


def test_answers_that_are_too_large_fail_without_ending_the_process(opened: Opened) -> None:
    host = opened("moody")
    with pytest.raises(OperatorHostError, match="bytes") as failed:
        host.answer([mood("large")], 20)
    assert failed.value.kind == "raised"
    process = host.process
    assert host.answer([OperatorCall({})], 20) == [[[1.0]]]
    assert host.process == process


def test_a_request_that_is_too_large_is_not_sent(opened: Opened) -> None:
    host = opened("moody")
    with pytest.raises(OperatorHostError, match="the request exceeds"):
        host.answer([OperatorCall({"title": ("x" * (1 << 20),)})] * 65, 20)
    assert host.answer([OperatorCall({"title": ("x" * (1 << 20),)})] * 5, 20) == [[[1.0]]] * 5


def test_a_class_that_raises_fails_its_batch(opened: Opened) -> None:
    host = opened("Broken")
    assert host.answer([OperatorCall({}), OperatorCall({"none": (True,)})], 20) == [
        [[]],
        FailedCall("no model", False),
    ]
    with pytest.raises(OperatorHostError, match="RuntimeError: poisoned") as failed:
        host.answer([OperatorCall({}), OperatorCall({"poison": (True,)})], 20)
    assert failed.value.kind == "raised"
    with pytest.raises(OperatorHostError, match="0 answers for 1 calls"):
        opened("Short").answer([OperatorCall({})], 20)


def test_a_process_that_sends_an_invalid_reply_is_ended(opened: Opened) -> None:
    with pytest.raises(OperatorHostError) as failed:
        opened("Liar").answer([OperatorCall({})], 20)
    assert failed.value.kind == "died"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("city.vision:Unmade", "no such model"),
        ("city.vision:nothing", "does not define nothing"),
        ("city.failing:run", "not today"),
        ("mine:run", "not allowed"),
    ],
)
def test_a_loading_failure_has_a_reason(source: str, reason: str, plugins: Path) -> None:
    host = OperatorProcess(source, OperatorContext(), MODULES)
    with pytest.raises(OperatorHostError, match=reason) as failed:
        host.prepare()
    assert failed.value.kind == "refused"
    assert host.process is None
    assert not (plugins / "touched").exists()


def test_a_process_sees_only_its_own_databases_and_few_environment_variables(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RUNNEL_SMTP_PASSWORD", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    context = OperatorContext(
        {"database": "places", "label": "a"}, tmp_path, {"places": "postgresql://a", "payroll": "postgresql://b"}
    )
    (rows,) = opened("Place", context).answer([OperatorCall({})], 20)
    assert isinstance(rows, list)
    names, configuration, databases, folder = (row[0] for row in rows)
    assert "PASSWORD" not in names
    assert "SECRET" not in names
    assert "PATH" in names
    assert configuration == "{'database': 'places', 'label': 'a'}"
    assert databases == "{'places': 'postgresql://a'}"
    assert folder == str(tmp_path)


def test_command_line_of_a_process_contains_no_secrets(opened: Opened) -> None:
    host = opened("Place", OperatorContext({"database": "places"}, databases={"places": "postgresql://hush"}))
    host.prepare()
    for file in ("cmdline", "environ"):
        assert b"hush" not in Path(f"/proc/{host.process}/{file}").read_bytes()


def test_processes_started_by_a_plug_in_do_not_inherit_its_connection(opened: Opened) -> None:
    (rows,) = opened("surroundings").answer([OperatorCall({})], 20)
    # The three standard streams, and what `ls` opens.
    assert rows == [["descriptors 0 1 2 3"], ["no_site 0"], ["/"]]


def test_the_memory_limit_applies_while_loading(plugins: Path) -> None:
    (plugins / "plugins" / "city" / "large.py").write_text("MODEL = bytearray(8 << 30)\ndef run(a): return True\n")
    host = OperatorProcess("city.large:run", OperatorContext(), MODULES, 512)
    with pytest.raises(OperatorHostError, match="MemoryError") as failed:
        host.prepare()
    assert failed.value.kind == "refused"


def test_a_process_ends_with_its_worker(plugins: Path) -> None:
    program = (
        "import os, signal\n"
        "from runnel.matching.operators.plugins.contract import OperatorCall, OperatorContext\n"
        "from runnel.matching.operators.plugins.operator_process import OperatorProcess\n"
        "host = OperatorProcess('city.vision:moody', OperatorContext(), ('city',))\n"
        "host.answer([OperatorCall({})], 20)\n"
        "print(host.process, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    process = int(done.stdout)
    deadline = time.monotonic() + 20
    while not has_ended(process):
        assert time.monotonic() < deadline, "the process outlived its worker"
        time.sleep(0.05)


def test_a_built_in_operator_runs_in_the_workers_process(tmp_path: Path) -> None:
    operator_host = open_operator_host("language", OperatorContext(), (), MEGABYTES)
    assert isinstance(operator_host, OperatorThread)
    (rows,) = operator_host.answer(
        [OperatorCall({"title": ("this is surely an English sentence about nothing",)})], 60
    )
    assert "en" in str(rows)
    operator_host.close()


def test_a_built_in_operator_that_exceeds_its_time_limit_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = threading.Event()
    threads: list[str] = []

    class Patient:
        def __init__(self, place: OperatorContext) -> None:
            self.closed = False

        def answer(self, calls: list[OperatorCall]) -> list[object]:
            threads.append(threading.current_thread().name)
            if "wait" in calls[0].attributes:
                waiting.wait(30)
            if "raise" in calls[0].attributes:
                raise ValueError("a bad day")
            return [((1.0,),) for _ in calls]

        def close(self) -> None:
            threads.append("closed")

    monkeypatch.setattr(host_module, "find_operator", lambda source, modules: Patient)
    host = OperatorThread("patient", OperatorContext())
    with pytest.raises(OperatorHostError, match="took more than") as failed:
        host.answer([OperatorCall({"wait": (True,)})], 0.2)
    assert failed.value.kind == "late"
    assert host.answer([OperatorCall({})], 20) == [((1.0,),)], "another thread answers"
    with pytest.raises(OperatorHostError, match="ValueError: a bad day"):
        host.answer([OperatorCall({"raise": (True,)})], 20)
    assert host.answer([OperatorCall({})], 20) == [((1.0,),)]
    waiting.set()
    host.close()
    deadline = time.monotonic() + 20
    while threads.count("closed") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("value", ["2026-01-01", "soon"])
def test_a_configuration_whose_only_key_is_date_arrives_unchanged(opened: Opened, value: str) -> None:
    context = OperatorContext({"date": value}, databases={value: "sqlite:///one", "other": "sqlite:///two"})
    (rows,) = opened("Place", context).answer([OperatorCall({})], 20)
    assert [repr({"date": value})] in rows  # type: ignore[operator]
    assert [repr({value: "sqlite:///one"})] in rows  # type: ignore[operator]
    dated = OperatorContext({"use": "date"}, databases={"date": "2026-01-01"})
    (rows,) = opened("Place", dated).answer([OperatorCall({})], 20)
    assert [repr({"date": "2026-01-01"})] in rows  # type: ignore[operator]
