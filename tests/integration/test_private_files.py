"""Other users of the machine cannot read a workspace, regardless of the umask, except for shared outputs."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.in_process import InProcess
from typer.testing import CliRunner

import runnel
from runnel.cli.doctor import Finding, examine
from runnel.cli.main import app
from runnel.engine.run.application_log import configure_logging, stop_logging
from runnel.engine.upkeep.backup import back_up
from runnel.engine.upkeep.restore import restore
from runnel.private_files import make_private_folder, open_private
from runnel.settings import Settings
from runnel.streaming.session import _stderr_into

SCRIPT = """
register feed Wire;
create feed Rock from Wire where title contains 'rock';
subscribe to Rock output rss 'news/rock.xml';
subscribe to Rock output jsonl 'rock.jsonl';
"""
_NOBODY = 65534
_READ_ALL = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
seen = 0
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        try:
            open(os.path.join(folder, name), "rb").close()
            print(os.path.join(folder, name))
        except PermissionError:
            pass
"""


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user of the machine can list."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _fill(folder: Path, **settings: Any) -> None:
    """Create a workspace with files of every kind that is written without Spark."""
    with runnel.connect(folder, **settings) as engine:
        engine.execute(SCRIPT)
        configure_logging(engine.workspace.settings, folder)
        logging.getLogger("runnel").info("a line for the admin")
        stop_logging()
        engine.publish("Wire", [{"id": "1", "title": "rock"}, {"id": "2", "title": "jazz"}])
        InProcess(engine).run()
        assert (folder / "catalog.sqlite-wal").exists()
        assert _open_to_others(folder, 0o077) == set() or settings


def _open_to_others(folder: Path, bits: int) -> set[str]:
    """Return the files and folders that have one of these mode bits, relative to the folder."""
    paths = [folder, *folder.rglob("*")]
    assert len(paths) > 10
    return {path.relative_to(folder).as_posix() for path in paths if stat.S_IMODE(path.stat().st_mode) & bits}


def _read_by_nobody(folder: Path) -> set[str]:
    """Return the files that another user can read. Only root can determine this."""
    process = subprocess.run(
        [sys.executable, "-c", _READ_ALL, str(folder)], capture_output=True, text=True, check=True, timeout=60
    )
    return {Path(line).relative_to(folder).as_posix() for line in process.stdout.splitlines()}


def test_all_written_files_are_private(shared: Path, umask: int) -> None:
    root, backup, again = shared / "root", shared / "backup", shared / "again"
    _fill(root)
    with runnel.connect(root) as engine:
        back_up(engine.workspace, backup)
        back_up(engine.workspace, shared / "linked", link=True)
    restore(backup, again)
    report = CliRunner().invoke(app, ["report", "--workspace", str(root)])
    assert report.exit_code == 0, report.output
    for folder in (root, backup, shared / "linked", again):
        assert _open_to_others(folder, 0o077) == set()
    if os.geteuid() == 0:
        assert _read_by_nobody(shared) == set()


def test_new_folders_above_a_workspace_or_backup_are_writable_for_their_owner_alone(shared: Path, umask: int) -> None:
    with runnel.connect(shared / "a" / "b" / "root") as engine:
        back_up(engine.workspace, shared / "c" / "d" / "backup")
    for folder in ("a", "a/b", "c", "c/d"):
        assert stat.S_IMODE((shared / folder).stat().st_mode) == 0o755 & ~umask


def test_the_errors_of_spark_and_exported_lists_are_private(shared: Path, umask: int) -> None:
    with _stderr_into(shared / "spark-stderr.log"):
        subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('lost')"], check=True, timeout=60)
    assert (shared / "spark-stderr.log").read_text() == "lost"
    with runnel.connect(shared / "root") as engine:
        engine.execute("register feed 'https://muse.example/rss?token=secret' as Muse;")
    done = CliRunner().invoke(
        app, ["opml", "export", "-o", str(shared / "feeds.opml"), "--workspace", str(shared / "root")]
    )
    assert done.exit_code == 0, done.output
    assert "secret" in (shared / "feeds.opml").read_text()
    for name in ("spark-stderr.log", "feeds.opml"):
        assert stat.S_IMODE((shared / name).stat().st_mode) == 0o600 & ~umask


def test_output_is_shared_only_if_the_setting_says_so(shared: Path, umask: int) -> None:
    root = shared / "root"
    _fill(root, shared_output=True)
    assert stat.S_IMODE(root.stat().st_mode) == 0o711, "others reach `out` and list nothing"
    output = {"out/news/rock.xml", "out/rock.jsonl"}
    assert _open_to_others(root, 0o044) == {"out", "out/news", *output}
    assert _open_to_others(root, 0o022) == set()
    if os.geteuid() == 0:
        assert _read_by_nobody(root / "out") == {name.removeprefix("out/") for name in output}
        assert _read_by_nobody(root) == set()


def test_files_in_out_folders_have_the_permissions_of_the_folder(shared: Path, umask: int) -> None:
    for mode, folder_mode, file_mode in ((0o755, 0o755, 0o644), (0o750, 0o750, 0o640), (0o700, 0o700, 0o600)):
        root, feeds = shared / f"root{mode:o}", shared / f"feeds{mode:o}"
        feeds.mkdir()
        feeds.chmod(mode)
        with runnel.connect(root, out_folders=(feeds,)) as engine:
            engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
            engine.execute(f"subscribe to Rock output rss '{feeds}/deep/rock.xml';")
            engine.publish("Wire", [{"id": "1", "title": "rock"}])
            InProcess(engine).run()
        assert stat.S_IMODE((feeds / "deep").stat().st_mode) == folder_mode
        assert stat.S_IMODE((feeds / "deep" / "rock.xml").stat().st_mode) == file_mode


def test_init_makes_an_empty_folder_private_and_leaves_a_used_one_unchanged(shared: Path) -> None:
    for name in ("empty", "used"):
        (shared / name).mkdir()
        (shared / name).chmod(0o755)
    (shared / "used" / "notes.txt").write_text("not of Runnel")
    for name, mode in (("empty", 0o700), ("used", 0o755), ("deep/new", 0o700)):
        made = CliRunner().invoke(app, ["init", str(shared / name)])
        assert made.exit_code == 0, made.output
        assert stat.S_IMODE((shared / name).stat().st_mode) == mode
        assert stat.S_IMODE((shared / name / "catalog.sqlite").stat().st_mode) == 0o600
        assert stat.S_IMODE((shared / name / "runnel.toml").stat().st_mode) == 0o600
        assert stat.S_IMODE((shared / name / "out").stat().st_mode) == 0o700


def _privacy(root: Path, *, repair: bool = False) -> Finding:
    return next(finding for finding in examine(root, repair=repair) if finding.check == "privacy")


def _open_up(root: Path) -> None:
    """Make all files readable by all users."""
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_doctor_reports_an_open_workspace_and_repairs_it(shared: Path) -> None:
    root, elsewhere = shared / "root", shared / "other.txt"
    _fill(root)
    assert (_privacy(root).is_well, _privacy(root).hint) == (True, None)
    _open_up(root)
    elsewhere.write_text("not of the workspace")
    elsewhere.chmod(0o644)
    (root / "link").symlink_to(elsewhere)

    privacy = _privacy(root)
    assert "other users can read" in privacy.detail
    assert "--repair" in (privacy.hint or "")
    assert _open_to_others(root, 0o044), "nothing is changed unless asked for"
    repaired = CliRunner().invoke(app, ["doctor", "--repair", "--workspace", str(root)])
    assert "repaired the permissions" in repaired.output
    (root / "link").unlink()
    assert _open_to_others(root, 0o077) == set()
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644, "links are not followed"
    assert _privacy(root).hint is None


def test_a_closed_folder_protects_what_is_in_it(shared: Path) -> None:
    _fill(shared / "root")
    _open_up(shared / "root")
    (shared / "root").chmod(0o700)
    assert _privacy(shared / "root").hint is None


def test_doctor_applies_shared_output_in_both_directions(shared: Path) -> None:
    root = shared / "root"
    _fill(root)
    before = (root / "runnel.toml").read_text()
    (root / "runnel.toml").write_text(before + "\nshared_output = true\n")
    assert "cannot read" in _privacy(root).detail
    assert _privacy(root, repair=True).is_well
    assert _open_to_others(root, 0o044) == {"out", "out/news", "out/news/rock.xml", "out/rock.jsonl"}
    (root / "runnel.toml").write_text(before)
    assert "other users can read" in _privacy(root).detail
    assert _privacy(root, repair=True).is_well
    assert _open_to_others(root, 0o077) == set()


def test_doctor_checks_files_and_a_catalog_elsewhere(shared: Path) -> None:
    root, storage, catalog = shared / "root", shared / "storage", shared / "catalogs" / "news.sqlite"
    catalog.parent.mkdir()
    catalog.parent.chmod(0o755)
    settings: dict[str, Any] = {"storage": storage.as_uri(), "catalog": f"sqlite:///{catalog}"}
    with runnel.connect(root, **settings) as engine:
        engine.execute(SCRIPT)
        engine.publish("Wire", [{"id": "1", "title": "rock"}])
    (root / "runnel.toml").write_text("".join(f'{name} = "{url}"\n' for name, url in settings.items()))
    assert _privacy(root).hint is None
    opened, items = (catalog, storage), next(storage.rglob("*.arrow"))
    for path in (*opened, items):
        path.chmod(0o755)
    assert str(storage) in _privacy(root).detail
    # SQLite gives the mode of the catalog to the files next to it, which may be there at the moment.
    assert "repaired the permissions of" in _privacy(root, repair=True).detail
    assert [stat.S_IMODE(path.stat().st_mode) for path in opened] == [0o700, 0o700]
    assert stat.S_IMODE(items.parent.stat().st_mode) == 0o700, "its folder keeps others out"
    assert _privacy(root).hint is None


def test_files_created_by_root_belong_to_the_owner_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the runner could not read items that root published."""
    owner = os.getuid() or _NOBODY
    if os.getuid() == 0:
        os.chown(tmp_path, _NOBODY, -1)
    given: list[int] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda handle, user, group: given.append(user))
    make_private_folder(tmp_path / "items")
    with open(tmp_path / "made", "w", opener=open_private):
        assert given == [owner, owner]
    # A name that was there keeps its owner: it may be a link to a file of root.
    (tmp_path / "link").symlink_to(tmp_path / "made")
    for name in ("made", "link"):
        with open(tmp_path / name, "a", opener=open_private):
            assert given == [owner, owner]


def test_shared_output_is_off_by_default(tmp_path: Path) -> None:
    assert not Settings.load(tmp_path).shared_output
