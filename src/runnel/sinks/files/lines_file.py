"""JSON lines: a file that only grows, one line for each version of an item that matched.

In: a delivery. Out: its lines at the end of the file, each exactly once. A crash may leave some of a message's lines,
the last one torn; the message then comes again with the same key, so its lines are looked for at the end of the
file, what is torn is cut off, and only what is missing is added.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from runnel.model.item import Item, Value
from runnel.private_files import FILE_MODE
from runnel.sinks.contract import DeliveredItem, Delivery, LocalSink
from runnel.sinks.files.targets import TargetFile, check_target, open_target
from runnel.sinks.files.whole_file import rename_aside, require_regular, write_all
from runnel.sinks.show_bindings import bindings_json

WINDOW = 1 << 20
"""How far back from the end, in bytes, lines of the message are looked for even behind lines of others."""

_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BEGIN = b'{"message":'


class JsonLinesFile(LocalSink):
    """A file of JSON lines."""

    kind = "jsonl"
    owns_target = True

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """The path of the file below the workspace's out folder."""
        return check_target(target, folder / "out", allowed)

    def deliver(self, delivery: Delivery) -> str:
        """Add the lines that are not there yet."""
        with open_target(delivery.subscription.target, delivery.out, delivery.allowed) as file:
            aside = rename_aside(file) if _is_foreign(file) else None
            handle, made = _open(file)
            try:
                size = _whole_lines(handle)
                written = _written(handle, size, delivery.key)
                lines = [_line(one, delivery) for one in delivery.items if _identity(one.item) not in written]
                _append(handle, size, b"".join(lines))
            finally:
                os.close(handle)
            if made:
                os.fsync(file.folder)
        note = f"; the file that was there is now {aside}" if aside else ""
        return f"{len(lines)} lines added to {file.path.name}{note}" if lines else "nothing new"


def _open(file: TargetFile) -> tuple[int, bool]:
    """The file for reading and writing, and whether it was made now."""
    try:
        handle = os.open(file.name, _OPEN | os.O_EXCL, FILE_MODE, dir_fd=file.folder)
        os.fchmod(handle, file.mode)
        return handle, True
    except FileExistsError:
        handle = os.open(file.name, _OPEN, FILE_MODE, dir_fd=file.folder)
        require_regular(handle, file)
        return handle, False


def _is_foreign(file: TargetFile) -> bool:
    """Whether the file begins otherwise than ours do; an empty one is nobody's."""
    try:
        handle = os.open(file.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=file.folder)
    except FileNotFoundError:
        return False
    try:
        require_regular(handle, file)
        begin = os.pread(handle, len(_BEGIN), 0)
        return not _BEGIN.startswith(begin)
    finally:
        os.close(handle)


def _whole_lines(handle: int) -> int:
    """The size of the file up to the end of its last whole line."""
    end = os.fstat(handle).st_size
    while end > 0:
        start = max(0, end - WINDOW)
        found = os.pread(handle, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _written(handle: int, size: int, key: str) -> set[tuple[str, str, int]]:
    """Which items of the message the end of the file holds.

    Its lines stand together, so the search goes back as long as it finds them, and a window further.
    """
    begin = _BEGIN + json.dumps(key, ensure_ascii=False).encode("utf-8", "replace") + b","
    found: set[tuple[str, str, int]] = set()
    end, rest = size, b""
    while end > 0:
        start = max(0, end - WINDOW)
        first, *lines = (os.pread(handle, end - start, start) + rest).split(b"\n")
        if start == 0:
            lines.insert(0, first)
        matching = [line for line in lines if line.startswith(begin)]
        found.update(filter(None, map(_line_identity, matching)))
        if any(lines) and not matching and end < size:
            break
        end, rest = start, first
    return found


def _line_identity(line: bytes) -> tuple[str, str, int] | None:
    """Which item version a line of ours holds."""
    try:
        record = json.loads(line)
        return record["feed"], record["id"], record["version"]
    except (ValueError, KeyError, RecursionError):
        return None


def _append(handle: int, size: int, data: bytes) -> None:
    """Write at the end of the whole lines; what cannot be written whole is taken back."""
    if os.fstat(handle).st_size > size:
        os.ftruncate(handle, size)
        os.fsync(handle)
    if not data:
        return
    try:
        os.lseek(handle, size, os.SEEK_SET)
        write_all(handle, data)
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        raise


def _identity(item: Item) -> tuple[str, str, int]:
    return _safe(item.feed), _safe(item.id), item.version


def _line(delivered: DeliveredItem, delivery: Delivery) -> bytes:
    head = {"message": delivery.key, "matched": delivery.feed_name, "sent": delivery.sent.isoformat()}
    record = head | item_json(delivered)
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def item_json(delivered: DeliveredItem) -> dict[str, Any]:
    """An item as a JSON value, in files of JSON lines and in webhooks."""
    item = delivered.item
    return {
        "feed": item.feed,
        "id": item.id,
        "version": item.version,
        "sequence": item.sequence,
        "accepted": item.time.isoformat() if item.time else None,
        "attributes": {name: [_plain(value) for value in values] for name, values in item.attributes.items()},
        **bindings_json(delivered.bindings),
    }


def _plain(value: Value) -> str | float | bool:
    return value.isoformat() if isinstance(value, datetime) else value


def _safe(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
