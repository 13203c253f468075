"""The limits of the optimizer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """Limits on the size of predicates and queries.

    A predicate in conjunctive normal form with more than `max_clauses` or `max_literals` is replaced by a wider one.
    A list `x in (…)` of up to `max_constants` becomes a disjunction of equalities, so that lists and single values
    share atoms. A query can have at most `max_disjuncts` disjuncts with operators.
    """

    max_clauses: int = 64
    max_literals: int = 1024
    max_constants: int = 16
    max_disjuncts: int = 256
