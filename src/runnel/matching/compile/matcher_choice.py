"""The choice of matchers, source by source, as data of a plan: arrays in its folder, and back.

In: what `matching/compile/choose_matchers.py` found when the plan was compiled. Out: which matcher takes the items of
a source, and the numbers that decided, for `build_matcher` and `explain_query`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runnel.arrays import Array, Arrays
from runnel.errors import CorruptDataError
from runnel.optimizer.matcher_costs import MATCHERS, ExpectedWork, MatcherName
from runnel.plan.store import Plan
from runnel.plan.validate import check_ascending, check_ids

_PREFIX = "choice."
_AMOUNTS = ("entries", "numbers", "candidates", "filters")


@dataclass(frozen=True)
class MatcherChoice:
    """For every source, in ascending order of catalog ids: the number of its matcher among MATCHERS, and the amounts.

    `filters` is not a number where no tree was made to be compared. `forced` holds 1 where the settings chose for
    all, 0 where costs did.
    """

    sources: Array
    matchers: Array
    queries: Array
    entries: Array
    numbers: Array
    candidates: Array
    filters: Array
    forced: Array

    def arrays(self) -> dict[str, Array]:
        """All arrays by the names under which they are stored."""
        names = ("sources", "matchers", "queries", *_AMOUNTS, "forced")
        return {_PREFIX + name: getattr(self, name) for name in names}

    @staticmethod
    def stored(arrays: Arrays) -> MatcherChoice | None:
        """The choice among stored arrays, checked; None in folders of an earlier release."""
        own = {name.removeprefix(_PREFIX): one for name, one in arrays.items() if name.startswith(_PREFIX)}
        if "forced" not in own:
            return None
        try:
            found = MatcherChoice(**own)
            found.check()
        except (TypeError, ValueError) as error:
            raise CorruptDataError(f"the plan's choice of matchers is damaged: {error}") from error
        return found

    def check(self) -> None:
        """Raise ValueError, naming the array, unless everything fits."""
        count = len(self.sources)
        check_ascending("choice.sources", self.sources)
        check_ids("choice.matchers", self.matchers, 0, len(MATCHERS), count)
        check_ids("choice.queries", self.queries, 0, None, count)
        check_ids("choice.forced", self.forced, 0, 2, 1)
        for name in _AMOUNTS:
            if len(getattr(self, name)) != count:
                raise ValueError(f"choice.{name} should hold {count} numbers")

    @property
    def counts(self) -> dict[str, int]:
        """How many sources each matcher has."""
        found = np.bincount(self.matchers, minlength=len(MATCHERS)).tolist()
        return dict(zip(MATCHERS, found, strict=True))

    def work(self, source: int) -> ExpectedWork | None:
        """What was expected of a source, and chosen; None for a source that no query reads."""
        place = int(np.searchsorted(self.sources, source))
        if place == len(self.sources) or self.sources[place] != source:
            return None
        filters = float(self.filters[place])
        return ExpectedWork(
            entries=float(self.entries[place]),
            filters=None if np.isnan(filters) else filters,
            queries=int(self.queries[place]),
            candidates=float(self.candidates[place]),
            numbers=float(self.numbers[place]),
            sources=len(self.sources),
            used=MATCHERS[int(self.matchers[place])],
            forced=bool(self.forced[0]),
        )


def matchers_of(plan: Plan) -> dict[MatcherName, Array]:
    """The sources of each matcher in a version of the plan; streams take those that are not named.

    A base decides for the sources that it knows, a delta, which is small beside it, for others.
    """
    found: dict[int, int] = {}
    for part in reversed(plan.parts):
        choice = MatcherChoice.stored(part.layout)
        if choice is not None:
            found |= dict(zip(choice.sources.tolist(), choice.matchers.tolist(), strict=True))
    sources = np.array(sorted(found), dtype=np.int64)
    chosen = np.array([found[source] for source in sources.tolist()], dtype=np.int64)
    return {name: sources[chosen == number] for number, name in enumerate(MATCHERS)}
