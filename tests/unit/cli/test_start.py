"""Commands that only print text about themselves start without the engine and its libraries."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from runnel import __version__
from runnel.cli.main import app

HEAVY = {
    *(
        "aiohttp",
        "fastapi",
        "feedparser",
        "lxml",
        "matplotlib",
        "numba",
        "numpy",
        "pandas",
        "prometheus_client",
    ),
    *("pyarrow", "pyoxigraph", "pyspark", "runnel.engine", "runnel.settings", "shapely", "sqlalchemy", "uvicorn"),
}
MOST_CPU_SECONDS = 0.35
RUNNEL = Path(sys.executable).with_name("runnel")

RUN_MAIN = """
import sys

sys.argv = ["runnel", *sys.argv[1:]]
from runnel.cli.main import main

try:
    main()
finally:
    print("loaded:", *sorted(sys.modules), file=sys.stderr)
"""


def modules_loaded_by(*words: str) -> set[str]:
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True)
    (line,) = (line for line in ended.stderr.splitlines() if line.startswith("loaded: "))
    return set(line.removeprefix("loaded: ").split())


def test_importing_runnel_loads_no_library() -> None:
    loaded = modules_loaded_by("-c", "import runnel, sys; print('loaded:', *sys.modules, file=sys.stderr)")
    assert "runnel" in loaded
    assert not loaded & (HEAVY | {"typer", "rich"})


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["run", "--help"], ["doctor", "--help"], ["owner", "add", "--help"]]
)
def test_help_and_version_load_neither_engine_nor_its_libraries(words: list[str]) -> None:
    loaded = modules_loaded_by("-c", RUN_MAIN, *words)
    assert "runnel.cli.main" in loaded
    assert not loaded & HEAVY


def test_modules_of_the_command_line_import_no_heavy_library() -> None:
    """Help for any command loads all of them; only the checks of `doctor` are loaded when the command runs."""
    modules = [path.stem for path in Path("src/runnel/cli").glob("*.py") if path.stem not in ("__init__", "doctor")]
    script = "\n".join(f"import runnel.cli.{name}" for name in sorted(modules))
    loaded = modules_loaded_by("-c", f"import sys\n{script}\nprint('loaded:', *sys.modules, file=sys.stderr)")
    assert {f"runnel.cli.{name}" for name in modules} <= loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize(
    "words", [[str(RUNNEL), "--help"], [str(RUNNEL), "--version"], [sys.executable, "-c", "import runnel"]]
)
def test_first_commands_take_little_cpu_time(words: list[str]) -> None:
    assert min(cpu_seconds_of(words) for _ in range(3)) < MOST_CPU_SECONDS


def cpu_seconds_of(words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_lists_every_command_with_its_purpose() -> None:
    shown = subprocess.run([RUNNEL, "--help"], capture_output=True, text=True, check=True, env=_wide()).stdout
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert {"init", "exec", "run", "doctor", "owner"} <= commands.keys()
    for name, command in commands.items():
        assert f" {name} " in shown
        assert command.get_short_help_str(limit=500).partition(":")[0] in shown, name


def test_version_is_that_of_the_package() -> None:
    shown = subprocess.run([RUNNEL, "--version"], capture_output=True, text=True, check=True).stdout
    assert shown == f"runnel {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "offered"), [("runnel st", {"status"}), ("runnel owner ", {"add", "list", "disable", "quota"})]
)
def test_shell_completion_offers_commands(typed: str, offered: set[str]) -> None:
    asked = {"_RUNNEL_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    shown = subprocess.run([RUNNEL], capture_output=True, text=True, check=True, env=os.environ | asked).stdout
    assert set(shown.split()) == offered


def _wide() -> dict[str, str]:
    return os.environ | {"COLUMNS": "500"}
