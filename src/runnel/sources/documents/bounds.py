"""Bounds on the counts of a document, so that a small document cannot become very many objects.

`max_document_items` of the settings bounds the items; `runnel.model.item` bounds the values of one item.
"""

from __future__ import annotations

from collections.abc import Iterable

from runnel.errors import BrokenDocumentError, InputError, InvalidItemError

MAX_ITEMS = 100_000
"""Most entries of a document, unless the settings say otherwise."""

MAX_DOCUMENT_VALUES = 1_000_000
"""Most values of all items of a document together."""

MAX_ATTRIBUTES = 10_000
"""Most different attribute names in a document."""

MAX_PROBLEMS = 100
"""Most problems of a document that are kept, one by one; the others are counted."""

_SHOWN_DUPLICATES = 5


def refuse_more_items(count: int, limit: int, place: str) -> None:
    """Refuse a document that has more entries than are read.

    >>> refuse_more_items(3, 2, "a:3")
    Traceback (most recent call last):
    runnel.errors.BrokenDocumentError: a:3: the document has more than 2 items (split it, or raise max_document_items)
    """
    if count > limit:
        raise BrokenDocumentError(
            f"the document has more than {limit} items", place=place, hint="split it, or raise max_document_items"
        )


class ProblemList:
    """The first problems of a document, and the number of the others.

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
        self._others = 0
        self._duplicates = 0
        for problem in problems:
            self.add(problem)

    def add(self, problem: InputError) -> None:
        """Keep a problem, or count it: two places are for the counts."""
        if len(self._kept) < self._limit - 2:
            self._kept.append(problem)
        else:
            self._others += 1

    def add_duplicate(self, identifier: str, place: str, outcome: str) -> None:
        """Note that an id is in a document more than once. Only the first few become problems of their own."""
        self._duplicates += 1
        if self._duplicates <= _SHOWN_DUPLICATES:
            self.add(
                InvalidItemError(
                    f"the id {identifier[:80]!r} stands more than once in the document; {outcome}",
                    place=place,
                    hint="ids must differ within a document",
                )
            )

    def summary(self) -> list[InputError]:
        """The problems that were kept, and one for each kind of those that were counted."""
        found = list(self._kept)
        # The counts are in the hints: what is said of the same feed tomorrow is the same message.
        if self._duplicates > _SHOWN_DUPLICATES:
            hint = f"{self._duplicates - _SHOWN_DUPLICATES} more"
            found.append(InvalidItemError("further entries have the id of another", place=self._name, hint=hint))
        if self._others:
            found.append(
                InvalidItemError("further entries have problems", place=self._name, hint=f"{self._others} more")
            )
        return found
