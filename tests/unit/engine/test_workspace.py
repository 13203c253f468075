"""The password of the catalog: read from the URL or from a file, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from runnel.engine import workspace as roots
from runnel.engine.workspace import open_workspace
from runnel.errors import WorkspaceError
from runnel.settings import Settings


def test_catalog_password_can_come_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "password.txt"
    secret.write_text("p@ss/word:1\n", "utf-8")
    settings = Settings.load(
        tmp_path, catalog="postgresql://runnel@db.example/runnel", catalog_password_file=str(secret)
    )
    url = make_url(roots._with_password(settings))
    assert (url.username, url.password, url.host) == ("runnel", "p@ss/word:1", "db.example")


def test_without_password_file_the_url_is_used_unchanged(tmp_path: Path) -> None:
    assert roots._with_password(Settings.load(tmp_path, catalog="postgresql://u:p@h/d")) == "postgresql://u:p@h/d"
    assert roots._with_password(Settings.load(tmp_path)) == ""


def test_missing_password_file_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "runnel.toml").write_text("", "utf-8")
    with pytest.raises(WorkspaceError, match=r"nowhere\.txt cannot be read"):
        open_workspace(tmp_path, catalog="postgresql://runnel@db.example/runnel", catalog_password_file="nowhere.txt")
