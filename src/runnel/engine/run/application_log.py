"""The runner's journal: what happened, for the people who look after it.

In: log records of the logger `runnel`, with fields (`extra={"feed": …}`). Out: lines on standard error and in
`logs/runnel.log` of the root, as text or as one JSON object each. Secrets are scrubbed from both.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final, TextIO

from runnel.settings import Settings

FIELDS: Final = ("feed", "subscription", "message", "batch", "endpoint", "attempt", "status", "owner")
"""What a record may say besides its text; the same names in every line, so that they can be searched."""

_FILE_BYTES = 10 << 20
_FILES_KEPT = 5

_SECRETS: Final = (
    (re.compile(r"(?P<before>://[^/\s:@]*:)[^@/\s]+(?=@)"), r"\g<before>***"),
    (re.compile(r"\bwhsec_[A-Za-z0-9+/=_-]+"), "whsec_***"),
    (re.compile(r"\brunnel_(?P<number>\d+)_[A-Za-z0-9_-]+"), r"runnel_\g<number>_***"),
    (
        re.compile(
            r"(?P<before>(?<![A-Za-z])(?:password|secret|ticket|token)\b['\"]?\s*[=:]\s*)['\"]?[^\s'\",;]+", re.I
        ),
        r"\g<before>***",
    ),
)


def scrub(text: str) -> str:
    """A text without the secrets that addresses, tokens and keys may carry.

    >>> scrub("postgresql://runnel:s3cret@db.example/runnel is away")
    'postgresql://runnel:***@db.example/runnel is away'
    """
    for pattern, shown in _SECRETS:
        text = pattern.sub(shown, text)
    return text


class TextLines(logging.Formatter):
    """A line for a person: when, how serious, what, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname} {_message(record)}{' ' if fields else ''}{fields}"
        return scrub(line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}")


class JsonLines(logging.Formatter):
    """A JSON object for a machine: always one line."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": _message(record),
        }
        told.update({name: str(value) for name, value in _fields(record).items()})
        if record.exc_info is not None:
            told["trace"] = self.formatException(record.exc_info)
        scrubbed = {name: scrub(value) if isinstance(value, str) else value for name, value in told.items()}
        return json.dumps(scrubbed, ensure_ascii=False)


def configure_logging(settings: Settings, folder: Path, *, stream: TextIO | None = None) -> None:
    """Send the journal of this process to standard error and to the root's `logs/runnel.log`.

    Calling it again replaces what was configured before. Spark's own log stays in `logs/spark.log`.
    """
    logger = logging.getLogger("runnel")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    lines: logging.Formatter = JsonLines() if settings.log_format == "json" else TextLines()
    file = RotatingFileHandler(logs / "runnel.log", maxBytes=_FILE_BYTES, backupCount=_FILES_KEPT, encoding="utf-8")
    terminal = logging.StreamHandler(stream or sys.stderr)
    terminal.setLevel(logging.INFO if settings.log_format == "json" else logging.WARNING)
    for handler in (file, terminal):
        handler.setFormatter(lines)
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _message(record: logging.LogRecord) -> str:
    # What a record speaks of may come from outside: a line stays a line.
    return "".join(character if character.isprintable() else "�" for character in record.getMessage())


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
