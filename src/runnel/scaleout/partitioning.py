"""How the queries of a base are divided over partitions: a folder beside the base, as immutable as it is.

In: the base's queries, each with the number of its partition, and the folders of what was cut from it. Out: what
workers need to know which folder to map. The *router* is a plan folder like any other; its queries are the
partitions (a query's id is the number of the partition, from 1 on), and they ask for what the most general queries
of the partition ask for: an item that matches any query of a partition matches the partition in the router.
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
from runnel.storage.checksums import sealed_json, unsealed_json
from runnel.storage.file_storage import Storage

FORMAT = 1
MANIFEST = "partitioning.json"
ASSIGNMENT = "assignment.npz"

REBUILD_HINT = (
    "the runner divides the queries anew when it comes upon this; to have it done at once, set partitions = 1, start "
    "it, and set it back"
)
"""What to do about a damaged partitioning; the base has all that it is made of."""

Strategy = Literal["grouped", "spread"]
STRATEGIES: tuple[Strategy, ...] = ("grouped", "spread")


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its folder, what is in it, and what was expected of it when it was made.

    `share` is the part of all items that is routed to it, `microseconds` what it costs for an item of the stream,
    whether that comes to it or not.
    """

    folder: str
    queries: int
    bytes: int
    share: float
    microseconds: float


@dataclass(frozen=True, slots=True)
class WeighedStrategy:
    """A way of dividing queries that was weighed: copies of an item, processor time for it, and the longest part.

    `microseconds` is the processor time for one item in all partitions and the router, `longest` that of the router
    and the partition that takes longest: what an item takes with a worker for each partition.
    """

    strategy: Strategy
    copies: float
    microseconds: float
    longest: float


@dataclass(frozen=True, slots=True)
class Partitioning:
    """A division of a base. `reason` says in plain words why it is as it is."""

    folder: str
    base: str
    router: str
    router_bytes: int
    partitions: tuple[Partition, ...]
    strategy: Strategy
    weighed: tuple[WeighedStrategy, ...] = ()
    reason: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)
    """What its making found: queries, groups, roots, mergers, and so on."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """The folders that it names."""
        return (self.router, *(one.folder for one in self.partitions))

    def is_complete(self, storage: Storage) -> bool:
        """Whether the folder and all that it names exist."""
        own = storage.local(f"{self.folder}/{MANIFEST}")
        return own.exists() and all(is_written(storage, piece) for piece in self.pieces)


@dataclass(frozen=True)
class Assignment:
    """The partition (from 0 on) and the group of every query of the base, by ascending ids, and what it costs.

    `groups` are numbers without a meaning: queries of one group are related; one with a negative number is not to be
    divided. `microseconds` is what a query was expected to cost for an item.
    """

    query_ids: Array
    partitions: Array
    groups: Array
    microseconds: Array


def write_partitioning(storage: Storage, made: Partitioning, assignment: Assignment) -> None:
    """Write a partitioning; the folders that it names are there already."""
    buffer = io.BytesIO()
    columns = {name: np.ascontiguousarray(getattr(assignment, name)) for name in _COLUMNS}
    np.savez(buffer, **columns)  # type: ignore[arg-type]
    data = buffer.getvalue()
    storage.write(f"{made.folder}/{ASSIGNMENT}", data, last=False)
    value = asdict(made) | {"format": FORMAT, "sha256": hashlib.sha256(data).hexdigest()}
    storage.write(f"{made.folder}/{MANIFEST}", sealed_json(value))


_MICROSECONDS = "microseconds"
_COLUMNS = ("query_ids", "partitions", "groups", _MICROSECONDS)


def read_partitioning(storage: Storage, folder: str) -> Partitioning:
    """The partitioning of a folder, checked."""
    try:
        value = unsealed_json(storage.read(f"{folder}/{MANIFEST}"))
        if value["format"] > FORMAT:
            raise NewerWorkspaceError(f"the partitioning {folder} has format {value['format']}", hint="update Runnel")
        return _checked(folder, value)
    except OSError as error:
        raise CorruptDataError(f"{folder}/{MANIFEST} cannot be read: {error}", hint=REBUILD_HINT) from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptDataError(f"{folder}/{MANIFEST} is not a partitioning: {error}", hint=REBUILD_HINT) from error


def _checked(folder: str, value: Any) -> Partitioning:
    if value["strategy"] not in STRATEGIES:
        raise ValueError(f"unknown strategy {value['strategy']!r}")
    partitions = tuple(
        Partition(_folder(one["folder"]), int(one["queries"]), int(one["bytes"]), *_numbers(one))
        for one in value["partitions"]
    )
    weighed = tuple(
        WeighedStrategy(one["strategy"], float(one["copies"]), float(one["microseconds"]), float(one["longest"]))
        for one in value["weighed"]
    )
    return Partitioning(
        folder,
        _folder(value["base"]),
        _folder(value["router"]),
        int(value["router_bytes"]),
        partitions,
        value["strategy"],
        weighed,
        str(value["reason"]),
        {str(name): int(count) for name, count in value["counters"].items()},
    )


def _numbers(one: Any) -> tuple[float, float]:
    return float(one["share"]), float(one["microseconds"])


def _folder(name: object) -> str:
    """A folder of plans; a name that climbs out of the workspace must not be followed."""
    if not isinstance(name, str) or not name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{name!r} is no folder of a plan")
    return name


def verify_partitioning(storage: Storage, folder: str) -> Partitioning:
    """The partitioning of a folder, after its files were read and compared with their digest. Slow, for `doctor`."""
    made = read_partitioning(storage, folder)
    assignment = read_assignment(storage, folder)
    if len(assignment.partitions) and not 0 <= int(assignment.partitions.min()) <= int(
        assignment.partitions.max()
    ) < len(made.partitions):
        raise CorruptDataError(f"{folder}/{ASSIGNMENT} names partitions that there are not", hint=REBUILD_HINT)
    return made


def read_assignment(storage: Storage, folder: str) -> Assignment:
    """Which query is in which partition."""
    try:
        data = storage.read(f"{folder}/{ASSIGNMENT}")
        if hashlib.sha256(data).hexdigest() != _digest_of_assignment(storage, folder):
            raise CorruptDataError(
                f"{folder}/{ASSIGNMENT} is damaged: its digest differs from the one in the manifest",
                hint=REBUILD_HINT,
            )
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            found = Assignment(**{name: stored[name] for name in _COLUMNS})
    except OSError as error:
        raise CorruptDataError(f"{folder}/{ASSIGNMENT} cannot be read: {error}", hint=REBUILD_HINT) from error
    except (ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise CorruptDataError(f"{folder}/{ASSIGNMENT} is damaged: {error}", hint=REBUILD_HINT) from error
    columns = {name: getattr(found, name) for name in _COLUMNS}
    if any(
        one.ndim != 1 or one.dtype.kind not in ("f" if name == _MICROSECONDS else "iu")
        for name, one in columns.items()
    ):
        raise CorruptDataError(f"{folder}/{ASSIGNMENT} has columns that are no numbers", hint=REBUILD_HINT)
    if len({len(one) for one in columns.values()}) != 1:
        raise CorruptDataError(f"{folder}/{ASSIGNMENT} has columns of different lengths", hint=REBUILD_HINT)
    return found


def _digest_of_assignment(storage: Storage, folder: str) -> str | None:
    """The digest of the assignment as the manifest has it."""
    try:
        digest: str | None = unsealed_json(storage.read(f"{folder}/{MANIFEST}")).get("sha256")
        return digest
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptDataError(f"{folder}/{MANIFEST} cannot be read: {error}", hint=REBUILD_HINT) from error
