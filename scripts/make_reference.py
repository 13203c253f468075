"""Generate the pages of docs/reference and the index of the decisions; `make docs` runs this.

The pages are made from the settings, the commands, the errors, the language, the schemas and the decision records.
They contain no dates and are the same on every machine. `--check` reports the pages whose bytes differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

# A program finds only modules in its own folder.
sys.path.insert(0, str(Path(__file__).parent.parent))

from scripts.reference_commands import commands_page
from scripts.reference_decisions import decisions_index
from scripts.reference_errors import errors_page
from scripts.reference_formats import formats_page
from scripts.reference_language import language_reference
from scripts.reference_markdown import NOTE
from scripts.reference_metrics import metrics_page
from scripts.reference_python import python_page
from scripts.reference_settings import settings_page
from scripts.reference_vocabulary import attributes_page

DOCS = Path(__file__).parent.parent / "docs"
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
    """Return the text of every generated page by its path below `docs`."""
    made = {f"reference/{name}": make() for name, make in PAGES.items()}
    made["decisions/index.md"] = decisions_index()
    return {name: f"{text.rstrip()}\n\n{NOTE}\n" for name, text in made.items()}


def stale(docs: Path = DOCS) -> list[str]:
    """Return the generated pages that are missing or differ, and pages with the note that nothing generates."""
    made = pages()
    texts = {path.relative_to(docs).as_posix(): path.read_text("utf-8") for path in docs.rglob("*.md")}
    stored = {name: text for name, text in texts.items() if name in made or text.endswith(f"{NOTE}\n")}
    return sorted(name for name in made.keys() | stored.keys() if made.get(name) != stored.get(name))


def write(docs: Path = DOCS) -> list[Path]:
    """Write all pages and return their paths."""
    written = []
    for name, text in pages().items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="\n")
        written.append(path)
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or report which are stale."""
    parser = argparse.ArgumentParser(description="Generate the reference pages and the index of the decisions.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is stale")
    if not parser.parse_args(arguments).check:
        _tell(f"wrote {path.relative_to(DOCS.parent)}" for path in write())
        return 0
    old = stale()
    if old:
        _tell([f"stale: {', '.join(f'docs/{name}' for name in old)}", f"run: {COMMAND}"])
    return 1 if old else 0


def _tell(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
