"""The match log: the queries that each item satisfied, by range of sequences and by query.

Files are merged concurrently. If a file is gone, a reader reads the manifest again and continues after the last item
that it has read. Files with exactly the same sequences are *layers*: their matches are combined, and they are read
together or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from runnel.catalog.logs import match_segments as manifest
from runnel.catalog.logs.item_segments import kept_after
from runnel.catalog.logs.match_segments import KeptPart
from runnel.catalog.store.connection import Catalog
from runnel.errors import CorruptDataError
from runnel.logs.matches.match_files import MatchRows, SteppedRows, has_details, joined, read_part, read_steps
from runnel.logs.matches.query_index import QueryIndex
from runnel.model.annotation import Annotation
from runnel.model.bindings import Bindings
from runnel.storage.file_storage import Storage

if TYPE_CHECKING:
    from runnel.logs.matches.query_sequences import QuerySequences

__all__ = ["MatchLog", "MatchRows"]

logger = logging.getLogger("runnel")

_PARTS = 64
_NEAR = 20_000
"""Maximum gap between items that are read in one run of the log."""

_MAX_UNBOUND = 100_000
"""Maximum number of files that are remembered as having no bindings, or with the items that their matches joined."""

_NO_LIMIT = 1 << 62

Ids = npt.NDArray[np.int64]
Layers = tuple[KeptPart, ...]
_T = TypeVar("_T")


class MatchLog:
    """The committed matches of a workspace."""

    def __init__(self, catalog: Catalog, storage: Storage) -> None:
        self._catalog = catalog
        self._storage = storage
        self._unbound: set[str] = set()
        self._joined: dict[str, int | None] = {}
        """The lowest sequence that the matches of a file joined, by path."""

    def matched_upto(self) -> int:
        """Return the last sequence whose matches are committed."""
        with self._catalog.read() as connection:
            return manifest.matched_upto(connection)

    def read(self, after: int, upto: int) -> Iterator[MatchRows]:
        """Read the matches of the items in (after, upto], part by part, in order. Raise NotFoundError if they were
        deleted.
        """

        def rows_of(layers: Layers, behind: int) -> MatchRows:
            rows = [self._read(part).between(behind, upto).matched() for part in layers]
            return rows[0] if len(rows) == 1 else joined(rows)

        for rows in self._each(after, upto, rows_of):
            if len(rows.sequences):
                yield rows

    def of_queries(self, queries: Collection[int], after: int, upto: int) -> dict[int, Ids]:
        """Return the ascending sequences in (after, upto] of each of these queries, for queries with a match.

        Merged files have an index for queries that are read by query. For other queries, the matches are scanned.
        """
        ids = np.unique(np.fromiter(queries, dtype=np.int64, count=len(queries)))
        if not len(ids):
            return {}

        def matches_of(layers: Layers, behind: int) -> dict[int, Ids]:
            several = [self._of_part(part, ids, behind, upto) for part in layers]
            return several[0] if len(several) == 1 else _united(several)

        parts_by_query: dict[int, list[Ids]] = {}
        for by_query in self._each(after, upto, matches_of):
            for query, sequences in by_query.items():
                parts_by_query.setdefault(query, []).append(sequences)
        return {query: np.concatenate(parts) for query, parts in parts_by_query.items()}

    def matched_queries(self, after: int, upto: int) -> Ids:
        """Return the ascending queries with a match in (after, upto], without decoding or sorting the matches."""
        from runnel.logs.matches.query_sequences import matched_queries

        def queries_of(layers: Layers, behind: int) -> Ids:
            return matched_queries(self._read_steps(layers), behind, upto)

        ids = list(self._each(after, upto, queries_of))
        return np.unique(np.concatenate(ids)) if ids else np.empty(0, dtype=np.int64)

    def by_query(self, after: int, upto: int, limit: int) -> QuerySequences | None:
        """Return all matches in (after, upto] by query, or None if there are more than `most`."""
        from runnel.logs.matches.query_sequences import matched_queries, sequences_by_query

        rows: list[SteppedRows] = []
        for part_rows in self._each(after, upto, lambda layers, _: self._read_steps(layers)):
            rows += part_rows
            if sum(len(stepped.steps.steps) for stepped in rows) > limit:
                return None
        return sequences_by_query(rows, matched_queries(rows, after, upto), after, upto)

    def bindings(self, query: int, sequences: Collection[int]) -> dict[int, Bindings]:
        """Return the bindings of a query's matches with these items, if they have any."""
        bindings = self.bindings_of({query: sequences})
        return {sequence: rows for (_, sequence), rows in bindings.items()}

    def bindings_of(self, wanted: Mapping[int, Collection[int]]) -> dict[tuple[int, int], Bindings]:
        """Return the bindings of several queries' matches, by query and sequence."""
        return self._details_of(wanted, MatchRows.bindings_of)

    def annotations_of(self, wanted: Mapping[int, Collection[int]]) -> dict[tuple[int, int], tuple[Annotation, ...]]:
        """Return the annotations of several queries' matches, by query and sequence."""
        return self._details_of(wanted, MatchRows.annotations_of)

    def first_joined(self, after: int) -> int | None:
        """Return the lowest sequence of an item that matches of items after a sequence joined, or None.

        The results for whole files are remembered. Files never change.
        """

        def lowest(layers: Layers, behind: int) -> int | None:
            several = [self._first_joined(part, behind) for part in layers]
            return min((first for first in several if first is not None), default=None)

        return min((first for first in self._each(after, _NO_LIMIT, lowest) if first is not None), default=None)

    def _first_joined(self, part: KeptPart, after: int) -> int | None:
        is_whole = part.first_sequence > after
        if is_whole and part.path in self._joined:
            return self._joined[part.path]
        try:
            first = None if self._has_none(part) else self._read(part).between(after, _NO_LIMIT).first_joined()
        except CorruptDataError as error:
            # Its matches are lost, so nothing refers to the items that they joined.
            logger.warning("cannot read which items matches joined: %s", error)
            first = None
        if is_whole:
            self._joined = {} if len(self._joined) >= _MAX_UNBOUND else self._joined
            self._joined[part.path] = first
        return first

    def _details_of(
        self,
        wanted: Mapping[int, Collection[int]],
        details_of: Callable[[MatchRows, Mapping[int, Collection[int]]], Mapping[tuple[int, int], _T]],
    ) -> dict[tuple[int, int], _T]:
        """Return details of matches. Most files have none, which is remembered per file, so they are not read."""
        details: dict[tuple[int, int], _T] = {}
        queries: dict[int, set[int]] = {}
        for run in _runs(wanted.values()):
            for rows in self._with_details(run):
                queries = queries or _by_sequence(wanted)
                details |= details_of(rows, queries)
        return details

    def _with_details(self, run: Ids) -> Iterator[MatchRows]:
        """Read the matches around these items from the files that have details."""

        def rows_of(layers: Layers, behind: int) -> list[MatchRows]:
            low, high = np.searchsorted(run, [behind + 1, layers[0].last_sequence + 1])
            bound = [] if low == high else [part for part in layers if not self._has_none(part)]
            # A query's details are in the layer of its match, so layers need not be combined.
            return [self._read(part).between(behind, int(run[-1])) for part in bound]

        for several in self._each(int(run[0]) - 1, int(run[-1]), rows_of):
            yield from several

    def _has_none(self, part: KeptPart) -> bool:
        """Return whether a file has no details. Files never change."""
        if part.path in self._unbound:
            return True
        if has_details(self._storage, part.path):
            return False
        self._note_unbound(part)
        return True

    def _read(self, part: KeptPart) -> MatchRows:
        rows = read_part(self._storage, part.path)
        if rows.details is None:
            self._note_unbound(part)
        return rows

    def _read_steps(self, layers: Layers) -> list[SteppedRows]:
        stepped: list[SteppedRows] = []
        for part in layers:
            rows = read_steps(self._storage, part.path)
            if not any(part.has_details for part in rows):
                self._note_unbound(part)
            stepped += rows
        return stepped

    def _note_unbound(self, part: KeptPart) -> None:
        if len(self._unbound) >= _MAX_UNBOUND:
            self._unbound = set()
        self._unbound.add(part.path)

    def _of_part(self, part: KeptPart, wanted: Ids, after: int, upto: int) -> dict[int, Ids]:
        sequences: dict[int, Ids] = {}
        uncovered = wanted
        index = self._index(part)
        if index is not None:
            covered = index.covers(wanted)
            sequences = index.of_queries(wanted[covered], after, upto)
            uncovered = wanted[~covered]
        return sequences | self._scan(part, uncovered, after, upto) if len(uncovered) else sequences

    def _index(self, part: KeptPart) -> QueryIndex | None:
        """Return the index of a file, or None if it cannot be read; the matches are then scanned."""
        try:
            return None if part.by_query is None else QueryIndex(self._storage, part.by_query)
        except CorruptDataError as error:
            logger.warning("reading matches without their index: %s", error)
            return None

    def _scan(self, part: KeptPart, wanted: Ids, after: int, upto: int) -> dict[int, Ids]:
        """Find the matches of queries by scanning the steps of all matches."""
        # Imported here, because reads with an index do not need compiled code.
        from runnel.logs.matches.query_sequences import sequences_by_query

        return sequences_by_query(self._read_steps((part,)), wanted, after, upto).to_dict()

    def _each(self, after: int, upto: int, read_layers: Callable[[Layers, int], _T]) -> Iterator[_T]:
        """Yield the result of `read_layers` for the layers of each range of items, in order.

        Its second argument is the sequence after which matches are wanted.
        """
        position = after
        while position < upto:
            with self._catalog.read() as connection:
                first_kept = kept_after(connection, after and position)
                position = max(position, first_kept)
                parts = manifest.match_parts(connection, position, upto, limit=_PARTS)
            if not parts:
                return
            for last, group in groupby(parts, key=lambda part: part.last_sequence):
                layers = tuple(group)
                try:
                    result = read_layers(layers, position)
                except CorruptDataError:
                    if self._are_live(layers):
                        raise
                    break
                yield result
                position = last

    def _are_live(self, layers: Layers) -> bool:
        with self._catalog.read() as connection:
            return all(manifest.is_live(connection, part.path) for part in layers)


def _united(several: Sequence[Mapping[int, Ids]]) -> dict[int, Ids]:
    """Combine the sequences of queries in all layers. A sequence that occurs in several layers is counted once."""
    combined: dict[int, Ids] = {}
    for by_query in several:
        for query, sequences in by_query.items():
            combined[query] = np.union1d(combined[query], sequences) if query in combined else sequences
    return combined


def _runs(several: Iterable[Collection[int]]) -> list[Ids]:
    """Return all sequences in order, split where the gap to the next one is large.

    >>> [run.tolist() for run in _runs([[1, 90_000], [5, 1]])]
    [[1, 5], [90000]]
    """
    arrays = [np.fromiter(sequences, dtype=np.int64, count=len(sequences)) for sequences in several]
    ids = np.unique(np.concatenate(arrays)) if arrays else np.empty(0, dtype=np.int64)
    return np.split(ids, np.flatnonzero(np.diff(ids) > _NEAR) + 1) if len(ids) else []


def _by_sequence(wanted: Mapping[int, Collection[int]]) -> dict[int, set[int]]:
    """Return the wanted queries of each item."""
    queries: dict[int, set[int]] = {}
    for query, sequences in wanted.items():
        for sequence in sequences:
            queries.setdefault(sequence, set()).add(query)
    return queries
