"""The first document of a feed: only the newest items are accepted, the others are remembered as seen.

In: the items of a feed's first document, oldest first. Out: those to accept, and those whose ids are remembered so
that they never come as new later.
"""

from __future__ import annotations

from collections.abc import Sequence

from runnel.model.item import Item
from runnel.sources.documents.wire import DocumentKind


def first_fetch(
    items: Sequence[Item], newest: int, *, kind: DocumentKind | None = None
) -> tuple[list[Item], list[Item]]:
    """The items to accept and those only to remember; every item is in one of the two, in the given order.

    A document that does not repeat itself (JSON lines) is accepted whole.

    >>> accepted, remembered = first_fetch([Item("F", str(n), {}) for n in range(5)], 2)
    >>> [item.id for item in accepted], [item.id for item in remembered]
    (['3', '4'], ['0', '1', '2'])
    """
    if kind is not None and not kind.repeats:
        return list(items), []
    border = max(0, len(items) - max(newest, 0))
    return list(items[border:]), list(items[:border])
