"""The manifest of a plan folder. It is written last, so a folder without a manifest is not a complete plan.

The manifest contains the format, kind and parent of the folder, counts, the size and digest of every file, the file
and offset of every array, and the cost of compilation. Every field is checked when the manifest is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from runnel.errors import CorruptDataError, NewerWorkspaceError
from runnel.plan.logical_plan import CostRecord
from runnel.storage.checksums import decode_checked_json, encode_checked_json

FORMAT = 1
"""Increased when the arrays, or the words stored in them, change. Plans of a lower format are compiled again."""

Kind = Literal["base", "delta"]
_TYPES = frozenset({"bool", "uint8", "uint16", "uint32", "uint64", "int32", "int64", "float32", "float64"})


@dataclass(frozen=True, slots=True)
class PlanFile:
    """One array file of a folder."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PlanArray:
    """The location of an array: its file, the offset in bytes, the number of entries and their type."""

    file: str
    start: int
    count: int
    type: str


@dataclass(frozen=True, slots=True)
class PlanManifest:
    """The content of a plan folder. `parent` is the folder of the base that a delta belongs to."""

    folder: str
    kind: Kind
    counts: Mapping[str, int]
    files: Mapping[str, PlanFile]
    arrays: Mapping[str, PlanArray]
    costs: tuple[CostRecord, ...] = ()
    parent: str | None = None

    @property
    def size(self) -> int:
        """The total size of the array files in bytes."""
        return sum(file.size for file in self.files.values())

    def to_json(self) -> bytes:
        """Return the manifest as it is stored."""
        value = {
            "format": FORMAT,
            "kind": self.kind,
            "parent": self.parent,
            "counts": dict(self.counts),
            "files": {name: {"size": file.size, "sha256": file.sha256} for name, file in self.files.items()},
            "arrays": {
                name: [array.file, array.start, array.count, array.type] for name, array in self.arrays.items()
            },
            "costs": [cost.to_json() for cost in self.costs],
        }
        # Without line breaks: Python's C encoder does not indent, and the slow encoder would take longer than writing
        # the rest of a small delta.
        return encode_checked_json(value)

    @staticmethod
    def from_json(folder: str, data: bytes) -> PlanManifest:
        """Decode and check the manifest of a folder."""
        try:
            value = decode_checked_json(data)
            if value["format"] > FORMAT:
                raise NewerWorkspaceError(
                    f"plan {folder} has format {value['format']}; this version of Runnel reads format {FORMAT}",
                    hint="update Runnel",
                )
            if value["format"] < FORMAT:
                raise ValueError(f"format {value['format']} is older than {FORMAT}")
            return _decode(folder, value)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise CorruptDataError(f"{folder}/manifest.json is not a valid plan manifest: {error!r}") from error


def _decode(folder: str, value: Any) -> PlanManifest:
    kind = value["kind"]
    if kind not in ("base", "delta"):
        raise ValueError(f"kind must be 'base' or 'delta', not {kind!r}")
    files = {str(name): PlanFile(int(file["size"]), str(file["sha256"])) for name, file in value["files"].items()}
    for name in files:
        # A name becomes part of a path, and must not lead out of the folder.
        if not name.endswith(".npy") or "/" in name or "\\" in name:
            raise ValueError(f"file name {name!r} must end with .npy and contain no slash or backslash")
    costs = tuple(CostRecord(str(cost["pass"]), float(cost["seconds"]), cost["counters"]) for cost in value["costs"])
    counts = {str(name): int(count) for name, count in value["counts"].items()}
    arrays = {str(name): _decode_array(name, array, files) for name, array in value["arrays"].items()}
    return PlanManifest(folder, cast(Kind, kind), counts, files, arrays, costs, value["parent"])


def _decode_array(name: str, value: Any, files: Mapping[str, PlanFile]) -> PlanArray:
    file, start, count, entry_type = value
    if file not in files:
        raise ValueError(f"array {name} is in file {file!r}, which the manifest does not list")
    if int(start) < 0 or int(count) < 0:
        raise ValueError(f"array {name} has a negative offset or length: {value!r}")
    if entry_type not in _TYPES:
        raise ValueError(f"array {name} has the unsupported type {entry_type!r}")
    return PlanArray(file, int(start), int(count), entry_type)
