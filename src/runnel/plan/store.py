"""Plan folders: written once, loaded by mapping their arrays into memory.

A version is one base and at most one delta. Deltas are cumulative: each holds all that was added to its base, and
the tombstones of the base's queries that were removed or replaced; so a worker never loads more than two folders.
What was removed since is said by the version itself, so that removing a query writes no files.
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
"""What is seldom looked at while items are matched: workers that never do have no memory for it."""

STARTS = "starts.npy"
"""The sequences after which queries count, where the other arrays were written before these were known."""

LAYOUT = "layout."
"""The prefix of the arrays that belong to matchers, not to the logical plan."""

_MAPPED_ABOVE = 1 << 16
"""Smaller files are read: a mapping costs a page and a file handle each."""

_APART_ABOVE = 1 << 20
"""A smaller predicate table lies with the other arrays: a file more is one more wait."""

_EARLY_ABOVE = 1 << 20
"""A larger part is written before the sequences are known after which its queries count."""

_KEPT = 6
_LINE = 64


@dataclass(frozen=True)
class Layout:
    """The arrays of matchers by name: those that are looked at for every item, and those that seldom are."""

    arrays: Arrays = field(default_factory=dict)
    seldom: Arrays = field(default_factory=dict)

    def every(self) -> Arrays:
        """All of them, as they are when they are loaded."""
        return {**self.arrays, **self.seldom}


NO_LAYOUT = Layout()


class PublishedPlan(Protocol):
    """The row of a published plan, as far as the format needs it; the catalog's `PlanRow` is one."""

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
    """A version of the plan by the folders it is made of, and the queries that they hold and it does not.

    Where the queries are distributed over workers, `distribution` is the folder that says how.
    """

    version: int
    base: str
    delta: str | None = None
    removed: tuple[int, ...] = ()
    distribution: str | None = None

    @staticmethod
    def of(row: PublishedPlan) -> PlanVersion:
        """The version that a row of the catalog names.

        >>> from runnel.catalog.logs.plan_versions import PlanRow
        >>> PlanVersion.of(PlanRow(4, "plans/base", None, queries=9, created=0, removed=(7,)))
        PlanVersion(version=4, base='plans/base', delta=None, removed=(7,), distribution=None)
        """
        return PlanVersion(row.version, row.base, row.delta, row.removed, row.distribution)


@dataclass(frozen=True)
class PlanPart:
    """One folder, loaded: the logical plan, the matchers' arrays and, in a delta, the tombstones.

    Of what is `stored`, the queries were checked; the predicate table is when it is first asked for.
    """

    manifest: PlanManifest
    stored: LogicalPlan
    layout: Arrays
    tombstones: Array

    @property
    def queries(self) -> QueryTable:
        """The queries, without what they ask."""
        return self.stored

    @property
    def predicate_count(self) -> int:
        """How many predicates the part has."""
        return len(self.stored.predicates)

    @cached_property
    def logical(self) -> LogicalPlan:
        """All of the logical plan. Checking it reads the whole predicate table."""
        validate_predicates(self.manifest.folder, self.stored)
        return self.stored


@dataclass(frozen=True)
class Plan:
    """One version of the plan, loaded: what a worker matches with."""

    version: PlanVersion
    base: PlanPart
    delta: PlanPart | None = None

    @property
    def parts(self) -> tuple[PlanPart, ...]:
        """The base, and the delta where there is one."""
        return (self.base,) if self.delta is None else (self.base, self.delta)

    @property
    def tombstones(self) -> Array:
        """The queries and ways of the base that count no more: those of the delta, and what was removed since."""
        since = _tombstones(self.version.removed)
        return since if self.delta is None else np.union1d(self.delta.tombstones, since)

    @cached_property
    def gates(self) -> GateTable:
        """The gates of all parts, and the disjuncts behind them, of the queries that the version has."""
        base, delta = self.base.queries.gates, self.delta.queries.gates if self.delta else GateTable()
        if not (self.delta or self.version.removed) or not (len(base) or len(delta)):
            return base
        return base.with_delta(delta.without(_tombstones(self.version.removed)), self.tombstones)

    @cached_property
    def operators(self) -> OperatorTable:
        """The ways of all parts that operators decide, of the queries that the version has."""
        base, delta = (part.queries.operators for part in (self.base, self.delta or self.base))
        if self.delta is None:
            delta = OperatorTable()
        return base.with_delta(delta.without(_tombstones(self.version.removed)), self.tombstones)

    def bound_patterns(self, part: PlanPart) -> PatternBindings:
        """The patterns of a part by which queries that the version has bind variables."""
        gone = self.tombstones if part is self.base else _tombstones(self.version.removed)
        return part.queries.bound_patterns.without(gone)

    def removed(self, part: PlanPart) -> Array:
        """Which queries of a part (by position) the version does not have any more."""
        ids = part.queries.query_ids
        if part is not self.base:
            return np.isin(query_of(ids), self.version.removed)
        # A delta has ways of its own, under the same ids. Those of the base end with the query that they belong to.
        dead = self.tombstones
        return np.isin(ids, dead) | np.isin(query_of(ids), dead)


def write_base(storage: Storage, folder: str, logical: LogicalPlan, layout: Layout = NO_LAYOUT) -> PlanManifest:
    """Write a base: everything that is compiled, in one new folder."""
    return _write(storage, folder, "base", logical, layout, _tombstones(()), None)


def write_delta(
    storage: Storage,
    folder: str,
    logical: LogicalPlan,
    tombstones: Iterable[int],
    parent: str,
    layout: Layout = NO_LAYOUT,
) -> PlanManifest:
    """Write a delta of the base in the folder `parent`, with the ids of the base's queries that count no more.

    A query that the delta holds replaces the base's, so its id is always a tombstone.
    """
    dead = np.union1d(_tombstones(tombstones), logical.query_ids)
    return _write(storage, folder, "delta", logical, layout, dead, parent)


def start_base(storage: Storage, folder: str, logical: LogicalPlan, layout: Layout = NO_LAYOUT) -> UnfinishedPart:
    """As `write_base`, up to the sequences after which queries count."""
    part = UnfinishedPart(storage, folder, "base", layout, _tombstones(()), None)
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
    """As `write_delta`, up to the sequences after which queries count."""
    dead = np.union1d(_tombstones(tombstones), logical.query_ids)
    part = UnfinishedPart(storage, folder, "delta", layout, dead, parent)
    part.write_early(logical)
    return part


def _tombstones(ids: Iterable[int]) -> Array:
    return np.unique(np.array(sorted(ids), dtype=np.int64))


def _write(
    storage: Storage, folder: str, kind: Kind, logical: LogicalPlan, layout: Layout, dead: Array, parent: str | None
) -> PlanManifest:
    part = UnfinishedPart(storage, folder, kind, layout, dead, parent)
    return part.finish(logical)


@dataclass
class UnfinishedPart:
    """A folder in the making. Only the sequences after which queries count are still open.

    `write_early` writes everything else where that is large, so that `finish`, which runs while the catalog's write
    lock is held, never takes long. A folder without a manifest is no plan, so an unfinished one is an orphan.
    """

    storage: Storage
    folder: str
    kind: Kind
    layout: Layout
    dead: Array
    parent: str | None
    files: dict[str, PlanFile] = field(default_factory=dict)
    placed: dict[str, PlanArray] = field(default_factory=dict)

    def write_early(self, logical: LogicalPlan) -> None:
        """Write what does not depend on where queries start, unless it is small enough for `finish`."""
        groups = self._groups(logical)
        if sum(one.nbytes for arrays in groups.values() for one in arrays.values()) < _EARLY_ABOVE:
            return
        late = logical.start_arrays()
        for name, arrays in groups.items():
            self._put(name, {one: array for one, array in arrays.items() if one not in late})

    @property
    def is_there(self) -> bool:
        """Whether all that was written early still is: after a long while it was collected as an orphan."""
        return all(self.storage.local(f"{self.folder}/{name}").exists() for name in self.files)

    def finish(self, logical: LogicalPlan) -> PlanManifest:
        """Write the rest, and the manifest; `logical` may differ from the early one in where queries start."""
        groups = {STARTS: logical.start_arrays()} if self.files else self._groups(logical)
        for name, arrays in groups.items():
            self._put(name, arrays)
        counts = {**logical.counts, "tombstones": len(self.dead)}
        manifest = PlanManifest(self.folder, self.kind, counts, self.files, self.placed, logical.costs, self.parent)
        # The manifest comes last: a reader that finds it finds every file that it names.
        self.storage.write(f"{self.folder}/{MANIFEST}", manifest.to_json())
        return manifest

    def _groups(self, logical: LogicalPlan) -> dict[str, Arrays]:
        """The arrays by the files that hold them."""
        named = {LAYOUT + name: one for name, one in self.layout.arrays.items()}
        seldom = {LAYOUT + name: one for name, one in self.layout.seldom.items()} | logical.predicate_arrays()
        often = {**logical.query_arrays(), "tombstones": self.dead, **named}
        if sum(one.nbytes for one in seldom.values()) < _APART_ABOVE:
            return {ARRAYS: often | seldom}
        return {ARRAYS: often, PREDICATES: seldom}

    def _put(self, name: str, arrays: Arrays) -> None:
        data, places = _packed(
            name, {one: narrow_offsets(array) if one.endswith(".offsets") else array for one, array in arrays.items()}
        )
        self.storage.write(f"{self.folder}/{name}", data, last=False)
        self.files[name] = PlanFile(len(data), hashlib.sha256(data).hexdigest())
        self.placed |= places


def _packed(file: str, arrays: Arrays) -> tuple[memoryview, dict[str, PlanArray]]:
    """Arrays in one file of bytes, each at the start of a cache line."""
    placed: dict[str, PlanArray] = {}
    size = 0
    for name, array in arrays.items():
        placed[name] = PlanArray(file, size, len(array), array.dtype.name)
        size += -(-array.nbytes // _LINE) * _LINE
    whole = np.zeros(size, dtype=np.uint8)
    for name, array in arrays.items():
        start = placed[name].start
        whole[start : start + array.nbytes] = np.ascontiguousarray(array).view(np.uint8)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, whole, allow_pickle=False)
    return buffer.getbuffer(), placed


def load(storage: Storage, version: PlanVersion) -> Plan:
    """The plan of a version. Folders are immutable, so a process keeps the last few that it loaded."""
    base = load_part(storage, version.base)
    delta = None if version.delta is None else load_part(storage, version.delta)
    if base.manifest.kind != "base":
        raise CorruptDataError(f"{version.base} is not a base")
    if delta is not None and (delta.manifest.kind != "delta" or delta.manifest.parent != version.base):
        raise CorruptDataError(f"{version.delta} is not a delta of {version.base}")
    return Plan(version, base, delta)


_parts = BoundedCache[tuple[str, str], PlanPart](_KEPT)
_parts_lock = Lock()


def load_part(storage: Storage, folder: str) -> PlanPart:
    """One folder of a plan, from this process's small cache or from the storage."""
    with _parts_lock:
        kept = _parts.get((storage.url, folder))
    if kept is not None:
        return kept
    part = read_part(storage, folder)
    keep_part(storage, part)
    return part


def keep_part(storage: Storage, part: PlanPart) -> None:
    """Have a part in this process's small cache: one that was read, or just written, which need not be read then."""
    with _parts_lock:
        _parts.put((storage.url, part.manifest.folder), part)


def forget_parts() -> None:
    """Empty this process's small cache, so that what nobody else holds is mapped no more."""
    with _parts_lock:
        _parts.clear()


def new_folder() -> str:
    """The name of a folder for a plan, or for a part of one."""
    return f"plans/{uuid.uuid4().hex}"


def is_written(storage: Storage, folder: str) -> bool:
    """Whether a folder holds a plan: its manifest was written last."""
    return storage.local(f"{folder}/{MANIFEST}").exists()


def read_part(storage: Storage, folder: str) -> PlanPart:
    """One folder of a plan from the storage, for those who see to it themselves what stays mapped."""
    try:
        return _read_part(storage, folder)
    except CorruptDataError:
        note_damaged(storage, folder)
        raise


def _read_part(storage: Storage, folder: str) -> PlanPart:
    manifest = read_manifest(storage, folder)
    files = {name: _array(storage, folder, name, file) for name, file in manifest.files.items()}
    arrays = {name: _cut(folder, files[place.file], place) for name, place in manifest.arrays.items()}
    layout = {name.removeprefix(LAYOUT): one for name, one in arrays.items() if name.startswith(LAYOUT)}
    try:
        logical, tombstones = LogicalPlan.stored(arrays, manifest.costs), arrays["tombstones"]
    except KeyError as error:
        raise CorruptDataError(f"{folder}/{MANIFEST} has no array {error.args[0]}") from error
    validate_queries(folder, logical, tombstones, len(logical.predicates))
    return PlanPart(manifest, logical, layout, tombstones)


def _cut(folder: str, array: Array, place: PlanArray) -> Array:
    size = place.count * np.dtype(place.type).itemsize
    if place.start + size > len(array):
        raise CorruptDataError(f"{folder}/{place.file} is shorter than its manifest says")
    if array.dtype != np.uint8 or place.start % _LINE:
        raise CorruptDataError(f"{folder}/{place.file} does not hold the arrays that its manifest names")
    return array[place.start : place.start + size].view(place.type)


def read_manifest(storage: Storage, folder: str) -> PlanManifest:
    """The manifest of a plan folder."""
    try:
        data = storage.read(f"{folder}/{MANIFEST}")
    except OSError as error:
        raise CorruptDataError(f"{folder}/{MANIFEST} cannot be read: {error}") from error
    return PlanManifest.from_json(folder, data)


def _array(storage: Storage, folder: str, name: str, file: PlanFile) -> Array:
    path = f"{folder}/{name}"
    try:
        local = storage.local(path)
        size = local.stat().st_size
        if size != file.size:
            raise CorruptDataError(f"{path} has {size} bytes, its manifest says {file.size}")
        _check_digest(path, local, file)
        mode = "r" if size > _MAPPED_ABOVE else None
        array: Array = np.load(local, mmap_mode=mode, allow_pickle=False)  # type: ignore[arg-type]
    except (OSError, ValueError, EOFError) as error:
        raise CorruptDataError(f"{path} cannot be read: {error}") from error
    # A plain view of the mapping: indexing numpy's own class for mapped files costs more than the work.
    array = np.asarray(array)
    if array.ndim != 1:
        raise CorruptDataError(f"{path} has {array.ndim} dimensions, not one")
    return array


def _check_digest(path: str, local: Path, file: PlanFile, *, again: bool = False) -> None:
    """Compare a file with the digest in its manifest, once per process unless the file changes.

    The file is read, not mapped: files that are seldom used must not take memory in every worker.
    """
    status = status_of(local)
    if not again and is_verified(local, status):
        return
    with local.open("rb", buffering=0) as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != file.sha256:
        raise CorruptDataError(f"{path} is damaged: its digest differs from the one in the manifest")
    note_verified(local, status)


def verify(storage: Storage, folder: str) -> None:
    """Read every file of a plan folder and compare its digest with the manifest's. Slow."""
    for name, file in read_manifest(storage, folder).files.items():
        path = f"{folder}/{name}"
        try:
            _check_digest(path, storage.local(path), file, again=True)
        except OSError as error:
            raise CorruptDataError(f"{path} cannot be read: {error}") from error
