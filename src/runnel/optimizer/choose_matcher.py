"""Which matcher should serve the items of a source, by what each is expected to do for one.

In: how many entries of streams, filters of a tree and queries of a scan an item is expected to meet. Out: what they
cost, and which is least. It is an estimate for people to read (`explain`): plans are laid out for streams, and
`build_matcher` builds those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

USED: Final = "streams"
"""What `build_matcher` builds."""

EACH: Final = {"streams": 0.03, "tree": 0.007, "scan": 110.0}
"""Microseconds of CPU for an entry of a stream, a filter of a tree, a query that is evaluated; each for one item.

These and `ALWAYS` are what `benchmarks/choice.py` measured, rounded: workload M, long texts, batches of 2,000 items,
on two cores that others used too.
"""

ALWAYS: Final = {"streams": 11.0, "tree": 95.0, "scan": 0.0}
"""Microseconds for an item however few queries there are: streams cut texts into words faster than the tree does."""

_UNITS: Final = {"streams": "entries", "tree": "filters", "scan": "queries"}


@dataclass(frozen=True, slots=True)
class ExpectedWork:
    """What each matcher is expected to do for one item of a source; `filters` is None where no tree was made."""

    entries: float
    filters: float | None
    queries: int

    @property
    def amounts(self) -> dict[str, float]:
        """What each matcher does, in its own unit."""
        tree = {} if self.filters is None else {"tree": self.filters}
        return {"streams": self.entries, **tree, "scan": float(self.queries)}

    @property
    def microseconds(self) -> dict[str, float]:
        """What it costs.

        >>> ExpectedWork(100.0, 1000.0, 10_000).microseconds
        {'streams': 14.0, 'tree': 102.0, 'scan': 1100000.0}
        """
        return {name: round(ALWAYS[name] + amount * EACH[name], 3) for name, amount in self.amounts.items()}

    @property
    def cheapest(self) -> str:
        """The matcher that is expected to cost least; streams, where nothing is less."""
        return min(self.microseconds, key=lambda name: (self.microseconds[name], name != USED))

    def to_json(self) -> dict[str, Any]:
        """The estimate as a JSON value."""
        work = {"entries": self.entries, "filters": self.filters, "queries": self.queries}
        return {"used": USED, "cheapest": self.cheapest, **work, "microseconds": self.microseconds}

    def lines(self) -> list[str]:
        """The estimate as text.

        >>> for line in ExpectedWork(0.05, 12.5, 40).lines():
        ...     print(line)
        matched by streams, which is expected to cost least for an item:
          streams: 0.05 entries, 11 µs
          tree: 12.50 filters, 95 µs
          scan: 40 queries, 4,400 µs
        """
        if self.cheapest == USED:
            reason = "which is expected to cost least for an item"
        else:
            reason = f"for which plans are laid out; for this source alone, {self.cheapest} is expected to cost less"
        costs = self.microseconds
        shown = [
            f"  {name}: {_counted(amount)} {_UNITS[name]}, {costs[name]:,.0f} µs"
            for name, amount in self.amounts.items()
        ]
        return [f"matched by {USED}, {reason}:", *shown]


def _counted(amount: float) -> str:
    return f"{amount:,.0f}" if amount == round(amount) else f"{amount:,.2f}"
