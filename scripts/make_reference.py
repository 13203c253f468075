"""The reference pages, from the code: `make docs` runs this and writes docs/reference; `--check` only compares.

In: the settings, the commands, the errors, the language, the schemas. Out: Markdown without dates, the same on every
machine, so that a page that is stale is found by comparing bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

# Run as a program, Python looks for modules beside this file only.
sys.path.insert(0, str(Path(__file__).parent.parent))

from scripts.reference_commands import commands_page
from scripts.reference_errors import errors_page
from scripts.reference_formats import formats_page
from scripts.reference_language import language_reference
from scripts.reference_markdown import NOTE
from scripts.reference_metrics import metrics_page
from scripts.reference_python import python_page
from scripts.reference_settings import settings_page
from scripts.reference_vocabulary import attributes_page

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
COMMAND = "make docs"

PAGES: dict[str, Callable[[], str]] = {
    "language.md": language_reference,
    "settings.md": settings_page,
    "commands.md": commands_page,
    "python.md": python_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "formats.md": formats_page,
    "attributes.md": attributes_page,
}


def pages() -> dict[str, str]:
    """The text of every page by its file's name."""
    return {name: f"{make().rstrip()}\n\n{NOTE}\n" for name, make in PAGES.items()}


def stale(folder: Path = FOLDER) -> list[str]:
    """The names of the pages that are missing, differ, or are of nobody's making."""
    made = pages()
    found = {path.name: path.read_text("utf-8") for path in folder.glob("*.md")}
    return sorted(name for name in made.keys() | found.keys() if made.get(name) != found.get(name))


def write(folder: Path = FOLDER) -> list[Path]:
    """Write all pages; gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in pages().items():
        path = folder / name
        path.write_text(text, "utf-8", newline="\n")
        written.append(path)
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or say which are stale."""
    parser = argparse.ArgumentParser(description="Make the reference pages from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is stale")
    if not parser.parse_args(arguments).check:
        _tell(f"wrote {path.relative_to(FOLDER.parent.parent)}" for path in write())
        return 0
    old = stale()
    if old:
        _tell([f"stale: {', '.join(f'docs/reference/{name}' for name in old)}", f"run: {COMMAND}"])
    return 1 if old else 0


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
