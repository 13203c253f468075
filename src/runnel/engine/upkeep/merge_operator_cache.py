"""Keep the operator cache small: merge small files into larger ones, and drop the oldest answers.

Files of consecutive age are merged up to a sixteenth of the cache's maximum size, so that dropping the oldest file
drops few answers. Every step is one transaction that checks the runner's epoch. A crash before it leaves an orphan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runnel.catalog.learned import operator_cache
from runnel.catalog.learned.operator_cache import LiveSegment
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.matching.operators.ask.cache_files import open_segment, write_stored
from runnel.storage.file_storage import Storage

AT_LEAST = 8
"""Minimum number of neighboring files to merge."""

_PARTS = 16


def cache_steps(
    catalog: Catalog, storage: Storage, *, epoch: int, most_bytes: int, at_least: int = AT_LEAST
) -> Iterator[int]:
    """Drop the oldest files beyond `most_bytes`, then merge small files. Yield the number of files of each step."""
    dropped = _drop(catalog, epoch, most_bytes)
    if dropped:
        yield dropped
    while True:
        with catalog.read() as connection:
            run = next_run(operator_cache.live_segments(connection), most_bytes // _PARTS, at_least)
        if not run:
            return
        if not _merge(catalog, storage, epoch, run):
            return
        yield len(run)


def next_run(live: Sequence[LiveSegment], largest: int, at_least: int = AT_LEAST) -> list[LiveSegment]:
    """Return the next neighboring files to merge: at least `at_least`, with at most `largest` bytes together.

    None of them has more than half of the bytes, so that a large file is not rewritten for a few small ones.

    >>> live = [LiveSegment(n, str(n), size, 1, n) for n, size in enumerate((90, 5, 5, 5, 90))]
    >>> [one.id for one in next_run(live, 150, at_least=3)]
    [1, 2, 3]
    """
    sizes = [segment.bytes for segment in live]
    for end in range(len(live), at_least - 1, -1):
        total, heaviest, best = 0, 0, 0
        for start in range(end - 1, -1, -1):
            total, heaviest = total + sizes[start], max(heaviest, sizes[start])
            if total > largest:
                break
            if end - start >= at_least and 2 * heaviest <= total:
                best = end - start
        if best:
            return list(live[end - best : end])
    return []


def _drop(catalog: Catalog, epoch: int, most_bytes: int) -> int:
    with catalog.read() as connection:
        live = operator_cache.live_segments(connection)
    surplus = sum(segment.bytes for segment in live) - most_bytes
    old: list[LiveSegment] = []
    while surplus > 0:
        old.append(live[len(old)])
        surplus -= old[-1].bytes
    if not old:
        return 0
    with catalog.write() as connection:
        leases.check(connection, epoch)
        return operator_cache.retire_segments(connection, old)


def _merge(catalog: Catalog, storage: Storage, epoch: int, run: Sequence[LiveSegment]) -> bool:
    opened = [open_segment(storage, segment.path) for segment in run]
    # Drop an unreadable file with its row, so that it is not reported again.
    merged = write_stored(storage, (entry for segment in opened if segment is not None for entry in segment.stored()))
    with catalog.write() as connection:
        leases.check(connection, epoch)
        live = {segment.id for segment in operator_cache.live_segments(connection)}
        if not all(segment.id in live for segment in run):
            return False  # another process removed them; the new file is an orphan
        operator_cache.retire_segments(connection, run)
        if merged is not None:
            operator_cache.add_segments(connection, [merged], created=run[-1].created)
    return True
