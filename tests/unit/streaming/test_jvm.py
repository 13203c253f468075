"""The exit status of the JVM determines the error; errors of calls are replaced only if the JVM has ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

from runnel.cli.output import exit_code
from runnel.errors import SparkLostError
from runnel.streaming.jvm import lost_jvm, noticing_loss


@contextmanager
def _replaced_jvm(monkeypatch: pytest.MonkeyPatch, program: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python program that takes the place of the JVM."""
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import os; os.kill(os.getpid(), 9)", "Spark's JVM was killed by signal 9 (out of memory?)"),
        ("import os; os.kill(os.getpid(), 6)", "Spark's JVM was ended by signal 6"),
        ("raise SystemExit(143)", "Spark's JVM was ended by signal 15"),
        ("raise SystemExit(52)", "Spark's JVM ran out of heap"),
        ("raise SystemExit(1)", "Spark's JVM ended with exit code 1"),
    ],
)
def test_exit_status_of_the_jvm_determines_the_error(
    monkeypatch: pytest.MonkeyPatch, program: str, message: str
) -> None:
    with _replaced_jvm(monkeypatch, program):
        lost = lost_jvm(seconds=60)
    assert lost is not None
    assert (lost.message, exit_code(lost), bool(lost.hint)) == (message, 7, True)


def test_errors_are_replaced_only_after_the_jvm_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with _replaced_jvm(monkeypatch, "input()") as process:
        assert lost_jvm() is None
        with pytest.raises(ValueError, match="no such thing"), noticing_loss():
            raise ValueError("no such thing")
        process.send_signal(signal.SIGKILL)
        process.wait()
        with pytest.raises(SparkLostError, match="signal 9"), noticing_loss():
            raise ValueError("no such thing")


@pytest.mark.parametrize("error", [Py4JError("no answer"), Py4JNetworkError("reset"), ConnectionRefusedError()])
def test_unanswered_call_waits_for_the_end_of_the_jvm(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    with (
        _replaced_jvm(monkeypatch, "import os, time; time.sleep(0.2); os.kill(os.getpid(), 9)"),
        pytest.raises(SparkLostError, match="killed by signal 9"),
        noticing_loss(),
    ):
        raise error


def test_errors_are_not_replaced_without_a_jvm() -> None:
    with pytest.raises(ConnectionRefusedError), noticing_loss():
        raise ConnectionRefusedError
