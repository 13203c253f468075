"""Other users of the machine cannot use the ports or read the temporary files of a runner."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from runnel.engine import connect
from tests.crash.harness import wait_until
from tests.services import kill_session

pytestmark = [pytest.mark.crash, pytest.mark.spark]
_PATIENCE = 600.0
_LISTENS = "0A"
_ACCEPTS = "00010000"
_REFUSED_BY_SPARK = "Unknown challenge message."


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that every user can enter, with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="runnel-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_other_users_are_rejected_at_every_port_and_socket(folder: Path) -> None:
    # One path short enough for sockets in a private folder, and one that is too long for them.
    for name, tcp_ports in (("news", range(4, 5)), ("n" * 60, range(6, 100))):
        root = folder / name
        with connect(root) as engine:
            engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
            engine.publish("Wire", [{"id": "first", "title": "rock"}])
            with (root / "runner.log").open("wb") as log:
                runner = subprocess.Popen(
                    [Path(sys.executable).with_name("runnel"), "run", "-w", root, "--master", "local[2]"],
                    env=os.environ | {"RUNNEL_LISTEN": "127.0.0.1:0"},
                    stdout=log,
                    stderr=log,
                    umask=0,
                    start_new_session=True,
                )
            try:
                wait_until(
                    lambda: engine.workspace.matches.matched_upto() == 1 or runner.poll() is not None,  # noqa: B023
                    _PATIENCE,
                )
                assert runner.poll() is None, (root / "runner.log").read_text()
                addresses = _listening(_tree(runner.pid))
                answers = _ask_as_stranger(folder, addresses)
                assert _accepted(answers) == {}

                engine.publish("Wire", [{"id": "second", "title": "rock"}])
                wait_until(
                    lambda: engine.workspace.matches.matched_upto() == 2 or runner.poll() is not None,  # noqa: B023
                    _PATIENCE,
                )
                assert runner.poll() is None, (root / "runner.log").read_text()
                temporary = [root / "spark", *(root / "spark").rglob("*")]
                modes = {path: path.stat().st_mode for path in temporary}
            finally:
                kill_session(runner)
        ports = [address for address in addresses if address.isdigit()]
        assert len(ports) in tcp_ports, addresses
        for attempt in ("plant_block without a secret", "stop_executor without a secret"):
            refusing = [port for port in ports if answers[port][attempt].endswith(_REFUSED_BY_SPARK)]
            assert len(refusing) == 2, "the ports of the driver and the block manager require the secret"
        sockets = [Path(address) for address in addresses if not address.isdigit()]
        assert all((root / "spark") in path.parents for path in sockets), "no socket is abstract or elsewhere"
        folders = {path: mode for path, mode in modes.items() if stat.S_ISDIR(mode)}
        assert any(path.name.startswith("blockmgr-") for path in folders)
        files = {path: mode for path, mode in modes.items() if stat.S_ISREG(mode)}
        assert {path: oct(mode) for path, mode in (folders | files).items() if mode & 0o077} == {}


def _ask_as_stranger(folder: Path, addresses: list[str]) -> dict[str, dict[str, str]]:
    temporary = tempfile.mkdtemp(dir=folder)
    command = [sys.executable, str(Path(__file__).with_name("stranger.py")), temporary, *addresses]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers: dict[str, dict[str, str]] = json.loads(done.stdout)
    return answers


def _accepted(answers: dict[str, dict[str, str]]) -> dict[tuple[str, str], str]:
    return {
        (address, attempt): answer
        for address, attempts in answers.items()
        for attempt, answer in attempts.items()
        if not answer.startswith("refused")
    }


def _tree(root: int) -> set[int]:
    """Return a process and all its descendants."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(status.parent.name)] = int(status.read_text().rsplit(")", 1)[1].split()[1])
    tree = {root}
    while more := {child for child, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return tree


def _listening(processes: set[int]) -> list[str]:
    """Return the TCP ports and sockets that processes listen on. All TCP ports must be bound to loopback."""
    inodes = set()
    for process in processes:
        with suppress(OSError):
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):
                    inodes.add(str(descriptor.readlink()))
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and f"socket:[{fields[9]}]" in inodes:
                host, port = fields[1].split(":")
                assert host.endswith("0100007F"), f"{line} is not a loopback address"
                listening.append(str(int(port, 16)))
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if fields[3] == _ACCEPTS and f"socket:[{fields[6]}]" in inodes:
            listening.append(fields[7])
    return listening
