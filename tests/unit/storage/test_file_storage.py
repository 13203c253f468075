"""Files of a root: written whole and once, replaced without a torn moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from runnel.engine import connect
from runnel.errors import StorageFullError, WorkspaceError
from runnel.storage.file_storage import FileStorage, open_storage


def test_a_file_is_written_once(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    storage.write("a/b.txt", b"one")
    with pytest.raises(FileExistsError):
        storage.write("a/b.txt", b"two")
    assert storage.read("a/b.txt") == b"one"
    storage.replace("a/b.txt", b"three")
    assert storage.read("a/b.txt") == b"three"
    assert [file.path for file in storage.files("a")] == ["a/b.txt"]
    storage.delete("a/b.txt")
    storage.delete("a/b.txt")
    assert list(storage.files("")) == []


def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(tmp_path.as_uri())
    storage.write("a.txt", b"old")

    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.write", full)
        with pytest.raises(StorageFullError, match="no disk space"):
            storage.replace("a.txt", b"new")
    assert storage.read("a.txt") == b"old"
    assert [file.path for file in storage.files("")] == ["a.txt"]


def test_error_for_unknown_scheme_lists_known_schemes() -> None:
    with pytest.raises(WorkspaceError, match=r"supported schemes: .*file"):
        open_storage("gopher://x")


def test_folder_names_may_contain_any_character_except_question_mark(tmp_path: Path) -> None:
    with connect(tmp_path / "my röot 100%") as engine:
        engine.execute("register feed Wire;")
        engine.publish("Wire", [{"id": "1"}])
    assert [path.name for path in tmp_path.iterdir()] == ["my röot 100%"]
    with pytest.raises(WorkspaceError, match="must not contain"):
        connect(tmp_path / "a?b")
