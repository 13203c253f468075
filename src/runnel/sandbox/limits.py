"""What a process gives up before it works on what strangers wrote: memory, files, processes."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path


def drop_privileges(megabytes: int) -> None:
    """Have so much more memory than now, write no files, start no processes, and open nothing more.

    Some systems know fewer limits; the clock of whoever started the process remains.
    """
    used = 1 << 30
    with contextlib.suppress(OSError, ValueError):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for what, limit in (
        (resource.RLIMIT_AS, used + (megabytes << 20)),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 4),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (limit, limit))
