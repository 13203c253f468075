"""Terms: the parts of a closed condition that variables hold together.

`close_condition` cuts a condition where no variable leads across. A *term* is a conjunction of calls, constraints and
item patterns that share variables. It holds or not by itself, whatever is around it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from runnel.algebra.nodes.calls import Call, Constraint
from runnel.algebra.nodes.item_patterns import ItemPattern


@dataclass(frozen=True, slots=True)
class Term:
    """Calls, constraints and patterns that share variables: it holds if a binding of these satisfies all.

    Variables are named by their order of occurrence, so that terms that differ only in names have one stored form.
    There is at most one pattern of each family. A term without calls is a pattern whose variables are bound in a
    match.
    """

    calls: tuple[Call, ...]
    constraints: tuple[Constraint, ...] = ()
    names: tuple[str, ...] = field(default=(), repr=False)
    """The original names of the variables, in order: the first is now named 1. They are no part of the
    stored form, but two terms with different names bind different variables, so one does not replace the other."""
    patterns: tuple[ItemPattern, ...] = ()
