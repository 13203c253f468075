"""A reader that leaves early, such as `head`, is no error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.engine import connect

RUNNEL = str(Path(sys.executable).with_name("runnel"))
FEEDS = 2_000
"""The list of these feeds is longer than a pipe's buffer of 64 KB."""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipes") / "news"
    script = "".join(
        f"register feed 'http://h.example/{number}' as Feed_with_a_long_name_{number:04};" for number in range(FEEDS)
    )
    with connect(folder) as engine:
        engine.execute(script)
    return folder


@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        (["--help"], ""),
        (["--help"], "1"),
        (["--version"], ""),
        (["run", "--help"], ""),
        (["show", "feeds"], ""),
        (["show", "feeds"], "1"),
        (["status", "--json"], ""),
        (["doctor"], ""),
        (["opml", "export"], ""),
    ],
)
def test_command_succeeds_if_the_output_pipe_is_already_closed(
    words: list[str], unbuffered: str, workspace: Path
) -> None:
    """Short output fails only when it is flushed at the end, long output while it is written."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [RUNNEL, *words], stdout=writing, stderr=subprocess.PIPE, env=_environment(workspace, unbuffered)
        )
    finally:
        os.close(writing)
    assert ended.stderr == b""
    assert ended.returncode == 0


@pytest.mark.parametrize("words", [["--help"], ["show", "feeds"], ["show", "feeds", "--json"], ["opml", "export"]])
def test_command_succeeds_if_the_reader_closes_the_pipe_after_one_line(words: list[str], workspace: Path) -> None:
    with subprocess.Popen(
        [RUNNEL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment(workspace)
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stdout.readline().endswith(b"\n")
        command.stdout.close()
        assert command.stderr.read() == b""
    assert command.returncode == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["exec", "create nothing;"], 3),
        (["exec", "create nothing;", "--json"], 3),
        (["nonsense"], 2),
        (["show", "Nowhere"], 6),
    ],
)
def test_failed_command_keeps_its_exit_code_if_stderr_is_closed(words: list[str], code: int, workspace: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run([RUNNEL, *words], stdout=subprocess.PIPE, stderr=writing, env=_environment(workspace))
    finally:
        os.close(writing)
    assert ended.returncode == code
    assert ended.stdout == b""


def test_script_is_executed_completely_after_the_pipe_is_closed(tmp_path: Path) -> None:
    connect(tmp_path / "news").close()
    reading, writing = os.pipe()
    os.close(reading)
    script = "show feeds; register feed First; register feed Second; show feeds;"
    try:
        subprocess.run([RUNNEL, "exec", script], stdout=writing, check=True, env=_environment(tmp_path / "news"))
    finally:
        os.close(writing)
    with connect(tmp_path / "news") as engine:
        assert len(engine.show("feeds").to_json()["feeds"]) == 2


def test_command_succeeds_without_standard_output(workspace: Path) -> None:
    command = f'exec "{RUNNEL}" show feeds >&-'
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, env=_environment(workspace))
    assert (ended.returncode, ended.stderr) == (0, b"")


def _environment(workspace: Path, unbuffered: str = "") -> dict[str, str]:
    return os.environ | {"RUNNEL_WORKSPACE": str(workspace), "PYTHONUNBUFFERED": unbuffered}
