"""The clauses of a predicate table that subsume others, in arrays.

A clause subsumes another if each literal of the other is one of its own, or is subsumed by one: `a or b` subsumes
`a`, `price > 10` subsumes `price > 20`.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array, Rows
from runnel.kernel import inlined, kernel
from runnel.optimizer.subsumption.wider_literals import MOST

_SEARCHED = 512
"""How many clauses are looked at for one, at most."""


def wider_clauses(clauses: Rows, literals: Rows, selectivities: Array, most: int = MOST) -> Rows:
    """For every clause some clauses that strictly subsume it, those first that the fewest items satisfy.

    `literals` are the wider literals of every literal (`wider_literals`); `selectivities` gives the part of items
    that satisfies a clause. Of two clauses that say the same, only one subsumes the other here: there are no circles.

    >>> clauses = Rows.of([[0], [0, 2], [2]])  # a; a or b; b
    >>> nothing = Rows.of([[], [], [], []])
    >>> [row for row in wider_clauses(clauses, nothing, np.array([0.1, 0.2, 0.1])).lists()]
    [[1], [], [1]]
    """
    owners = np.repeat(np.arange(len(clauses)), clauses.lengths)
    order = np.lexsort((owners, selectivities[owners])) if len(owners) else owners
    holders = Rows.grouped(clauses.values[order], owners[order].astype(np.int64), len(literals))
    found = _search(
        clauses.offsets,
        clauses.values,
        literals.offsets,
        literals.values,
        holders.offsets,
        holders.values,
        most,
        _SEARCHED,
    )
    kept = found[:, 1][np.lexsort((selectivities[found[:, 1]], found[:, 0]))].astype(np.int32)
    return Rows.grouped(np.sort(found[:, 0]), kept, len(clauses))


@inlined
def _holds(literal: int, row: Array, start: int, stop: int) -> bool:
    found = False
    for place in range(start, stop):
        found = found or row[place] == literal
    return found


@kernel
def _subsumes(
    wide: int, narrow: int, offsets: Array, values: Array, wider_offsets: Array, wider_values: Array
) -> bool:
    """Whether each literal of the narrow clause, or one that is wider, is in the wide clause."""
    for place in range(offsets[narrow], offsets[narrow + 1]):
        literal = values[place]
        found = _holds(literal, values, offsets[wide], offsets[wide + 1])
        for other in range(wider_offsets[literal], wider_offsets[literal + 1]):
            if found:
                break
            found = _holds(wider_values[other], values, offsets[wide], offsets[wide + 1])
        if not found:
            return False
    return True


@inlined
def _reach(literal: int, wider_offsets: Array, wider_values: Array, holder_offsets: Array) -> int:
    """How many clauses hold a literal or one that is wider."""
    reach = holder_offsets[literal + 1] - holder_offsets[literal]
    for other in range(wider_offsets[literal], wider_offsets[literal + 1]):
        wide = wider_values[other]
        reach += holder_offsets[wide + 1] - holder_offsets[wide]
    return int(reach)


@kernel
def _search(
    offsets: Array,
    values: Array,
    wider_offsets: Array,
    wider_values: Array,
    holder_offsets: Array,
    holder_values: Array,
    most: int,
    searched: int,
) -> Array:
    """Pairs of a clause and a wider one: all clauses that hold its rarest literal, or a wider one, are compared."""
    count = len(offsets) - 1
    found = np.empty((count * most, 2), dtype=np.int64)
    size = 0
    for narrow in range(count):
        rarest, least = -1, 0
        for place in range(offsets[narrow], offsets[narrow + 1]):
            reach = _reach(values[place], wider_offsets, wider_values, holder_offsets)
            if rarest < 0 or reach < least:
                rarest, least = values[place], reach
        if rarest < 0:
            continue
        first, looked_at = size, 0
        for which in range(wider_offsets[rarest] - 1, wider_offsets[rarest + 1]):
            literal = rarest if which < wider_offsets[rarest] else wider_values[which]
            for place in range(holder_offsets[literal], holder_offsets[literal + 1]):
                wide = holder_values[place]
                looked_at += 1
                if size - first == most or looked_at > searched:
                    break
                if wide == narrow or not _subsumes(wide, narrow, offsets, values, wider_offsets, wider_values):
                    continue
                same = _subsumes(narrow, wide, offsets, values, wider_offsets, wider_values)
                known = False
                for earlier in range(first, size):
                    known = known or found[earlier, 1] == wide
                if not known and (not same or wide < narrow):
                    found[size, 0] = narrow
                    found[size, 1] = wide
                    size += 1
    return found[:size]
