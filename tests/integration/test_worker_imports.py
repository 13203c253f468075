"""Spark's Python workers import neither the catalog nor SQLAlchemy, to save memory and time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import runnel

WATCHED = ("sqlalchemy", "runnel.catalog", "runnel.streaming.worker.match_job")
WATCH = f"""
import os, sys
from pathlib import Path

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in {WATCHED!r}:
            with Path(os.environ["IMPORTS"], str(os.getpid())).open("a") as file:
                file.write(" ".join([name, *sys.argv]) + "\\n")

sys.meta_path.insert(0, Watch())
"""


@pytest.mark.spark
def test_no_worker_of_a_run_imports_the_catalog(tmp_path: Path) -> None:
    """Every Python process of a real run, including the workers, records its imports."""
    with runnel.connect(tmp_path / "workspace") as engine:
        engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
        engine.execute("subscribe to Rock output log;")
        engine.publish("Wire", [{"id": "1", "title": "Rock am Ring"}, {"id": "2", "title": "Jazz"}])
    imports, site = tmp_path / "imports", tmp_path / "site"
    imports.mkdir()
    site.mkdir()
    (site / "sitecustomize.py").write_text(WATCH)
    run = "import sys, runnel; runnel.connect(sys.argv[1]).run(once=True)"
    environment = {**os.environ, "PYTHONPATH": str(site), "IMPORTS": str(imports)}
    subprocess.run([sys.executable, "-c", run, tmp_path / "workspace"], env=environment, check=True, timeout=600)
    with runnel.connect(tmp_path / "workspace") as engine:
        assert [match.item.id for match in engine.matches("Rock")] == ["1"]

    lines = [line.split() for file in imports.iterdir() for line in file.read_text().splitlines()]
    by_workers = {name for name, program, *_ in lines if program.endswith("streaming/worker/daemon.py")}
    by_others = {name for name, program, *_ in lines if not program.endswith("streaming/worker/daemon.py")}
    assert by_workers == {"runnel.streaming.worker.match_job"}
    assert {"sqlalchemy", "runnel.catalog"} <= by_others
