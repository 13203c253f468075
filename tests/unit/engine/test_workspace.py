"""Opening roots: where the catalog's password comes from, and that it is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from runnel.engine import workspace as roots
from runnel.engine.workspace import open_workspace
from runnel.errors import WorkspaceError
from runnel.settings import Settings


def test_the_password_of_the_catalog_may_come_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "password.txt"
    secret.write_text("p@ss/word:1\n", "utf-8")
    settings = Settings.load(
        tmp_path, catalog="postgresql://runnel@db.example/runnel", catalog_password_file=str(secret)
    )
    url = make_url(roots._with_password(settings))
    assert (url.username, url.password, url.host) == ("runnel", "p@ss/word:1", "db.example")


def test_without_a_file_the_url_is_used_as_it_is(tmp_path: Path) -> None:
    assert roots._with_password(Settings.load(tmp_path, catalog="postgresql://u:p@h/d")) == "postgresql://u:p@h/d"
    assert roots._with_password(Settings.load(tmp_path)) == ""


def test_a_password_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "runnel.toml").write_text("", "utf-8")
    with pytest.raises(WorkspaceError, match=r"nowhere\.txt cannot be read"):
        open_workspace(tmp_path, catalog="postgresql://runnel@db.example/runnel", catalog_password_file="nowhere.txt")
