"""Figures: JSON lines, private memory, digests of answers."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runnel.arrays import offsets_of
from runnel.model.match import Matches


def say(benchmark: str, figure: str, **values: Any) -> None:
    """Print one figure as a line of JSON, with the load of the machine."""
    rounded = {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in values.items()}
    loads = [round(load, 2) for load in os.getloadavg()]
    print(json.dumps({"benchmark": benchmark, "figure": figure, **rounded, "load": loads}), flush=True)


def touched_bytes(folder: Path) -> int:
    """Return the resident bytes of mapped files below a folder, which workers share."""
    number, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            inside = f"{folder}/" in line
        elif inside and line.startswith("Rss:"):
            number += 1024 * int(line.split()[1])
    return number


def private_megabytes() -> float:
    """The memory of this process that it shares with none: mapped files are not counted."""
    gc.collect()
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def joined(parts: Sequence[Matches]) -> Matches:
    """The answers to several batches as one."""
    lengths = [np.diff(part.offsets) for part in parts]
    queries = [part.queries for part in parts]
    empty = np.empty(0, dtype=np.int64)
    return Matches(offsets_of(np.concatenate([empty, *lengths])), np.concatenate([empty, *queries]))


def head(matches: Matches, count: int) -> Matches:
    """Return the matches of the first items."""
    offsets = matches.offsets[: count + 1]
    return Matches(offsets, matches.queries[: offsets[-1]])


def digest(matches: Matches) -> str:
    """A digest of all pairs of an item and a query.

    >>> digest(Matches.of([[1, 2], []])) == digest(Matches.of([[2, 1], []])) != digest(Matches.of([[1], [2]]))
    True
    """
    made = hashlib.blake2b(digest_size=8)
    made.update(matches.offsets.astype("<i8").tobytes())
    made.update(matches.queries.astype("<i8").tobytes())
    return made.hexdigest()


def agree(matches: Matches, other: Matches) -> bool:
    """Whether two answers are the same for the items that both were given."""
    count = min(len(matches), len(other))
    return digest(head(matches, count)) == digest(head(other, count))
