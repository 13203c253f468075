"""The file format of a partitioning, which describes how the queries of a base are divided into partitions.

A partitioning is an immutable folder with a manifest, which lists the plan folders of the router and the partitions,
and the partition of each query. The *router* is a plan folder like any other. Its queries stand for the partitions:
the ID of such a query is the number of the partition, from 1 on, and its condition is implied by every query of the
partition. An item that matches any query of a partition therefore matches the partition's query in the router.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from runnel.arrays import Array
from runnel.errors import CorruptDataError, NewerWorkspaceError
from runnel.plan.store import is_written
from runnel.storage.checksums import decode_checked_json, encode_checked_json
from runnel.storage.file_storage import Storage

FORMAT = 1
MANIFEST = "partitioning.json"
ASSIGNMENT = "assignment.npz"

REBUILD_HINT = (
    "the runner creates new partitions when it detects the damage; to force this, start it once with partitions = 1, "
    "and then with the old value"
)
"""What to do about a damaged partitioning. It can be rebuilt from the base."""

Strategy = Literal["grouped", "spread"]
STRATEGIES: tuple[Strategy, ...] = ("grouped", "spread")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its folder, its contents, and the load that was expected when it was created.

    `share` is the fraction of all items that are routed to it. `microseconds` is its cost per item of the stream,
    averaged over all items, whether they are routed to it or not.
    """

    folder: str
    queries: int
    bytes: int
    share: float
    microseconds: float


@dataclass(frozen=True, slots=True)
class WeighedStrategy:
    """The expected cost of a strategy: copies per item, and CPU time per item.

    `microseconds` is the CPU time per item in the router and all partitions, `longest` that in the router and the
    slowest partition: the time for an item if each partition has a worker.
    """

    strategy: Strategy
    copies: float
    microseconds: float
    longest: float


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How the queries of a base are partitioned. `reason` explains, for admins, why this strategy was chosen."""

    folder: str
    base: str
    router: str
    router_bytes: int
    partitions: tuple[Partition, ...]
    strategy: Strategy
    weighed: tuple[WeighedStrategy, ...] = ()
    reason: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Numbers of queries, groups, roots, mergers and so on, recorded when the partitioning was created."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The plan folders of the router and the partitions."""
        return (self.router, *(partition.folder for partition in self.partitions))

    def is_complete(self, storage: Storage) -> bool:
        """Return whether the manifest and all plan folders that it lists exist."""
        manifest = storage.local(f"{self.folder}/{MANIFEST}")
        return manifest.exists() and all(is_written(storage, piece) for piece in self.pieces)


@dataclass(frozen=True)
class Assignment:
    """The partition (from 0 on), group and expected cost of every query of the base, by ascending IDs.

    Queries with the same number in `groups` are related. A group with a negative number must stay in one partition.
    `microseconds` is the expected cost of a query per item.
    """

    query_ids: Array
    partitions: Array
    groups: Array
    microseconds: Array


def write_partitioning(storage: Storage, partitioning: Partitioning, assignment: Assignment) -> None:
    """Write a partitioning. The plan folders that it lists must exist already."""
    buffer = io.BytesIO()
    columns = {name: np.ascontiguousarray(getattr(assignment, name)) for name in _COLUMNS}
    np.savez(buffer, **columns)  # type: ignore[arg-type]
    data = buffer.getvalue()
    storage.write(f"{partitioning.folder}/{ASSIGNMENT}", data, last=False)
    value = asdict(partitioning) | {"format": FORMAT, "sha256": hashlib.sha256(data).hexdigest()}
    storage.write(f"{partitioning.folder}/{MANIFEST}", encode_checked_json(value))


_MICROSECONDS = "microseconds"
_COLUMNS = ("query_ids", "partitions", "groups", _MICROSECONDS)


def read_partitioning(storage: Storage, folder: str) -> Partitioning:
    """Read the manifest of a partitioning. Raise CorruptDataError if damaged, NewerWorkspaceError if too new."""
    try:
        value = decode_checked_json(storage.read(f"{folder}/{MANIFEST}"))
        if value["format"] > FORMAT:
            raise NewerWorkspaceError(
                f"the partitioning {folder} has format {value['format']}, this Runnel reads formats up to {FORMAT}",
                hint="update Runnel",
            )
        return _parse_manifest(folder, value)
    except OSError as error:
        raise CorruptDataError(f"{folder}/{MANIFEST} cannot be read: {error}", hint=REBUILD_HINT) from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptDataError(f"{folder}/{MANIFEST} is not a partitioning: {error}", hint=REBUILD_HINT) from error


def _parse_manifest(folder: str, value: Any) -> Partitioning:
    if value["strategy"] not in STRATEGIES:
        raise ValueError(f"unknown strategy {value['strategy']!r}")
    partitions = tuple(
        Partition(
            _parse_folder(row["folder"]),
            int(row["queries"]),
            int(row["bytes"]),
            float(row["share"]),
            float(row["microseconds"]),
        )
        for row in value["partitions"]
    )
    weighed = tuple(
        WeighedStrategy(row["strategy"], float(row["copies"]), float(row["microseconds"]), float(row["longest"]))
        for row in value["weighed"]
    )
    return Partitioning(
        folder,
        _parse_folder(value["base"]),
        _parse_folder(value["router"]),
        int(value["router_bytes"]),
        partitions,
        value["strategy"],
        weighed,
        str(value["reason"]),
        {str(name): int(count) for name, count in value["counters"].items()},
    )


def _parse_folder(name: object) -> str:
    """Return the name of a plan folder. Raise ValueError if it could lead out of the workspace."""
    if not isinstance(name, str) or not name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name!r} is not a plan folder")
    return name


def verify_partitioning(storage: Storage, folder: str) -> Partitioning:
    """Read a partitioning, and compare its files with their digests. Slow, for `doctor`."""
    partitioning = read_partitioning(storage, folder)
    assignment = read_assignment(storage, folder)
    if len(assignment.partitions) and not 0 <= int(assignment.partitions.min()) <= int(
        assignment.partitions.max()
    ) < len(partitioning.partitions):
        raise CorruptDataError(f"{folder}/{ASSIGNMENT} refers to partitions that do not exist", hint=REBUILD_HINT)
    return partitioning


def read_assignment(storage: Storage, folder: str) -> Assignment:
    """Read the partition of each query. Raise CorruptDataError if the file is damaged."""
    try:
        data = storage.read(f"{folder}/{ASSIGNMENT}")
        if hashlib.sha256(data).hexdigest() != _read_digest(storage, folder):
            raise CorruptDataError(
                f"{folder}/{ASSIGNMENT} is damaged: its digest differs from the one in the manifest",
                hint=REBUILD_HINT,
            )
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            assignment = Assignment(**{name: stored[name] for name in _COLUMNS})
    except OSError as error:
        raise CorruptDataError(f"{folder}/{ASSIGNMENT} cannot be read: {error}", hint=REBUILD_HINT) from error
    except (ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise CorruptDataError(f"{folder}/{ASSIGNMENT} is damaged: {error}", hint=REBUILD_HINT) from error
    columns = {name: getattr(assignment, name) for name in _COLUMNS}
    if any(
        column.ndim != 1 or column.dtype.kind not in ("f" if name == _MICROSECONDS else "iu")
        for name, column in columns.items()
    ):
        raise CorruptDataError(f"{folder}/{ASSIGNMENT} has columns that are not numbers", hint=REBUILD_HINT)
    if len({len(column) for column in columns.values()}) != 1:
        raise CorruptDataError(f"{folder}/{ASSIGNMENT} has columns of different lengths", hint=REBUILD_HINT)
    return assignment


def _read_digest(storage: Storage, folder: str) -> str | None:
    """Read the digest of the assignment from the manifest."""
    try:
        digest: str | None = decode_checked_json(storage.read(f"{folder}/{MANIFEST}")).get("sha256")
        return digest
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptDataError(f"{folder}/{MANIFEST} cannot be read: {error}", hint=REBUILD_HINT) from error
