"""The application log: lines for admins about the work of the runner.

In: log records of the logger `runnel`, with fields (`extra={"feed": …}`), and warnings and errors of libraries. Out:
lines on standard error and in `logs/runnel.log` of the workspace, as text or as one JSON object each. Secrets are
scrubbed from both.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Final, TextIO

from runnel.errors import ReadOnlyError
from runnel.private_files import make_private_folder, open_private
from runnel.settings import Settings

FIELDS: Final = (
    "feed",
    "subscription",
    "message",
    "messages",
    "batch",
    "items",
    "matches",
    "seconds",
    "plan",
    "endpoint",
    "attempt",
    "status",
    "owner",
    "version",
    "master",
    "workspace",
    "epoch",
    "kind",
    "hint",
    "logger",
)
"""The fields that a record may have in addition to its text. All lines use the same names, so they are searchable."""

_FILE_BYTES = 10 << 20
_FILES_KEPT = 5

_NAMED = "(?:password|secret|ticket|token)"
_SECRETS: Final = (
    (re.compile(r"(?P<before>://[^/\s:@]*:)[^@/\s]+(?=@)"), r"\g<before>***"),
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]+"), "whsec_***"),
    (re.compile(r"\brunnel_(?P<number>\d+)_[A-Za-z0-9_-]+"), r"runnel_\g<number>_***"),
    (
        # In `https://host/secret: message`, the word is the end of a path before a message, not the name of a secret.
        re.compile(
            rf"(?P<before>(?<![A-Za-z])(?!(?<=/){_NAMED}['\"]?:\s){_NAMED}\b['\"]?\s*[=:]\s*)['\"]?[^\s'\",;]+", re.I
        ),
        r"\g<before>***",
    ),
)


def scrub(text: str) -> str:
    """Replace passwords, tokens and keys in a text by `***`.

    >>> scrub("postgresql://runnel:s3cret@db.example/runnel is away")
    'postgresql://runnel:***@db.example/runnel is away'
    """
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class TextLines(logging.Formatter):
    """Formats a record as text: time, level, message and fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {_message(record)}{' ' if fields else ''}{fields}"
        return scrub(line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}")


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": _message(record),
        }
        values.update(_fields(record))
        if record.exc_info is not None:
            values["trace"] = self.formatException(record.exc_info)
        scrubbed = {name: scrub(value) if isinstance(value, str) else value for name, value in values.items()}
        return json.dumps(scrubbed, ensure_ascii=False)


class _PrivateLogFile(RotatingFileHandler):
    """A log file that only its user can read."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=open_private)


_installed: list[logging.Handler] = []
_restorers: list[Callable[[], None]] = []


def configure_logging(settings: Settings, folder: Path, *, stream: TextIO | None = None) -> None:
    """Send the log of this process to standard error and to `logs/runnel.log` of the workspace.

    Calling it again replaces what was configured before. Spark's own log stays in `logs/spark.log`.
    """
    logs = folder / "logs"
    try:
        make_private_folder(logs)
        file = _PrivateLogFile(logs / "runnel.log", maxBytes=_FILE_BYTES, backupCount=_FILES_KEPT, encoding="utf-8")
    except OSError as error:
        raise ReadOnlyError(
            f"{logs} cannot be written: {error.strerror}", hint="run as the user who owns the workspace"
        ) from error
    _install(settings.log_format, stream, file)


def log_to_stderr_as_json() -> None:
    """Send the log only to standard error, as JSON, for errors that occur before the settings are read."""
    _install("json", None)


def is_json_log() -> bool:
    """Return whether the log of this process is written as JSON."""
    return any(isinstance(handler.formatter, JsonLines) for handler in _installed)


def _install(form: str, stream: TextIO | None, *files: logging.Handler) -> None:
    stop_logging()
    own, root = logging.getLogger("runnel"), logging.getLogger()
    before = (root.level, own.level, own.propagate, sys.excepthook, threading.excepthook)
    terminal = logging.StreamHandler(stream or sys.stderr)
    terminal.setLevel(logging.INFO if form == "json" else logging.WARNING)
    _installed[:] = [*files, terminal]
    for handler in _installed:
        handler.setFormatter(JsonLines() if form == "json" else TextLines())
        own.addHandler(handler)
        root.addHandler(handler)
    own.setLevel(logging.INFO)
    own.propagate = False
    # Messages of libraries, and Python's own warnings, go to the log instead of standard error.
    root.setLevel(logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda failed: _log_uncaught(
        failed.exc_type, failed.exc_value or failed.exc_type(), failed.exc_traceback
    )

    def restore() -> None:
        level, own.level, own.propagate, sys.excepthook, threading.excepthook = before
        root.setLevel(level)
        logging.captureWarnings(False)

    _restorers.append(restore)


def stop_logging() -> None:
    """Remove the handlers and hooks that were installed, and restore the previous ones."""
    for handler in _installed:
        logging.getLogger("runnel").removeHandler(handler)
        logging.getLogger().removeHandler(handler)
        handler.close()
    _installed.clear()
    while _restorers:
        _restorers.pop()()


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        logging.getLogger("runnel").critical("internal error: %s", error, exc_info=(kind, error, trace))


def _message(record: logging.LogRecord) -> str:
    # A message may quote text from outside. Replace line breaks and other control characters.
    return "".join(character if character.isprintable() else "�" for character in record.getMessage())


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = {name: getattr(record, name) for name in FIELDS if getattr(record, name, None) is not None}
    if record.name != "runnel":
        fields["logger"] = record.name
    return {name: value if isinstance(value, int | float) else str(value) for name, value in fields.items()}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
