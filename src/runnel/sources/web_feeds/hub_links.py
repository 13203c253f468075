"""Finds the WebSub hub of a feed: in Link headers first, then in the links of the document (WebSub §4).

In: a response and the head of its document. Out: the hub and the topic as absolute URLs, or None. The head contains
the links of XML feeds and the `hubs` of JSON Feed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from runnel.errors import InputError
from runnel.net.http_client import HttpResponse
from runnel.net.safe_links import safe_link
from runnel.net.urls import MAX_URL, canonical_url
from runnel.sources.documents.document_head import DocumentHead

_MAX_HEADER_LENGTH = 16 << 10
_LINK = re.compile(r"""<([^<>]{1,2048})>((?:[^,"<]++|"[^"]*+")*+)""")
_RELATION = re.compile(r""";\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]+))""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HubOffer:
    """A hub, and the topic (the URL of the feed) to subscribe to."""

    hub: str
    topic: str


def offer_of(response: HttpResponse, head: DocumentHead) -> HubOffer | None:
    """Return the first hub and the `self` link of a response, or None if one of them is missing.

    A hub without https is ignored if the feed was fetched with https, because its pushes could be read or forged.
    """
    links = [*header_links(response), *head.links]
    hub = _first("hub", links, response.url)
    topic = _first("self", links, response.url)
    if hub is None or topic is None:
        return None
    try:
        hub = canonical_url(hub)
    except InputError:
        return None
    if response.url.startswith("https:") and not hub.startswith("https:"):
        return None
    return HubOffer(hub, topic)


def header_links(response: HttpResponse) -> Iterator[tuple[str, str]]:
    """Yield the links in the headers of a response, as pairs of relation and URL (RFC 8288).

    >>> headers = {"Link": '<https://hub.example/>; rel="hub", </rss>; title="a, b"; rel=self'}
    >>> list(header_links(HttpResponse(200, headers, b"", "https://muse.example/")))
    [('hub', 'https://hub.example/'), ('self', '/rss')]
    """
    for name, value in response.headers.items():
        if name.lower() == "link":
            for address, parameters in _LINK.findall(value[:_MAX_HEADER_LENGTH]):
                match = _RELATION.search(parameters)
                if match is not None:
                    for relation in (match[1] or match[2] or "").lower().split():
                        yield relation, address


def _first(relation: str, links: Iterable[tuple[str, str]], base: str) -> str | None:
    for link_relation, address in links:
        absolute = safe_link(address, base) if link_relation == relation else None
        if absolute is not None and len(absolute) <= MAX_URL and absolute.startswith(("http://", "https://")):
            return absolute
    return None
