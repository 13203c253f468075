"""The manifest of a plan folder: written last, so a folder without one is no plan.

It says what the folder is (format, kind, parent), what is inside (counts; size and digest of every file; where each
array lies) and what its making cost. Nothing in it is trusted before it is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from runnel.errors import CorruptDataError, NewerWorkspaceError
from runnel.plan.logical_plan import CostRecord
from runnel.storage.checksums import sealed_json, unsealed_json

FORMAT = 1
"""Raised when the arrays or the words that they hold change. Plans of lower formats are compiled again."""

Kind = Literal["base", "delta"]
_TYPES = frozenset({"bool", "uint8", "uint16", "uint32", "uint64", "int32", "int64", "float32", "float64"})


@dataclass(frozen=True, slots=True)
class PlanFile:
    """One array file of a folder."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PlanArray:
    """Where an array lies: in which file, from which byte on, how many entries of which type."""

    file: str
    start: int
    count: int
    type: str


@dataclass(frozen=True, slots=True)
class PlanManifest:
    """What a plan folder holds. `parent` is the folder of the base that a delta belongs to."""

    folder: str
    kind: Kind
    counts: Mapping[str, int]
    files: Mapping[str, PlanFile]
    arrays: Mapping[str, PlanArray]
    costs: tuple[CostRecord, ...] = ()
    parent: str | None = None

    @property
    def size(self) -> int:
        """The bytes of all array files."""
        return sum(file.size for file in self.files.values())

    def to_json(self) -> bytes:
        """The manifest as stored."""
        value = {
            "format": FORMAT,
            "kind": self.kind,
            "parent": self.parent,
            "counts": dict(self.counts),
            "files": {name: {"size": file.size, "sha256": file.sha256} for name, file in self.files.items()},
            "arrays": {name: [one.file, one.start, one.count, one.type] for name, one in self.arrays.items()},
            "costs": [cost.to_json() for cost in self.costs],
        }
        # On one line: with line breaks Python encodes it step by step, which takes longer than all of a small delta.
        return sealed_json(value)

    @staticmethod
    def from_json(folder: str, data: bytes) -> PlanManifest:
        """The manifest of a folder, checked."""
        try:
            value = unsealed_json(data)
            if value["format"] > FORMAT:
                raise NewerWorkspaceError(f"the plan {folder} has format {value['format']}", hint="update Runnel")
            if value["format"] < FORMAT:
                raise ValueError(f"it has format {value['format']} instead of {FORMAT}")
            return _checked(folder, value)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise CorruptDataError(f"{folder}/manifest.json is not a plan's manifest: {error!r}") from error


def _checked(folder: str, value: Any) -> PlanManifest:
    kind = value["kind"]
    if kind not in ("base", "delta"):
        raise ValueError(f"unknown kind {kind!r}")
    files = {str(name): PlanFile(int(one["size"]), str(one["sha256"])) for name, one in value["files"].items()}
    for name in files:
        # A name becomes a path; one that climbs out of the folder must not be followed.
        if not name.endswith(".npy") or "/" in name or "\\" in name:
            raise ValueError(f"unexpected file {name!r}")
    costs = tuple(CostRecord(str(one["pass"]), float(one["seconds"]), one["counters"]) for one in value["costs"])
    counts = {str(name): int(count) for name, count in value["counts"].items()}
    arrays = {str(name): _checked_array(one, files) for name, one in value["arrays"].items()}
    return PlanManifest(folder, cast(Kind, kind), counts, files, arrays, costs, value["parent"])


def _checked_array(value: Any, files: Mapping[str, PlanFile]) -> PlanArray:
    file, start, count, kind = value
    if file not in files or int(start) < 0 or int(count) < 0 or kind not in _TYPES:
        raise ValueError(f"an array lies nowhere: {value!r}")
    return PlanArray(file, int(start), int(count), kind)
