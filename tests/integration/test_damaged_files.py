"""A run with damaged files: files that can be rebuilt are rebuilt, others are quarantined, and the run succeeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

import runnel
from runnel.catalog.logs import plan_versions
from runnel.engine import Engine
from runnel.errors import CorruptDataError

SCRIPT = """
register feed Wire;
create feed Rock from Wire where title contains 'rock'; subscribe to Rock output jsonl 'rock.jsonl';
"""


def _runnel(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command in a separate process, as users do."""
    command = [
        sys.executable,
        "-c",
        "from runnel.cli.main import main; main()",
        *arguments,
        "--workspace",
        str(folder),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


def _publish(engine: Engine, *numbers: int) -> None:
    for number in numbers:
        engine.publish("Wire", [{"id": f"{number}-{value}", "title": "rock"} for value in range(3)])


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= 0x21
    path.write_bytes(data)


def _segments(engine: Engine) -> list[str]:
    with engine.workspace.catalog.read() as connection:
        rows = connection.execute(text("select path from item_segments where tier = 'log' order by id"))
        return [str(path) for path in rows.scalars()]


@pytest.mark.spark
def test_run_continues_with_damaged_segments_and_a_damaged_plan(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    with runnel.connect(folder) as engine:
        engine.execute(SCRIPT)
        _publish(engine, 0, 1, 2, 3)
        with engine.workspace.catalog.read() as connection:
            plan = plan_versions.current_plan(connection)
        assert plan is not None
        flipped, _, truncated, last = _segments(engine)
    _flip(folder / flipped, 700)
    os.truncate(folder / truncated, 100)
    _flip(folder / last, 900)
    _flip(folder / plan.base / "arrays.npy", 400)

    assert _runnel("doctor", "--deep", folder=folder).returncode == 5
    done = _runnel("run", "--once", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    log = (folder / "logs" / "runnel.log").read_text()
    for path in (flipped, truncated, last):
        assert f"{path} is quarantined" in log
    assert f"{plan.base}" in log
    delivered = [json.loads(line)["id"] for line in (folder / "out" / "rock.jsonl").read_text().splitlines()]
    assert [entry["id"] if isinstance(entry, dict) else entry for entry in delivered] == ["1-0", "1-1", "1-2"]
    assert _runnel("doctor", "--deep", folder=folder).returncode == 0

    with runnel.connect(folder) as engine:
        status = engine.status()
        assert (status.lag, status.put_aside) == (0, 3)
        _publish(engine, 0, 1, 2)  # the lost ones are taken again, the others are known
        assert engine.status().lag == 6
        [part] = _live(engine, "match_parts")
    _flip(folder / part, 60)
    again = _runnel("run", "--once", folder=folder)
    assert again.returncode == 0, again.stderr
    assert len((folder / "out" / "rock.jsonl").read_text().splitlines()) == 9
    # Nobody has read the matches that were delivered long ago; who does is told.
    result = _runnel("doctor", "--deep", folder=folder)
    assert result.returncode == 5
    assert part in result.stdout.replace("\n", "")
    with runnel.connect(folder) as engine, pytest.raises(CorruptDataError, match="is damaged"):
        list(engine.matches("Rock"))


def _live(engine: Engine, table: str) -> list[str]:
    with engine.workspace.catalog.read() as connection:
        rows = connection.execute(text(f"select path from {table} where retired is null"))
        return [str(path) for path in rows.scalars()]
