"""Decide whether a run can resume from Spark's checkpoint.

In: the checkpoint's folder, and the last batch and item of the match log. Out: None, or the reason not to resume. The
match log records progress, so a checkpoint that is damaged or disagrees with it can be abandoned without loss: a new
lineage starts after the last committed item.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_UNREADABLE = "the checkpoint cannot be read"
_AHEAD = "the checkpoint has finished batches that are not in the match log"


def reason_not_to_resume(folder: Path, committed: int | None, matched: int) -> str | None:
    """Return why a run cannot resume from a checkpoint, or None if it can.

    `committed` is the last batch of its lineage in the match log, `matched` the last sequence of the match log.
    """
    planned, finished = _numbers(folder / "offsets"), _numbers(folder / "commits")
    if committed is None and finished:
        return _AHEAD
    if committed is not None and not planned:
        return "the checkpoint is missing"
    if committed is not None and max(planned) < committed:
        return "the checkpoint is behind the match log"
    if committed is not None and finished and max(finished) > committed:
        return _AHEAD
    try:
        return _find_conflict(folder, planned, finished, committed, matched)
    except (OSError, ValueError, LookupError, TypeError):
        return _UNREADABLE


def _find_conflict(
    folder: Path, planned: list[int], finished: list[int], committed: int | None, matched: int
) -> str | None:
    """Read the files that Spark will read when it starts, and return how they disagree with the match log, or None.

    Raise an error if a file cannot be read or has an unknown format.
    """
    metadata = folder / "metadata"
    if metadata.exists():
        json.loads(metadata.read_text("utf-8"))["id"]
    if finished:
        dict(**json.loads(_lines(folder / "commits" / str(max(finished)))[1]))
    for batch in planned[-2:]:
        sequence = _read_offset(folder / "offsets" / str(batch))
        if batch == committed and sequence != matched:
            return f"batch {batch} ends at item {sequence} in the checkpoint, and at item {matched} in the match log"
        if (committed is None or batch > committed) and sequence <= matched:
            return (
                f"the next batch of the checkpoint ends at item {sequence}, the match log at item {matched} already"
            )
    return None


def _read_offset(file: Path) -> int:
    """Return the last sequence of a planned batch. The lines are a version, Spark's metadata and our offset."""
    _, metadata, offset_line = _lines(file)
    json.loads(metadata)["conf"]
    offset: dict[str, Any] = json.loads(offset_line)
    if not isinstance(offset["plan"], int):
        raise TypeError("the plan version must be a number")
    return int(offset["sequence"])


def _lines(file: Path) -> list[str]:
    lines = file.read_text("utf-8").splitlines()
    if lines[0] != "v1":
        raise ValueError("unknown version of a checkpoint file")
    return lines


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit())
