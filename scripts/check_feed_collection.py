"""Run the decoders on a folder of feeds. None may crash or hang, and each must decode the expected values.

    python scripts/check_feed_collection.py FOLDER [--list crashes|slow|refused|tolerant|wrong] [--seconds 10]

The script decodes and adapts every file below the folder that looks like a feed, each within a time limit. It reads
expectations from a comment at the top of the file, in the form of feedparser's collection: `Expect: …
entries[0]['title'] == '…'`. It checks only titles and IDs of feeds and entries, and compares texts as plain text. It
prints counts as a line of JSON, and exits with 1 if a decoder crashed or was slow.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from runnel.errors import InputError
from runnel.sources.documents.adapt import AdaptedFeed, adapt
from runnel.sources.documents.charset import decode_text, guess_text
from runnel.sources.documents.decode import decode
from runnel.sources.documents.html_text import plain_text

SUFFIXES = frozenset({".xml", ".rss", ".rdf", ".atom", ".json", ".opml", ".html"})
SLOW_SECONDS = 2.0
_TEXT = r"""[urb]?(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")"""
_EXPECTED = re.compile(rf"\b(feed|entries\[(\d+)\])\[['\"](title|id)['\"]\]\s*==\s*({_TEXT})")
_CHARSET = re.compile(r"Header:\s+Content-type:[^\n]*charset=[\"']?([\w.:-]+)", re.IGNORECASE)


class TookTooLong(BaseException):
    """Not an Exception, so that no handler in between mistakes it for bad input."""


@dataclass
class Tally:
    """Names of files by what became of them, and how many expectations there were."""

    files: int = 0
    fast: int = 0
    seconds: float = 0.0
    tolerant: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    expected: int = 0
    wrong: list[str] = field(default_factory=list)

    def line(self, folder: str) -> str:
        """The counts as JSON."""
        return json.dumps(
            {
                "collection": folder,
                "files": self.files,
                "crashes": len(self.crashes),
                "slow": len(self.slow),
                "read_fast": self.fast,
                "read_tolerantly": len(self.tolerant),
                "refused": len(self.refused),
                "expectations": self.expected,
                "as_expected": self.expected - len(self.wrong),
                "seconds": round(self.seconds, 1),
            }
        )


def main() -> int:
    """Check and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", choices=["crashes", "slow", "refused", "tolerant", "wrong"])
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit for a file")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _interrupt)
    tally = Tally()
    for path in sorted(options.folder.rglob("*")):
        if path.is_file() and path.suffix in SUFFIXES:
            check_file(path, options.folder, options.seconds, tally)
    if options.list:
        print("\n".join(getattr(tally, options.list)))
    print(tally.line(options.folder.name))
    return 1 if tally.crashes or tally.slow else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise TookTooLong


def check_file(path: Path, folder: Path, seconds: float, tally: Tally) -> None:
    """Decode and adapt one file, and count what became of it."""
    data = path.read_bytes()
    messages = _told(data)
    charset = _CHARSET.search(messages)
    name = str(path.relative_to(folder))
    tally.files += 1
    started = time.monotonic()
    feed: AdaptedFeed | None = None
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        feed = adapt(decode(data, name, charset=charset[1] if charset else None), "Checked")
    except InputError as error:
        tally.refused.append(f"{name}: {error.message}")
    except TookTooLong:
        tally.crashes.append(f"{name}: no end in {seconds} seconds")
    except Exception as error:
        tally.crashes.append(f"{name}: {error!r}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    spent = time.monotonic() - started
    tally.seconds += spent
    if spent > SLOW_SECONDS:
        tally.slow.append(f"{name}: {spent:.1f} s")
    if feed is not None and feed.note is not None:
        tally.tolerant.append(f"{name}: {feed.note}")
    elif feed is not None:
        tally.fast += 1
    _compare(name, messages, feed, tally)


def _told(data: bytes) -> str:
    try:
        return decode_text(data, "file")
    except InputError:
        return guess_text(data)


def _compare(name: str, text: str, feed: AdaptedFeed | None, tally: Tally) -> None:
    for occurrence in _EXPECTED.finditer(text[:4000]):
        try:
            wanted = ast.literal_eval(occurrence[4])
        except (ValueError, SyntaxError):
            continue
        if not isinstance(wanted, str) or not plain_text(wanted):
            continue  # an image as a title: nothing to compare
        tally.expected += 1
        if feed is None or not _has(feed, occurrence[1] == "feed", occurrence[3], wanted):
            shown = None if feed is None else [feed.title, *((item.id, item.first("title")) for item in feed.items)]
            tally.wrong.append(f"{name}: {occurrence[0]} but {shown}")


def _has(feed: AdaptedFeed, is_feed: bool, attribute: str, wanted: str) -> bool:
    """Whether the feed or one of its items has what was expected; the id of a whole feed is nothing that we keep."""
    acceptable = {wanted.strip(), plain_text(wanted), " ".join(wanted.split())}
    if is_feed:
        return attribute == "id" or (feed.title or "") in acceptable
    if attribute == "id":
        return any(item.id in acceptable for item in feed.items)
    return any((item.first("title") or "") in acceptable for item in feed.items)


if __name__ == "__main__":
    sys.exit(main())
