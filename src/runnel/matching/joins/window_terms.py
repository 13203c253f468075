"""The terms under which the indexes of windows list values, and the terms that find them.

In: a value of a window item or of an item to be joined. Out: terms. An item that satisfies a window atom is listed
under one of the terms sought for the other item. For equal values and shared links, the reverse holds, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from runnel.algebra.semantics.evaluate import is_text
from runnel.algebra.values.links import canonical_host, links_in
from runnel.algebra.values.words import words
from runnel.model.item import Value
from runnel.model.structured_value import StructuredValue

EXACT = frozenset({"values", "links", "words", "all words"})
"""The kinds of index that decide whether an atom holds, without the definition."""


def listed_terms(index: str, value: Value) -> Iterator[str]:
    """Yield the terms under which an index lists a value of a window item."""
    if index == "values":
        if (key := _value_key(value)) is not None:
            yield key
    elif not is_text(value):
        return
    elif index == "phrases":
        # A text that contains the phrase contains its first word.
        yield from words(value)[:1]
    elif index in ("links", "targets", "folders"):
        links = [link.url for link in links_in(value)]
        yield from (link.partition("?")[0].rstrip("/") for link in links) if index == "folders" else links
        if index == "targets" and not links and (host := canonical_host(value.strip())) is not None:
            yield host


def sought_terms(index: str, value: Value) -> Iterator[str]:
    """Yield the terms that find the window items to which a value of an item to be joined may be related."""
    if index == "values":
        if (key := _value_key(value)) is not None:
            yield key
    elif not is_text(value):
        return
    elif index == "phrases":
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
        case _ if value != value:
            return None  # not a number
        case _:
            return f"n{float(value) + 0.0!r}"  # -0.0 equals 0.0


def value_of_key(key: str) -> Value:
    """Return the value that an index of values lists under a term.

    >>> value_of_key("tMuse"), value_of_key("n3.0"), value_of_key("bTrue")
    ('Muse', 3.0, True)
    """
    match key[0]:
        case "t":
            return key[1:]
        case "b":
            return key == "bTrue"
        case "d":
            return datetime.fromisoformat(key[1:])
        case _:
            return float(key[1:])
