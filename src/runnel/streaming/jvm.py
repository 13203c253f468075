"""The JVM that Spark runs in: how it ended, and how to close or forget it.

PySpark starts one JVM per process and assumes that it lives as long. The kernel may kill it, since it is the largest
process of a run; then every call to it fails, with an error that depends on the call. The exit status of the process
says what happened, so that is what decides here, not the text of an error.
"""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession

from runnel.errors import SparkLostError

UNANSWERED: Final = (Py4JError, OSError)
"""Errors that calls raise after their JVM has ended; Py4JJavaError comes from one that is about to end."""

_EXIT_SECONDS = 10.0
"""How long a JVM may take to end, after it was asked to or stopped answering."""

_starting: list[subprocess.Popen[bytes]] = []
_DEEPEST = 20
_OUT_OF_MEMORY = 52
"""Exit code of Spark's own handler of uncaught exceptions."""


def jvm_process() -> subprocess.Popen[bytes] | None:
    """The JVM that this process started; None if there is none, or if another process started it."""
    gateway = SparkContext._gateway
    # Attributes that a gateway does not have are looked up in the JVM.
    return None if gateway is None else gateway.__dict__.get("proc")


@contextmanager
def abortable_start() -> Iterator[None]:
    """Let `abort_start` end a JVM that is started inside; PySpark itself hands its process out only later."""
    start = java_gateway.Popen

    def start_and_note(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = start(*arguments, umask=0o077, **options)
        _starting.append(process)
        return process

    java_gateway.Popen = start_and_note
    try:
        yield
    finally:
        java_gateway.Popen = start
        _starting.clear()


def abort_start() -> None:
    """End the JVM that is being started, if there is one: a caller that waits for it receives SparkLostError."""
    for process in _starting:
        process.kill()


def lost_jvm(*, seconds: float = 0.0) -> SparkLostError | None:
    """How the JVM ended, or None while it runs; waits that many seconds for an end that is under way."""
    process = jvm_process()
    if process is None:
        return None
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return None if process.returncode is None else _lost(process.returncode)


@contextmanager
def noticing_loss() -> Iterator[None]:
    """Raise SparkLostError in place of whatever calls raise because the JVM has ended."""
    try:
        yield
    except SparkLostError:
        raise
    except Exception as error:
        is_silent = isinstance(error, UNANSWERED) and not isinstance(error, Py4JJavaError)
        lost = lost_jvm(seconds=_EXIT_SECONDS if is_silent else 0.0)
        if lost is None and is_silent and isinstance(error, Py4JError):
            lost = SparkLostError("Spark's JVM does not answer", hint="look for the cause in logs/spark.log")
        if lost is None:
            raise
        raise lost from error


def _lost(status: int) -> SparkLostError:
    """The error for an exit status, with the next step as its hint."""
    # A JVM that ends in order after a signal says so as a shell would.
    number = -status if status < 0 else status - 128 if 128 < status < 160 else 0
    if number == signal.SIGKILL:
        return SparkLostError(
            "Spark's JVM was killed by signal 9 (out of memory?)",
            hint="check the kernel log for the OOM killer; add memory, or lower the setting driver_memory",
        )
    if status == _OUT_OF_MEMORY:
        return SparkLostError("Spark's JVM ran out of heap", hint="raise the setting driver_memory")
    how = f"was ended by signal {number}" if number else f"ended with exit code {status}"
    return SparkLostError(f"Spark's JVM {how}", hint="look for the cause in logs/spark.log and logs/spark-stderr.log")


def is_slow_start(error: BaseException) -> bool:
    """Whether Spark gave up waiting for a Python process that it had started: ten seconds, which cannot be set."""
    return "java.net.SocketTimeoutException" in java_causes(error)


def is_disk_full(error: BaseException) -> bool:
    """Whether the JVM could not write a file of its own; Java has no class for this cause."""
    return any("No space left on device" in message for message in java_causes(error).values())


def java_causes(error: BaseException | None) -> dict[str, str]:
    """The class names and messages of the Java exceptions behind an error of PySpark's, outermost first."""
    causes: dict[str, str] = {}
    captured: Any = error
    java: Any = None
    while captured is not None and java is None:  # PySpark wraps some of them in exceptions of its own
        java, captured = getattr(captured, "_origin", None), getattr(captured, "_cause", None)
    with suppress(*UNANSWERED):
        for _ in range(_DEEPEST):
            if java is None:
                break
            causes[str(java.getClass().getName())] = str(java.getMessage())
            java = java.getCause()
    return causes


def keep_quiet(context: SparkContext) -> None:
    """Let nothing print a traceback for every connection that breaks when the JVM ends: the loss is reported once."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None
    root = logging.getLogger()  # which Py4J uses for this alone
    if _is_not_about_the_connection not in root.filters:
        root.addFilter(_is_not_about_the_connection)


def _is_not_about_the_connection(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], Py4JNetworkError))


def forget_jvm() -> None:
    """Make PySpark forget a JVM that has ended, or end it; the next session starts another.

    PySpark has no call for this: it keeps the JVM and everything in it until the process ends.
    """
    from pyspark.sql.context import SQLContext

    process, gateway, context = jvm_process(), SparkContext._gateway, SparkContext._active_spark_context
    with SparkContext._lock:
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    if context is not None:
        context._jsc = None
        server, context._accumulatorServer = getattr(context, "_accumulatorServer", None), None
        if server is not None:
            server.shutdown()
    if gateway is not None:
        with suppress(*UNANSWERED):
            gateway.shutdown()
    if process is not None:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()  # the gateway in the JVM ends with it
    try:
        process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def close_session(session: SparkSession | None, *, with_jvm: bool) -> None:
    """Stop a session; `with_jvm` also ends the JVM, so that the next session starts with its own settings."""
    silent = logging.getLogger("py4j")
    level = silent.level
    silent.setLevel(logging.CRITICAL)  # it logs every call that fails because the JVM has ended
    try:
        if session is not None and lost_jvm() is None:
            with suppress(*UNANSWERED):
                session.stop()
        if with_jvm:
            forget_jvm()
    finally:
        silent.setLevel(level)
