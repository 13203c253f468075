"""Sample the CPU time and the mapped plan files of each worker of a standalone cluster on this machine.

In: the cluster's folder, the process of the driver, the folder of plans. Out: what every worker's Python processes
and JVM have used by any moment, and which files of plans they had mapped. A process belongs to the worker in whose
folder it runs; workers' own small JVMs, which only start executors, run elsewhere and are not counted.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

DRIVER = "driver"
_PAUSE = 0.25
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """A process: whose it is, whether it is Java or Python, and the CPU seconds it has used."""

    owner: str
    kind: str
    key: tuple[int, str]
    seconds: float

    @property
    def id(self) -> int:
        """Its number."""
        return self.key[0]


@dataclass
class Seen:
    """What was seen of one worker: files that were ever mapped, and the most bytes that were at once."""

    files: dict[Path, int] = field(default_factory=dict)
    peak_bytes: int = 0
    peak_process_bytes: int = 0
    processes: set[int] = field(default_factory=set)


class Watch(threading.Thread):
    """Samples the processes a few times per second until it is stopped."""

    def __init__(self, cluster: Path, driver: int, plans: Path) -> None:
        super().__init__(daemon=True)
        self._cluster, self._driver, self._plans = cluster, driver, plans
        self._ended = threading.Event()
        self._last: dict[tuple[int, str], Process] = {}
        self.moments: list[float] = []
        self.used: list[dict[tuple[str, str], float]] = []
        self.seen: dict[str, Seen] = {}

    def run(self) -> None:
        """Take samples until stopped."""
        while not self._ended.wait(_PAUSE):
            self.look()

    def stop(self) -> None:
        """Take a last sample and stop."""
        self._ended.set()
        self.join()

    def look(self) -> None:
        """Take one sample. The CPU time of processes that have ended still counts."""
        for process in processes(self._cluster, self._driver):
            self._last[process.key] = process
        totals: dict[tuple[str, str], float] = {}
        for process in self._last.values():
            totals[process.owner, process.kind] = totals.get((process.owner, process.kind), 0.0) + process.seconds
        self.moments.append(time.time())
        self.used.append(totals)
        self._look_at_files()

    def _look_at_files(self) -> None:
        mapped: dict[str, dict[Path, int]] = {}
        for entry in list(self._last.values()):
            if entry.kind != "python" or entry.owner == DRIVER:
                continue
            files = mapped_files(entry.id, self._plans)
            seen = self.seen.setdefault(entry.owner, Seen())
            if files:
                seen.processes.add(entry.id)
            seen.peak_process_bytes = max(seen.peak_process_bytes, sum(files.values()))
            mapped.setdefault(entry.owner, {}).update(files)
        for owner, files in mapped.items():
            seen = self.seen[owner]
            seen.files.update(files)
            seen.peak_bytes = max(seen.peak_bytes, sum(files.values()))

    def seconds(self, start: float, stop: float) -> dict[tuple[str, str], float]:
        """CPU seconds that each owner's kinds of process used between two moments, interpolated."""
        first, last = self._at(start), self._at(stop)
        return {name: used - first.get(name, 0.0) for name, used in last.items()}

    def _at(self, moment: float) -> dict[tuple[str, str], float]:
        after = min(bisect_left(self.moments, moment), len(self.moments) - 1)
        before = max(0, after - 1)
        span = self.moments[after] - self.moments[before]
        part = min(1.0, max(0.0, (moment - self.moments[before]) / span)) if span > 0 else 1.0
        low, high = self.used[before], self.used[after]
        return {name: low.get(name, 0.0) + part * (used - low.get(name, 0.0)) for name, used in high.items()}


def processes(cluster: Path, driver: int) -> Iterator[Process]:
    """The processes of the driver's session, and those that run in the folders of a cluster's workers."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            name, rest = (place / "stat").read_text().rsplit(")", 1)
            fields = rest.split()
            owner = DRIVER if int(fields[3]) == driver else worker_of((place / "cwd").readlink(), cluster)
        except (OSError, IndexError):
            continue
        if owner is not None and fields[0] != "Z":
            kind = "java" if name.endswith("(java") else "python"
            seconds = (int(fields[11]) + int(fields[12])) / _TICK
            yield Process(owner, kind, (int(place.name), fields[19]), seconds)


def worker_of(folder: Path, cluster: Path) -> str | None:
    """The worker whose executor runs in a folder.

    >>> worker_of(Path("/c/work-2/app-1/0"), Path("/c")), worker_of(Path("/home"), Path("/c"))
    ('worker-2', None)
    """
    if not folder.is_relative_to(cluster):
        return None
    inside = folder.relative_to(cluster).parts
    return f"worker-{inside[0].removeprefix('work-')}" if inside and inside[0].startswith("work-") else None


def mapped_files(process: int, plans: Path) -> dict[Path, int]:
    """The files below a folder that a process has mapped, with their sizes."""
    numbers: dict[Path, int] = {}
    try:
        lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    except OSError:
        return numbers
    for line in lines:
        start = line.find(f"{plans}/")
        if start >= 0:
            path = Path(line[start:])
            if path not in numbers:
                numbers[path] = path.stat().st_size if path.exists() else 0
    return numbers
