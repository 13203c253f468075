"""The Spark session of a runner: embedded defaults that suit many small micro-batches on few cores.

Everything that is not set here can be set in Spark's own way: `spark-defaults.conf` in the folder SPARK_CONF_DIR.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from runnel.errors import SparkLostError
from runnel.kernel_cache import kernels_are_kept
from runnel.private_files import make_private_folder, open_private
from runnel.streaming.cluster_checks import check_secret, explained, is_local, refuse_silent_master
from runnel.streaming.java import java_version
from runnel.streaming.jvm import abortable_start, keep_quiet, noticing_loss

AUTHENTICATION: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
}
"""Spark's ports answer only to processes that know the secret, and messages are encrypted and cannot be altered.

In local mode, on YARN and on Kubernetes, Spark makes up a secret for each session. The secret of a standalone cluster
comes from `spark-defaults.conf`.
"""

_LONGEST_SOCKET_FOLDER = 61
"""Spark refuses a longer path of the folder for its sockets: the system allows about 100 characters for a socket."""


def open_session(
    *,
    master: str,
    driver_memory: str,
    logs: Path,
    local_folder: Path,
    executor_memory: str = "1g",
    executor_cores: int = 0,
    log_format: str = "text",
) -> SparkSession:
    """A Spark session; raises JavaMissingError with the fix where there is no Java, WorkspaceError where there is no
    cluster, SparkLostError where the JVM ends while it starts.

    Spark's own log goes to `logs/spark.log`, so that a terminal shows only what Runnel says. Its temporary files, and
    those of its workers on this machine, go to `local_folder`.
    """
    java_version()
    refuse_silent_master(master)
    make_private_folder(logs)
    # Workers must run this interpreter, not the first python3 on the PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with as_file(files("runnel.streaming") / f"log4j2-{log_format}.properties") as log4j:
        options = _java_options(
            f"-Dlog4j2.configurationFile={log4j}",
            f"-Drunnel.log={logs / 'spark.log'}",
            f"-Djava.io.tmpdir={local_folder}",
            # A driver plans small batches: compiling its code again, fully optimized, costs more than it saves.
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",  # files in the system's temporary folder that nothing reads
        )
        configuration = {
            "spark.master": master,
            "spark.app.name": "runnel",
            "spark.driver.extraJavaOptions": options,
            "spark.driver.memory": driver_memory,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            # A keyed stage has its plans mapped on one executor: wait for it rather than load them elsewhere.
            "spark.locality.wait": "10s",
            "spark.python.daemon.module": "runnel.streaming.worker.daemon",
            "spark.sql.streaming.minBatchesToRetain": "20",
            "spark.sql.streaming.metricsEnabled": "false",
            "spark.sql.streaming.numRecentProgressUpdates": "10",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            **AUTHENTICATION,
        }
        if is_local(master):
            # Nothing outside this machine has business with an embedded driver.
            configuration |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            configuration |= _python_sockets(local_folder)
        else:
            # Executors have folders for temporary files of their own, which may be open to others.
            configuration["spark.python.unix.domain.socket.enabled"] = "false"
            configuration["spark.executor.memory"] = executor_memory
            if executor_cores:
                configuration["spark.executor.cores"] = str(executor_cores)
        if "," not in str(local_folder):  # it separates folders there
            configuration["spark.local.dir"] = str(local_folder)
        with (
            _warming(master),
            _stderr_into(logs / "spark-stderr.log"),
            _temporary_files_in(local_folder),
            explained(master),
            abortable_start(),
            noticing_loss(),
            _noticing_failed_start(),
        ):
            if not is_local(master):
                # The JVM is started first: it reads the secret itself, so that no command line contains it.
                SparkContext._ensure_initialized(conf=SparkConf().setAll(list(configuration.items())))
                check_secret(SparkContext._jvm, configuration)
            session = SparkSession.builder.config(map=configuration).getOrCreate()
        keep_quiet(session.sparkContext)
        return session


def _python_sockets(folder: Path) -> dict[str, str]:
    """Let the JVM and its Python processes talk over sockets in a private folder, which no other user can reach.

    If the path is too long for that, they use TCP with a secret. Then strangers can connect, but not get any further.
    """
    if len(str(folder)) > _LONGEST_SOCKET_FOLDER:
        return {"spark.python.unix.domain.socket.enabled": "false"}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
    }


def _java_options(*options: str) -> str:
    r"""Options of a JVM as one text, in the quotes that Spark takes off again.

    >>> _java_options("-Da=b c", "-Dd=e")
    '"-Da=b c" "-Dd=e"'
    """
    return " ".join('"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"' for option in options)


@contextmanager
def _noticing_failed_start() -> Iterator[None]:
    """Raise SparkLostError if the JVM ended before PySpark could connect to it."""
    try:
        yield
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SparkLostError(
            "Spark's JVM ended while it started",
            hint="logs/spark-stderr.log has the cause; driver_memory may be too large for this machine",
        ) from error


@contextmanager
def _warming(master: str) -> Iterator[None]:
    """Have the kernels compiled while the JVM starts: workers on this machine then find them on the disk.

    Once they are there, this process has no use for them.
    """
    if not is_local(master) or kernels_are_kept():
        yield
        return
    with ThreadPoolExecutor(1, thread_name_prefix="runnel-warm") as pool:
        from runnel.matching.compile.warm_up import warm_up

        warm = pool.submit(warm_up)
        yield
        warm.result()


def make_active(spark: SparkSession) -> None:
    """Make a session the active one of this thread.

    Spark looks for data sources in the active session, which is a matter of threads: a session opened in one thread
    is not active in another. PySpark has no public call for this.
    """
    jvm = spark.sparkContext._jvm
    if jvm is not None:
        SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Let PySpark, and child processes started inside, make their temporary files in a folder."""
    usual = tempfile.gettempdir()
    before = os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = usual
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


@contextmanager
def _stderr_into(file: Path) -> Iterator[None]:
    """Let child processes started inside write their stderr to a file.

    The JVM keeps the handle it was started with, so its warnings and its workers' do not reach the terminal.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    target = open_private(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(target)
