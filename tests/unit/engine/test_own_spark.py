"""The Spark session of an engine: sessions of the caller, and other users' workspaces."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from runnel.engine import connect
from runnel.engine.own_spark import OwnSpark
from runnel.errors import WorkspaceError


@pytest.mark.parametrize(("conf", "warnings"), [({}, 1), ({"spark.authenticate": "true"}, 0)])
def test_caller_session_without_authentication_is_reported_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    conf: dict[str, str],
    warnings: int,
) -> None:
    session = SimpleNamespace(conf=conf)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session)
    with connect(tmp_path / "workspace") as engine:
        spark = OwnSpark(engine.workspace)
        assert spark.session() is session
        assert spark.session() is session
    assert (
        len([record for record in caplog.records if "does not require authentication" in record.message]) == warnings
    )


def test_root_does_not_start_spark_in_the_workspace_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    with connect(tmp_path / "workspace") as engine:
        if os.geteuid() == 0:
            os.chown(engine.workspace.folder, 12345, 12345)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 0)
        with pytest.raises(WorkspaceError, match="root cannot start Spark") as caught:
            OwnSpark(engine.workspace).session()
    assert "sudo -u" in (caught.value.hint or "")
