"""Generate the page of the attributes, from the docstring of `sources.documents.adapt` and from the prefixes."""

from __future__ import annotations

import inspect
import re

from scripts.reference_markdown import code, page, table

from runnel.model import graph, item
from runnel.sources.documents import adapt, extensions
from runnel.sources.drop_folder import SUFFIXES


def attributes_page() -> str:
    """Return the page: the attributes of items, their origins and limits."""
    return page(
        "# Item attributes",
        "Documents of source feeds become items with these attributes:",
        table(["attribute", "kind", "from RSS / Atom / JSON Feed"], _rows()),
        _after_table(),
        "A moment is an instant in UTC. A text is in Unicode's normal form C. If a document has several values for "
        "an attribute, the item has all of them, except for "
        f"{', '.join(code(name) for name in sorted(adapt.SINGLE))}: for these, only the first value is used.",
        "## Graphs",
        "`graph` is an RDF graph: canonical N-Triples, with sorted lines. An RDF document is one item with all of "
        "its triples. In JSON lines and in Python, a text under `graph` is read as N-Triples. Conditions on texts "
        'ignore graphs; `graph { … }` reads them. The attribute is written in double quotes: `"graph" exists`. '
        "[Publish RDF](../guides/publish-rdf.md) has the details.",
        "## Trees",
        "`tree` is an XML or JSON document. In JSON lines and in Python, a text under `tree` is read as XML if it "
        "begins with `<`, else as a JSON object or array. XML is stored as exclusive canonical XML without comments "
        "and "
        "processing instructions, JSON as canonical JSON (RFC 8785), so documents that differ only in notation are "
        "equal. Conditions on texts ignore trees; `tree …` reads them. The attribute is written in double quotes: "
        '`"tree" exists`. [Match XML and JSON](../guides/match-xml-and-json.md) has the details.',
        "## Extensions",
        "Elements of other namespaces become attributes named `prefix:name`. The prefix follows from the "
        "namespace, not from the "
        'document\'s own prefix. In conditions such a name is written in double quotes: `"slash:section" '
        "= 'music'`.",
        table(["prefix", "namespace"], sorted((code(p), code(n)) for n, p in extensions.PREFIXES.items())),
        "Some extensions become standard attributes:",
        table(["extension", "attribute"], sorted((code(e), code(a)) for e, (a, _) in extensions.STANDARD.items())),
        "## JSON lines and Python",
        "`id` identifies the item; every other member is an attribute. A list provides several values, a "
        "nested object "
        "becomes attributes `outer:inner`, and `null` is ignored. Numbers are doubles; `true` and `false` "
        "are booleans. "
        f"{', '.join(code(name) for name in sorted(item.MOMENTS))} are parsed as ISO dates.",
        "## Limits",
        table(
            ["what", "at most"],
            [
                ("characters of a text", f"{item.MAX_TEXT:,}"),
                ("values of an item", f"{item.MAX_VALUES:,}"),
                ("characters of an attribute's name", f"{item.MAX_NAME:,}"),
                ("characters of an item's id", f"{item.MAX_ID:,}"),
                ("triples of a graph", f"{graph.MAX_TRIPLES:,}"),
            ],
        ),
        "## Files in a folder",
        f"Files with these extensions are read: {', '.join(code(value) for value in sorted(SUFFIXES))}. Other files, "
        "hidden files and subfolders are ignored.",
    )


def _paragraphs() -> tuple[str, str]:
    """Return the table in the module's docstring, and the paragraph below it."""
    paragraphs = inspect.cleandoc(adapt.__doc__ or "").split("\n\n")
    place = next(number for number, text in enumerate(paragraphs) if text.lstrip().startswith("attribute "))
    return inspect.cleandoc("\n" + paragraphs[place]), " ".join(paragraphs[place + 1].split())


def _rows() -> list[tuple[str, str, str]]:
    lines = _paragraphs()[0].splitlines()
    kinds, origins = lines[0].index("kind"), lines[0].index("from")
    rows: list[tuple[str, str, str]] = []
    for line in lines[1:]:
        name = line[:kinds].strip()
        if re.match(r"\S.*\S  +\S", line) is None or line[kinds:origins].strip() not in ("text", "moment", "graph"):
            name, _, origin = line.partition("  ")
            rows.append((_names(name), "text", _origin(origin)))
            continue
        rows.append((_names(name), line[kinds:origins].strip(), _origin(line[origins:])))
    return rows


def _names(text: str) -> str:
    return ", ".join(code(name) for name in text.split(", "))


def _origin(text: str) -> str:
    return text.strip().rstrip(";").replace("the prefixes of `extensions.PREFIXES`", "the prefixes below")


def _after_table() -> str:
    return _paragraphs()[1]
