"""The limits within which the optimiser works, and what it is told to choose."""

from __future__ import annotations

from dataclasses import dataclass

from runnel.optimizer.matcher_costs import MatcherName


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """How large a predicate in conjunctive normal form may become before it is cut to what is still sound.

    `max_clauses` and `max_literals` bound one predicate; `max_constants` is the length up to which `x in (…)`
    becomes a disjunction of equalities, so that lists and single values share atoms. `matcher` serves the items of
    all sources; None leaves the choice to the expected cost, source by source. `max_ways` bounds in how many ways one
    query may combine operators.
    """

    max_clauses: int = 64
    max_literals: int = 1024
    max_constants: int = 16
    max_ways: int = 256
    matcher: MatcherName | None = None
