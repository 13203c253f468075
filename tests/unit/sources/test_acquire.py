"""Acquisition from drop folders: interrupted first scans, files that change during a scan, and invalid file names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.in_process import read_files

from runnel.engine import Engine, connect
from runnel.engine.open_delivery import _read_entries
from runnel.errors import BrokenDocumentError, InputError, StorageFullError
from runnel.sources import document_child, drop_folder, drop_folder_source
from runnel.sources.documents import decode, decode_json
from runnel.sources.feed_reader import FeedReader

_RSS = "<rss version='2.0'><channel><title>t</title>{items}</channel></rss>"


def _document(prefix: str, count: int) -> str:
    items = "".join(f"<item><guid>{prefix}{number}</guid><title>{prefix}</title></item>" for number in range(count))
    return _RSS.format(items=items)


@pytest.fixture
def drop(tmp_path: Path) -> Path:
    folder = tmp_path / "drop"
    folder.mkdir()
    return folder


@pytest.fixture
def engine(tmp_path: Path, drop: Path) -> Iterator[Engine]:
    with connect(tmp_path / "workspace", first_fetch_items=3) as engine:
        engine.execute(f"register feed '{drop}' as Wire;")
        yield engine


def _accepted(engine: Engine) -> int:
    return engine.workspace.items.last_sequence()


def test_only_documents_of_the_first_scan_are_limited_to_their_newest_items(engine: Engine, drop: Path) -> None:
    (drop / "a.xml").write_text(_document("a", 10))
    (drop / "b.xml").write_text(_document("b", 10))
    read_files(engine)
    assert _accepted(engine) == 6
    (drop / "c.xml").write_text(_document("c", 10))
    read_files(engine)
    assert _accepted(engine) == 16


def test_interrupted_first_scan_is_continued_as_first_scan(
    engine: Engine, drop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (drop / f"{name}.xml").write_text(_document(name, 10))
    read, turns = drop_folder.read_file, iter([False, True])

    def fail_later(path: Path, *, limit: int) -> bytes:
        if next(turns, False):
            raise StorageFullError("no space left")
        return read(path, limit=limit)

    monkeypatch.setattr(drop_folder_source, "read_file", fail_later)
    with pytest.raises(StorageFullError):
        read_files(engine)
    read_files(engine)
    assert _accepted(engine) == 9


def test_file_that_changes_during_a_scan_is_read_in_the_next_one(
    engine: Engine, drop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.xml"
    secret.write_text(_document("secret", 1))
    (drop / "a.xml").write_text(_document("a", 1))
    read = drop_folder.read_file

    def swap(path: Path, *, limit: int) -> bytes:
        path.unlink()
        path.symlink_to(secret)
        return read(path, limit=limit)

    with monkeypatch.context() as patched:
        patched.setattr(drop_folder_source, "read_file", swap)
        read_files(engine)
    assert _accepted(engine) == 0
    read_files(engine)
    assert _accepted(engine) == 0, "a symbolic link that leads out of the folder is not followed"
    assert "not followed" in engine.show("quarantine").lines[0]


def test_file_name_that_is_not_utf_8_does_not_affect_other_files(engine: Engine, drop: Path) -> None:
    (drop / "z.xml").write_text(_document("z", 1))
    with open(os.fsencode(drop) + b"/\xff.xml", "w") as file:  # noqa: PTH123
        file.write(_document("odd", 1))
    for _ in range(4):
        read_files(engine)
    assert _accepted(engine) == 1
    assert len(engine.show("quarantine").lines) == 1, "it is reported once"
    os.unlink(os.fsencode(drop) + b"/\xff.xml")  # noqa: PTH108
    read_files(engine)
    assert engine.status().failing_sources == [], "a deleted file is no longer a problem"


def test_feed_that_cannot_be_read_does_not_affect_others(
    engine: Engine, drop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (drop / "a.xml").write_text(_document("a", 1))
    (other / "b.xml").write_text(_document("b", 1))
    engine.execute(f"register feed '{other}' as Other;")
    read_feed = FeedReader.read_feed

    def fail_on_wire(reader, feed, *rest):  # type: ignore[no-untyped-def]
        if feed.name == "Wire":
            raise ValueError("unexpected")
        return read_feed(reader, feed, *rest)

    monkeypatch.setattr(FeedReader, "read_feed", fail_on_wire)
    read_files(engine)
    assert _accepted(engine) == 1


def test_temporarily_unreadable_file_is_read_in_the_next_scan(
    engine: Engine, drop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (drop / "a.xml").write_text(_document("a", 2))
    with monkeypatch.context() as patched:

        def fail(*_: object, **__: object) -> bytes:
            raise InputError("cannot read the file: Stale file handle")

        patched.setattr(drop_folder_source, "read_file", fail)
        read_files(engine)
    assert _accepted(engine) == 0
    read_files(engine)
    assert _accepted(engine) == 2


# --- all documents are read in the sandbox -----------------------------------------------------------------------


@pytest.fixture
def fail_if_decoded_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make decoding in this process fail. The sandboxes load their own modules."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a document was decoded outside the sandbox")

    for module in (document_child, decode):
        for name in ("decode", "decode_json", "parse_xml", "decode_rdf", "read_head", "adapt"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, fail)
    monkeypatch.setattr(decode_json, "_DECODER", None)


@pytest.mark.usefixtures("fail_if_decoded_here")
def test_documents_from_all_inputs_are_read_in_the_sandbox(engine: Engine, drop: Path) -> None:
    engine.execute("register feed Mine;")
    (drop / "a.xml").write_text(_document("a", 2))
    (drop / "b.jsonl").write_text('{"id": 1}')
    assert read_files(engine).accepted == 3
    assert engine.publish_document("Mine", b'{"id": 1}', name="a.jsonl")[0].accepted == 1
    assert engine.publish_document("Mine", _document("a", 1).encode(), name="a.xml")[0].accepted == 1
    assert engine.publish_document("Mine", b"<urn:a> <urn:b> 1 .", name="a.ttl")[0].accepted == 1
    assert len(_read_entries(_document("a", 2).encode(), "made by a stylesheet")) == 2


def test_hostile_document_is_rejected_from_all_inputs(engine: Engine, drop: Path) -> None:
    engine.execute("register feed Mine;")
    lines = b'{"id":1}\n' * 200_000
    (drop / "a.jsonl").write_bytes(lines)
    result = read_files(engine)
    assert (result.accepted, result.quarantined) == (0, 1)
    with pytest.raises(BrokenDocumentError, match="the document has more than 100000 items"):
        engine.publish_document("Mine", lines, name="a.jsonl")
    with pytest.raises(BrokenDocumentError, match="the document has more than 100000 items"):
        engine.test_document(lines, feed="Mine")


def test_maximum_of_items_per_document_can_be_set(tmp_path: Path) -> None:
    with connect(tmp_path / "small", max_document_items=2) as engine:
        engine.execute("register feed Mine;")
        assert engine.publish_document("Mine", b'{"id":1}\n{"id":2}', name="a.jsonl")[0].accepted == 2
        with pytest.raises(BrokenDocumentError, match="the document has more than 2 items"):
            engine.publish_document("Mine", b'{"id":1}\n{"id":2}\n{"id":3}', name="a.jsonl")
