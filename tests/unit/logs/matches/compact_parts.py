"""Compaction of the match log in one go, as tests want it."""

from __future__ import annotations

from collections.abc import Collection

from runnel.catalog.store.connection import Catalog
from runnel.logs.matches.compaction import compaction_steps
from runnel.storage.file_storage import Storage


def compact_matches(catalog: Catalog, storage: Storage, *, epoch: int, asked: Collection[int] = ()) -> int:
    """Merge parts where it is due, all of them; gives how many were merged into others."""
    return sum(len(run.pieces) for run in compaction_steps(catalog, storage, epoch=epoch, asked=asked))
