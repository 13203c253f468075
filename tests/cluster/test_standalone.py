"""A real standalone Spark cluster, a PostgreSQL catalog and a shared workspace with a partitioned plan.

Items are matched in two stages, and partitions stay on their executors. Then Python processes are killed, and finally
a Spark worker with its partitions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from runnel.catalog.logs import match_segments, plan_versions
from runnel.engine import Engine, connect
from runnel.scaleout.planning.partition_loads import PartitionLoad, known_loads
from tests.crash.harness import SCRIPT, item, verify, wait_until
from tests.services import PostgreSQL, SparkCluster, kill_session, postgresql

__all__ = ["postgresql"]
pytestmark = [pytest.mark.crash, pytest.mark.spark]
_PATIENCE = 600.0
PARTITIONS = 3
_OPEN_SESSION = """
import sys
from pathlib import Path
from runnel.errors import WorkspaceError
from runnel.streaming.session import open_session
folder = Path(sys.argv[2])
try:
    open_session(master=sys.argv[1], driver_memory="1g", logs=folder, local_folder=folder)
except WorkspaceError as error:
    print(error)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """Start a master and two workers."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = SparkCluster(folder)
    yield made
    made.close()


class _Driver:
    """The runner, a separate process with its own JVM."""

    def __init__(self, root: Path, cluster: SparkCluster, catalog: str) -> None:
        self._log = root / "driver.log"
        environment = os.environ | {
            "RUNNEL_CATALOG": catalog,
            "RUNNEL_PARTITIONS": str(PARTITIONS),
            "SPARK_CONF_DIR": str(cluster.configuration),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, Path(__file__).with_name("driver.py"), root, cluster.url],
                start_new_session=True,
                env=environment,
                stdout=log,
                stderr=log,
            )

    @property
    def told(self) -> str:
        return self._log.read_text()

    def check(self) -> bool:
        """Return True, or raise an AssertionError with its output if the process has ended."""
        assert self._process.poll() is None, self.told
        return True

    def drain(self) -> None:
        self._process.terminate()
        assert self._process.wait(_PATIENCE) == 0, self.told

    def kill(self) -> None:
        kill_session(self._process)


class _Trickle(threading.Thread):
    """Publishes a few items at a time until it is stopped."""

    def __init__(self, engine: Engine, first: int) -> None:
        super().__init__(daemon=True)
        self._engine = engine
        self._ended = threading.Event()
        self.published = first

    def run(self) -> None:
        while not self._ended.wait(0.05):
            batch = [item(self.published + more) for more in range(1 + self.published % 4)]
            self._engine.publish("Wire" if self.published % 2 else "Other", batch)
            self.published += len(batch)

    def stop(self) -> None:
        self._ended.set()
        self.join()


def test_cluster_matches_like_the_oracle_and_survives_the_loss_of_a_worker(
    tmp_path: Path, cluster: SparkCluster, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, catalog = tmp_path / "root", postgresql.database()
    monkeypatch.setenv("RUNNEL_CATALOG", catalog)
    with connect(root) as engine:
        engine.execute(SCRIPT)
        engine.publish("Wire", [item(number) for number in range(600)])
        engine.publish("Other", [item(number) for number in range(600, 900)])
        driver = _Driver(root, cluster, catalog)
        trickle = _Trickle(engine, 900)
        try:
            wait_until(lambda: driver.check() and (root / "caught-up").exists(), _PATIENCE)
            verify(engine, 900)

            trickle.start()
            wait_until(lambda: driver.check() and _matched(engine) > 900, _PATIENCE)
            assert all(cluster.executors(worker) > 0 for worker in (0, 1)), "both workers take part"
            assert _processes_with(cluster.secret) == [], "no argument contains the secret"
            busy = {load.partition for load in _loads(engine) if load.items}
            assert busy == set(range(PARTITIONS)), "every partition gets items"
            _wait_for_batches(engine, driver, 3)
            loaded = _times_loaded(engine)
            _wait_for_batches(engine, driver, 10)
            assert _times_loaded(engine) == loaded, "a partition stays on the executor that has its plan"

            assert cluster.kill_python(0) + cluster.kill_python(1) > 0
            _wait_for_batches(engine, driver, 3)
            assert sum(_times_loaded(engine)) > sum(loaded), (
                "the processes that replace the killed ones load plans again"
            )

            cluster.kill_worker(0)
            reached = engine.workspace.items.last_sequence()
            wait_until(lambda: driver.check() and _matched(engine) > reached + 20, _PATIENCE)
            trickle.stop()
            wait_until(lambda: driver.check() and _caught_up(engine), _PATIENCE)
            driver.drain()
        finally:
            trickle.stop() if trickle.is_alive() else None
            driver.kill()
        verify(engine, trickle.published)
    assert _files_with(postgresql.password, tmp_path) == ["catalog-url"], "only the private file has the password"
    assert _files_with(cluster.secret, tmp_path) == ["spark-defaults.conf"], "only the private file has the secret"


_NOT_SET = "needs spark.authenticate.secret, which is not set"
_NOT_SHARED = "does not authenticate with the secret that is set here"


@pytest.mark.parametrize("authenticates", [True, False])
def test_cluster_without_the_shared_secret_is_rejected(tmp_path: Path, *, authenticates: bool) -> None:
    folder, own = tmp_path / "cluster", tmp_path / "own"
    folder.mkdir()
    own.mkdir()
    cluster = SparkCluster(folder, workers=0, authenticates=authenticates)
    try:
        for conf, message in (("", _NOT_SET), ("spark.authenticate.secret another", _NOT_SHARED)):
            (own / "spark-defaults.conf").write_text(conf)
            opened = subprocess.run(
                [sys.executable, "-c", _OPEN_SESSION, cluster.url, tmp_path],
                env=os.environ | {"SPARK_CONF_DIR": str(own), "SPARK_LOCAL_IP": "127.0.0.1"},
                capture_output=True,
                text=True,
                check=False,
            )
            assert message in opened.stdout, opened.stderr
    finally:
        cluster.close()


def _loads(engine: Engine) -> list[PartitionLoad]:
    """Return the recorded load of each partition."""
    with engine.workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
        assert current is not None
        assert len(current.pieces) == PARTITIONS + 1, "the partitions, and the router"
        return known_loads(connection, current.distribution or "")


def _times_loaded(engine: Engine) -> list[int]:
    return [load.loads for load in _loads(engine)]


def _wait_for_batches(engine: Engine, driver: _Driver, more: int) -> None:
    """Wait until `more` more batches are committed."""
    goal = _batches(engine) + more
    wait_until(lambda: driver.check() and _batches(engine) >= goal, _PATIENCE)


def _batches(engine: Engine) -> int:
    with engine.workspace.catalog.read() as connection:
        return len(match_segments.match_segments(connection))


def _matched(engine: Engine) -> int:
    return engine.workspace.matches.matched_upto()


def _caught_up(engine: Engine) -> bool:
    return _matched(engine) == engine.workspace.items.last_sequence()


def _processes_with(secret: str) -> list[str]:
    """Return the command lines of processes on this machine that contain a secret."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(file.read_text("utf-8", "replace"))
    return [line for line in lines if secret in line]


def _files_with(secret: str, folder: Path) -> list[str]:
    quoted = secret.replace("%", "%25").replace("@", "%40").replace(":", "%3A").replace("/", "%2F")
    signs = [secret.encode(), quoted.encode()]
    paths = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path.name for path in paths if any(sign in path.read_bytes() for sign in signs)]
