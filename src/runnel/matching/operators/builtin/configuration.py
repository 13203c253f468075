"""Read the configuration of a built-in operator. In: options of a registration. Out: checked values, file contents.

Options are texts from a statement. An option that the operator does not have is refused, because it is usually a
typing error. Files are read only from the operators' folder, but not from its subfolder `private`, which is for
secrets.
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
"""The subfolder of the operators' folder that contains their secrets."""

WORK_SHARE = 0.9
"""The fraction of its time limit that an operator uses for its own work, so that answers still arrive in time."""

MAX_SECRET_BYTES = 4096
_MAX_NAME = 1024


class Configuration:
    """The options of one operator's registration.

    >>> configuration = Configuration("distance", OperatorContext({"places": "places.csv"}), ("places", "name"))
    >>> configuration.text("places"), configuration.text("name", "name")
    ('places.csv', 'name')
    >>> Configuration("distance", OperatorContext({"place": "a"}), ("places",))
    Traceback (most recent call last):
    runnel.errors.OperatorRefusedError: distance: there is no option 'place' (options: places)
    """

    def __init__(self, operator: str, context: OperatorContext, keys: Collection[str]) -> None:
        self.operator = operator
        self._options = context.configuration
        self._folder = context.folder
        for key in context.configuration:
            if key not in keys:
                known = ", ".join(sorted(keys)) or "none"
                raise self.error(f"there is no option {key[:80]!r}", hint=f"options: {known}")

    def error(self, message: str, *, key: str = "", hint: str | None = None) -> OperatorRefusedError:
        """Return an error about the configuration. `key` is the option that is wrong."""
        place = f"{self.operator}, {key}" if key else self.operator
        return OperatorRefusedError(message, place=place, hint=hint)

    def has(self, key: str) -> bool:
        """Return whether an option is set and not blank."""
        return bool(self._options.get(key, "").strip())

    def text(self, key: str, default: str | None = None, *, hint: str | None = None) -> str:
        """Read a text. An option without a default is required."""
        value = self._options.get(key, "").strip()
        if value:
            return value
        if default is None:
            raise self.error("this option is required", key=key, hint=hint or f"add: with ({key} '…')")
        return default

    def names(self, key: str, default: str | None = None) -> tuple[str, ...]:
        """Read a list of distinct names, separated by commas."""
        names = tuple(name for part in self.text(key, default).split(",") if (name := part.strip()))
        if len(set(names)) < len(names):
            raise self.error("names must be distinct", key=key)
        return names

    def one_of(self, key: str, choices: Collection[str], default: str) -> str:
        """Read one of the given words."""
        word = self.text(key, default)
        if word not in choices:
            raise self.error(f"{word[:80]!r} is not a valid value", key=key, hint=f"use one of {', '.join(choices)}")
        return word

    def number(self, key: str, default: float, *, minimum: float, maximum: float) -> float:
        """Read a number from `minimum` to `maximum`."""
        try:
            number = float(self.text(key, repr(default)))
        except ValueError:
            number = math.nan
        if not minimum <= number <= maximum:
            raise self.error(f"expected a number from {minimum:g} to {maximum:g}", key=key)
        return number

    def integer(self, key: str, default: int, *, minimum: int, maximum: int) -> int:
        """Read an integer from `minimum` to `maximum`."""
        number = self.number(key, default, minimum=minimum, maximum=maximum)
        if number != int(number):
            raise self.error("expected an integer", key=key)
        return int(number)

    def read(self, key: str, max_bytes: int) -> bytes:
        """Read the file that an option names, from the operators' folder."""
        name = self.text(key, hint=f"add: with ({key} 'name of a file in the operators' folder')")
        if PurePosixPath(name).parts[:1] == (PRIVATE,):
            raise self.error(
                f"files in {PRIVATE} cannot be used for this option", key=key, hint="move the file to another folder"
            )
        return self._read(key, "", name, max_bytes)

    def secret(self, key: str) -> str:
        """Read a secret from a file in `private`. A secret is never part of a statement, which others may read."""
        data = self._read(key, PRIVATE, self.text(key), MAX_SECRET_BYTES)
        try:
            secret = data.decode("ascii").strip()
        except UnicodeDecodeError:
            secret = ""
        if not secret.isprintable() or not secret:
            raise self.error("the file must contain one line of printable ASCII characters", key=key)
        return secret

    def _read(self, key: str, subfolder: str, name: str, max_bytes: int) -> bytes:
        if self._folder is None:
            raise self.error("no folder for files is available here", key=key)
        parts = PurePosixPath(name).parts
        if len(name) > _MAX_NAME or not parts or "\0" in name or ".." in parts or parts[0] == "/":
            folder_name = subfolder or "the operators' folder"
            raise self.error(
                f"{name[:80]!r} is not a valid path of a file in {folder_name}",
                key=key,
                hint="use a relative path without ..",
            )
        try:
            folder = (self._folder / subfolder).resolve(strict=True)
            path = (folder / name).resolve(strict=True)
            if not path.is_relative_to(folder) or (not subfolder and path.is_relative_to(folder / PRIVATE)):
                raise self.error(
                    f"{name[:80]!r} leads through a link to a file that may not be read",
                    key=key,
                    hint="copy the file instead",
                )
            return self._read_regular_file(key, path, name, max_bytes)
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is a cycle of links"
            raise self.error(f"cannot read {name[:80]!r}: {reason}", key=key) from error

    def _read_regular_file(self, key: str, path: Path, name: str, max_bytes: int) -> bytes:
        # The file may have been replaced since it was checked: do not follow links, and do not wait for a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self.error(f"{name[:80]!r} is not a regular file", key=key)
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise self.error(f"{name[:80]!r} is larger than {max_bytes} bytes", key=key)
        return data
