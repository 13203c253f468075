"""Limits on the counts in a document, so that a small document cannot create very many objects.

The setting `max_document_items` limits the items. `runnel.model.item` limits the values of one item.
"""

from __future__ import annotations

from collections.abc import Iterable

from runnel.errors import BrokenDocumentError, InputError, InvalidItemError

MAX_ITEMS = 100_000
"""Default maximum of entries in a document."""

MAX_DOCUMENT_VALUES = 1_000_000
"""Maximum of values in a document, over all items."""

MAX_ATTRIBUTES = 10_000
"""Maximum of different attribute names in a document."""

MAX_PROBLEMS = 100
"""Maximum of problems that are kept per document. Further ones are only counted."""

_SHOWN_DUPLICATES = 5


def refuse_more_items(count: int, limit: int, place: str) -> None:
    """Raise BrokenDocumentError if a document has more than `limit` items.

    >>> refuse_more_items(3, 2, "a:3")
    Traceback (most recent call last):
    runnel.errors.BrokenDocumentError: a:3: the document has more than 2 items (split it, or raise max_document_items)
    """
    if count > limit:
        raise BrokenDocumentError(
            f"the document has more than {limit} items", place=place, hint="split it, or raise max_document_items"
        )


def refuse_large(data: bytes, name: str, limit: int) -> None:
    """Raise BrokenDocumentError if a document has more than `limit` bytes."""
    if len(data) > limit:
        raise BrokenDocumentError(
            f"the document has {len(data)} bytes; the limit is {limit}",
            place=f"{name}:1",
            hint="split it into smaller documents",
        )


class ProblemList:
    """The first problems of a document, and the number of further ones.

    >>> problems = ProblemList("a.jsonl", limit=3)
    >>> for line in range(1, 5):
    ...     problems.add(InvalidItemError("no object", place=f"a.jsonl:{line}"))
    >>> for problem in problems.summary():
    ...     print(problem)
    a.jsonl:1: no object
    a.jsonl: further entries have problems (3 more)
    """

    def __init__(self, name: str, problems: Iterable[InputError] = (), *, limit: int = MAX_PROBLEMS) -> None:
        self._name = name
        self._limit = limit
        self._kept: list[InputError] = []
        self._further = 0
        self._duplicates = 0
        for problem in problems:
            self.add(problem)

    def add(self, problem: InputError) -> None:
        """Keep a problem, or only count it. Two of the `limit` entries are reserved for the counts."""
        if len(self._kept) < self._limit - 2:
            self._kept.append(problem)
        else:
            self._further += 1

    def add_duplicate(self, identifier: str, place: str, outcome: str) -> None:
        """Add a problem for an id that occurs more than once. After the first few, only count them."""
        self._duplicates += 1
        if self._duplicates <= _SHOWN_DUPLICATES:
            self.add(
                InvalidItemError(
                    f"the id {identifier[:80]!r} occurs more than once in the document; {outcome}",
                    place=place,
                    hint="ids must be unique within a document",
                )
            )

    def summary(self) -> list[InputError]:
        """Return the kept problems, and one problem for each kind that was only counted."""
        problems = list(self._kept)
        # The counts are in the hints, so that the message for the same feed stays the same if the counts change.
        if self._duplicates > _SHOWN_DUPLICATES:
            hint = f"{self._duplicates - _SHOWN_DUPLICATES} more"
            problems.append(
                InvalidItemError("further entries have an id that occurs more than once", place=self._name, hint=hint)
            )
        if self._further:
            problems.append(
                InvalidItemError("further entries have problems", place=self._name, hint=f"{self._further} more")
            )
        return problems
