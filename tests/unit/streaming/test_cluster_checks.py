"""What is refused before a run goes to a cluster, without one."""

from __future__ import annotations

import socket

import pytest

from runnel.errors import WorkspaceError
from runnel.streaming.cluster_checks import explained, refuse_lone_catalog, refuse_silent_master


@pytest.mark.parametrize("master", ["spark://h.example:7077", "yarn", "k8s://https://h.example"])
def test_a_cluster_needs_a_catalog_that_is_shared(master: str) -> None:
    refuse_lone_catalog(master, "postgresql://db.example/runnel")
    refuse_lone_catalog("local[4]", "sqlite:///x.sqlite")
    with pytest.raises(WorkspaceError, match="PostgreSQL"):
        refuse_lone_catalog(master, "sqlite:///x.sqlite")


def test_a_master_that_is_not_there_is_noticed_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = server.getsockname()[1]
        refuse_silent_master(f"spark://127.0.0.1:{there}")
        refuse_silent_master(f"spark://127.0.0.1:1,127.0.0.1:{there}")
    refuse_silent_master("yarn")
    for silent in (
        f"spark://127.0.0.1:{there}",
        "spark://127.0.0.1",
        "spark://127.0.0.1:x",
        "spark://127.0.0.1:99999",
    ):
        with pytest.raises(WorkspaceError, match="does not answer"):
            refuse_silent_master(silent)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("ModuleNotFoundError: No module named 'runnel'", "do not have Runnel"),
        ('java.io.IOException: Cannot run program "/opt/x/python"', "this Python"),
        ("Exiting due to error from cluster scheduler: All masters are unresponsive! Giving up.", "does not answer"),
    ],
)
def test_what_spark_says_is_put_into_words(told: str, words: str) -> None:
    with pytest.raises(WorkspaceError, match=words) as raised, explained("spark://h.example:7077"):
        raise RuntimeError(told)
    assert raised.value.hint
    with pytest.raises(RuntimeError, match="something else"), explained("spark://h.example:7077"):
        raise RuntimeError("something else")
