"""Files of a root that only its user may read: what must not travel where others can see it."""

from __future__ import annotations

import os
import uuid

from runnel.storage.file_storage import Storage


def write_private(storage: Storage, name: str, text: str) -> None:
    """Write a text into a file that nobody else may read, in place of the one that was there."""
    path = storage.local(name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{uuid.uuid4().hex}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)
