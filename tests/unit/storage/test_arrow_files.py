"""Arrow and Parquet files: only files with a checksum in their names are read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from runnel.errors import CorruptDataError
from runnel.storage.arrow_files import read_arrow, read_parquet, write_arrow
from runnel.storage.file_storage import FileStorage


def test_a_file_without_a_checksum_in_its_name_is_refused(tmp_path: Path) -> None:
    storage = FileStorage(str(tmp_path))
    table = pa.table({"sequence": [1, 2, 3]})
    written = write_arrow(storage, "items/1.arrow", table.to_batches(), table.schema)
    assert read_arrow(storage, written.path) == table
    storage.write("items/copy.arrow", storage.local(written.path).read_bytes())
    for read in (read_arrow, read_parquet):
        with pytest.raises(CorruptDataError, match="its name contains no checksum"):
            read(storage, "items/copy.arrow")
