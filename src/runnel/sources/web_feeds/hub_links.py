"""Where a feed says that it is pushed: Link headers first, then links in the document (WebSub §4), or its `hubs`.

In: an answer and the head of its document. Out: the hub and the topic, as absolute addresses, or nothing.
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

_LONGEST_HEADER = 16 << 10
_LINK = re.compile(r"""<([^<>]{1,2048})>((?:[^,"<]++|"[^"]*+")*+)""")
_RELATION = re.compile(r""";\s*rel\s*=\s*(?:"([^"]*)"|([^\s;,"]+))""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class HubOffer:
    """A hub that pushes a topic."""

    hub: str
    topic: str


def offer_of(answer: HttpResponse, head: DocumentHead) -> HubOffer | None:
    """The push that an answer offers: its first hub, and the address by which the hub knows the feed.

    A feed that came encrypted is not pushed through a hub that anybody on the way can read or forge.
    """
    stated = [*header_links(answer), *head.links]
    hub = _first("hub", stated, answer.url)
    topic = _first("self", stated, answer.url)
    if hub is None or topic is None:
        return None
    try:
        hub = canonical_url(hub)
    except InputError:
        return None
    if answer.url.startswith("https:") and not hub.startswith("https:"):
        return None
    return HubOffer(hub, topic)


def header_links(answer: HttpResponse) -> Iterator[tuple[str, str]]:
    """The links in an answer's headers, as pairs of relation and address (RFC 8288).

    >>> headers = {"Link": '<https://hub.example/>; rel="hub", </rss>; title="a, b"; rel=self'}
    >>> list(header_links(HttpResponse(200, headers, b"", "https://muse.example/")))
    [('hub', 'https://hub.example/'), ('self', '/rss')]
    """
    for name, value in answer.headers.items():
        if name.lower() == "link":
            for address, parameters in _LINK.findall(value[:_LONGEST_HEADER]):
                relation = _RELATION.search(parameters)
                if relation is not None:
                    for one in (relation[1] or relation[2] or "").lower().split():
                        yield one, address


def _first(relation: str, links: Iterable[tuple[str, str]], base: str) -> str | None:
    for one, address in links:
        absolute = safe_link(address, base) if one == relation else None
        if absolute is not None and len(absolute) <= MAX_URL and absolute.startswith(("http://", "https://")):
            return absolute
    return None
