"""Spark options do not contain the password of the catalog."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path

from runnel.streaming.item_source import ItemSource
from runnel.streaming.job import Job

_SECRET = "correct-horse"
_URL = f"postgresql://runnel:{_SECRET}@127.0.0.1:1/runnel"


def _job(folder: Path, catalog: str) -> Job:
    return Job(catalog, 0, folder.as_uri(), 1, 0, 1, 100, 1000, 10, 2)


def test_spark_options_do_not_contain_the_catalog_password(tmp_path: Path) -> None:
    job = _job(tmp_path, _URL)
    option = job.dump()
    assert _SECRET not in option + repr(job) + str(job)
    reader = ItemSource({"job": option}).streamReader(None)
    assert _SECRET.encode() not in pickle.dumps(reader), "nor is it sent to workers"
    assert Job.load(option).open_catalog().url.replace("+psycopg", "") == _URL


def test_only_this_user_can_read_the_file_with_the_password(tmp_path: Path) -> None:
    _job(tmp_path, _URL.replace(_SECRET, "older")).dump()
    _job(tmp_path, _URL).dump()
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert file.read_text() == _URL, "the newest URL, and no temporary files"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_catalog_without_a_password_needs_no_file(tmp_path: Path) -> None:
    job = _job(tmp_path, f"sqlite:///{tmp_path / 'catalog.sqlite'}")
    assert Job.load(job.dump()) == job
    assert list(tmp_path.iterdir()) == []
