"""A PostgreSQL server is restarted under load, and a checkpoint is damaged."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runnel.engine import Engine, connect
from runnel.errors import CatalogUnavailableError
from tests.crash.harness import SCRIPT, Victim, item, verify, wait_until
from tests.services import PostgreSQL

pytestmark = [pytest.mark.crash, pytest.mark.spark]


class PersistentTrickle(threading.Thread):
    """Publishes a few items at a time, and retries those that the catalog did not accept."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self._root = root
        self._ended = threading.Event()
        self.published = 0
        self.refusals: list[str] = []

    def run(self) -> None:
        with connect(self._root, create=False) as engine:
            while not self._ended.is_set():
                feed = "Wire" if self.published % 2 else "Other"
                batch = [item(self.published + more) for more in range(1 + self.published % 4)]
                try:
                    engine.publish(feed, batch)
                except CatalogUnavailableError as error:
                    self.refusals.append(str(error))
                    time.sleep(0.2)
                    continue
                self.published += len(batch)
                time.sleep(0.05)

    def stop(self) -> None:
        self._ended.set()
        self.join()


@pytest.fixture
def server() -> Iterator[PostgreSQL]:
    """Start a separate server, because the test stops it."""
    made = PostgreSQL()
    yield made
    made.close()


def _caught_up(engine: Engine) -> bool:
    return engine.workspace.matches.matched_upto() == engine.workspace.items.last_sequence()


def test_restart_of_postgresql_under_load_loses_and_repeats_nothing(
    tmp_path: Path, server: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    monkeypatch.setenv("RUNNEL_CATALOG", server.database())
    with connect(root) as engine:
        engine.execute(SCRIPT)
        trickle = PersistentTrickle(root)
        victim = Victim(root)
        try:
            trickle.start()
            for rudely in (False, True):
                before = engine.workspace.matches.matched_upto()
                wait_until(lambda before=before: engine.workspace.matches.matched_upto() > before)  # type: ignore[misc]
                refused = len(trickle.refusals)
                server.stop(rudely=rudely)
                wait_until(lambda refused=refused: len(trickle.refusals) > refused)  # type: ignore[misc]
                with pytest.raises(CatalogUnavailableError, match=r"cannot connect|lost the connection") as raised:
                    engine.status()
                assert server.password not in str(raised.value)
                time.sleep(2)
                assert victim.is_running, "a runner waits for its catalog"
                server.start()
                known = engine.workspace.items.last_sequence()
                wait_until(lambda known=known: engine.workspace.matches.matched_upto() > known)  # type: ignore[misc]
            trickle.stop()
            wait_until(lambda: _caught_up(engine))
            victim.terminate()
            assert victim.wait() == 0, (root / "victim.log").read_text()
        finally:
            trickle.stop()
            victim.kill()
        assert all("server" in one for one in trickle.refusals), "the error of a client mentions the server"
        verify(engine, trickle.published)
    told = [path for path in (root / "logs").rglob("*") if server.password in path.read_text("utf-8", "replace")]
    assert told == [], "no log has the password"
    assert server.password not in (root / "victim.log").read_text()


def _spoil(root: Path, how: str) -> None:
    [lineage] = (root / "checkpoints").iterdir()
    match how:
        case "garbage":
            newest = max((lineage / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
            newest.write_bytes(b"\x00garbage")
            newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
        case "empty":
            for file in lineage.rglob("*"):
                if file.is_file():
                    file.write_bytes(b"")
        case "foreign":
            shutil.rmtree(lineage / "commits")
            (lineage / "state").mkdir()


def test_damaged_checkpoint_is_abandoned(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with connect(root, master="local[2]") as engine:
        engine.execute(SCRIPT)
        for turn, how in enumerate(("garbage", "empty", "older", "foreign", "none")):
            engine.publish("Other" if turn % 2 else "Wire", [item(turn * 10 + more) for more in range(10)])
            engine.run(once=True)
            verify(engine, turn * 10 + 10)
            if how == "older":
                with engine.workspace.catalog.write() as connection:
                    connection.exec_driver_sql("update lineages set job = 'match/0' where abandoned is null")
            else:
                _spoil(root, how)
        with engine.workspace.catalog.read() as connection:
            reasons = connection.exec_driver_sql("select reason from lineages order by id").scalars().all()
    assert [one and one.split(",")[0] for one in reasons[:3]] == [
        "the checkpoint cannot be read",
        "the checkpoint cannot be read",
        "the checkpoint has the format match/0",
    ]
