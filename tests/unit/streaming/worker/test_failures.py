"""The runner reads the original error from a Spark traceback, even if other text in it looks like a record."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.errors import (
    CatalogUnavailableError,
    CorruptDataError,
    FencedError,
    LineageConflictError,
    NotFoundError,
    ReadOnlyError,
    RunnelError,
    StorageFullError,
)
from runnel.storage.checksums import write_with_checksum
from runnel.storage.file_storage import FileStorage
from runnel.streaming.worker.failures import Failure, ReportedError, read_failure, reporting_failures
from runnel.streaming.worker.match_job import match_slices

_KINDS = (
    CatalogUnavailableError,
    CorruptDataError,
    FencedError,
    LineageConflictError,
    ReadOnlyError,
    StorageFullError,
)


def _traceback_of(storage_url: str, error: Exception) -> str:
    """Return the traceback that Spark receives for an error."""
    with pytest.raises(ReportedError) as caught, reporting_failures(storage_url):
        raise error
    return "".join(traceback.format_exception(caught.value))


@given(st.sampled_from(_KINDS), st.text(max_size=200), st.text(max_size=50), st.text(max_size=50))
def test_kind_and_message_of_an_error_are_read_back(
    kind: type[RunnelError], message: str, before: str, after: str
) -> None:
    text = before + _traceback_of("file:///nowhere", kind(message, hint="a hint")) + after
    failure = read_failure(Exception(text))
    assert failure is not None
    assert type(failure.error()) is kind
    assert failure.error().message == message
    assert failure.damaged == ()


@given(st.text(max_size=200), st.sampled_from(_KINDS))
def test_record_inside_an_error_message_is_ignored(message: str, kind: type[RunnelError]) -> None:
    spoofed = f"{message}\n{Failure.of(kind('spoofed')).line()}\n"
    failure = read_failure(Exception(_traceback_of("file:///nowhere", ValueError(spoofed))))
    assert failure is not None
    assert failure.kind == "RunnelError"
    assert "spoofed" in failure.message


def test_unknown_kinds_of_errors_become_runnel_errors() -> None:
    assert Failure.of(OSError(errno.ENOSPC, "No space left on device")).kind == "StorageFullError"
    assert Failure.of(OSError(errno.EIO, "Input/output error")).kind == "RunnelError"
    assert Failure.of(NotFoundError("x")).kind == "RunnelError"
    assert len(Failure.of(ValueError("x" * 5_000)).message) == 1_000
    for text in (
        "",
        "runnel-failure ",
        "runnel-failure []",
        'runnel-failure {"kind": "Exit", "message": "", "damaged": []}',
    ):
        assert read_failure(Exception(text)) is None


def test_report_contains_the_damaged_file(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    path = write_with_checksum(storage, "items/log/1.arrow", b"not Arrow").path
    storage.local(path).write_bytes(b"not arrow")
    row = {"tier": "live", "path": path, "first_row": 0, "rows": 1, "first_sequence": 1, "accepted": 0}
    row |= {"plan": 1, "base": "plans/1", "delta": None, "removed": [], "distribution": None, "operators": None}

    class Batch:
        def to_pylist(self) -> list[dict[str, object]]:
            return [row]

    with pytest.raises(ReportedError) as caught:
        list(match_slices(storage.url, 1)(iter([Batch()])))
    failure = read_failure(caught.value)
    assert failure is not None
    assert (failure.kind, failure.damaged) == ("CorruptDataError", (path,))
