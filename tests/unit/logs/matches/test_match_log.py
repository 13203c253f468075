"""The match log: parts, ranges, and matches by query."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.logs.matches.match_files import match_records, write_part
from runnel.logs.matches.match_log import MatchLog
from runnel.model.match import Matches
from runnel.storage.file_storage import FileStorage


def test_matches_are_read_by_range_and_by_query(tmp_path: Path) -> None:
    catalog = Catalog(f"sqlite:///{tmp_path / 'catalog.sqlite'}")
    catalog.migrate()
    storage = FileStorage(tmp_path.as_uri())
    blocks = [
        match_records(np.arange(1, 4), Matches.of([[7, 8], [], [8]])),
        match_records(np.arange(4, 6), Matches.of([[], [9, 7]])),
    ]
    orphan = write_part(storage, 1, blocks, (1, 5))
    part = write_part(storage, 1, blocks, (1, 5))
    assert orphan.path != part.path
    with catalog.write() as connection:
        lease = leases.acquire(connection, 60)
        match_segments.commit_segment(connection, MatchSegment(1, 0, 1, 5, 1, 5, 5), [part], epoch=lease.epoch)
    log = MatchLog(catalog, storage)
    [rows] = log.read(0, 5)
    assert rows.sequences.tolist() == [1, 3, 5]
    assert [pair.tolist() for pair in rows.of_queries({7, 9})] == [[1, 5, 5], [7, 7, 9]]
    [rows] = log.read(1, 4)
    assert (rows.sequences.tolist(), rows.queries.tolist(), rows.offsets.tolist()) == ([3], [8], [0, 1])
    assert list(log.read(5, 9)) == []
    assert log.matched_upto() == 5
