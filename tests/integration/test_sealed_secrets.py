"""Secrets in the catalog are encrypted: neither its file nor a backup reveals them without the key file."""

from __future__ import annotations

import json
import signal
import sqlite3
import stat
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Connection, text
from tests.integration.in_process import InProcess
from tests.integration.test_confirmation import Endpoint, listening
from typer.testing import CliRunner

import runnel
from runnel.catalog.access.signing_keys import PREFIX, keys_of
from runnel.catalog.access.workspace_secrets import UNSUBSCRIBE, find_secret, workspace_secret
from runnel.catalog.polling.hubs import HubRow, HubState, hubs_of, put_hub
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.catalog.store.sealed_secrets import read_fingerprint
from runnel.cli.main import app
from runnel.engine import Engine
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.backup_manifest import MANIFEST, file_digest, read_manifest
from runnel.engine.upkeep.restore import Signer, restore
from runnel.engine.workspace import adopt_workspace
from runnel.errors import CorruptDataError, RunnerActiveError, WorkspaceError
from runnel.storage.key_file import KEY_FILE, read_key_file
from runnel.workspace_key import WorkspaceKey

SCRIPT = "register feed Wire; create feed Rock from Wire where title contains 'rock';"
HOOK = "subscribe to Rock output webhook 'https://hook.example/in';"


def _fill(engine: Engine) -> dict[str, bytes]:
    """Create secrets of all kinds, and return them in plain text."""
    engine.execute(SCRIPT)
    shown = str(engine.execute(HOOK)[0].to_json()["key"])
    hub = HubRow(1, "https://hub.example", "topic", "callback", b"h" * 64, HubState.ACTIVE)
    with engine.workspace.catalog.write() as connection:
        unsubscribe = workspace_secret(connection, UNSUBSCRIBE)
        put_hub(connection, hub)
    return {"signing key": b64decode(shown.removeprefix(PREFIX)), "unsubscribe": unsubscribe, "hub": hub.secret}


def _read(engine: Engine) -> dict[str, bytes | None]:
    """Return the secrets as the workspace decrypts them."""
    with engine.workspace.catalog.read() as connection:
        (signing,) = keys_of(connection, [1]).get(1, (None,))
        hub = hubs_of(connection).get(1)
        return {
            "signing key": signing,
            "unsubscribe": find_secret(connection, UNSUBSCRIBE),
            "hub": None if hub is None else hub.secret,
        }


def _files_with(folder: Path, secret: bytes) -> set[str]:
    forms = (secret, secret.hex().encode())
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and any(form in path.read_bytes() for form in forms)
    }


def test_files_of_workspace_and_backup_contain_no_plain_secrets(tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "root") as engine:
        made = _fill(engine)
        assert _read(engine) == made
        back_up(engine.workspace, tmp_path / "backup")
    key = read_key_file(tmp_path / "root" / KEY_FILE)
    for secret in made.values():
        assert _files_with(tmp_path, secret) == set()
    assert _files_with(tmp_path, key.value) == {f"root/{KEY_FILE}"}
    assert stat.S_IMODE((tmp_path / "root" / KEY_FILE).stat().st_mode) == 0o600
    with runnel.connect(tmp_path / "root") as engine:
        assert _read(engine) == made


_DIE = """
import os, signal, sys
import runnel
from runnel.engine import seal_secrets
original = seal_secrets.set_fingerprint
def die(*arguments):
    if sys.argv[2] == "after":
        original(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
seal_secrets.set_fingerprint = die
runnel.connect(sys.argv[1])
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_during_key_creation_leaves_a_matching_key(tmp_path: Path, when: str) -> None:
    root = tmp_path / "root"
    with runnel.connect(root):
        pass
    (root / KEY_FILE).unlink()
    with sqlite3.connect(root / "catalog.sqlite") as connection:
        connection.execute("delete from counters where name = 'key'")
    connection.close()
    command = [sys.executable, "-c", _DIE, str(root), when]
    killed = subprocess.run(command, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (root / KEY_FILE).exists(), "the key is there before a row needs it"
    with runnel.connect(root) as engine:
        made = _fill(engine)
    with runnel.connect(root) as engine:
        assert _read(engine) == made


def test_lost_or_foreign_key_is_detected_and_can_be_replaced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with runnel.connect(root) as engine:
        made = _fill(engine)
    file = root / KEY_FILE
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(WorkspaceError, match="is missing"):
        runnel.connect(root)
    file.write_text(json.dumps({"format": 1, "key": WorkspaceKey.make().value.hex()}))
    with pytest.raises(WorkspaceError, match="not the key"):
        runnel.connect(root)
    for damaged in (b"", b"{}", b"[1]", content[:-9], content.replace(b'"format": 1', b'"format": 2')):
        file.write_bytes(damaged)
        with pytest.raises(CorruptDataError, match="is not the key file"):
            runnel.connect(root)
    file.write_bytes(content)
    with runnel.connect(root) as engine:
        assert _read(engine) == made, "the right one is accepted again"

    file.unlink()
    done = CliRunner().invoke(app, ["adopt", "--new-key", "--workspace", str(root)])
    assert done.exit_code == 0, done.output
    with runnel.connect(root) as engine:
        assert _read(engine) == {"signing key": None, "unsubscribe": None, "hub": None}
        rotated = engine.execute("rotate key of subscription 1;")[0].to_json()["key"]
        assert _read(engine)["signing key"] == b64decode(str(rotated).removeprefix(PREFIX))


def test_a_secret_moved_to_another_row_is_refused(tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "root") as engine:
        _fill(engine)
        engine.execute(HOOK)
        with engine.workspace.catalog.write() as connection:
            connection.execute(
                text(
                    "update signing_keys set value = (select value from signing_keys where subscription = 2)"
                    " where subscription = 1"
                )
            )
        with engine.workspace.catalog.read() as connection:
            assert keys_of(connection, [1, 2]).keys() == {2}


# --- signed backups


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    with runnel.connect(tmp_path / "root") as engine:
        _fill(engine)
        engine.publish("Wire", [{"id": "1", "title": "rock"}])
        back_up(engine.workspace, tmp_path / "backup")
    return tmp_path / "backup"


def _edit(backup: Path, **values: object) -> None:
    manifest = json.loads((backup / MANIFEST).read_bytes()) | values
    (backup / MANIFEST).write_text(json.dumps(manifest))


def test_restore_with_the_key_verifies_the_signature_and_restores_secrets(backup: Path, tmp_path: Path) -> None:
    with runnel.connect(tmp_path / "root") as engine:
        before = _read(engine)
    done = CliRunner().invoke(
        app, ["restore", str(backup), str(tmp_path / "again"), "--key-file", str(tmp_path / "root" / KEY_FILE)]
    )
    assert done.exit_code == 0, done.output
    assert "signature of the backup is valid" in done.output
    with runnel.connect(tmp_path / "again") as engine:
        assert _read(engine) == before


def test_restore_without_the_key_reports_missing_verification_and_lost_secrets(backup: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["restore", str(backup), str(tmp_path / "again")])
    assert done.exit_code == 0, done.output
    assert "was not verified" in done.output
    assert "3 secrets could not be restored" in done.output
    with runnel.connect(tmp_path / "again") as engine:
        assert set(_read(engine).values()) == {None}
        assert engine.status().accepted == 1


def test_an_unsigned_backup_is_reported_and_refused_with_a_key(backup: Path, tmp_path: Path) -> None:
    _edit(backup, signer=None, signature=None)
    key = read_key_file(tmp_path / "root" / KEY_FILE)
    with pytest.raises(CorruptDataError, match="is not signed"):
        restore(backup, tmp_path / "again", key=key)
    assert restore(backup, tmp_path / "again").signer is Signer.NONE


def test_a_foreign_or_changed_backup_is_refused_with_a_key(backup: Path, tmp_path: Path) -> None:
    key = read_key_file(tmp_path / "root" / KEY_FILE)
    with pytest.raises(CorruptDataError, match="key of another workspace"):
        restore(backup, tmp_path / "again", key=WorkspaceKey.make())
    (file,) = backup.glob("snapshots/*/folder/runnel.toml")
    file.write_text(file.read_text() + 'operator_modules = ["os"]\n')
    digest = file_digest(file)
    names = json.loads((backup / MANIFEST).read_bytes())["snapshot_files"]
    names["folder/runnel.toml"] = {"size": digest.size, "sha256": digest.sha256}
    _edit(backup, snapshot_files=names)
    with pytest.raises(CorruptDataError, match="changed after it was signed"):
        restore(backup, tmp_path / "again", key=key, accept_settings=True)
    _edit(backup, signature=WorkspaceKey.make().sign(b""))
    with pytest.raises(CorruptDataError, match="changed after it was signed"):
        restore(backup, tmp_path / "again", key=key, accept_settings=True)
    for invalid in ({"signature": "x"}, {"signer": "1"}, {"signature": None}):
        _edit(backup, **{"signature": "0" * 64, "signer": 1, **invalid})
        with pytest.raises(CorruptDataError, match="signature is not valid"):
            restore(backup, tmp_path / "again")


def test_new_backup_does_not_sign_files_tampered_with_in_the_old_one(backup: Path, tmp_path: Path) -> None:
    name, digest = next(iter(read_manifest(backup).files.items()))
    file = backup / "files" / name
    file.write_bytes(b"changed")
    changed = file_digest(file)
    files = json.loads((backup / MANIFEST).read_bytes())["files"]
    files[name] = {"size": changed.size, "sha256": changed.sha256}
    _edit(backup, files=files)
    with runnel.connect(tmp_path / "root") as engine:
        back_up(engine.workspace, backup)
    assert read_manifest(backup).files[name] == digest
    restore(backup, tmp_path / "again", key=read_key_file(tmp_path / "root" / KEY_FILE))


def test_backup_without_a_key_fingerprint_restores_no_secrets(backup: Path, tmp_path: Path) -> None:
    (file,) = backup.glob("snapshots/*/catalog/counters.parquet")
    table = pq.read_table(file)
    pq.write_table(table.filter(pc.not_equal(table["name"], "key")), file)
    manifest = json.loads((backup / MANIFEST).read_bytes())
    digest = file_digest(file)
    entry = {"size": digest.size, "sha256": digest.sha256}
    _edit(
        backup,
        snapshot_files=manifest["snapshot_files"] | {"catalog/counters.parquet": entry},
        tables=manifest["tables"] | {"counters": manifest["tables"]["counters"] - 1},
        signer=None,
        signature=None,
    )
    assert restore(backup, tmp_path / "again").lost_secrets == 3
    with runnel.connect(tmp_path / "again") as engine:
        assert set(_read(engine).values()) == {None}


# --- a key that is replaced while processes use the workspace


def test_the_key_is_not_replaced_while_a_runner_is_active(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with runnel.connect(root) as engine:
        made = _fill(engine)
        with engine.workspace.catalog.write() as connection:
            lease = leases.acquire(connection, 60.0)
        before = (root / KEY_FILE).read_bytes()
        with pytest.raises(RunnerActiveError, match="while a runner is active"):
            adopt_workspace(root, new_key=True)
        assert (root / KEY_FILE).read_bytes() == before
        assert _read(engine) == made
        adopt_workspace(root)  # this needs no new key
        with engine.workspace.catalog.write() as connection:
            leases.release(connection, lease)
    adopt_workspace(root, new_key=True)
    assert (root / KEY_FILE).read_bytes() != before


def test_process_with_a_replaced_key_cannot_encrypt_secrets(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with runnel.connect(root) as old:
        _fill(old)
        adopt_workspace(root, new_key=True)
        for statement in (HOOK, "rotate key of subscription 1;"):
            with pytest.raises(WorkspaceError, match="key of the workspace was replaced"):
                old.execute(statement)
        with runnel.connect(root) as new:
            new.execute(HOOK)
            with new.workspace.catalog.read() as connection:
                assert keys_of(connection, range(9)).keys() == {2}


def test_replacing_the_key_never_leaves_the_catalog_without_a_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a process with the old key could encrypt a secret in between."""
    root = tmp_path / "root"
    with runnel.connect(root) as engine:
        seen: list[int | None] = []
        original = Catalog.write

        @contextmanager
        def write(catalog: Catalog) -> Iterator[Connection]:
            with original(catalog) as connection:
                yield connection
            with engine.workspace.catalog.read() as reader:
                seen.append(read_fingerprint(reader))

        monkeypatch.setattr(Catalog, "write", write)
        adopt_workspace(root, new_key=True)
    assert seen
    assert None not in seen
    assert seen[-1] == read_key_file(root / KEY_FILE).fingerprint


def test_undecryptable_signing_key_affects_only_its_subscription(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        listening(Endpoint()) as endpoint,
        runnel.connect(tmp_path / "root", allowed_addresses=("127.0.0.0/8",)) as engine,
    ):
        engine.execute(SCRIPT)
        for path in ("/bad", "/good"):
            engine.execute(f"subscribe to Rock output webhook '{endpoint.url(path)}';")
        with engine.workspace.catalog.write() as connection:
            connection.execute(text("update signing_keys set value = :v where subscription = 1"), {"v": b"x" * 60})
        runner = InProcess(engine)
        try:
            engine.publish("Wire", [{"id": "1", "title": "rock"}])
            runner.match()
            runner.deliver()
            assert [path for path, _, _ in endpoint.posts] == ["/good"]
            assert "rotate key of subscription 1" in caplog.text
            engine.execute("rotate key of subscription 1; send subscription 1 now;")
            runner.deliver()
            assert [path for path, _, _ in endpoint.posts] == ["/good", "/bad"]
        finally:
            runner.close()
