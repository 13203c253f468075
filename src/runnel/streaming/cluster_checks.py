"""Preflight checks for cluster runs: reject configurations that would fail obscurely on workers.

Workers read items and plans and write matches as files, so every worker needs access to the workspace's folder at the
same path, and the same installation of Runnel. The catalog must be on PostgreSQL, because only processes of one
machine can use a SQLite file. The master and the workers of a standalone cluster must have the secret of the driver.
"""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JJavaError

from runnel.catalog.store.connection import is_shared
from runnel.errors import WorkspaceError
from runnel.storage.file_storage import Storage, open_storage

_SEALED = "sealed:"
_TEST_JOB_SECONDS = 120.0
_CONNECT_SECONDS = 5.0
_PROBES_PER_CORE = 2
_checked_sessions: set[tuple[str, str]] = set()
_AUTHENTICATION_SETTING = "spark.authenticate.secret"
_CONFIGURATION_HINT = (
    "use the same spark-defaults.conf on every machine of the cluster and in the folder SPARK_CONF_DIR here;"
    " docs/operate/run-on-a-spark-cluster.md lists its lines"
)
_INSTALL_HINT = "install the same Runnel for the same Python at the same path on every machine of the cluster"


def is_local(master: str) -> bool:
    """Return whether a Spark master stands for this machine alone.

    >>> is_local("local[*]"), is_local("spark://cluster.example:7077")
    (True, False)
    """
    return master.startswith("local")


def is_standalone(master: str) -> bool:
    """Return whether a Spark master is that of a standalone cluster.

    >>> is_standalone("spark://cluster.example:7077"), is_standalone("yarn")
    (True, False)
    """
    return master.startswith("spark://")


def require_shared_catalog(master: str, catalog_url: str) -> None:
    """Raise WorkspaceError if the master is a cluster and the catalog is not on PostgreSQL."""
    if not is_local(master) and not catalog_url.startswith(_SEALED) and not is_shared(catalog_url):
        raise WorkspaceError(
            f"the Spark cluster {master} needs a PostgreSQL catalog; this workspace has a SQLite file",
            hint='create a workspace with catalog = "postgresql://…", or run on one machine with master = "local[*]"',
        )


def require_reachable_master(master: str) -> None:
    """Raise WorkspaceError if no master of a standalone cluster accepts connections. Spark would try for a minute."""
    if not is_standalone(master):
        return
    for host, port in _addresses(master):
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
        except (OSError, ValueError, OverflowError):
            continue
        return
    raise _unreachable(master)


def _addresses(master: str) -> Iterator[tuple[str, str]]:
    """Yield the hosts and ports of the masters of a standalone cluster."""
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        yield host, port


def _unreachable(master: str) -> WorkspaceError:
    return WorkspaceError(
        f"the Spark cluster {master} cannot be reached",
        hint="check the address in the setting master, and that the master of the cluster runs",
    )


def check_secret(jvm: Any, configuration: Mapping[str, str]) -> None:
    """Raise WorkspaceError unless the master of a standalone cluster authenticates with the secret that is set here.

    Spark itself would try for a minute and then report that the master is unresponsive. On other clusters, Spark
    generates a secret for each application.
    """
    master = configuration["spark.master"]
    if not is_standalone(master):
        return
    conf = jvm.org.apache.spark.SparkConf()
    for name, value in (dict(configuration) | {"spark.rpc.lookupTimeout": f"{_CONNECT_SECONDS:.0f}s"}).items():
        conf.set(name, value)
    if not conf.contains(_AUTHENTICATION_SETTING):
        raise WorkspaceError(
            f"the Spark cluster {master} needs {_AUTHENTICATION_SETTING}, which is not set", hint=_CONFIGURATION_HINT
        )
    no_key = jvm.scala.Option.empty()
    secret_file = getattr(jvm.org.apache.spark.SecurityManager, "$lessinit$greater$default$3")()
    security = jvm.org.apache.spark.SecurityManager(conf, no_key, secret_file)
    client = jvm.org.apache.spark.rpc.RpcEnv.create("runnel", "localhost", 0, conf, security, True)
    try:
        for host, port in _addresses(master):
            with suppress(Py4JJavaError):
                client.setupEndpointRef(jvm.org.apache.spark.rpc.RpcAddress(host, int(port)), "Master")
                return
    finally:
        client.shutdown()
    raise WorkspaceError(
        f"the Spark cluster {master} does not authenticate with the secret that is set here", hint=_CONFIGURATION_HINT
    )


def check_cluster(spark: Any, catalog_url: str, storage_url: str) -> None:
    """Raise WorkspaceError unless the workers of a session can access the workspace. Check each session only once."""
    master = str(spark.sparkContext.master)
    if is_local(master):
        return
    require_shared_catalog(master, catalog_url)
    session = (str(spark.sparkContext.applicationId), storage_url)
    if session not in _checked_sessions:
        _check_workers(spark, open_storage(storage_url))
        _checked_sessions.add(session)


def _check_workers(spark: Any, storage: Storage) -> None:
    """Write a file to the workspace, and raise WorkspaceError unless all workers see it."""
    context = spark.sparkContext
    name = f"probes/{uuid.uuid4().hex}"
    storage.write(name, b"")
    url = storage.url

    def probe(_: int) -> tuple[str, bool]:
        from runnel.storage.file_storage import open_storage as open_on_worker

        return socket.gethostname(), open_on_worker(url).local(name).exists()

    count = max(2, context.defaultParallelism * _PROBES_PER_CORE)
    try:
        with explaining_errors(str(context.master)), _cancelling_after_timeout(context):
            results = context.parallelize(range(count), count).map(probe).collect()
    finally:
        storage.delete(name)
    hosts = sorted({host for host, is_visible in results if not is_visible})
    if hosts:
        raise WorkspaceError(
            f"Spark workers on {', '.join(hosts)} do not see the workspace's folder {storage.local('.')}",
            hint="move the workspace to a folder that every machine of the cluster mounts at the same path",
        )


@contextmanager
def _cancelling_after_timeout(context: Any) -> Iterator[None]:
    """Cancel the jobs started inside after a timeout. If there is no worker, Spark itself would wait forever."""
    group = f"runnel-{uuid.uuid4().hex}"
    context.setJobGroup(group, "checking that workers see the workspace", interruptOnCancel=True)
    timer = threading.Timer(_TEST_JOB_SECONDS, context.cancelJobGroup, [group])
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if not timer.is_alive():
            raise WorkspaceError(
                f"the Spark cluster did not complete a test job within {_TEST_JOB_SECONDS:.0f} seconds",
                hint="check on the master's web page that workers are alive and have enough free memory and cores"
                " for executor_memory and executor_cores",
            ) from error
        raise
    finally:
        timer.cancel()
        context.setLocalProperty("spark.jobGroup.id", None)


@contextmanager
def explaining_errors(master: str) -> Iterator[None]:
    """Replace Spark's errors about the cluster and its workers by WorkspaceErrors that tell users what to do."""
    try:
        yield
    except WorkspaceError:
        raise
    except Exception as error:
        text = str(error)
        if "No module named 'runnel" in text:
            raise WorkspaceError("the Spark workers cannot import Runnel", hint=_INSTALL_HINT) from error
        if "Cannot run program" in text:
            raise WorkspaceError(
                "the Spark workers cannot run the Python of this runner", hint=_INSTALL_HINT
            ) from error
        if "Could not parse Master" in text:
            raise WorkspaceError(
                f"{master} is not a valid Spark master",
                hint='set master = "local[*]" for this machine alone, or an address such as "spark://host:7077"',
            ) from error
        if "All masters are unresponsive" in text or "stopped SparkContext" in text:
            raise _unreachable(master) from error
        raise
