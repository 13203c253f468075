"""Configurations: the settings of a registration in, checked values and the bytes of the files they name out.

What is set is text from a statement. A key that the operator does not know is refused, since it is mostly a slip.
Files are read from the operators' folder alone: no name leads out of it, and none into `private`, the secrets' own.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.plugins.contract import OperatorContext

PRIVATE = "private"
"""The folder, below that of the operators' files, in which their secrets lie."""

IN_TIME = 0.9
"""The part of an operator's time limit that its own work may take: what is known by then is still handed over."""

MAX_SECRET = 4096
_MAX_NAME = 1024


class Configuration:
    """The settings of one operator, read key by key.

    >>> configuration = Configuration("distance", OperatorContext({"places": "places.csv"}), ("places", "name"))
    >>> configuration.text("places"), configuration.text("name", "name")
    ('places.csv', 'name')
    >>> Configuration("distance", OperatorContext({"place": "a"}), ("places",))
    Traceback (most recent call last):
    runnel.errors.OperatorRefusedError: distance: there is no setting 'place' (it has: places)
    """

    def __init__(self, operator: str, place: OperatorContext, keys: Collection[str]) -> None:
        self.operator = operator
        self._settings = place.configuration
        self._folder = place.folder
        for key in place.configuration:
            if key not in keys:
                known = ", ".join(sorted(keys)) or "none"
                raise self.refused(f"there is no setting {key[:80]!r}", hint=f"it has: {known}")

    def refused(self, message: str, *, key: str = "", hint: str | None = None) -> OperatorRefusedError:
        """The error for a configuration that cannot be used, at a key of it."""
        place = f"{self.operator}, {key}" if key else self.operator
        return OperatorRefusedError(message, place=place, hint=hint)

    def has(self, key: str) -> bool:
        """Whether something is set."""
        return bool(self._settings.get(key, "").strip())

    def text(self, key: str, default: str | None = None, *, hint: str | None = None) -> str:
        """A text; without a default it must be set."""
        value = self._settings.get(key, "").strip()
        if value:
            return value
        if default is None:
            raise self.refused("this must be set", key=key, hint=hint or f"with ({key} '…')")
        return default

    def names(self, key: str, default: str | None = None) -> tuple[str, ...]:
        """Names, with commas between them."""
        found = tuple(name for one in self.text(key, default).split(",") if (name := one.strip()))
        if len(set(found)) < len(found):
            raise self.refused("a name stands there twice", key=key)
        return found

    def one_of(self, key: str, choices: Collection[str], default: str) -> str:
        """One of some words."""
        found = self.text(key, default)
        if found not in choices:
            raise self.refused(f"{found[:80]!r} is not known", key=key, hint=f"one of: {', '.join(choices)}")
        return found

    def number(self, key: str, default: float, *, least: float, most: float) -> float:
        """A number within limits."""
        try:
            found = float(self.text(key, repr(default)))
        except ValueError:
            found = math.nan
        if not least <= found <= most:
            raise self.refused("this is not a number that fits", key=key, hint=f"from {least:g} to {most:g}")
        return found

    def whole(self, key: str, default: int, *, least: int, most: int) -> int:
        """A number without a fraction, within limits."""
        found = self.number(key, default, least=least, most=most)
        if found != int(found):
            raise self.refused("this is not a whole number", key=key)
        return int(found)

    def read(self, key: str, most: int) -> bytes:
        """The bytes of the file that is named, from below the operators' folder."""
        name = self.text(key, hint=f"with ({key} 'name of a file in the operators' folder')")
        if PurePosixPath(name).parts[:1] == (PRIVATE,):
            raise self.refused(f"files in {PRIVATE} are not for this", key=key, hint="keep the file elsewhere")
        return self._read(key, "", name, most)

    def secret(self, key: str) -> str:
        """The secret that lies in a file of `private`: never in a statement, where others may read it."""
        data = self._read(key, PRIVATE, self.text(key), MAX_SECRET)
        try:
            found = data.decode("ascii").strip()
        except UnicodeDecodeError:
            found = ""
        if not found.isprintable() or not found:
            raise self.refused("the file has no secret on one line", key=key, hint="plain characters of ASCII")
        return found

    def _read(self, key: str, below: str, name: str, most: int) -> bytes:
        if self._folder is None:
            raise self.refused("this place has no folder for files", key=key)
        parts = PurePosixPath(name).parts
        if len(name) > _MAX_NAME or not parts or "\0" in name or ".." in parts or parts[0] == "/":
            where = below or "the operators' folder"
            raise self.refused(f"{name[:80]!r} is not the name of a file in {where}", key=key)
        try:
            home = (self._folder / below).resolve(strict=True)
            path = (home / name).resolve(strict=True)
            if not path.is_relative_to(home) or (not below and path.is_relative_to(home / PRIVATE)):
                raise self.refused(f"{name[:80]!r} leads out of its folder", key=key, hint="copy the file there")
            return self._bytes(key, path, name, most)
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it leads round in a circle"
            raise self.refused(f"{name[:80]!r} cannot be read: {reason}", key=key) from error

    def _bytes(self, key: str, path: Path, name: str, most: int) -> bytes:
        # Without following links and without waiting for a pipe: what was checked may have been exchanged since.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self.refused(f"{name[:80]!r} is not a file", key=key)
            data = file.read(most + 1)
        if len(data) > most:
            raise self.refused(f"{name[:80]!r} has more than {most} bytes", key=key)
        return data
