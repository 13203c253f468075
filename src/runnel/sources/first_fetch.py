"""The first document of a feed: only what is recent is accepted, the rest is only remembered as seen.

In: the items of a feed's first document, oldest first. Out: those to accept, and those whose ids are remembered so
that they never come as new later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from runnel.model.item import Item
from runnel.sources.documents.wire import DocumentKind


@dataclass(frozen=True, slots=True)
class FirstFetch:
    """How much of a feed's past is news: at most so many items, and (where set) none published longer ago."""

    newest: int = 100
    within: timedelta | None = None


def first_fetch(
    items: Sequence[Item],
    policy: FirstFetch,
    *,
    kind: DocumentKind | None = None,
    now: datetime | None = None,
) -> tuple[list[Item], list[Item]]:
    """The items to accept and those only to remember; every item is in one of the two, in the given order.

    A document that does not repeat itself (JSON lines) is accepted whole. An item without a date counts as new.

    >>> accepted, remembered = first_fetch([Item("F", str(n), {}) for n in range(5)], FirstFetch(newest=2))
    >>> [item.id for item in accepted], [item.id for item in remembered]
    (['3', '4'], ['0', '1', '2'])
    """
    if kind is not None and not kind.repeats:
        return list(items), []
    recent = [row for row, item in enumerate(items) if _is_recent(item, policy, now or datetime.now(UTC))]
    accepted = set(recent[-policy.newest :] if policy.newest > 0 else ())
    return (
        [item for row, item in enumerate(items) if row in accepted],
        [item for row, item in enumerate(items) if row not in accepted],
    )


def _is_recent(item: Item, policy: FirstFetch, now: datetime) -> bool:
    published = item.first("published")
    if policy.within is None or not isinstance(published, datetime):
        return True
    return now - published <= policy.within
