"""The main program of every sandbox: loads a module, limits its own resources, and answers requests.

In: requests (a length, the seconds that the reply may take, then bytes) on a socket. Out: frames (a length, then
bytes): an empty one when the process is ready, then one per request. The arguments name the module. Its function
`open_program` returns the function that answers requests, and must load everything that is needed later, because
afterwards the process can usually open no files. The output of the program goes to standard error.

This file is started by path in an isolated interpreter, so it imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys
import traceback
from pathlib import Path

LENGTH = struct.Struct(">I")
"""The head of a frame: the number of bytes that follow."""

REQUEST = struct.Struct(">Id")
"""The head of a request: the number of bytes that follow, and the seconds that the reply may take."""

EXHAUSTED = 77
"""Exit code of a process that ran out of memory."""

DESCRIPTOR = 3
"""The file descriptor of the socket in the child: the first one after the three standard streams."""


def main() -> None:
    """Serve requests until the other side closes the socket."""
    if (descriptor := int(sys.argv[1])) != DESCRIPTOR:
        os.dup2(descriptor, DESCRIPTOR, inheritable=False)
        os.close(descriptor)
    os.set_inheritable(DESCRIPTOR, False)
    os.dup2(2, 1)
    start = json.loads(sys.argv[2])
    if start["is_whole_path"]:
        sys.path[:] = dict.fromkeys([*start["path"], *sys.path])
    else:
        sys.path += start["path"]
    answer = importlib.import_module(start["module"]).open_program(**start["arguments"])
    limit_process(start["megabytes"], files=start["files"], can_start_processes=start["can_start_processes"])
    cpu_seconds: float | None = start["cpu_seconds"]
    connection = socket.socket(fileno=DESCRIPTOR)
    requests = os.fdopen(DESCRIPTOR, "rb", closefd=False)
    connection.sendall(LENGTH.pack(0))
    while header := requests.read(REQUEST.size):
        size, seconds = REQUEST.unpack(header)
        request = requests.read(size)
        # The default action of both signals ends the process. Usually the parent ends it at the deadline. The timer
        # is needed if the parent no longer exists.
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 5)
        if cpu_seconds is not None:
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        reply = answer(request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if cpu_seconds is not None:
            signal.setitimer(signal.ITIMER_PROF, 0)
        connection.sendall(LENGTH.pack(len(reply)) + reply)
        del request, reply


def limit_process(megabytes: int, *, files: int | None, can_start_processes: bool) -> None:
    """Limit the additional memory of this process. Prevent it from starting processes unless `can_start_processes`.

    If `files` is given, it is the maximum number of additional open files, and the process cannot write files.
    Some systems do not support all limits. The deadline that the parent enforces applies everywhere.
    """
    used = 1 << 30
    with contextlib.suppress(OSError, ValueError):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = {
        resource.RLIMIT_AS: used + (megabytes << 20),
        resource.RLIMIT_CORE: 0,
    }
    if files is not None:
        limits |= {resource.RLIMIT_FSIZE: 0, resource.RLIMIT_NOFILE: DESCRIPTOR + 1 + files}
    if not can_start_processes:
        limits[resource.RLIMIT_NPROC] = 0
    for kind, limit in limits.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (limit, limit))


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        os._exit(EXHAUSTED)
    except BaseException:
        # Without memory anything can fail, even the handling of another error.
        try:
            traceback.print_exc()
        finally:
            os._exit(1)
