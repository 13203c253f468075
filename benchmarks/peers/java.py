"""Run other systems for comparison: fetch their jars with Maven or from a folder, and compile and run our drivers.

A driver reads the same queries and items from files, prints one line of JSON and writes the matches of every item.
Where Java, Maven or a jar cannot be had, `Missing` says why, and the benchmark goes on without that system.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runnel.arrays import offsets_of
from runnel.model.match import Matches

_DRIVERS = Path(__file__).parent
_FETCHING_SECONDS = 600


class Missing(Exception):
    """A system cannot be run here; the text says why."""


@dataclass(frozen=True)
class Peer:
    """A system: its Maven coordinates, its driver, and a name that its jars' files begin with."""

    group: str
    artifact: str
    version: str
    driver: str

    @property
    def jar(self) -> str:
        """The file of its own jar."""
        return f"{self.artifact}-{self.version}.jar"


LUCENE_MONITOR = Peer("org.apache.lucene", "lucene-monitor", "9.11.1", "MonitorDriver")
EVENT_RULER = Peer("software.amazon.event.ruler", "event-ruler", "1.8.1", "RulerDriver")


@dataclass(frozen=True)
class Ran:
    """What a driver measured, its matches, and the most memory that its process held."""

    figures: dict[str, Any]
    matches: Matches
    resident_megabytes: float


def prepare(peer: Peer, work: Path, jars: Path | None = None) -> str:
    """Make a peer ready; the answer is its class path. `jars` is a folder that holds the jars, or will."""
    for program in ("java", "javac"):
        if shutil.which(program) is None:
            raise Missing(f"there is no {program}: a JDK 17 or newer is needed")
    folder = jars or work / "jars"
    if not (folder / peer.jar).exists():
        _fetch(peer, work, folder)
    classes = work / "classes"
    path = f"{folder}/*"
    source = _DRIVERS / f"{peer.driver}.java"
    _run(["javac", "-cp", path, "-d", str(classes), str(source)], f"{source.name} cannot be compiled")
    return os.pathsep.join([str(classes), path])


def _fetch(peer: Peer, work: Path, folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise Missing(f"there is no Maven to fetch {peer.jar}, and it is not in {folder}: give --jars")
    project = work / f"{peer.artifact}.xml"
    project.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>runnel</groupId><artifactId>peers</artifactId>"
        "<version>1</version><dependencies><dependency>"
        f"<groupId>{peer.group}</groupId><artifactId>{peer.artifact}</artifactId><version>{peer.version}</version>"
        "</dependency></dependencies></project>"
    )
    command = ["mvn", "-q", "-B", "-f", str(project), "dependency:copy-dependencies"]
    _run([*command, f"-DoutputDirectory={folder}", "-DincludeScope=runtime"], f"Maven cannot fetch {peer.jar}")


def _run(command: list[str], problem: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCHING_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{problem}: {error}") from error
    if done.returncode:
        raise Missing(f"{problem}: {(done.stderr or done.stdout).strip()[:300]}")
    return done.stdout


def run(peer: Peer, class_path: str, work: Path, options: dict[str, object], *, heap: str = "8g") -> Ran:
    """Run a driver on files that its options name."""
    answers = work / "matches.bin"
    given = [str(value) for pair in {**options, "--matches": answers}.items() for value in pair]
    command = ["java", f"-Xmx{heap}", "-cp", class_path, peer.driver, *given]
    with (work / "out").open("w+") as out, (work / "problem").open("w+") as problem:
        process = subprocess.Popen(command, stdout=out, stderr=problem)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (out, problem):
            file.seek(0)
        if process.returncode:
            raise Missing(f"{peer.driver} failed: {problem.read().strip()[-300:]}")
        figures = json.loads(out.read().strip().splitlines()[-1])
    return Ran(figures, read_matches(answers), usage.ru_maxrss / 1024)


def read_matches(path: Path) -> Matches:
    """The matches that a driver wrote: for every item a count, and the ids of queries in ascending order."""
    words = np.fromfile(path, dtype=">i4")
    starts, at = [], 0
    while at < len(words):
        starts.append(at)
        at += 1 + int(words[at])
    kept = np.ones(len(words), dtype=bool)
    kept[starts] = False
    return Matches(offsets_of(words[starts]), words[kept].astype(np.int64))
