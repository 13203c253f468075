"""The answer cache: answers in memory and in segments, and damaged segments."""

from __future__ import annotations

import hashlib
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.matching.operators.ask.answer_cache import AnswerCache
from runnel.matching.operators.ask.cache_files import CacheDraft, open_segment, write_segment
from runnel.matching.operators.plugins.encoding import to_bytes
from runnel.model.operator import HOLDS, Rows
from runnel.storage.file_storage import Storage, open_storage


def key(number: int) -> bytes:
    return hashlib.blake2b(str(number).encode(), digest_size=16).digest()


def rows(number: int) -> Rows:
    return ((f"item {number}", float(number), True, datetime(2026, 1, 2, tzinfo=UTC)),)


def draft(*numbers: int) -> CacheDraft:
    return CacheDraft(tuple((key(number), to_bytes(rows(number))) for number in numbers))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """The files of a workspace."""
    return open_storage(f"file://{tmp_path}")


def write_answers(storage: Storage, *numbers: int) -> str:
    segment = write_segment(storage, draft(*numbers))
    assert segment is not None
    assert segment.bytes == storage.local(segment.path).stat().st_size
    return segment.path


# --- in files ----------------------------------------------------------------------------------------------------


def test_answers_of_all_segments_are_found(storage: Storage) -> None:
    first, second = write_answers(storage, *range(100)), write_answers(storage, *range(90, 200))
    cache = AnswerCache()
    cache.use_segments(storage, [first, second])
    wanted = [key(number) for number in range(250)]
    assert cache.find(wanted) == {key(number): rows(number) for number in range(200)}
    cache.use_segments(storage, [])
    assert len(cache.find(wanted)) == 200, "the answers in memory remain"
    assert AnswerCache().find(wanted) == {}


def test_answers_without_rows_are_cached(storage: Storage) -> None:
    cache = AnswerCache()
    cache.add(key(1), ())
    cache.add(key(2), HOLDS)
    segment = write_segment(storage, cache.take_unsaved())
    assert segment is not None
    assert not cache.take_unsaved()
    other = AnswerCache()
    other.use_segments(storage, [segment.path])
    assert other.find([key(1), key(2), key(3)]) == {key(1): (), key(2): HOLDS}


def test_keys_that_end_in_zeros_are_distinct(storage: Storage) -> None:
    names = [bytes(16), b"\1" + bytes(15), b"\1" * 15 + b"\0", b"\1" * 16, b"\xff" * 16]
    segment = write_segment(storage, CacheDraft(tuple((name, to_bytes(((name.hex(),),))) for name in names)))
    assert segment is not None
    opened = open_segment(storage, segment.path)
    assert opened is not None
    results = dict(opened.find([*names, b"\2" + bytes(15)]))
    assert results == {index: ((name.hex(),),) for index, name in enumerate(names)}
    assert [name for name, _ in opened.stored()] == sorted(names)


def test_very_large_answers_are_not_written() -> None:
    cache = AnswerCache()
    cache.add(key(1), tuple((f"{number:04}" + "x" * 10_000,) for number in range(200)))
    assert not cache.take_unsaved()
    assert len(cache.find([key(1)])) == 1


def test_a_missing_segment_is_skipped(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    there = write_answers(storage, 1)
    cache = AnswerCache()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            cache.use_segments(storage, ["operators/cache/gone.arrow", there])
    assert len(caplog.records) == 1, "the warning is logged once"
    assert cache.find([key(1)]) == {key(1): rows(1)}


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_a_damaged_segment_returns_correct_answers_or_none(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    storage = open_storage(f"file://{tmp_path_factory.mktemp('workspace')}")
    path = storage.local(write_answers(storage, *range(20)))
    content = bytearray(path.read_bytes())
    match data.draw(st.sampled_from(["cut", "flip", "fill"])):
        case "cut":
            content = content[: data.draw(st.integers(0, len(content) - 1))]
        case "flip":
            for _ in range(data.draw(st.integers(1, 5))):
                content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        case _:
            start = data.draw(st.integers(0, len(content) - 1))
            content[start : start + 200] = bytes(len(content[start : start + 200]))
    path.write_bytes(content)
    cache = AnswerCache()
    cache.use_segments(storage, [path.relative_to(storage.local("")).as_posix()])
    for name, value in cache.find([key(number) for number in range(25)]).items():
        assert value in [rows(number) for number in range(20) if key(number) == name]


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"\0" * 5_000, b'{"a": 1}'])
def test_a_file_that_is_not_a_segment_is_skipped(content: bytes, storage: Storage) -> None:
    storage.write("operators/cache/other.arrow", content)
    assert open_segment(storage, "operators/cache/other.arrow") is None


def test_concurrent_writers_create_distinct_segments(storage: Storage) -> None:
    def write_many(first: int) -> list[str]:
        return [write_answers(storage, number, number + 1) for number in range(first, first + 10)]

    with ThreadPoolExecutor(3) as writers:
        paths = [path for written in writers.map(write_many, (0, 0, 10)) for path in written]
    assert len(set(paths)) == 30
    cache = AnswerCache()
    cache.use_segments(storage, paths)
    assert cache.find([key(number) for number in range(30)]) == {key(number): rows(number) for number in range(21)}
