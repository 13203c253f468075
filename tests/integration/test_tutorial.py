"""The tutorial and the README are executed: every command of their `console` blocks, in order.

What a command prints is compared with the lines shown below it.

`…` inside a line stands for anything; a line with only `…` stands for any number of lines.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TUTORIAL = ROOT / "docs" / "start" / "tutorial.md"
MARK = "---- that was the command ----"
PATIENCE = 300.0


@dataclass(frozen=True)
class Step:
    """A command of the document, the output shown below it, and its line number."""

    line: int
    command: str
    shown: tuple[str, ...]


def steps_of(text: str) -> list[Step]:
    """Return the commands of all `console` blocks, in order."""
    found: list[Step] = []
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```console"
        elif inside and line.startswith("$ "):
            found.append(Step(number, line[2:], ()))
        elif inside:
            last = found[-1]
            found[-1] = Step(last.line, last.command, (*last.shown, line))
    return found


def agrees(shown: tuple[str, ...], printed: tuple[str, ...]) -> bool:
    """Return whether the printed output equals the shown output, in which `…` matches anything."""
    if not shown:
        return not printed
    if shown[0] == "…":
        return any(agrees(shown[1:], printed[start:]) for start in range(len(printed) + 1))
    if not printed:
        return False
    pattern = ".*".join(re.escape(part) for part in shown[0].split("…"))
    return re.fullmatch(pattern, printed[0]) is not None and agrees(shown[1:], printed[1:])


class Shell:
    """One shell for the whole document, so that `cd`, variables and background jobs persist."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def run(self, command: str) -> tuple[str, ...]:
        """Return the output of a command, from standard output and standard error."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\necho '{MARK}'\n")
        self._process.stdin.flush()
        printed: list[str] = []
        while (line := self._lines.get(timeout=PATIENCE)) != MARK:
            assert line is not None, f"the shell ended in: {command}"
            printed.append(line)
        return tuple(printed)

    def close(self) -> None:
        """End the shell and all processes that it started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNNEL_")}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
        "RUNNEL": str(ROOT),
        "COLUMNS": "200",
        "TERM": "dumb",
    }
    opened = Shell(tmp_path, environment)
    yield opened
    opened.close()


@pytest.mark.spark
@pytest.mark.parametrize("page", ["README.md", "docs/start/tutorial.md"])
def test_commands_print_what_is_shown(page: str, shell: Shell) -> None:
    steps = steps_of((ROOT / page).read_text("utf-8"))
    assert steps
    for step in steps:
        printed = shell.run(step.command)
        place = f"{page}:{step.line}: {step.command}"
        assert agrees(step.shown, printed), f"{place}\nshown:\n" + "\n".join([*step.shown, "", "printed:", *printed])


def test_the_tutorial_is_short_and_complete() -> None:
    commands = [step.command for step in steps_of(TUTORIAL.read_text("utf-8"))]
    assert sum("runnel run" in command for command in commands) <= 3
    used = {words[1] for words in (command.split() for command in commands) if words[0] == "runnel"}
    assert used >= {"init", "exec", "publish", "show", "explain", "why", "preview", "status", "run"}


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        (("a", "b"), ("a", "b"), True),
        (("a",), ("a", "b"), False),
        (("a", "b"), ("a",), False),
        (("root …/news",), ("root /tmp/x/news",), True),
        (("root …/news",), ("root /tmp/x/other",), False),
        (("…", "end"), ("1", "2", "end"), True),
        (("…", "end"), ("1", "2"), False),
        (("a", "…"), ("a",), True),
        (("1.5",), ("1x5",), False),
    ],
)
def test_ellipsis_matches_any_text(shown: tuple[str, ...], printed: tuple[str, ...], expected: bool) -> None:
    assert agrees(shown, printed) is expected
