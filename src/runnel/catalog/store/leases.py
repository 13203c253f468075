"""Leases and fencing epochs: at most one runner per workspace, and a runner that lost its lease cannot commit.

A running holder renews its lease. If the holder is on this host and dead, its lease can be taken over at once; on
another host, when the lease expires. Every takeover raises the epoch, and every commit of a runner checks its epoch:
taking over a lease too early stops the old runner but cannot corrupt the workspace.

A lease of another host that expires later than any lease can was granted before the clock was set back. A running
holder would have renewed it since, so it counts as expired. Otherwise a clock that was wrong by an hour would block
new runners for an hour.
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
_DEFAULT_SECONDS = 20.0
_l = schema.leases.c


@dataclass(frozen=True, slots=True)
class Lease:
    """A held lease: its name, epoch and holder."""

    name: str
    epoch: int
    holder: str


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The state of a lease in the catalog."""

    holder: str
    epoch: int
    alive: bool
    detail: str


def this_process(seconds: float = _DEFAULT_SECONDS) -> str:
    """Return JSON that identifies this process: host, process ID and start time, because IDs are reused, and the
    lease duration.

    >>> json.loads(this_process())["process"] == os.getpid()
    True
    """
    process = os.getpid()
    return json.dumps(
        {"host": socket.gethostname(), "process": process, "started": _process_start(process), "seconds": seconds}
    )


def acquire(connection: Connection, seconds: float, *, name: str = RUNNER) -> Lease:
    """Acquire the lease with a new epoch. Raise RunnerActiveError while another holder is running."""
    follow_clock(connection)
    row = connection.execute(select(schema.leases).where(_l.name == name)).one_or_none()
    if row is not None and _is_held(connection, row.expires, row.holder):
        holder = json.loads(row.holder)
        raise RunnerActiveError(
            f"a runner is active on this workspace: process {holder['process']} on {holder['host']}",
            hint="stop it first; other commands work while it runs",
        )
    lease = Lease(name, (0 if row is None else row.epoch) + 1, this_process(seconds))
    connection.execute(delete(schema.leases).where(_l.name == name))
    connection.execute(
        insert(schema.leases).values(
            name=name, holder=lease.holder, epoch=lease.epoch, expires=_expiry(connection, seconds), detail="starting"
        )
    )
    return lease


def renew(connection: Connection, lease: Lease, seconds: float, detail: str) -> None:
    """Extend the lease and record what the holder is doing. Raise FencedError if the lease was lost."""
    check(connection, lease.epoch, name=lease.name)
    follow_clock(connection)
    connection.execute(
        update(schema.leases).where(_l.name == lease.name).values(expires=_expiry(connection, seconds), detail=detail)
    )


def release(connection: Connection, lease: Lease) -> None:
    """Release the lease. Its row keeps the epoch, so the next holder gets a higher one."""
    connection.execute(
        update(schema.leases)
        .where(_l.name == lease.name, _l.epoch == lease.epoch)
        .values(expires=0, detail="stopped")
    )


def check(connection: Connection, epoch: int, *, name: str = RUNNER) -> None:
    """Raise FencedError unless `epoch` is the lease's current epoch."""
    current = connection.execute(select(_l.epoch).where(_l.name == name)).scalar_one_or_none()
    if current != epoch:
        raise FencedError(
            f"lost the lease: this runner has epoch {epoch}, the current epoch is {current}",
            hint="another runner has taken over this workspace",
        )


def state(connection: Connection, *, name: str = RUNNER) -> LeaseState | None:
    """Read the lease, or return None if it was never acquired."""
    row = connection.execute(select(schema.leases).where(_l.name == name)).one_or_none()
    if row is None:
        return None
    return LeaseState(row.holder, row.epoch, _is_held(connection, row.expires, row.holder), row.detail)


def _expiry(connection: Connection, seconds: float) -> int:
    return now(connection) + int(seconds * 1e6)


def _is_held(connection: Connection, expires: int, holder_json: str) -> bool:
    """Return whether a lease is still valid: it has not expired, and its holder may still be running."""
    remaining = expires - now(connection)
    holder = json.loads(holder_json)
    if remaining <= 0:
        return False
    if holder["host"] == socket.gethostname():
        return _is_running(holder)
    # Twice the lease duration, because the clocks of two hosts differ slightly.
    return bool(remaining <= 2e6 * float(holder.get("seconds", _DEFAULT_SECONDS)))


def _is_running(holder: dict[str, Any]) -> bool:
    """Return whether a holder on this host is still running."""
    if holder["started"] is None:  # this system has no /proc, so only the process ID can be checked
        return _process_exists(holder["process"])
    return bool(_process_start(holder["process"]) == holder["started"])


def _process_exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _process_start(process: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, or None if it does not exist."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
