"""The Spark session of a runner, with settings that suit many small micro-batches on few cores.

Other settings of Spark can be set in `spark-defaults.conf` in the folder SPARK_CONF_DIR.
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
from runnel.streaming.cluster_checks import check_secret, explaining_errors, is_local, require_reachable_master
from runnel.streaming.java import java_version
from runnel.streaming.jvm import abortable_start, noticing_loss, suppress_connection_tracebacks

AUTHENTICATION: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
}
"""Settings that make Spark accept connections only from processes that have the secret, and encrypt all messages.

In local mode, on YARN and on Kubernetes, Spark generates a secret for each session. The secret of a standalone
cluster comes from `spark-defaults.conf`.
"""

_MAX_SOCKET_FOLDER = 61
"""The longest path that Spark accepts for the folder of its sockets. The system allows about 100 bytes."""


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
    """Open a Spark session.

    Raise JavaMissingError if there is no suitable Java, WorkspaceError if the cluster cannot be used, and
    SparkLostError if the JVM ends while it starts. Spark's own log goes to `logs/spark.log`, not to the terminal. Its
    temporary files, and those of its workers on this machine, go to `local_folder`.
    """
    java_version()
    require_reachable_master(master)
    make_private_folder(logs)
    # Workers must run this interpreter, not the first python3 on the PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with as_file(files("runnel.streaming") / f"log4j2-{log_format}.properties") as log4j:
        options = _java_options(
            f"-Dlog4j2.configurationFile={log4j}",
            f"-Drunnel.log={logs / 'spark.log'}",
            f"-Djava.io.tmpdir={local_folder}",
            # A driver plans small batches, so compiling its code a second time, fully optimized, costs more than it
            # saves.
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",  # do not create performance data files in the system's temporary folder
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
            # The executor of a shard has its partitions in memory. Waiting for it is cheaper than loading them
            # elsewhere.
            "spark.locality.wait": "10s",
            "spark.python.daemon.module": "runnel.streaming.worker.daemon",
            "spark.sql.streaming.minBatchesToRetain": "20",
            "spark.sql.streaming.metricsEnabled": "false",
            "spark.sql.streaming.numRecentProgressUpdates": "10",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            **AUTHENTICATION,
        }
        if is_local(master):
            # No other machine needs to connect to an embedded driver.
            configuration |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
            configuration |= _python_sockets(local_folder)
        else:
            # Sockets of executors would be in temporary folders that other users may have access to.
            configuration["spark.python.unix.domain.socket.enabled"] = "false"
            configuration["spark.executor.memory"] = executor_memory
            if executor_cores:
                configuration["spark.executor.cores"] = str(executor_cores)
        if "," not in str(local_folder):  # Spark reads the setting as a comma-separated list
            configuration["spark.local.dir"] = str(local_folder)
        with (
            _compiling_kernels(master),
            _stderr_into(logs / "spark-stderr.log"),
            _temporary_files_in(local_folder),
            explaining_errors(master),
            abortable_start(),
            noticing_loss(),
            _detecting_failed_start(),
        ):
            if not is_local(master):
                # Start the JVM first: it reads the secret from its configuration, so no command line contains it.
                SparkContext._ensure_initialized(conf=SparkConf().setAll(list(configuration.items())))
                check_secret(SparkContext._jvm, configuration)
            session = SparkSession.builder.config(map=configuration).getOrCreate()
        suppress_connection_tracebacks(session.sparkContext)
        return session


def _python_sockets(folder: Path) -> dict[str, str]:
    """Return settings with which the JVM and its Python processes communicate over Unix sockets in a private folder.

    If the path is too long for sockets, they use TCP with a secret. Other users can then connect, but are rejected
    without the secret.
    """
    if len(str(folder)) > _MAX_SOCKET_FOLDER:
        return {"spark.python.unix.domain.socket.enabled": "false"}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
    }


def _java_options(*options: str) -> str:
    r"""Join options of a JVM to one text, each in double quotes, which Spark removes.

    >>> _java_options("-Da=b c", "-Dd=e")
    '"-Da=b c" "-Dd=e"'
    """
    return " ".join('"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"' for option in options)


@contextmanager
def _detecting_failed_start() -> Iterator[None]:
    """Raise SparkLostError if the JVM ended before PySpark could connect to it."""
    try:
        yield
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SparkLostError(
            "Spark's JVM ended while it was starting",
            hint="see logs/spark-stderr.log for the cause; if memory is short, lower the setting driver_memory",
        ) from error


@contextmanager
def _compiling_kernels(master: str) -> Iterator[None]:
    """Compile the kernels while the JVM starts, so that workers on this machine load them from the disk.

    Do nothing if the compiled kernels are on the disk already, since this process does not use them.
    """
    if not is_local(master) or kernels_are_kept():
        yield
        return
    with ThreadPoolExecutor(1, thread_name_prefix="runnel-warm") as pool:
        from runnel.matching.compile.warm_up import warm_up

        compilation = pool.submit(warm_up)
        yield
        compilation.result()


def make_active(spark: SparkSession) -> None:
    """Make a session the active session of this thread.

    Spark looks up data sources in the active session, which each thread has its own of: a session that was opened in
    one thread is not active in another. PySpark has no public call for this.
    """
    jvm = spark.sparkContext._jvm
    if jvm is not None:
        SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Make PySpark and child processes that are started inside create their temporary files in a folder."""
    old_folder = tempfile.gettempdir()
    old_variable = os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = old_folder
        if old_variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = old_variable


@contextmanager
def _stderr_into(file: Path) -> Iterator[None]:
    """Redirect the stderr of child processes that are started inside to a file.

    The JVM keeps the stderr that it was started with, so its warnings and those of its workers do not appear in the
    terminal.
    """
    sys.stderr.flush()
    original = os.dup(2)
    target = open_private(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
        os.close(target)
