"""Outcomes: what a statement did or found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement did or found: a line for a person, data for a program, and lines to show below."""

    message: str
    data: dict[str, Any] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    def with_notes(self, notes: Sequence[str]) -> Outcome:
        """The same, with notes on what the writer of the statement may not expect; they are no errors.

        >>> Outcome("created feed A").with_notes(["+ is ignored"]).lines
        ('note: + is ignored',)
        """
        if not notes:
            return self
        data = {**self.data, "notes": [*self.data.get("notes", ()), *notes]}
        return replace(self, data=data, lines=(*self.lines, *(f"note: {note}" for note in notes)))


def listed(noun: str, things: Sequence[Any]) -> str:
    """Some things by name, many by their first names.

    >>> listed("feed", ["A"]), listed("subscription", [1, 2, 3, 4, 5, 6])
    ('feed A', 'subscriptions 1, 2, 3, 4, 5 and 1 more')
    """
    shown = ", ".join(str(thing) for thing in things[:_NAMED])
    more = f" and {len(things) - _NAMED} more" if len(things) > _NAMED else ""
    return f"{noun}{'s' if len(things) != 1 else ''} {shown}{more}"
