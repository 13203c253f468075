"""Addresses of files and drop folders, and scans for new and changed documents."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runnel.catalog.polling.source_files import DocumentState
from runnel.errors import InputError
from runnel.settings import Settings
from runnel.sources import drop_folder as folder_module
from runnel.sources.drop_folder import ChangedFile, read_file, scan
from runnel.sources.drop_folder_source import DropFolders
from runnel.sources.feed_address import local_path
from runnel.sources.registry import source_of
from runnel.sources.web_feeds.poller import WebFeeds


def states(files: list[ChangedFile]) -> dict[str, DocumentState]:
    return {file.state.path: file.state for file in files}


def names(files: list[ChangedFile]) -> list[str]:
    return [file.path.name for file in files]


def test_addresses_are_resolved_to_paths_and_sources(tmp_path: Path) -> None:
    assert local_path("a/b.xml", tmp_path) == tmp_path / "a/b.xml"
    assert local_path("/x/y", tmp_path) == Path("/x/y")
    assert local_path("file:///x/y%20z", tmp_path) == Path("/x/y z")
    assert local_path("file://localhost/x", tmp_path) == Path("/x")
    assert isinstance(source_of("FILE:///x"), DropFolders)
    assert isinstance(source_of("https://muse.example/rss"), WebFeeds)


@pytest.mark.parametrize(
    "text",
    ["", "  ", "a\0b", "a\nb", "file://", "file://host/x", "file:///x%00y", "ftp://a/b", "http://", "http://[x/"],
)
def test_invalid_addresses_are_rejected(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        source_of(text).check_address(text, tmp_path, Settings.load(tmp_path))


def test_drop_folder_documents_are_found_in_order_of_name(tmp_path: Path) -> None:
    for name in (
        "b.xml",
        "a.json",
        "c.JSONL",
        ".hidden.xml",
        "d.xml.tmp",
        "e.part",
        "f.txt",
        "g.rss",
        "h.atom",
        "i.rdf",
    ):
        (tmp_path / name).write_text(name)
    (tmp_path / "folder.xml").mkdir()
    (tmp_path / "folder.xml" / "inner.xml").write_text("x")
    files = scan(tmp_path, {})
    assert names(files) == ["a.json", "b.xml", "c.JSONL", "g.rss", "h.atom", "i.rdf"]
    assert all(file.changed and file.problem is None for file in files)
    assert read_file(files[0].path) == b"a.json"


def test_later_scans_find_only_changes(tmp_path: Path) -> None:
    file = tmp_path / "a.xml"
    file.write_text("one")
    address = tmp_path
    known = states(scan(address, {}))
    assert scan(address, known) == []
    os.utime(file, ns=(1, 1))
    (touched,) = scan(address, known)
    assert not touched.changed
    assert scan(address, states([touched])) == []
    file.write_text("two")
    (changed,) = scan(address, known)
    assert changed.changed


def test_single_file_needs_no_suffix(tmp_path: Path) -> None:
    file = tmp_path / "feed"
    file.write_text("x")
    assert names(scan(file, {})) == ["feed"]
    with pytest.raises(InputError, match="cannot open the file or folder"):
        scan(tmp_path / "gone", {})


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.xml"
    secret.write_text("secret")
    drop = tmp_path / "drop"
    drop.mkdir()
    (drop / "out.xml").symlink_to(secret)
    (drop / "real.xml").write_text("x")
    (drop / "in.xml").symlink_to("real.xml")
    (drop / "dangling.xml").symlink_to("nothing")
    files = {file.path.name: file for file in scan(drop, {})}
    assert sorted(files) == ["in.xml", "out.xml", "real.xml"]
    assert "link" in str(files["out.xml"].problem)
    assert scan(drop, states(list(files.values()))) == []


def test_pipes_devices_and_large_files_are_problems_reported_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.xml")
    (tmp_path / "large.xml").write_bytes(b"x" * 100)
    files = scan(tmp_path, {}, limit=50)
    assert names(files) == ["large.xml", "pipe.xml"]
    assert all(file.problem is not None for file in files)
    assert scan(tmp_path, states(files), limit=50) == []
    for path in (tmp_path / "pipe.xml", Path("/dev/zero"), tmp_path, tmp_path / "gone"):
        with pytest.raises(InputError):
            read_file(path)
    with pytest.raises(InputError, match="more than"):
        read_file(tmp_path / "large.xml", limit=99)
    assert len(read_file(tmp_path / "large.xml", limit=100)) == 100


def test_disappearing_files_are_skipped_and_unreadable_ones_are_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.xml", "b.xml", "c.xml"):
        (tmp_path / name).write_text(name)
    original = folder_module._read

    def fail(path: Path, limit: int) -> tuple[bytes, os.stat_result]:
        if path.name == "a.xml":
            raise FileNotFoundError(2, "gone")
        if path.name == "b.xml":
            raise PermissionError(13, "Permission denied")
        return original(path, limit)

    monkeypatch.setattr(folder_module, "_read", fail)
    files = scan(tmp_path, {})
    assert names(files) == ["b.xml", "c.xml"]
    assert "Permission denied" in str(files[0].problem)
    assert files[1].problem is None
