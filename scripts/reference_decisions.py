"""Generate the index of the decision records, made from their headers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from scripts.reference_markdown import page

FOLDER = Path(__file__).parent.parent / "docs" / "decisions"

AREAS = (
    "language and semantics",
    "plan and matching",
    "streaming and recovery",
    "partitions",
    "operators and graphs",
    "delivery",
    "owners, security, operation",
)

_HEADER = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\n?"
    r"Date: (?P<date>\d{4}-\d{2}-\d{2}) · Area: (?P<area>.+) · Status: (?P<status>.+)\n"
)
_STATUS = re.compile(r"accepted|(?:superseded|extended) by \d+")


@dataclass(frozen=True)
class Record:
    """The header of a decision record."""

    file: str
    number: int
    title: str
    area: str
    status: str

    @property
    def line(self) -> str:
        note = "" if self.status == "accepted" else f" ({self.status})"
        return f"- {self.number}. [{self.title}]({self.file}){note}"


def read_records(folder: Path = FOLDER) -> list[Record]:
    """Read the headers of all records, in the order of their numbers. Raise ValueError for a header that is wrong."""
    records = [_read_record(path) for path in sorted(folder.glob("[0-9]*.md"))]
    numbers = [record.number for record in records]
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{folder}: two records have the same number")
    return records


def _read_record(path: Path) -> Record:
    header = _HEADER.match(path.read_text("utf-8"))
    if header is None:
        raise ValueError(f"{path.name} does not start with a title and a line with date, area and status")
    record = Record(path.name, int(header["number"]), header["title"], header["area"], header["status"])
    if not path.name.startswith(f"{record.number:04d}-"):
        raise ValueError(f"{path.name} contains record {record.number}")
    if record.area not in AREAS:
        raise ValueError(f"{path.name}: unknown area {record.area!r}")
    if not _STATUS.fullmatch(record.status):
        raise ValueError(f"{path.name}: unknown status {record.status!r}")
    return record


def decisions_index(folder: Path = FOLDER) -> str:
    """Return the index page: one line per record, by area."""
    records = read_records(folder)
    intro = (
        "Why Runnel is built the way it is. A record has a context, a decision and its consequences, with the "
        "measurement if there is one. Numbers never change, so comments in the code can refer to them."
    )
    sections = ["# Decisions", intro]
    for area in AREAS:
        lines = [record.line for record in records if record.area == area]
        if lines:
            sections += [f"## {area.capitalize()}", "\n".join(lines)]
    return page(*sections)
