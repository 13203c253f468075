"""The distribution: its name, its version, its license, and the contents of its wheel."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
from email.message import Message
from email.parser import Parser
from importlib.metadata import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest

from runnel import __version__
from runnel.errors import DISTRIBUTION, install_hint

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
APACHE_2_MD5 = "86d3f3a95c324c9479bd8986968f4327"
"""The MD5 of the standard text, as it is in packages such as prometheus-client and safetensors."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """Build the wheel from the current source."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (path,) = folder.iterdir()
    return ZipFile(path)


def test_license_is_the_unchanged_standard_text() -> None:
    text = (ROOT / "LICENSE").read_bytes()
    assert hashlib.md5(text, usedforsecurity=False).hexdigest() == APACHE_2_MD5
    assert b"END OF TERMS AND CONDITIONS" in text


def test_wheel_contains_license_and_notice(wheel: ZipFile) -> None:
    folder = f"{_normalized(DISTRIBUTION)}-{__version__}.dist-info"
    for name in ("LICENSE", "NOTICE"):
        assert wheel.read(f"{folder}/licenses/{name}") == (ROOT / name).read_bytes()
    fields = _metadata(wheel)
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields.get_all("License-File") == ["LICENSE", "NOTICE"]


def test_wheel_has_the_name_version_and_command(wheel: ZipFile) -> None:
    fields = _metadata(wheel)
    assert (fields["Name"], fields["Version"]) == (DISTRIBUTION, __version__) == (PROJECT["name"], __version__)
    (scripts,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "runnel = runnel.cli.main:main" in wheel.read(scripts).decode().splitlines()


def test_wheel_contains_only_the_package(wheel: ZipFile) -> None:
    names = wheel.namelist()
    assert {name.split("/")[0] for name in names} == {
        "runnel",
        f"{_normalized(DISTRIBUTION)}-{__version__}.dist-info",
    }
    assert not [name for name in names if "__pycache__" in name]
    source = ROOT / "src"
    shipped = {path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path.relative_to(source).as_posix() for path in shipped} <= set(names)


def test_installed_distribution_has_the_version_of_the_source() -> None:
    assert metadata(DISTRIBUTION)["Version"] == __version__, "run `make setup`"


def test_pip_commands_in_hints_and_pages_name_this_distribution() -> None:
    assert install_hint("semantic") == f"pip install '{DISTRIBUTION}[semantic]'"
    assert {"postgresql", "semantic"} <= PROJECT["optional-dependencies"].keys()
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/*"), *ROOT.glob("src/**/*.py")]
    commands = [
        command for page in pages for command in re.findall(r"\bpip install ([^\n`]*)", page.read_text("utf-8"))
    ]
    assert len(commands) > 5
    named = [name for command in commands for name in re.findall(r"(?<![\w/.-])runnel[\w-]*", command)]
    assert set(named) == {DISTRIBUTION}


def test_changelog_describes_this_version() -> None:
    assert re.search(rf"^## {re.escape(__version__)} - ", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)


def _metadata(wheel: ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode("utf-8"))


def _normalized(name: str) -> str:
    return name.replace("-", "_")
