"""Whether Spark's checkpoint can be gone on with. In: its folder and what the match log says. Out: a reason not to.

The match log is the truth of progress, so a checkpoint that is damaged, foreign, behind or ahead is no loss: it is
abandoned, and a new lineage starts after the last committed item.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_UNREADABLE = "the checkpoint cannot be read"


def reason_not_to_resume(folder: Path, committed: int | None, matched: int) -> str | None:
    """Why a checkpoint cannot be continued, or None.

    `committed` is the last batch of its lineage in the match log, `matched` the last sequence there.
    """
    planned, finished = _numbers(folder / "offsets"), _numbers(folder / "commits")
    if committed is None and finished:
        return "the checkpoint knows batches that the match log does not"
    if committed is not None and (not planned or max(planned) < committed):
        return "the checkpoint is missing or behind the match log"
    if committed is not None and finished and max(finished) > committed:
        return "the checkpoint knows batches that the match log does not"
    try:
        return _disagreement(folder, planned, finished, committed, matched)
    except (OSError, ValueError, LookupError, TypeError):
        return _UNREADABLE


def _disagreement(
    folder: Path, planned: list[int], finished: list[int], committed: int | None, matched: int
) -> str | None:
    """What Spark will read when it starts, read before it does; raises where that cannot be read."""
    metadata = folder / "metadata"
    if metadata.exists():
        json.loads(metadata.read_text("utf-8"))["id"]
    if finished:
        dict(**json.loads(_lines(folder / "commits" / str(max(finished)))[1]))
    for batch in planned[-2:]:
        sequence = _offset(folder / "offsets" / str(batch))
        if batch == committed and sequence != matched:
            return f"the checkpoint's batch {batch} ends at {sequence}, the match log at {matched}"
        if (committed is None or batch > committed) and sequence <= matched:
            return f"the checkpoint's next batch ends at {sequence}, the match log is at {matched} already"
    return None


def _offset(file: Path) -> int:
    """The sequence up to which a planned batch goes: version, Spark's notes, and our offset, a line each."""
    _, notes, offset = _lines(file)
    json.loads(notes)["conf"]
    told: dict[str, Any] = json.loads(offset)
    if not isinstance(told["plan"], int):
        raise TypeError("a plan version is a number")
    return int(told["sequence"])


def _lines(file: Path) -> list[str]:
    lines = file.read_text("utf-8").splitlines()
    if lines[0] != "v1":
        raise ValueError("a form of Spark's that is not known here")
    return lines


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit())
