"""Finding Java before Spark does, so that a missing one is explained and not a stack trace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from runnel.errors import JavaMissingError

OLDEST = 17
_HINT = (
    f"install Java {OLDEST} or newer and try again: `apt install openjdk-17-jre-headless` on Debian or Ubuntu, "
    "`dnf install java-17-openjdk-headless` on Fedora, `brew install openjdk@17` on macOS; "
    "or set JAVA_HOME to where it is"
)


def java_version() -> int:
    """The major version of the Java that Spark will use; raises JavaMissing with the fix if there is none."""
    program = _program()
    if program is None:
        raise JavaMissingError("Spark needs Java and none was found", hint=_HINT)
    try:
        told = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissingError(f"{program} does not run: {error}", hint=_HINT) from error
    version = parse_version(told.stderr + told.stdout)
    if version is None or version < OLDEST:
        raise JavaMissingError(f"Spark needs Java {OLDEST} or newer; {program} is {version or 'unknown'}", hint=_HINT)
    return version


def parse_version(text: str) -> int | None:
    """The major version in what `java -version` prints.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('java version "1.8.0_202"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def _program() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        return str(program) if program.exists() else None
    return shutil.which("java")


if __name__ == "__main__":
    try:
        java_version()
    except JavaMissingError as missing:
        raise SystemExit(f"error {missing.message}\nhint: {missing.hint}") from None
