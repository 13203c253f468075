"""Leases and fencing epochs: one runner per root, and a runner that lost its lease can commit nothing.

A lease is renewed while its holder lives. A holder on this host that is dead is replaced at once; one elsewhere is
replaced when the lease runs out. Every take-over raises the epoch, and every commit of a runner checks its epoch: a
lease taken too early disturbs, and harms nothing.

A lease elsewhere that ends further ahead than any lease can was granted before the clock was set back. A holder that
lives would have renewed it since, so it is over: nobody waits an hour because a clock was wrong by one.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from runnel.catalog.store import schema
from runnel.catalog.store.connection import now
from runnel.catalog.store.sequencer import follow_clock
from runnel.errors import FencedError, RunnerActiveError

RUNNER = "runner"
_USUAL_SECONDS = 20.0
_l = schema.leases.c


@dataclass(frozen=True, slots=True)
class Lease:
    """A held lease: its name, epoch and holder."""

    name: str
    epoch: int
    holder: str


@dataclass(frozen=True, slots=True)
class LeaseState:
    """What the catalog says of a lease."""

    holder: str
    epoch: int
    alive: bool
    detail: str


def this_process(seconds: float = _USUAL_SECONDS) -> str:
    """Who we are: host, process and its start, since process numbers are reused; and how long our leases are.

    >>> json.loads(this_process())["process"] == os.getpid()
    True
    """
    process = os.getpid()
    return json.dumps(
        {"host": socket.gethostname(), "process": process, "started": _started(process), "seconds": seconds}
    )


def acquire(connection: Connection, seconds: float, *, name: str = RUNNER) -> Lease:
    """Take the lease, with a new epoch; raises RunnerActive while another lives."""
    follow_clock(connection)
    row = connection.execute(select(schema.leases).where(_l.name == name)).one_or_none()
    if row is not None and _held(connection, row.expires, row.holder):
        holder = json.loads(row.holder)
        raise RunnerActiveError(
            f"a runner is active on this workspace: process {holder['process']} on {holder['host']}",
            hint="stop it first; other commands work while it runs",
        )
    lease = Lease(name, (0 if row is None else row.epoch) + 1, this_process(seconds))
    connection.execute(delete(schema.leases).where(_l.name == name))
    connection.execute(
        insert(schema.leases).values(
            name=name, holder=lease.holder, epoch=lease.epoch, expires=_end(connection, seconds), detail="starting"
        )
    )
    return lease


def renew(connection: Connection, lease: Lease, seconds: float, detail: str) -> None:
    """Hold the lease longer and say what the holder does; raises Fenced if it was lost."""
    check(connection, lease.epoch, name=lease.name)
    follow_clock(connection)
    connection.execute(
        update(schema.leases).where(_l.name == lease.name).values(expires=_end(connection, seconds), detail=detail)
    )


def release(connection: Connection, lease: Lease) -> None:
    """Give the lease back; the epoch stays, so that the next holder's is higher."""
    connection.execute(
        update(schema.leases)
        .where(_l.name == lease.name, _l.epoch == lease.epoch)
        .values(expires=0, detail="stopped")
    )


def check(connection: Connection, epoch: int, *, name: str = RUNNER) -> None:
    """Raise Fenced unless this epoch is the lease's current one."""
    current = connection.execute(select(_l.epoch).where(_l.name == name)).scalar_one_or_none()
    if current != epoch:
        raise FencedError(
            f"lost the lease: this runner has epoch {epoch}, the current epoch is {current}",
            hint="another runner has taken over this workspace",
        )


def state(connection: Connection, *, name: str = RUNNER) -> LeaseState | None:
    """Who holds the lease, and whether the holder lives."""
    row = connection.execute(select(schema.leases).where(_l.name == name)).one_or_none()
    if row is None:
        return None
    return LeaseState(row.holder, row.epoch, _held(connection, row.expires, row.holder), row.detail)


def _end(connection: Connection, seconds: float) -> int:
    return now(connection) + int(seconds * 1e6)


def _held(connection: Connection, expires: int, holder: str) -> bool:
    """Whether a lease holds: it has not run out, and its holder may still live."""
    left = expires - now(connection)
    told = json.loads(holder)
    if left <= 0:
        return False
    if told["host"] == socket.gethostname():
        return _alive(told)
    # Twice its length: the clocks of two machines differ a little.
    return bool(left <= 2e6 * float(told.get("seconds", _USUAL_SECONDS)))


def _alive(told: dict[str, Any]) -> bool:
    """Whether a holder on this host lives."""
    if told["started"] is None:  # no /proc on this system: the process number alone must do
        return _exists(told["process"])
    return bool(_started(told["process"]) == told["started"])


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(process: int) -> int | None:
    """The start of a process in clock ticks since boot, or None if there is no such process."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
