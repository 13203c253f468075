"""Terms: conjunctions of operator calls, constraints and item patterns that share variables.

`close_condition` splits a condition into terms. No two terms share a variable, so each can be evaluated by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from runnel.algebra.nodes.calls import Call, Constraint
from runnel.algebra.nodes.item_patterns import ItemPattern


@dataclass(frozen=True, slots=True)
class Term:
    """A conjunction of calls, constraints and patterns. It holds if a binding of its variables satisfies all of them.

    Variables are named by their order of occurrence, so that terms that differ only in names have the same stored
    form. A term has at most one pattern per family. A term without calls is a pattern whose variables become bindings
    of a match.
    """

    calls: tuple[Call, ...]
    constraints: tuple[Constraint, ...] = ()
    names: tuple[str, ...] = field(default=(), repr=False)
    """The original names of the variables: the first belongs to variable 1. The stored form does not contain them,
    but terms with different names are not equal, because they bind different variables."""
    patterns: tuple[ItemPattern, ...] = ()
