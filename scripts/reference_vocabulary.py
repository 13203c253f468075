"""The page of the attributes, from the table in the documentation of `sources.documents.adapt` and from the
prefixes.
"""

from __future__ import annotations

import inspect
import re

from scripts.reference_markdown import code, page, table

from runnel.model import graph, item
from runnel.sources.documents import adapt, extensions
from runnel.sources.drop_folder import SUFFIXES


def attributes_page() -> str:
    """Which attributes an item has, where they come from, and within which limits."""
    return page(
        "# Attributes of items",
        "Conditions speak of attributes. What a document of a source feed says becomes these:",
        table(["attribute", "kind", "from RSS / Atom / JSON Feed"], _rows()),
        _after_table(),
        "A moment is an instant in UTC. A text is in Unicode's normal form C. Where a document has several values "
        "for an attribute, the item has them all, except for "
        f"{', '.join(code(name) for name in sorted(adapt.SINGLE))}: of these the first counts.",
        "## Graphs",
        "`graph` is an RDF graph: a text in canonical N-Triples, its lines sorted, each once. An RDF document is one "
        "item with all that it says as its graph, named graphs taken together; of RSS 1.0 and 0.90 each item has "
        "what the document says of it and of what it leads to, but not of other items or the channel. In an object "
        "of JSON lines or of the library a text under `graph` is read as N-Triples, and refused with its line where "
        "it is none. Conditions on texts do not look into graphs; `graph { … }` does. In conditions the attribute "
        'itself stands in double quotes: `"graph" exists`. [Feed RDF](../guides/publish-rdf.md) tells more.',
        "## Extensions",
        "Elements of other namespaces become attributes named `prefix:name`. It is the namespace that decides, not "
        "the document's own prefix. In conditions such a name stands in double quotes: "
        "`\"slash:section\" = 'music'`.",
        table(["prefix", "namespace"], sorted((code(p), code(n)) for n, p in extensions.PREFIXES.items())),
        "Some extensions say what a standard attribute says, and become that:",
        table(["extension", "attribute"], sorted((code(e), code(a)) for e, (a, _) in extensions.STANDARD.items())),
        "## Objects of JSON lines and of the library",
        "`id` identifies the item; every other member is an attribute. A list gives several values, a nested object "
        "gives `outer:inner` attributes, `null` gives nothing. Numbers are doubles; `true` and `false` are truth "
        f"values. {', '.join(code(name) for name in sorted(item.MOMENTS))} are read as dates in ISO form.",
        "## Limits",
        table(
            ["what", "at most"],
            [
                ("characters of a text", f"{item.MAX_TEXT:,}"),
                ("values of an item", f"{item.MAX_VALUES:,}"),
                ("characters of an attribute's name", f"{item.MAX_NAME:,}"),
                ("characters of an item's id", f"{item.MAX_ID:,}"),
                ("triples of a graph", f"{graph.MOST_TRIPLES:,}"),
            ],
        ),
        "## Files in a drop folder",
        f"Files with these endings are read: {', '.join(code(one) for one in sorted(SUFFIXES))}. Others, hidden "
        "files and folders inside are left alone.",
    )


def _paragraphs() -> tuple[str, str]:
    """The table of the module's documentation, and what is said below it."""
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
    return text.strip().rstrip(";").replace("the prefixes of `vocabulary.PREFIXES`", "the prefixes below")


def _after_table() -> str:
    return _paragraphs()[1]
