"""The terms under which the indexes of windows list items, and the terms that find them.

In: the attributes of a window item or of an item to be joined. Out: 64-bit hashes of terms. An item may be found
through the hash of another term; the condition of the join is checked afterwards, so no answer relies on a hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import blake2b

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.window_atoms import WindowAtom
from runnel.algebra.semantics.evaluate import is_text, values_of
from runnel.algebra.semantics.joins import index_of
from runnel.algebra.values.links import canonical_host, links_in
from runnel.algebra.values.similarity import DEFAULT_LEAST, least_common
from runnel.algebra.values.words import words
from runnel.model.item import Attributes, Value
from runnel.model.structured_value import StructuredValue


def listed_terms(columns: Sequence[tuple[str, str]], attributes: Attributes) -> set[int]:
    """Return the hashes of the terms under which a window item is listed."""
    return {
        term_hash(index, name, term)
        for name, index in columns
        for _, value in values_of(Attribute(name), attributes)
        for term in _terms_of(index, value)
    }


def _terms_of(index: str, value: Value) -> Iterator[str]:
    """Yield the terms of one value in an index."""
    if index == "values":
        if (key := _value_key(value)) is not None:
            yield key
    elif not is_text(value):
        return
    elif index == "words":
        yield from dict.fromkeys(words(value))
    elif index == "phrases":
        # A text that contains the phrase contains its first word.
        yield from words(value)[:1]
    elif index in ("links", "targets", "folders"):
        links = [link.url for link in links_in(value)]
        yield from (link.partition("?")[0].rstrip("/") for link in links) if index == "folders" else links
        if index == "targets" and not links and (host := canonical_host(value.strip())) is not None:
            yield host


def wanted_terms(atom: WindowAtom, attributes: Attributes) -> Iterator[tuple[list[int], int]]:
    """Yield groups of hashes for an item to be joined: a window item that satisfies the atom is listed under some.

    Each group comes with a number: it suffices to look up that many terms of the group, so the caller may choose the
    rarest ones.
    """
    index, name = index_of(atom), atom.window.name
    for _, value in values_of(atom.attribute, attributes):
        terms = list(dict.fromkeys(_sought_terms(index, value)))
        if terms:
            enough = len(terms)
            if index == "words":
                # A similar text shares `least_common` of the words, so it has one of any others that remain.
                enough = len(terms) - least_common(len(terms), atom.least or DEFAULT_LEAST) + 1
            yield [term_hash(index, name, term) for term in terms], enough


def _sought_terms(index: str, value: Value) -> Iterator[str]:
    """Yield the terms that find the window items to which one value may be related."""
    if index == "values":
        if (key := _value_key(value)) is not None:
            yield key
    elif not is_text(value):
        return
    elif index in ("words", "phrases"):
        yield from words(value)
    elif index == "links":
        yield from (link.url for link in links_in(value))
    elif index == "targets":
        for link in links_in(value):
            yield link.url
            labels = link.host.split(".")
            yield from (".".join(labels[start:]) for start in range(len(labels)))
    elif index == "folders":
        for link in links_in(value):
            path = link.url.partition("?")[0].rstrip("/")
            while "://" in path:
                yield path
                path = path.rpartition("/")[0].rstrip("/") if path.count("/") > 2 else ""


def _value_key(value: Value) -> str | None:
    """Return a text that is equal for equal values, or None for a value that equals no other."""
    match value:
        case StructuredValue():
            return None
        case bool():
            return f"b{value}"
        case str():
            return f"t{value}"
        case datetime():
            return f"d{value.astimezone(UTC).isoformat()}"
        case _:
            return f"n{float(value) + 0.0!r}"  # -0.0 equals 0.0


def term_hash(index: str, attribute: str, term: str) -> int:
    """Return the hash under which a term is listed."""
    text = f"{index}\0{attribute}\0{term}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest())
