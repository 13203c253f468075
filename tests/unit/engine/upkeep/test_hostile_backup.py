"""Manipulated backups: rights must be accepted explicitly, and only regular files with the right digest are read."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import runnel
from runnel.cli.main import app
from runnel.engine.upkeep import backup as backup_module
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.backup_manifest import MANIFEST, UNFINISHED, Manifest, file_digest, read_manifest
from runnel.engine.upkeep.restore import restore
from runnel.engine.upkeep.setting_rights import GIVES_RIGHTS, LIMITS, REPLACED, TUNING, rights_in
from runnel.errors import CorruptDataError, InputError, NotAllowedError, RunnelError, StorageFullError
from runnel.settings import FORMER_NAMES, Settings


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Create a backup of a small workspace."""
    with runnel.connect(tmp_path / "workspace") as engine:
        engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
        engine.publish("Wire", [{"id": "1", "title": "rock"}])
        back_up(engine.workspace, tmp_path / "backup")
    return tmp_path / "backup"


def _edit(backup: Path, change: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads((backup / MANIFEST).read_bytes())
    change(value)
    (backup / MANIFEST).write_text(json.dumps(value))


def _set(backup: Path, text: str) -> None:
    """Edit the settings of a backup, and update the digest in its manifest."""
    (file,) = backup.glob("snapshots/*/folder/runnel.toml")
    file.write_text(file.read_text() + text)
    digest = file_digest(file)
    entry = {"size": digest.size, "sha256": digest.sha256}
    _edit(backup, lambda value: value["snapshot_files"].update({"folder/runnel.toml": entry}))


def test_every_setting_is_classified_once() -> None:
    groups = [GIVES_RIGHTS.keys(), LIMITS, TUNING, REPLACED]
    assert set().union(*groups) == Settings.model_fields.keys(), "classify a new setting in setting_rights.py"
    assert sum(map(len, groups)) == len(Settings.model_fields)


def test_edited_settings_are_shown_and_refused_unless_accepted(backup: Path, tmp_path: Path) -> None:
    _set(
        backup, 'out_folders = ["/etc/cron.d"]\noperator_modules = ["os"]\nsmtp_password = "hidden"\nlag_limit = 5\n'
    )
    with pytest.raises(NotAllowedError) as refused:
        restore(backup, tmp_path / "again")
    assert not (tmp_path / "again").exists() or not list((tmp_path / "again").iterdir())
    for shown in ('out_folders = ["/etc/cron.d"]', 'operator_modules = ["os"]', "smtp_password = ***"):
        assert shown in refused.value.message
    assert "lag_limit" not in refused.value.message
    assert "hidden" not in refused.value.message

    command = ["restore", str(backup), str(tmp_path / "again")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 3
    assert "--accept-settings" in result.output
    accepted = CliRunner().invoke(app, [*command, "--accept-settings"])
    assert accepted.exit_code == 0, accepted.output
    assert "accepted operator_modules" in accepted.output
    assert Settings.load(tmp_path / "again").operator_modules == ("os",)


@pytest.mark.parametrize("name", sorted(GIVES_RIGHTS))
def test_only_values_other_than_the_default_grant_rights(name: str) -> None:
    default = Settings.model_fields[name].default
    assert rights_in(_toml(name, default)) == []
    other = {bool: True, int: 1, str: "other", tuple: ("other",), dict: {"name": "other"}}[type(default)]
    assert [right.setting for right in rights_in(_toml(name, other))] == [name]


def _toml(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"[{name}]\n" + "".join(f"{key} = {json.dumps(element)}\n" for key, element in value.items())
    return f"{name} = {json.dumps(list(value) if isinstance(value, tuple) else value)}\n"


def test_former_names_of_settings_grant_no_rights() -> None:
    assert rights_in("".join(f"{former} = 101\n" for former in FORMER_NAMES)) == []


def test_unknown_setting_must_be_accepted() -> None:
    assert [right.setting for right in rights_in("operator_modulez = ['os']")] == ["operator_modulez"]


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def _socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket must be short
        made.bind(path.name)
        os.chdir(here)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _linked_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))
    path.parent.symlink_to("elsewhere")


def _other_content(path: Path) -> None:
    """Replace the file by a hard link to a file outside the backup."""
    path.unlink()
    secret = path.parents[4] / "secret"
    secret.write_text("not backed up")
    path.hardlink_to(secret)


def _sparse(path: Path) -> None:
    os.truncate(path, 1 << 40)


def _grown(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


HARMS = [_fifo, _link, _socket, _folder, _linked_folder, _other_content, _sparse, _grown]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("pattern", ["files/items/**/*.arrow", "snapshots/*/catalog/feeds.parquet"])
def test_only_regular_files_with_the_right_content_are_read(
    backup: Path, tmp_path: Path, pattern: str, harm: Callable[[Path], None]
) -> None:
    harm(next(backup.glob(pattern)))
    with pytest.raises(CorruptDataError):
        restore(backup, tmp_path / "again")
    assert not list((tmp_path / "again").iterdir())


@pytest.mark.parametrize("harm", [_fifo, _socket, _folder])
def test_manifest_that_is_not_a_regular_file_is_refused(
    backup: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    harm(backup / MANIFEST)
    with pytest.raises(RunnelError, match="does not contain a backup"):
        restore(backup, tmp_path / "again")


_ENTRY = {"size": 0, "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}


@pytest.mark.parametrize(
    "name",
    [
        *("../x", "/etc/x", "items/../../x", "items//x", "./items/x", "items/x/", "items\\x", "items/\0", "", "."),
        # Names that a backup never holds, and that would reach into the new workspace.
        *("runnel.toml", "catalog.sqlite", "catalog.sqlite-wal", "workspace.json", "private/operators.json", "out/x"),
    ],
)
def test_names_outside_the_data_folders_are_refused(backup: Path, tmp_path: Path, name: str) -> None:
    _edit(backup, lambda value: value["files"].update({name: _ENTRY}))
    with pytest.raises(CorruptDataError, match="is not a valid file name"):
        restore(backup, tmp_path / "again")


@pytest.mark.parametrize("name", ["folder/x", "folder/private/x", "runnel.toml", "operators", "folder/../x"])
def test_names_outside_the_snapshot_are_refused(backup: Path, tmp_path: Path, name: str) -> None:
    _edit(backup, lambda value: value["snapshot_files"].update({name: _ENTRY}))
    with pytest.raises(CorruptDataError, match="is not a valid file name"):
        restore(backup, tmp_path / "again")


@pytest.mark.parametrize("entry", [{"size": -1}, {"size": True}, {"size": 1.5}, {"sha256": "x"}, {"sha256": None}])
def test_sizes_and_digests_must_be_valid(backup: Path, tmp_path: Path, entry: dict[str, Any]) -> None:
    _edit(backup, lambda value: value["files"].update({"items/x": _ENTRY | entry}))
    with pytest.raises(CorruptDataError, match="no valid size and digest"):
        restore(backup, tmp_path / "again")


def test_duplicate_file_name_in_a_manifest_is_refused(backup: Path, tmp_path: Path) -> None:
    text = (backup / MANIFEST).read_text()
    (backup / MANIFEST).write_text(text.replace('"files": {', '"files": {}, "files": {', 1))
    with pytest.raises(CorruptDataError, match="occurs twice"):
        restore(backup, tmp_path / "again")


def test_backup_larger_than_the_free_disk_space_is_refused(backup: Path, tmp_path: Path) -> None:
    _edit(backup, lambda value: value["files"].update({"items/x": _ENTRY | {"size": 1 << 60}}))
    with pytest.raises(StorageFullError, match="bytes are free"):
        restore(backup, tmp_path / "again")


def test_file_that_the_manifest_does_not_list_is_refused(backup: Path, tmp_path: Path) -> None:
    snapshot = next((backup / "snapshots").iterdir())
    (snapshot / "folder" / "sheets").mkdir()
    (snapshot / "folder" / "sheets" / "mine.xsl").write_text("<x/>")
    with pytest.raises(CorruptDataError, match="not listed in its manifest"):
        restore(backup, tmp_path / "again")


def test_large_files_are_restored_without_being_read_into_memory(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runnel.engine.upkeep.restore._IN_MEMORY", 0)
    restore(backup, tmp_path / "again")
    assert not (tmp_path / "again" / ".restoring").exists()
    with runnel.connect(tmp_path / "again") as engine:
        assert engine.status().accepted == 1


@pytest.mark.parametrize("name", ["files", "files/items", "snapshots", "snapshots/old", UNFINISHED, "files/stray"])
def test_backup_into_a_folder_with_links_changes_no_file_elsewhere(backup: Path, tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    (home / "deep").mkdir(parents=True)
    for file in (home / "thesis", home / "deep" / "notes"):
        file.write_text("mine")
    link = backup / name
    if link.is_dir():
        shutil.rmtree(link)
    link.symlink_to(tmp_path / "made" if name == UNFINISHED else home)
    before = {path: path.read_bytes() for path in backup.rglob("*") if path.is_file() and not path.is_symlink()}
    with runnel.connect(tmp_path / "workspace") as engine:
        engine.publish("Wire", [{"id": "2", "title": "rock"}])
        with pytest.raises(InputError, match="symbolic links") as refused:
            back_up(engine.workspace, backup)
    assert refused.value.place == str(link)
    assert sorted(path.name for path in home.rglob("*")) == ["deep", "notes", "thesis"]
    assert not (tmp_path / "made").exists()
    assert before == {path: path.read_bytes() for path in before}


def test_pruning_follows_no_link_that_is_created_during_the_backup(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis").write_text("mine")
    original = backup_module._prune

    def prune(target: Path, manifest: Manifest) -> None:
        (target / "files" / "link").symlink_to(home)
        (target / "files" / "broken").symlink_to(tmp_path / "nowhere")
        (target / "snapshots" / "link").symlink_to(home)
        original(target, manifest)
        shutil.rmtree(target / "files")
        (target / "files").symlink_to(home)
        with pytest.raises(OSError, match="Not a directory"):
            original(target, manifest)

    monkeypatch.setattr(backup_module, "_prune", prune)
    with runnel.connect(tmp_path / "workspace") as engine:
        back_up(engine.workspace, backup)
    assert (home / "thesis").read_text() == "mine"


def test_existing_marker_of_an_unfinished_backup_is_not_opened(backup: Path, tmp_path: Path) -> None:
    os.mkfifo(backup / UNFINISHED)  # to open it would wait for a reader
    with runnel.connect(tmp_path / "workspace") as engine:
        back_up(engine.workspace, backup)
    assert not (backup / UNFINISHED).exists()


def test_second_backup_deletes_files_that_it_does_not_need(backup: Path, tmp_path: Path) -> None:
    for stray in ("files/items/stray", "files/old/deep/stray", "snapshots/old/catalog/stray"):
        (backup / stray).parent.mkdir(parents=True, exist_ok=True)
        (backup / stray).write_text("old")
    with runnel.connect(tmp_path / "workspace") as engine:
        engine.publish("Wire", [{"id": "2", "title": "rock"}])
        made = back_up(engine.workspace, backup)
        key = engine.workspace.key.read()
    assert 0 < made.copied < made.files
    manifest = read_manifest(backup)
    needed = {f"files/{name}" for name in manifest.files}
    needed |= {f"snapshots/{manifest.snapshot}/{name}" for name in manifest.snapshot_files}
    paths = {path.relative_to(backup).as_posix() for path in backup.rglob("*") if path.is_file()}
    assert paths == {MANIFEST, *needed}
    assert all(any(path.iterdir()) for path in backup.rglob("*") if path.is_dir())
    assert restore(backup, tmp_path / "again", key=key).last_sequence == 2
