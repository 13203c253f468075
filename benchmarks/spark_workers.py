"""The processes below a benchmark: Spark's Java and its Python workers; what CPU time and memory they take."""

from __future__ import annotations

import os
import threading
from pathlib import Path


class Workers(threading.Thread):
    """Looks now and then how much private memory the largest of Spark's Python workers has."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self.largest = 0.0

    def run(self) -> None:
        """Take samples until stopped."""
        while not self._ended.wait(0.25):
            sizes = [_private(process) for process, is_java in _children(os.getpid()) if not is_java]
            self.largest = max([self.largest, *sizes])

    def stop(self) -> None:
        """Stop taking samples."""
        self._ended.set()
        self.join()


def cpu_seconds() -> dict[str, float]:
    """CPU seconds that the processes below this one have used: Java, and Spark's Python workers."""
    used: dict[str, float] = {}
    for process, is_java in _children(os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        # Its own, and those of the children that it has waited for: workers that ended are theirs who forked them.
        ticks = sum(map(int, fields[11:13])) if is_java else sum(map(int, fields[11:15]))
        name = "java" if is_java else "workers"
        used[name] = used.get(name, 0.0) + ticks / os.sysconf("SC_CLK_TCK")
    return used


def _children(process: int) -> list[tuple[int, bool]]:
    """All processes below one, and whether each is Java."""
    below: dict[int, list[tuple[int, bool]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = path.read_text().rsplit(")", 1)
        except OSError:
            continue
        below.setdefault(int(rest.split()[1]), []).append((int(path.parent.name), name.endswith("(java")))
    results: list[tuple[int, bool]] = []
    waiting = [process]
    while waiting:
        children = below.get(waiting.pop(), [])
        results += children
        waiting += [value for value, _ in children]
    return results


def _private(process: int) -> float:
    """Megabytes of a process that no file backs."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:"))
