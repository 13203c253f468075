"""Preflight checks for cluster runs: reject configurations that would fail obscurely on workers.

Workers read items and plans and write matches as files, so every worker must see the workspace's folder at the same
path, and have the same Runnel. Only the driver uses the catalog, but a SQLite file serves the clients of one machine
only. The master and the workers of a standalone cluster must know the secret that the driver uses.
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
_PATIENCE_SECONDS = 120.0
_CONNECT_SECONDS = 5.0
_PROBES_PER_CORE = 2
_fit: set[tuple[str, str]] = set()
_REQUIRED = "spark.authenticate.secret"
_LINES_HINT = (
    "set the same lines in spark-defaults.conf on every machine of the cluster and in the folder SPARK_CONF_DIR here;"
    " docs/operate/run-on-a-spark-cluster.md lists them"
)
_INSTALL_HINT = "install the same Runnel for the same Python at the same path on every machine of the cluster"


def is_local(master: str) -> bool:
    """Whether a Spark master means this machine alone.

    >>> is_local("local[*]"), is_local("spark://cluster.example:7077")
    (True, False)
    """
    return master.startswith("local")


def is_standalone(master: str) -> bool:
    """Whether a Spark master is that of a standalone cluster.

    >>> is_standalone("spark://cluster.example:7077"), is_standalone("yarn")
    (True, False)
    """
    return master.startswith("spark://")


def refuse_lone_catalog(master: str, catalog_url: str) -> None:
    """Raise RootError where a cluster is asked to work with a catalog that serves one machine only."""
    if not is_local(master) and not catalog_url.startswith(_SEALED) and not is_shared(catalog_url):
        raise WorkspaceError(
            f"the Spark cluster {master} needs a PostgreSQL catalog; this root has a SQLite file",
            hint='set catalog = "postgresql://…" for a new root, or run on one machine with master = "local[*]"',
        )


def refuse_silent_master(master: str) -> None:
    """Raise RootError if no master of a standalone cluster takes a connection: Spark alone tries for a minute."""
    if not is_standalone(master):
        return
    for host, port in _addresses(master):
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
        except (OSError, ValueError, OverflowError):
            continue
        return
    raise _silent(master)


def _addresses(master: str) -> Iterator[tuple[str, str]]:
    """The hosts and ports of the masters of a standalone cluster."""
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        yield host, port


def _silent(master: str) -> WorkspaceError:
    return WorkspaceError(
        f"the Spark cluster {master} does not answer", hint="is the address right, and its master running?"
    )


def check_secret(jvm: Any, configuration: Mapping[str, str]) -> None:
    """Raise WorkspaceError unless the master of a standalone cluster authenticates with the secret that is set here.

    Spark itself would try for a minute and then report that the master does not answer. On other clusters, Spark
    makes up a secret for each application.
    """
    master = configuration["spark.master"]
    if not is_standalone(master):
        return
    conf = jvm.org.apache.spark.SparkConf()
    for name, value in (dict(configuration) | {"spark.rpc.lookupTimeout": f"{_CONNECT_SECONDS:.0f}s"}).items():
        conf.set(name, value)
    if not conf.contains(_REQUIRED):
        raise WorkspaceError(f"the Spark cluster {master} needs {_REQUIRED}, which is not set", hint=_LINES_HINT)
    nothing = jvm.scala.Option.empty()
    secret_file = getattr(jvm.org.apache.spark.SecurityManager, "$lessinit$greater$default$3")()
    security = jvm.org.apache.spark.SecurityManager(conf, nothing, secret_file)
    client = jvm.org.apache.spark.rpc.RpcEnv.create("runnel", "localhost", 0, conf, security, True)
    try:
        for host, port in _addresses(master):
            with suppress(Py4JJavaError):
                client.setupEndpointRef(jvm.org.apache.spark.rpc.RpcAddress(host, int(port)), "Master")
                return
    finally:
        client.shutdown()
    raise WorkspaceError(
        f"the Spark cluster {master} does not authenticate with the secret that is set here", hint=_LINES_HINT
    )


def check_cluster(spark: Any, catalog_url: str, storage_url: str) -> None:
    """Raise RootError unless the workers of a session can do their part. A session is looked at once."""
    master = str(spark.sparkContext.master)
    if is_local(master):
        return
    refuse_lone_catalog(master, catalog_url)
    looked_at = (str(spark.sparkContext.applicationId), storage_url)
    if looked_at not in _fit:
        _probe(spark, open_storage(storage_url))
        _fit.add(looked_at)


def _probe(spark: Any, storage: Storage) -> None:
    """Let workers look for a file of the root that was just written."""
    context = spark.sparkContext
    name = f"probes/{uuid.uuid4().hex}"
    storage.write(name, b"")
    url = storage.url

    def look(_: int) -> tuple[str, bool]:
        from runnel.storage.file_storage import open_storage as open_here

        return socket.gethostname(), open_here(url).local(name).exists()

    count = max(2, context.defaultParallelism * _PROBES_PER_CORE)
    try:
        with explained(str(context.master)), _bounded(context):
            seen = context.parallelize(range(count), count).map(look).collect()
    finally:
        storage.delete(name)
    blind = sorted({host for host, sees in seen if not sees})
    if blind:
        raise WorkspaceError(
            f"Spark workers on {', '.join(blind)} do not see the root's folder {storage.local('.')}",
            hint="put the root into a folder that every machine of the cluster has at the same path",
        )


@contextmanager
def _bounded(context: Any) -> Iterator[None]:
    """Give up what no worker takes: Spark alone would wait for ever, and say so only in its log."""
    group = f"runnel-{uuid.uuid4().hex}"
    context.setJobGroup(group, "looking whether workers see the root", interruptOnCancel=True)
    timer = threading.Timer(_PATIENCE_SECONDS, context.cancelJobGroup, [group])
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if not timer.is_alive():
            raise WorkspaceError(
                f"the Spark cluster gave no worker within {_PATIENCE_SECONDS:.0f} seconds",
                hint="its page shows whether workers live and have room for executor_memory and executor_cores",
            ) from error
        raise
    finally:
        timer.cancel()
        context.setLocalProperty("spark.jobGroup.id", None)


@contextmanager
def explained(master: str) -> Iterator[None]:
    """Turn what Spark says of an unfit or missing cluster into words for a person."""
    try:
        yield
    except WorkspaceError:
        raise
    except Exception as error:
        text = str(error)
        if "No module named 'runnel" in text:
            raise WorkspaceError("Spark's workers do not have Runnel", hint=_INSTALL_HINT) from error
        if "Cannot run program" in text:
            raise WorkspaceError("Spark's workers do not have this Python", hint=_INSTALL_HINT) from error
        if any(
            sign in text
            for sign in ("All masters are unresponsive", "stopped SparkContext", "Could not parse Master")
        ):
            raise _silent(master) from error
        raise
