"""Errors of Spark's Python processes: what the runner reads is what happened, whatever texts are around it."""

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
from runnel.storage.checksums import write_sealed
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


def _raised(storage_url: str, error: Exception) -> str:
    """The text that Spark gets to see."""
    with pytest.raises(ReportedError) as caught, reporting_failures(storage_url):
        raise error
    return "".join(traceback.format_exception(caught.value))


@given(st.sampled_from(_KINDS), st.text(max_size=200), st.text(max_size=50), st.text(max_size=50))
def test_an_error_is_read_as_it_was_raised(kind: type[RunnelError], message: str, before: str, after: str) -> None:
    text = before + _raised("file:///nowhere", kind(message, hint="a hint")) + after
    found = read_failure(Exception(text))
    assert found is not None
    assert type(found.error()) is kind
    assert found.error().message == message
    assert found.damaged == ()


@given(st.text(max_size=200), st.sampled_from(_KINDS))
def test_a_message_that_looks_like_a_record_is_none(message: str, kind: type[RunnelError]) -> None:
    spoofed = f"{message}\n{Failure.of(kind('spoofed')).line()}\n"
    found = read_failure(Exception(_raised("file:///nowhere", ValueError(spoofed))))
    assert found is not None
    assert found.kind == "RunnelError"
    assert "spoofed" in found.message


def test_other_errors_are_told_apart_as_far_as_the_runner_needs() -> None:
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


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path.as_uri())
    path = write_sealed(storage, "items/log/1.arrow", b"not Arrow").path
    storage.local(path).write_bytes(b"not arrow")
    row = {"tier": "live", "path": path, "first_row": 0, "rows": 1, "first_sequence": 1, "accepted": 0}
    row |= {"plan": 1, "base": "plans/1", "delta": None, "removed": [], "distribution": None, "operators": None}

    class Batch:
        def to_pylist(self) -> list[dict[str, object]]:
            return [row]

    with pytest.raises(ReportedError) as caught:
        list(match_slices(storage.url, 1)(iter([Batch()])))
    found = read_failure(caught.value)
    assert found is not None
    assert (found.kind, found.damaged) == ("CorruptDataError", (path,))
