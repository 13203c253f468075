"""Plan folders: written once, and loaded by mapping their arrays into memory.

A version consists of one base and at most one delta. A delta is cumulative: it contains all queries added since its
base, and the tombstones of the base's queries that were removed or replaced. A worker thus loads at most two folders.
Queries removed after the delta was written are listed in the version itself, so removing a query writes no files.
"""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Protocol

import numpy as np

from runnel.arrays import Array, Arrays, narrow_offsets
from runnel.bounded_cache import BoundedCache
from runnel.errors import CorruptDataError
from runnel.plan.gates import GateTable, query_of
from runnel.plan.logical_plan import LogicalPlan, QueryTable
from runnel.plan.manifest import Kind, PlanArray, PlanFile, PlanManifest
from runnel.plan.operator_table import OperatorTable
from runnel.plan.pattern_bindings import PatternBindings
from runnel.plan.validate import validate_predicates, validate_queries
from runnel.storage.checksums import is_verified, note_damaged, note_verified, status_of
from runnel.storage.file_storage import Storage

MANIFEST = "manifest.json"
ARRAYS = "arrays.npy"
PREDICATES = "predicates.npy"
"""The file of the arrays that matching rarely reads, so that workers that never read them need no memory for them."""

STARTS = "starts.npy"
"""The file of the arrays with the starts of queries, if the others were written before the starts were known."""

LAYOUT = "layout."
"""The prefix of the arrays that belong to matchers, not to the logical plan."""

_MAPPED_BYTES = 1 << 16
"""Files up to this size are read instead of mapped, because each mapping costs a page and a file handle."""

_SEPARATE_FILE_BYTES = 1 << 20
"""Rarely read arrays smaller than this are stored with the other arrays: each file adds a wait for the disk."""

_EARLY_BYTES = 1 << 20
"""A part of at least this size is written before the starts of its queries are known."""

_CACHED_PARTS = 6
_CACHE_LINE = 64


@dataclass(frozen=True)
class Layout:
    """The arrays of matchers by name: `arrays` are read for every item, `seldom` are rarely read."""

    arrays: Arrays = field(default_factory=dict)
    seldom: Arrays = field(default_factory=dict)

    def every(self) -> Arrays:
        """Return all arrays by name, as a loaded plan part contains them."""
        return {**self.arrays, **self.seldom}


NO_LAYOUT = Layout()


class PublishedPlan(Protocol):
    """The columns of a published plan that this package reads. The catalog's `PlanRow` implements this protocol."""

    @property
    def version(self) -> int: ...

    @property
    def base(self) -> str: ...

    @property
    def delta(self) -> str | None: ...

    @property
    def removed(self) -> tuple[int, ...]: ...

    @property
    def distribution(self) -> str | None: ...

    @property
    def pieces(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class PlanVersion:
    """A version of the plan: its folders, and the queries in them that were removed.

    If the queries are distributed over workers, `distribution` is the folder that describes how.
    """

    version: int
    base: str
    delta: str | None = None
    removed: tuple[int, ...] = ()
    distribution: str | None = None

    @staticmethod
    def of(row: PublishedPlan) -> PlanVersion:
        """Build the version from a row of the catalog.

        >>> from runnel.catalog.logs.plan_versions import PlanRow
        >>> PlanVersion.of(PlanRow(4, "plans/base", None, queries=9, created=0, removed=(7,)))
        PlanVersion(version=4, base='plans/base', delta=None, removed=(7,), distribution=None)
        """
        return PlanVersion(row.version, row.base, row.delta, row.removed, row.distribution)


@dataclass(frozen=True)
class PlanPart:
    """A loaded plan folder: the logical plan, the matchers' arrays and, in a delta, the tombstones.

    In `stored`, only the arrays of the queries have been validated. `logical` also validates the predicate table.
    """

    manifest: PlanManifest
    stored: LogicalPlan
    layout: Arrays
    tombstones: Array

    @property
    def queries(self) -> QueryTable:
        """The queries, without the predicate table."""
        return self.stored

    @property
    def predicate_count(self) -> int:
        """The number of predicates of the part."""
        return len(self.stored.predicates)

    @cached_property
    def logical(self) -> LogicalPlan:
        """The whole logical plan. The first access reads and validates the predicate table."""
        validate_predicates(self.manifest.folder, self.stored)
        return self.stored


@dataclass(frozen=True)
class Plan:
    """A loaded version of the plan."""

    version: PlanVersion
    base: PlanPart
    delta: PlanPart | None = None

    @property
    def parts(self) -> tuple[PlanPart, ...]:
        """The base and, if there is one, the delta."""
        return (self.base,) if self.delta is None else (self.base, self.delta)

    @property
    def tombstones(self) -> Array:
        """The ids of the base that are no longer valid: the delta's tombstones and the queries removed after it."""
        removed = _sort_ids(self.version.removed)
        return removed if self.delta is None else np.union1d(self.delta.tombstones, removed)

    @cached_property
    def gates(self) -> GateTable:
        """The gates and their disjuncts in all parts, without removed queries."""
        base, delta = self.base.queries.gates, self.delta.queries.gates if self.delta else GateTable()
        if not (self.delta or self.version.removed) or not (len(base) or len(delta)):
            return base
        return base.with_delta(delta.without(_sort_ids(self.version.removed)), self.tombstones)

    @cached_property
    def operators(self) -> OperatorTable:
        """The disjuncts that operators decide in all parts, without removed queries."""
        base, delta = (part.queries.operators for part in (self.base, self.delta or self.base))
        if self.delta is None:
            delta = OperatorTable()
        return base.with_delta(delta.without(_sort_ids(self.version.removed)), self.tombstones)

    def bound_patterns(self, part: PlanPart) -> PatternBindings:
        """Return the patterns through which queries of a part bind variables, without removed queries."""
        removed = self.tombstones if part is self.base else _sort_ids(self.version.removed)
        return part.queries.bound_patterns.without(removed)

    def removed(self, part: PlanPart) -> Array:
        """Return a mask over the queries of a part (by position) that marks those no longer in this version."""
        ids = part.queries.query_ids
        if part is not self.base:
            return np.isin(query_of(ids), self.version.removed)
        # A disjunct of the base is removed with its query. The delta may have a disjunct with the same id.
        removed = self.tombstones
        return np.isin(ids, removed) | np.isin(query_of(ids), removed)


def write_base(storage: Storage, folder: str, logical: LogicalPlan, layout: Layout = NO_LAYOUT) -> PlanManifest:
    """Write a logical plan and its layout as a base in a new folder."""
    return _write(storage, folder, "base", logical, layout, _sort_ids(()), None)


def write_delta(
    storage: Storage,
    folder: str,
    logical: LogicalPlan,
    tombstones: Iterable[int],
    parent: str,
    layout: Layout = NO_LAYOUT,
) -> PlanManifest:
    """Write a delta of the base in the folder `parent`. `tombstones` are the base's queries that were removed.

    A query of the delta replaces the base's query with the same id, so its id is always a tombstone.
    """
    all_tombstones = np.union1d(_sort_ids(tombstones), logical.query_ids)
    return _write(storage, folder, "delta", logical, layout, all_tombstones, parent)


def start_base(storage: Storage, folder: str, logical: LogicalPlan, layout: Layout = NO_LAYOUT) -> UnfinishedPart:
    """Start writing a base whose queries' starts are not known yet; see `UnfinishedPart`."""
    part = UnfinishedPart(storage, folder, "base", layout, _sort_ids(()), None)
    part.write_early(logical)
    return part


def start_delta(
    storage: Storage,
    folder: str,
    logical: LogicalPlan,
    tombstones: Iterable[int],
    parent: str,
    layout: Layout = NO_LAYOUT,
) -> UnfinishedPart:
    """Start writing a delta whose queries' starts are not known yet; see `UnfinishedPart` and `write_delta`."""
    all_tombstones = np.union1d(_sort_ids(tombstones), logical.query_ids)
    part = UnfinishedPart(storage, folder, "delta", layout, all_tombstones, parent)
    part.write_early(logical)
    return part


def _sort_ids(ids: Iterable[int]) -> Array:
    return np.unique(np.array(sorted(ids), dtype=np.int64))


def _write(
    storage: Storage,
    folder: str,
    kind: Kind,
    logical: LogicalPlan,
    layout: Layout,
    tombstones: Array,
    parent: str | None,
) -> PlanManifest:
    part = UnfinishedPart(storage, folder, kind, layout, tombstones, parent)
    return part.finish(logical)


@dataclass
class UnfinishedPart:
    """A plan folder that is not complete: the starts of its queries (sequences) are not known yet.

    `write_early` writes everything else if it is large, so that `finish`, which runs while the catalog's write lock
    is held, is fast. A folder without a manifest is not a plan, so an abandoned folder is deleted as an orphan.
    """

    storage: Storage
    folder: str
    kind: Kind
    layout: Layout
    tombstones: Array
    parent: str | None
    files: dict[str, PlanFile] = field(default_factory=dict)
    locations: dict[str, PlanArray] = field(default_factory=dict)

    def write_early(self, logical: LogicalPlan) -> None:
        """Write the arrays that do not depend on the starts of queries, unless the part is small."""
        arrays_by_file = self._group_by_file(logical)
        if sum(array.nbytes for arrays in arrays_by_file.values() for array in arrays.values()) < _EARLY_BYTES:
            return
        start_arrays = logical.start_arrays()
        for file, arrays in arrays_by_file.items():
            self._write_file(file, {name: array for name, array in arrays.items() if name not in start_arrays})

    @property
    def has_all_files(self) -> bool:
        """Whether the files written early still exist. Garbage collection deletes old ones as orphans."""
        return all(self.storage.local(f"{self.folder}/{name}").exists() for name in self.files)

    def finish(self, logical: LogicalPlan) -> PlanManifest:
        """Write the remaining arrays and the manifest.

        `logical` may differ from the plan passed to `write_early` only in the starts of queries.
        """
        arrays_by_file = {STARTS: logical.start_arrays()} if self.files else self._group_by_file(logical)
        for file, arrays in arrays_by_file.items():
            self._write_file(file, arrays)
        counts = {**logical.counts, "tombstones": len(self.tombstones)}
        manifest = PlanManifest(
            self.folder, self.kind, counts, self.files, self.locations, logical.costs, self.parent
        )
        # Write the manifest last, so that all files it lists exist when a reader finds it.
        self.storage.write(f"{self.folder}/{MANIFEST}", manifest.to_json())
        return manifest

    def _group_by_file(self, logical: LogicalPlan) -> dict[str, Arrays]:
        """Return the arrays by name, grouped by the file they are written to."""
        layout = {LAYOUT + name: array for name, array in self.layout.arrays.items()}
        rare = {LAYOUT + name: array for name, array in self.layout.seldom.items()} | logical.predicate_arrays()
        frequent = {**logical.query_arrays(), "tombstones": self.tombstones, **layout}
        if sum(array.nbytes for array in rare.values()) < _SEPARATE_FILE_BYTES:
            return {ARRAYS: frequent | rare}
        return {ARRAYS: frequent, PREDICATES: rare}

    def _write_file(self, file: str, arrays: Arrays) -> None:
        narrowed = {
            name: narrow_offsets(array) if name.endswith(".offsets") else array for name, array in arrays.items()
        }
        data, locations = _pack(file, narrowed)
        self.storage.write(f"{self.folder}/{file}", data, last=False)
        self.files[file] = PlanFile(len(data), hashlib.sha256(data).hexdigest())
        self.locations |= locations


def _pack(file: str, arrays: Arrays) -> tuple[memoryview, dict[str, PlanArray]]:
    """Pack arrays into the content of one file, each aligned to a cache line. Return it with their locations."""
    locations: dict[str, PlanArray] = {}
    size = 0
    for name, array in arrays.items():
        locations[name] = PlanArray(file, size, len(array), array.dtype.name)
        size += -(-array.nbytes // _CACHE_LINE) * _CACHE_LINE
    packed = np.zeros(size, dtype=np.uint8)
    for name, array in arrays.items():
        start = locations[name].start
        packed[start : start + array.nbytes] = np.ascontiguousarray(array).view(np.uint8)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, packed, allow_pickle=False)
    return buffer.getbuffer(), locations


def load(storage: Storage, version: PlanVersion) -> Plan:
    """Load a version of the plan. Folders are immutable, so the process caches the last few that it loaded."""
    base = load_part(storage, version.base)
    delta = None if version.delta is None else load_part(storage, version.delta)
    if base.manifest.kind != "base":
        raise CorruptDataError(f"plan folder {version.base} is not a base")
    if delta is not None and (delta.manifest.kind != "delta" or delta.manifest.parent != version.base):
        raise CorruptDataError(f"plan folder {version.delta} is not a delta of {version.base}")
    return Plan(version, base, delta)


_parts = BoundedCache[tuple[str, str], PlanPart](_CACHED_PARTS)
_parts_lock = Lock()


def load_part(storage: Storage, folder: str) -> PlanPart:
    """Load a plan folder from this process's cache, or from the storage."""
    with _parts_lock:
        cached = _parts.get((storage.url, folder))
    if cached is not None:
        return cached
    part = read_part(storage, folder)
    keep_part(storage, part)
    return part


def keep_part(storage: Storage, part: PlanPart) -> None:
    """Add a part to this process's cache. A part that was just written need not be read again then."""
    with _parts_lock:
        _parts.put((storage.url, part.manifest.folder), part)


def forget_parts() -> None:
    """Empty this process's cache, so that parts without other references are unmapped."""
    with _parts_lock:
        _parts.clear()


def new_folder() -> str:
    """Return a new, unique name for a plan folder."""
    return f"plans/{uuid.uuid4().hex}"


def is_written(storage: Storage, folder: str) -> bool:
    """Return whether a folder contains a complete plan, that is, a manifest, which is written last."""
    return storage.local(f"{folder}/{MANIFEST}").exists()


def read_part(storage: Storage, folder: str) -> PlanPart:
    """Read a plan folder from the storage, without the cache. A damaged folder is also recorded for repair."""
    try:
        return _read_part(storage, folder)
    except CorruptDataError:
        note_damaged(storage, folder)
        raise


def _read_part(storage: Storage, folder: str) -> PlanPart:
    manifest = read_manifest(storage, folder)
    files = {name: _load_file(storage, folder, name, file) for name, file in manifest.files.items()}
    arrays = {name: _slice(folder, name, files[array.file], array) for name, array in manifest.arrays.items()}
    layout = {name.removeprefix(LAYOUT): array for name, array in arrays.items() if name.startswith(LAYOUT)}
    try:
        logical, tombstones = LogicalPlan.stored(arrays, manifest.costs), arrays["tombstones"]
    except KeyError as error:
        raise CorruptDataError(f"{folder}/{MANIFEST} does not list the array {error.args[0]}") from error
    validate_queries(folder, logical, tombstones, len(logical.predicates))
    return PlanPart(manifest, logical, layout, tombstones)


def _slice(folder: str, name: str, content: Array, location: PlanArray) -> Array:
    """Return the array at a location in the content of a file."""
    path = f"{folder}/{location.file}"
    size = location.count * np.dtype(location.type).itemsize
    if location.start + size > len(content):
        raise CorruptDataError(f"{path} is too short: array {name} ends at byte {location.start + size}")
    if content.dtype != np.uint8:
        raise CorruptDataError(f"{path} must contain bytes (uint8), not {content.dtype}")
    if location.start % _CACHE_LINE:
        raise CorruptDataError(f"{path}: array {name} does not start at a multiple of {_CACHE_LINE} bytes")
    return content[location.start : location.start + size].view(location.type)


def read_manifest(storage: Storage, folder: str) -> PlanManifest:
    """Read the manifest of a plan folder."""
    try:
        data = storage.read(f"{folder}/{MANIFEST}")
    except OSError as error:
        raise CorruptDataError(f"{folder}/{MANIFEST} cannot be read: {error}") from error
    return PlanManifest.from_json(folder, data)


def _load_file(storage: Storage, folder: str, name: str, file: PlanFile) -> Array:
    """Verify a file of a plan folder and return its content, which is mapped if it is large."""
    path = f"{folder}/{name}"
    try:
        local = storage.local(path)
        size = local.stat().st_size
        if size != file.size:
            raise CorruptDataError(f"{path} has {size} bytes instead of the {file.size} bytes in its manifest")
        _check_digest(path, local, file)
        mode = "r" if size > _MAPPED_BYTES else None
        array: Array = np.load(local, mmap_mode=mode, allow_pickle=False)  # type: ignore[arg-type]
    except (OSError, ValueError, EOFError) as error:
        raise CorruptDataError(f"{path} cannot be read: {error}") from error
    # A plain view of the mapping, because indexing `np.memmap` is slow.
    array = np.asarray(array)
    if array.ndim != 1:
        raise CorruptDataError(f"{path} must contain an array of one dimension, not {array.ndim}")
    return array


def _check_digest(path: str, local: Path, file: PlanFile, *, again: bool = False) -> None:
    """Compare a file with the digest in its manifest, once per process unless the file changes or `again` is set.

    The file is read, not mapped, so that a rarely used file does not occupy memory in every worker.
    """
    status = status_of(local)
    if not again and is_verified(local, status):
        return
    with local.open("rb", buffering=0) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != file.sha256:
        raise CorruptDataError(f"{path} is damaged: its digest differs from the one in the manifest")
    note_verified(local, status)


def verify(storage: Storage, folder: str) -> None:
    """Read every file of a plan folder completely and compare its digest with the manifest."""
    for name, file in read_manifest(storage, folder).files.items():
        path = f"{folder}/{name}"
        try:
            _check_digest(path, storage.local(path), file, again=True)
        except OSError as error:
            raise CorruptDataError(f"{path} cannot be read: {error}") from error
