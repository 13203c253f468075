"""Hypothesis strategies for atoms on texts, in the canonical form that the parser builds."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from ipaddress import IPv4Network, IPv6Network
from typing import TypeVar

from hypothesis import strategies as st

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import (
    Contains,
    ContainsPattern,
    ContainsStems,
    Expression,
    Extends,
    InNetwork,
    References,
    RegularExpression,
    Shares,
    Similar,
)
from runnel.algebra.values.links import canonical_host, canonical_link
from runnel.algebra.values.networks import canonical_network
from runnel.algebra.values.regular_expressions import RefusedPatternError, compiled
from runnel.algebra.values.stems import languages
from runnel.algebra.values.word_patterns import is_wild, word_patterns
from runnel.algebra.values.words import words
from runnel.model.item import clean_text

Found = TypeVar("Found")


def found(texts: st.SearchStrategy[str], read: Callable[[str], Found | None]) -> st.SearchStrategy[Found]:
    """Return a strategy for the results of reading texts, without the texts that have none."""

    def read_or_none(text: str) -> Found | None:
        try:
            return read(text) or None
        except ValueError:
            return None

    return texts.map(read_or_none).filter(lambda value: value is not None)  # type: ignore[return-value]


def _pattern(text: str) -> str | None:
    try:
        compiled(text)
    except RefusedPatternError:
        return None
    return text


texts = st.text(max_size=12).map(clean_text)
phrases = found(texts, lambda text: tuple(words(text)))
patterns = found(
    st.text(st.sampled_from("ab*?'’ßİ 東กé\u0301Σ-")) | st.text(max_size=8).map(lambda text: f"{clean_text(text)}*"),
    lambda text: tuple(word_patterns(text)),
).filter(lambda several: any(map(is_wild, several)))
shares = st.integers(1, 10**6).map(lambda millionths: Fraction(millionths, 10**6)) | st.sampled_from(
    [Fraction(1, 2), Fraction(3, 5), Fraction(1)]
)
regular_expressions = found(
    texts
    | st.text(st.sampled_from("ab()[]{}*+?.|^$\\'dw1,é"), max_size=10)
    | st.sampled_from(["gr[ae]y.*", "(?i)it's", r"\d{4}", "a|b"]),
    _pattern,
)
networks = (
    st.builds(
        lambda address, length: IPv4Network((address, length), strict=False),
        st.ip_addresses(v=4).map(int),
        st.integers(0, 32),
    )
    | st.builds(
        lambda address, length: IPv6Network((address, length), strict=False),
        st.ip_addresses(v=6).map(int),
        st.integers(0, 128),
    )
).map(lambda network: canonical_network(str(network)))
hosts = found(
    st.sampled_from(["example.org", "Bücher.Example", "[2001:DB8::1]", "10.0.0.1", "localhost", "a_b.example."])
    | st.text(st.sampled_from("abü.-1ß"), min_size=1, max_size=8),
    canonical_host,
)
links = found(
    st.builds(
        lambda scheme, host, port, path, query: f"{scheme}://{host}{port}{path}{query}",
        st.sampled_from(["http", "HTTPS", "ftp", "x+y"]),
        hosts.map(lambda host: f"[{host}]" if ":" in host else host),
        st.sampled_from(["", ":", ":80", ":443", ":0", ":8080"]),
        st.just("") | st.text(st.sampled_from("/a.%2eé&;'()#é~A"), max_size=10).map(lambda text: f"/{text}"),
        st.just("") | st.text(st.sampled_from("?a=&;%2fé#'"), max_size=6).map(lambda text: f"?{text}"),
    ),
    canonical_link,
)


def _folder(link: str) -> str:
    folder = link.partition("?")[0].rstrip("/")
    return folder if folder.count("/") > 2 else f"{folder}/"


def _several(value: st.SearchStrategy[Found]) -> st.SearchStrategy[tuple[Found, ...]]:
    return st.lists(value, min_size=1, max_size=3, unique=True).map(tuple)


def text_atoms(attributes: st.SearchStrategy[Attribute]) -> st.SearchStrategy[Expression]:
    """Generate atoms of every kind that applies to texts."""
    return st.one_of(
        st.builds(Contains, attributes, phrases),
        st.builds(ContainsPattern, attributes, patterns),
        st.builds(ContainsStems, attributes, st.sampled_from(languages()), phrases),
        st.builds(Similar, attributes, phrases.map(lambda phrase: tuple(dict.fromkeys(phrase))), shares),
        st.builds(RegularExpression, attributes, regular_expressions),
        st.builds(InNetwork, attributes, _several(networks)),
        st.builds(References, attributes, hosts | links),
        st.builds(Extends, attributes, links.map(_folder)),
        st.builds(Shares, attributes, _several(links)),
    )
