"""The JVM that Spark runs in: detect that it has ended, report why, and close it.

PySpark starts one JVM per process and assumes that it lives as long as the process. The kernel may kill the JVM,
which is the largest process of a run. Every call to it then fails, with an error that depends on the call. This
module therefore determines the cause from the exit status of the JVM, not from the text of an error.
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
"""Errors of calls after the JVM has ended. Py4JJavaError, a subclass, comes from a JVM that still responds."""

_EXIT_SECONDS = 10.0
"""How long to wait for the end of a JVM that was shut down or no longer responds."""

_starting: list[subprocess.Popen[bytes]] = []
_MAX_CAUSES = 20
_OUT_OF_MEMORY = 52
"""Exit code with which Spark's handler of uncaught exceptions ends the JVM after an OutOfMemoryError."""


def jvm_process() -> subprocess.Popen[bytes] | None:
    """Return the JVM that this process started, or None if it started none."""
    gateway = SparkContext._gateway
    # Not getattr: a gateway passes the lookup of unknown attributes on to the JVM.
    return None if gateway is None else gateway.__dict__.get("proc")


@contextmanager
def abortable_start() -> Iterator[None]:
    """Enable `abort_start` for a JVM that is started inside, whose process PySpark makes available only later."""
    start = java_gateway.Popen

    def start_and_record(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = start(*arguments, umask=0o077, **options)
        _starting.append(process)
        return process

    java_gateway.Popen = start_and_record
    try:
        yield
    finally:
        java_gateway.Popen = start
        _starting.clear()


def abort_start() -> None:
    """Kill the JVM that is being started, if any. The caller that waits for it receives SparkLostError."""
    for process in _starting:
        process.kill()


def lost_jvm(*, seconds: float = 0.0) -> SparkLostError | None:
    """Return an error that describes how the JVM ended, or None if it still runs after up to `seconds` seconds."""
    process = jvm_process()
    if process is None:
        return None
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return None if process.returncode is None else _lost(process.returncode)


@contextmanager
def noticing_loss() -> Iterator[None]:
    """Replace errors raised inside by SparkLostError if the JVM has ended or no longer responds."""
    try:
        yield
    except SparkLostError:
        raise
    except Exception as error:
        is_unanswered = isinstance(error, UNANSWERED) and not isinstance(error, Py4JJavaError)
        lost = lost_jvm(seconds=_EXIT_SECONDS if is_unanswered else 0.0)
        if lost is None and is_unanswered and isinstance(error, Py4JError):
            lost = SparkLostError("Spark's JVM does not respond", hint="see logs/spark.log for the cause")
        if lost is None:
            raise
        raise lost from error


def _lost(status: int) -> SparkLostError:
    """Return the error for an exit status, with the next step as its hint."""
    # A JVM that shuts down in order after a signal ends with 128 + the number of the signal, as a shell does.
    number = -status if status < 0 else status - 128 if 128 < status < 160 else 0
    if number == signal.SIGKILL:
        return SparkLostError(
            "Spark's JVM was killed by signal 9 (out of memory?)",
            hint="check the kernel log for the OOM killer; add memory, or lower the setting driver_memory",
        )
    if status == _OUT_OF_MEMORY:
        return SparkLostError("Spark's JVM ran out of heap", hint="raise the setting driver_memory")
    how = f"was ended by signal {number}" if number else f"ended with exit code {status}"
    return SparkLostError(f"Spark's JVM {how}", hint="see logs/spark.log and logs/spark-stderr.log for the cause")


def is_slow_start(error: BaseException) -> bool:
    """Return whether Spark stopped waiting for a Python process to start, after ten seconds, which cannot be set."""
    return "java.net.SocketTimeoutException" in java_causes(error)


def is_disk_full(error: BaseException) -> bool:
    """Return whether the JVM could not write because the disk is full. Java has no exception class for this."""
    return any("No space left on device" in message for message in java_causes(error).values())


def java_causes(error: BaseException | None) -> dict[str, str]:
    """Return the class names and messages of the Java exceptions that caused a PySpark error, outermost first."""
    causes: dict[str, str] = {}
    captured: Any = error
    java: Any = None
    while captured is not None and java is None:  # PySpark wraps some Java exceptions in its own
        java, captured = getattr(captured, "_origin", None), getattr(captured, "_cause", None)
    with suppress(*UNANSWERED):
        for _ in range(_MAX_CAUSES):
            if java is None:
                break
            causes[str(java.getClass().getName())] = str(java.getMessage())
            java = java.getCause()
    return causes


def suppress_connection_tracebacks(context: SparkContext) -> None:
    """Suppress the traceback of each connection that breaks when the JVM ends, because the loss is reported once."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda request, address: None
    root = logging.getLogger()  # Py4J logs these tracebacks, and nothing else, with the root logger
    if _is_no_connection_error not in root.filters:
        root.addFilter(_is_no_connection_error)


def _is_no_connection_error(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], Py4JNetworkError))


def discard_jvm() -> None:
    """End the JVM if it still runs, and remove it from PySpark, so that the next session starts a new one.

    PySpark has no call for this: it keeps references to the JVM until the process ends.
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
            process.stdin.close()  # the gateway in the JVM ends at the end of its input
    try:
        process.wait(_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def close_session(session: SparkSession | None, *, with_jvm: bool) -> None:
    """Stop a session. With `with_jvm`, also end the JVM, so that the next session can have other JVM settings."""
    py4j_logger = logging.getLogger("py4j")
    level = py4j_logger.level
    py4j_logger.setLevel(logging.CRITICAL)  # py4j logs every call that fails because the JVM has ended
    try:
        if session is not None and lost_jvm() is None:
            with suppress(*UNANSWERED):
                session.stop()
        if with_jvm:
            discard_jvm()
    finally:
        py4j_logger.setLevel(level)
