"""Which matcher serves the items of a source, by what each is expected to do for one.

In: how many entries of streams, candidates of an index, filters of a tree and queries of a scan an item is expected
to meet. Out: what they cost, and which is least. `matching/compile/choose_matchers.py` finds the amounts when a plan
is compiled, and the choice is stored with the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

MatcherName = Literal["streams", "tree", "index"]
MATCHERS: Final[tuple[MatcherName, ...]] = ("streams", "tree", "index")
"""What can be chosen; where nothing costs less, the first."""

EACH: Final = {"streams": 0.1, "numbers": 0.0002, "tree": 0.007, "index": 0.25, "scan": 125.0}
"""Microseconds of CPU for an entry, a number compared, a filter, a candidate, a query evaluated; each for one item.

These and `ALWAYS` are what `benchmarks/choice.py` measured, rounded: workload M, long texts, batches of 2,048 items,
on two cores that others used too. What more queries cost otherwise (more words to mark, more matches to write) is in
them.
"""

ALWAYS: Final = {"streams": 8.0, "tree": 9.2, "index": 14.0, "scan": 0.0}
"""Microseconds for an item however few queries there are."""

VISIT: Final = 400.0
"""Microseconds for a chunk of items to go down the tree of one more source."""

ENOUGH: Final = 0.7
"""Streams are left only for what is expected to cost less than this part of them: the estimates are no better."""

_CHUNK: Final = 512
"""Items that go down trees together."""

_UNITS: Final = {
    "streams": ("entry", "entries"),
    "tree": ("filter", "filters"),
    "index": ("candidate", "candidates"),
    "scan": ("query", "queries"),
}


@dataclass(frozen=True, slots=True)
class ExpectedWork:
    """What each matcher is expected to do for one item of a source, and which of them was chosen.

    `entries` of streams, in a full block of items; `numbers` that they compare with bounds; `candidates` of the
    index; `filters` of the tree, None where none was made. `sources` are all of the plan. `forced` where the settings
    chose.
    """

    entries: float
    filters: float | None
    queries: int
    candidates: float | None = None
    numbers: float = 0.0
    sources: int = 1
    used: MatcherName = "streams"
    forced: bool = False

    @property
    def amounts(self) -> dict[str, float]:
        """What each matcher does, in its own unit."""
        found = {"streams": self.entries, "tree": self.filters, "index": self.candidates, "scan": float(self.queries)}
        return {name: amount for name, amount in found.items() if amount is not None}

    @property
    def microseconds(self) -> dict[str, float]:
        """What it costs.

        >>> ExpectedWork(100.0, 1000.0, 10_000, candidates=200.0).microseconds
        {'streams': 18.0, 'tree': 16.981, 'index': 64.0, 'scan': 1250000.0}
        """
        costs = {name: ALWAYS[name] + amount * EACH[name] for name, amount in self.amounts.items()}
        costs["streams"] += self.numbers * EACH["numbers"]
        if "tree" in costs:
            costs["tree"] = tree_microseconds(self.filters, self.sources)
        return {name: round(cost, 3) for name, cost in costs.items()}

    @property
    def cheapest(self) -> MatcherName:
        """The matcher that is expected to cost least; streams, where nothing is less or not by enough."""
        costs = self.microseconds
        costs["streams"] *= ENOUGH
        return min((name for name in MATCHERS if name in costs), key=costs.__getitem__)

    def to_json(self) -> dict[str, Any]:
        """The estimate as a JSON value."""
        return {
            "used": self.used,
            "forced": self.forced,
            "cheapest": self.cheapest,
            "entries": self.entries,
            "numbers": self.numbers,
            "filters": self.filters,
            "candidates": self.candidates,
            "queries": self.queries,
            "microseconds": self.microseconds,
        }

    def lines(self) -> list[str]:
        """The estimate as text.

        >>> for line in ExpectedWork(0.05, 12.5, 1, candidates=3.0).lines():
        ...     print(line)
        matched by streams, which are expected to cost least for an item:
          streams: 0.05 entries, 8 µs
          tree: 12.50 filters, 10 µs
          index: 3 candidates, 15 µs
          scan: 1 query, 125 µs
        """
        costs = self.microseconds
        shown = [
            f"  {name}: {_counted(amount, *_UNITS[name])}{self._compared(name)}, {costs[name]:,.0f} µs"
            for name, amount in self.amounts.items()
        ]
        return [f"matched by {_NAMES[self.used]}, {self._reason()}:", *shown]

    def _reason(self) -> str:
        verb = "are" if self.used == "streams" else "is"
        if self.forced:
            return "as the settings say"
        if self.used == self.cheapest:
            return f"which {verb} expected to cost least for an item"
        return f"which {verb} laid out for it; {_NAMES[self.cheapest]} would be expected to cost less"

    def _compared(self, name: str) -> str:
        return f" and {_counted(self.numbers, 'number', 'numbers')}" if name == "streams" and self.numbers else ""


_NAMES: Final = {"streams": "streams", "tree": "its filter tree", "index": "the anchor index"}


def tree_microseconds(filters: Any, sources: int) -> Any:
    """What trees cost for an item, where a plan has so many sources; a number, or an array of them.

    >>> round(tree_microseconds(100.0, 1), 1), round(tree_microseconds(100.0, 1000))
    (10.7, 323)
    """
    visits = sources * (1.0 - (1.0 - 1.0 / max(1, sources)) ** _CHUNK) / _CHUNK
    return ALWAYS["tree"] + EACH["tree"] * filters + VISIT * visits


def _counted(amount: float, one: str, several: str) -> str:
    number = f"{amount:,.0f}" if amount == round(amount) else f"{amount:,.2f}"
    return f"{number} {one if number == '1' else several}"
