"""JSON lines: each line exactly once, whatever a crash left at the end of the file."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runnel.errors import DeliveryError, StorageFullError
from runnel.model.item import Item
from runnel.sinks.files import lines_file
from runnel.sinks.files.lines_file import JsonLinesFile
from runnel.sinks.match_log_only import MatchLogOnly

Make = Callable[..., Any]
SINK = JsonLinesFile()


def ids(path: Path) -> list[str]:
    data = path.read_bytes()
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line)["id"] for line in data.splitlines()]


def test_line_contains_all_data_of_the_item(make_delivery: Make, tmp_path: Path) -> None:
    moment = datetime(2026, 11, 14, tzinfo=UTC)
    item = Item("News", "a", {"title": ("é🎸\n",), "n": (1.5, True), "published": (moment,)}, 2, 7, moment)
    assert SINK.deliver(make_delivery("a.jsonl", item)) == "1 lines added to a.jsonl"
    (line,) = (tmp_path / "out" / "a.jsonl").read_text().splitlines()
    assert json.loads(line) == {
        "message": "m1",
        "matched": "RockConcerts",
        "sent": "2026-11-15T09:30:00+00:00",
        "feed": "News",
        "id": "a",
        "version": 2,
        "sequence": 7,
        "accepted": "2026-11-14T00:00:00+00:00",
        "attributes": {"title": ["é🎸\n"], "n": [1.5, True], "published": ["2026-11-14T00:00:00+00:00"]},
    }


def test_messages_are_appended_once(make_item: Make, make_delivery: Make, tmp_path: Path) -> None:
    first = make_delivery("a", make_item("a", 1), make_item("b", 2))
    second = make_delivery("a", make_item("a", 3, 2), key="m2")
    SINK.deliver(first)
    SINK.deliver(second)
    assert SINK.deliver(second) == "nothing new"
    assert SINK.deliver(first) == "nothing new"
    assert ids(tmp_path / "out" / "a") == ["a", "b", "a"]


@pytest.mark.parametrize("title", ["short", "x" * 5000])
def test_incomplete_end_of_any_length_is_repaired(
    title: str, make_item: Make, make_delivery: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_file, "WINDOW", 512)
    path = tmp_path / "out" / "a"
    SINK.deliver(make_delivery("a", make_item("a", 1), key="m0"))
    before = path.read_bytes()
    message = make_delivery("a", *(make_item(f"b{n}", n, title=title) for n in range(2, 5)))
    SINK.deliver(message)
    whole = path.read_bytes()
    cuts = range(len(before), len(whole) + 1) if len(whole) < 2000 else range(len(before), len(whole) + 1, 97)
    for cut in cuts:
        path.write_bytes(whole[:cut])
        SINK.deliver(message)
        assert path.read_bytes() == whole


def test_incomplete_first_line_is_repaired(make_item: Make, make_delivery: Make, tmp_path: Path) -> None:
    path = tmp_path / "out" / "a"
    message = make_delivery("a", make_item("a", 1))
    SINK.deliver(message)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert "foreign" not in SINK.deliver(message)
        assert path.read_bytes() == whole


def test_lines_longer_than_the_search_window_are_found(
    make_item: Make, make_delivery: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_file, "WINDOW", 64)
    message = make_delivery("a", *(make_item(str(n), n, title="y" * 1000) for n in range(1, 9)))
    SINK.deliver(message)
    assert SINK.deliver(message) == "nothing new"
    assert len(ids(tmp_path / "out" / "a")) == 8


def test_file_not_written_by_runnel_is_renamed(make_item: Make, make_delivery: Make, tmp_path: Path) -> None:
    path = tmp_path / "out" / "a"
    path.parent.mkdir()
    path.write_text("my notes\n")
    assert "a.foreign-1" in SINK.deliver(make_delivery("a", make_item("a", 1)))
    assert (path.parent / "a.foreign-1").read_text() == "my notes\n"
    assert ids(path) == ["a"]


@pytest.mark.parametrize(("number", "error"), [(errno.ENOSPC, StorageFullError), (errno.EIO, DeliveryError)])
def test_failed_write_is_rolled_back(
    number: int, error: type[Exception], make_item: Make, make_delivery: Make, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tmp_path / "out" / "a"
    SINK.deliver(make_delivery("a", make_item("a", 1)))
    old = path.read_bytes()
    original = os.write
    calls = 0

    def half(handle: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(number, os.strerror(number))
        return original(handle, data[: len(data) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(error):
            SINK.deliver(make_delivery("a", make_item("b", 2), key="m2"))
    assert calls == 2
    assert path.read_bytes() == old


def test_output_log_delivers_nothing(make_item: Make, make_delivery: Make, tmp_path: Path) -> None:
    assert MatchLogOnly().deliver(make_delivery(None, make_item("a", 1))) == "kept in the match log"
    assert not (tmp_path / "out").exists()
