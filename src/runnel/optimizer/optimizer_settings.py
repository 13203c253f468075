"""The limits within which the optimizer works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """How large a predicate in conjunctive normal form may become before it is cut to what is still sound.

    `max_clauses` and `max_literals` bound one predicate; `max_constants` is the length up to which `x in (…)`
    becomes a disjunction of equalities, so that lists and single values share atoms. `max_ways` bounds in how many
    ways one query may combine operators.
    """

    max_clauses: int = 64
    max_literals: int = 1024
    max_constants: int = 16
    max_ways: int = 256
