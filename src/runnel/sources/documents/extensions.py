"""Extension elements of feeds: our prefixes for namespaces, and extensions that are read as standard attributes.

Extensions become attributes named `prefix:name`. The namespace determines the prefix, because documents choose their
own prefixes freely.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from lxml import etree

from runnel.sources.documents.wire import TextForm, WireField

XML_BASE = "{http://www.w3.org/XML/1998/namespace}base"
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
ATOM = "http://www.w3.org/2005/Atom"
ATOM_03 = "http://purl.org/atom/ns#"
RSS = frozenset(
    {
        "",
        "http://purl.org/rss/1.0/",
        "http://my.netscape.com/rdf/simple/0.9/",
        "http://channel.netscape.com/rdf/simple/0.9/",
        "http://backend.userland.com/rss",
        "http://backend.userland.com/rss2",
        "http://backend.userland.com/rss091",
        "http://backend.userland.com/RSS2",
        "http://blogs.law.harvard.edu/tech/rss",
        "http://cyber.law.harvard.edu/rss/rss.html",
    }
)

PREFIXES = {
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://purl.org/dc/terms/": "dcterms",
    "http://purl.org/rss/1.0/modules/content/": "content",
    "http://purl.org/rss/1.0/modules/slash/": "slash",
    "http://purl.org/rss/1.0/modules/syndication/": "sy",
    "http://purl.org/rss/1.0/modules/threading/": "rss-thr",
    "http://purl.org/syndication/thread/1.0": "thr",
    "http://search.yahoo.com/mrss/": "media",
    "http://search.yahoo.com/mrss": "media",
    "http://www.itunes.com/dtds/podcast-1.0.dtd": "itunes",
    "http://www.google.com/schemas/play-podcasts/1.0": "googleplay",
    "https://podcastindex.org/namespace/1.0": "podcast",
    "http://www.georss.org/georss": "georss",
    "http://www.opengis.net/gml": "gml",
    "http://www.w3.org/2003/01/geo/wgs84_pos#": "geo",
    "http://wellformedweb.org/CommentAPI/": "wfw",
    "http://rssnamespace.org/feedburner/ext/1.0": "feedburner",
    "http://www.youtube.com/xml/schemas/2015": "yt",
    "http://prismstandard.org/namespaces/basic/2.0/": "prism",
    "http://creativecommons.org/ns#": "cc",
    "http://backend.userland.com/creativeCommonsRssModule": "creativecommons",
    "http://web.resource.org/cc/": "cc",
    ATOM: "atom",
    ATOM_03: "atom",
    RDF: "rdf",
    "https://runnel.example/ns/feed/1": "runnel",
}

STANDARD = {
    "dc:title": ("title", TextForm.MARKUP),
    "dc:creator": ("author", TextForm.MARKUP),
    "dc:subject": ("category", TextForm.MARKUP),
    "dc:date": ("published", TextForm.DATE),
    "dc:language": ("language", TextForm.PLAIN),
    "dc:description": ("description", TextForm.MARKUP),
    "dcterms:created": ("published", TextForm.DATE),
    "dcterms:issued": ("published", TextForm.DATE),
    "dcterms:modified": ("updated", TextForm.DATE),
    "content:encoded": ("content", TextForm.MARKUP),
    "itunes:author": ("author", TextForm.MARKUP),
    "atom:published": ("published", TextForm.DATE),
    "atom:updated": ("updated", TextForm.DATE),
    "atom:summary": ("description", TextForm.MARKUP),
    "atom:content": ("content", TextForm.MARKUP),
}
"""Extensions with the meaning of a standard attribute, and how they are converted."""

_REFERENCES = ("url", "href", f"{{{RDF}}}resource")
_LABELS = ("text", "term", "label", "value")


def split_name(element: etree._Element) -> tuple[str, str]:
    """Return the namespace and the local name of an element.

    >>> split_name(etree.Element("{urn:x}title"))
    ('urn:x', 'title')
    """
    return _split(element.tag)


@lru_cache(maxsize=1024)
def _split(tag: str) -> tuple[str, str]:
    if tag[0] != "{":
        return "", tag
    namespace, _, local = tag[1:].partition("}")
    return namespace, local


def line_of(element: etree._Element) -> int:
    """Return the line on which an element starts."""
    line = element.sourceline
    return line if isinstance(line, int) else 1


def all_text(element: etree._Element) -> str:
    """Return the text of an element, including that of its descendants.

    >>> all_text(etree.fromstring("<a>one <b>two</b></a>"))
    'one two'
    """
    if len(element) == 0:
        return element.text or ""
    return "".join(str(part) for part in element.itertext())


def extension_name(element: etree._Element) -> str:
    """Return the attribute name of an extension element. An unknown namespace keeps the prefix of the document."""
    namespace, local = split_name(element)
    if not namespace:
        return local
    prefix = PREFIXES.get(namespace)
    if prefix is None:
        prefix = element.prefix or "other"
        # An unknown namespace must not use the prefix of a well-known one.
        prefix = f"other-{prefix}" if prefix in PREFIXES.values() else prefix
    return f"{prefix}:{local}"


def read_extension(element: etree._Element) -> Iterator[WireField]:
    """Yield the fields of an extension element. If it contains only elements, yield those of its leaves."""
    if len(element) and not (element.text or "").strip():
        for child in element:
            yield from read_extension(child)
        return
    name = extension_name(element)
    text = all_text(element).strip()
    if not text:
        for attribute in _REFERENCES:
            if element.get(attribute):
                yield WireField(name, element.get(attribute) or "", TextForm.LINK, element.get(XML_BASE))
                return
        text = next((element.get(label) or "" for label in _LABELS if element.get(label)), "")
    if text:
        standard, form = STANDARD.get(name, (name, TextForm.PLAIN))
        yield WireField(standard, text, form)
