"""Preflight checks for cluster runs that can be tested without a cluster."""

from __future__ import annotations

import socket

import pytest

from runnel.errors import WorkspaceError
from runnel.streaming.cluster_checks import explaining_errors, require_reachable_master, require_shared_catalog


@pytest.mark.parametrize("master", ["spark://h.example:7077", "yarn", "k8s://https://h.example"])
def test_a_cluster_requires_a_postgresql_catalog(master: str) -> None:
    require_shared_catalog(master, "postgresql://db.example/runnel")
    require_shared_catalog("local[4]", "sqlite:///x.sqlite")
    with pytest.raises(WorkspaceError, match="PostgreSQL"):
        require_shared_catalog(master, "sqlite:///x.sqlite")


def test_unreachable_master_is_reported_immediately() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        require_reachable_master(f"spark://127.0.0.1:{port}")
        require_reachable_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    require_reachable_master("yarn")
    for unreachable in (
        f"spark://127.0.0.1:{port}",
        "spark://127.0.0.1",
        "spark://127.0.0.1:x",
        "spark://127.0.0.1:99999",
    ):
        with pytest.raises(WorkspaceError, match="cannot be reached"):
            require_reachable_master(unreachable)


@pytest.mark.parametrize(
    ("spark_error", "words"),
    [
        ("ModuleNotFoundError: No module named 'runnel'", "cannot import Runnel"),
        ('java.io.IOException: Cannot run program "/opt/x/python"', "cannot run the Python of this runner"),
        (
            "Exiting due to error from cluster scheduler: All masters are unresponsive! Giving up.",
            "cannot be reached",
        ),
        ("Could not parse Master URL: 'spark:/h'", "is not a valid Spark master"),
    ],
)
def test_spark_errors_are_replaced_by_errors_with_hints(spark_error: str, words: str) -> None:
    with pytest.raises(WorkspaceError, match=words) as raised, explaining_errors("spark://h.example:7077"):
        raise RuntimeError(spark_error)
    assert raised.value.hint
    with pytest.raises(RuntimeError, match="something else"), explaining_errors("spark://h.example:7077"):
        raise RuntimeError("something else")
