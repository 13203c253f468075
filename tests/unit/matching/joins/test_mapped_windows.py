"""Files of windows are mapped into memory, and damaged ones are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.windows_ours import OurPlan
from benchmarks.windows_workload import SIMILAR, make_workload, one_join

from runnel.errors import CorruptDataError
from runnel.matching.joins.window_items import WindowItems
from runnel.storage.file_storage import FileStorage
from runnel.streaming.window_store import read_segment, write_segment


@pytest.fixture(scope="module")
def window() -> WindowItems:
    workload = make_workload(2_000, 10, 1, 7)
    ours = OurPlan(one_join(SIMILAR, 2_000))
    ours.fill(workload.photo_batches())
    assert ours.windows is not None
    return ours.windows


def test_a_file_is_mapped_and_not_copied(window: WindowItems, tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    segment = write_segment(storage, window)
    before = pa.total_allocated_bytes()
    stored = read_segment(storage, segment.path)
    assert pa.total_allocated_bytes() - before < segment.bytes / 10
    assert np.array_equal(stored.sequences, window.sequences)
    assert stored.identity(7) == window.identity(7)


def test_a_file_without_rows_is_refused(window: WindowItems) -> None:
    empty = pa.Table.from_batches([], schema=window.to_records().schema)
    with pytest.raises(CorruptDataError, match="unknown format"):
        WindowItems.from_table(empty)
