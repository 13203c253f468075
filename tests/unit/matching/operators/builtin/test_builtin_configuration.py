"""Configurations of built-in operators: options are checked, and files outside the folder are never read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.builtin.configuration import Configuration
from runnel.matching.operators.plugins.contract import OperatorContext

KEYS = ("file", "number", "names", "secret")


def configuration(folder: Path | None = None, **settings: str) -> Configuration:
    return Configuration("region", OperatorContext(settings, folder), KEYS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "maps").mkdir(parents=True)
    (root / "private").mkdir()
    (root / "maps" / "city.json").write_bytes(b"city")
    (root / "private" / "vision").write_bytes(b"secret-1\n")
    (tmp_path / "catalog-url").write_bytes(b"postgresql")
    (tmp_path / "outside.json").write_bytes(b"outside")
    return root


def test_a_file_in_the_folder_is_read(folder: Path) -> None:
    assert configuration(folder, file="maps/city.json").read("file", 4) == b"city"
    (folder / "near.json").symlink_to(folder / "maps" / "city.json")
    assert configuration(folder, file="near.json").read("file", 100) == b"city"


@pytest.mark.parametrize(
    "name",
    [
        "../outside.json",
        "maps/../../outside.json",
        "/etc/passwd",
        "private/vision",
        "./private/vision",
        "maps/../private/vision",
        "link-out",
        "folder-out/outside.json",
        "link-to-private",
        "maps",
        "pipe",
        "nowhere.json",
        "circle",
        "a\0b",
        "x" * 3000,
    ],
)
def test_files_outside_the_folder_or_in_private_are_refused(folder: Path, name: str) -> None:
    (folder / "link-out").symlink_to(folder.parent / "outside.json")
    (folder / "folder-out").symlink_to(folder.parent)
    (folder / "link-to-private").symlink_to(folder / "private" / "vision")
    (folder / "circle").symlink_to(folder / "circle")
    os.mkfifo(folder / "pipe")
    with pytest.raises(OperatorRefusedError) as caught:
        configuration(folder, file=name).read("file", 100)
    assert caught.value.place == "region, file"
    assert "secret" not in str(caught.value)


def test_a_large_file_is_not_read(folder: Path) -> None:
    with pytest.raises(OperatorRefusedError, match="larger than 3 bytes"):
        configuration(folder, file="maps/city.json").read("file", 3)


def test_without_a_folder_files_are_refused() -> None:
    with pytest.raises(OperatorRefusedError, match="no folder"):
        configuration(None, file="maps/city.json").read("file", 100)


def test_secrets_are_read_only_from_the_folder_private(folder: Path) -> None:
    assert configuration(folder, secret="vision").secret("secret") == "secret-1"
    (folder / "private" / "link").symlink_to(folder.parent / "catalog-url")
    (folder / "private" / "two").write_bytes(b"a\nb")
    (folder / "private" / "empty").write_bytes(b"\n")
    (folder / "private" / "bytes").write_bytes(b"\xff")
    for name in ("../../catalog-url", "../maps/city.json", "link", "two", "empty", "bytes", "maps/city.json"):
        with pytest.raises(OperatorRefusedError) as caught:
            configuration(folder, secret=name).secret("secret")
        assert "postgresql" not in str(caught.value)


def test_an_unknown_option_is_refused_with_a_list_of_the_options() -> None:
    with pytest.raises(OperatorRefusedError, match="no option 'flie'") as caught:
        configuration(flie="a")
    assert caught.value.hint == "options: file, names, number, secret"


@pytest.mark.parametrize("value", ["x", "nan", "inf", "-1", "11", "1e999", "2.5"])
def test_numbers_out_of_range_are_refused(value: str) -> None:
    with pytest.raises(OperatorRefusedError):
        configuration(number=value).integer("number", 5, minimum=0, maximum=10)


def test_options_are_parsed_and_missing_options_have_defaults() -> None:
    made = configuration(names=" a, b ,", number=" ")
    assert made.names("names") == ("a", "b")
    assert made.number("number", 2.5, minimum=0, maximum=10) == 2.5
    with pytest.raises(OperatorRefusedError, match="is required"):
        made.text("file")
    with pytest.raises(OperatorRefusedError, match="must be distinct"):
        configuration(names="a, a").names("names")
    with pytest.raises(OperatorRefusedError, match="'a' is not a valid value") as caught:
        configuration(names="a").one_of("names", ("b", "c"), "b")
    assert caught.value.hint == "use one of b, c"
