"""JSON lines: an append-only file with one line per matching item version.

In: a delivery. Out: its lines at the end of the file, each exactly once. A crash may leave part of a message's lines,
the last one incomplete. The message then comes again with the same key. Its lines are searched at the end of the
file, an incomplete line is cut off, and only missing lines are added.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runnel.model.item import Item
from runnel.private_files import FILE_MODE
from runnel.sinks.contract import DeliveredItem, Delivery, LocalSink
from runnel.sinks.files.targets import TargetFile, check_target, open_target
from runnel.sinks.files.whole_file import rename_aside, require_regular, write_all
from runnel.sinks.show_annotations import annotations_json, attributes_json
from runnel.sinks.show_bindings import bindings_json

WINDOW = 1 << 20
"""How far from the end of the file, in bytes, the message's lines are searched behind lines of other messages."""

_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_BEGIN = b'{"message":'


class JsonLinesFile(LocalSink):
    """A file of JSON lines."""

    kind = "jsonl"
    owns_target = True

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """Return the path of the file below the workspace's out folder."""
        return check_target(target, folder / "out", allowed)

    def deliver(self, delivery: Delivery) -> str:
        """Add the lines that the file does not contain yet."""
        with open_target(delivery.subscription.target, delivery.out, delivery.allowed) as file:
            aside = rename_aside(file) if _is_foreign(file) else None
            handle, is_new = _open(file)
            try:
                size = _whole_lines(handle)
                written = _written(handle, size, delivery.key)
                lines = [
                    _line(delivered, delivery)
                    for delivered in delivery.items
                    if _identity(delivered.item) not in written
                ]
                _append(handle, size, b"".join(lines))
            finally:
                os.close(handle)
            if is_new:
                os.fsync(file.folder)
        note = f"; the file that was there is now {aside}" if aside else ""
        return f"{len(lines)} lines added to {file.path.name}{note}" if lines else "nothing new"


def _open(file: TargetFile) -> tuple[int, bool]:
    """Open the file for reading and writing. Return also whether it was created now."""
    try:
        handle = os.open(file.name, _OPEN | os.O_EXCL, FILE_MODE, dir_fd=file.folder)
        os.fchmod(handle, file.mode)
        return handle, True
    except FileExistsError:
        handle = os.open(file.name, _OPEN, FILE_MODE, dir_fd=file.folder)
        require_regular(handle, file)
        return handle, False


def _is_foreign(file: TargetFile) -> bool:
    """Return whether the file does not begin like a file of ours. An empty file is not foreign."""
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
    """Return the size of the file up to the end of its last complete line."""
    end = os.fstat(handle).st_size
    while end > 0:
        start = max(0, end - WINDOW)
        newline = os.pread(handle, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _written(handle: int, size: int, key: str) -> set[tuple[str, str, int]]:
    """Return the items of the message whose lines are at the end of the file.

    The lines of a message are contiguous, so the search continues backwards while it finds them, and one window
    further.
    """
    begin = _BEGIN + json.dumps(key, ensure_ascii=False).encode("utf-8", "replace") + b","
    identities: set[tuple[str, str, int]] = set()
    end, carry = size, b""
    while end > 0:
        start = max(0, end - WINDOW)
        first, *lines = (os.pread(handle, end - start, start) + carry).split(b"\n")
        if start == 0:
            lines.insert(0, first)
        matching = [line for line in lines if line.startswith(begin)]
        identities.update(filter(None, map(_line_identity, matching)))
        if any(lines) and not matching and end < size:
            break
        end, carry = start, first
    return identities


def _line_identity(line: bytes) -> tuple[str, str, int] | None:
    """Return the item version of a line of ours."""
    try:
        record = json.loads(line)
        return record["feed"], record["id"], record["version"]
    except (ValueError, KeyError, RecursionError):
        return None


def _append(handle: int, size: int, data: bytes) -> None:
    """Write after the last complete line. If the write fails, truncate the file to its previous size."""
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
    """Return an item as a JSON value, for files of JSON lines and for webhooks."""
    item = delivered.item
    return {
        "feed": item.feed,
        "id": item.id,
        "version": item.version,
        "sequence": item.sequence,
        "accepted": item.time.isoformat() if item.time else None,
        "attributes": attributes_json(item.attributes),
        **bindings_json(delivered.bindings),
        **annotations_json(delivered.annotations),
    }


def _safe(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
