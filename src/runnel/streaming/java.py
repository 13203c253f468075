"""Find Java before Spark starts, so that a missing or old Java is reported with a fix instead of a stack trace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from runnel.errors import JavaMissingError

MIN_VERSION = 17
_HINT = (
    f"install Java {MIN_VERSION} or newer and try again: `apt install openjdk-17-jre-headless` on Debian or Ubuntu, "
    "`dnf install java-17-openjdk-headless` on Fedora, `brew install openjdk@17` on macOS; "
    "or set JAVA_HOME to the directory of an installed Java"
)


def java_version() -> int:
    """Return the major version of the Java that Spark will use. Raise JavaMissingError if it is missing or old."""
    program = _find_program()
    if program is None:
        home = os.environ.get("JAVA_HOME")
        cause = f"there is no bin/java in JAVA_HOME, {home}" if home else "there is no java on the PATH"
        raise JavaMissingError(f"Spark needs Java, and {cause}", hint=_HINT)
    try:
        result = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissingError(f"cannot run {program}: {error}", hint=_HINT) from error
    version = parse_version(result.stderr + result.stdout)
    if version is None or version < MIN_VERSION:
        actual = "has an unknown version" if version is None else f"is version {version}"
        raise JavaMissingError(f"Spark needs Java {MIN_VERSION} or newer; {program} {actual}", hint=_HINT)
    return version


def parse_version(text: str) -> int | None:
    """Return the major version in the output of `java -version`, or None if it has none.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('java version "1.8.0_202"')
    (17, 8)
    """
    version = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(version.group(1)) if version else None


def _find_program() -> str | None:
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
