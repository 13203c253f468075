"""The clauses of a predicate table that subsume others, in arrays.

A clause subsumes another one if it contains, for each literal of the other clause, this literal or one that subsumes
it: `a or b` subsumes `a`, and `price > 10` subsumes `price > 20`.
"""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array, Rows
from runnel.kernel import inlined, kernel
from runnel.optimizer.subsumption.wider_literals import MAX_WIDER

_MAX_COMPARED = 512
"""How many clauses each clause is compared with."""


def wider_clauses(clauses: Rows, literals: Rows, selectivities: Array, most: int = MAX_WIDER) -> Rows:
    """Return for every clause up to `most` clauses that subsume it, the most selective first.

    `literals` has the wider literals of every literal (`wider_literals`), `selectivities` the fraction of items that
    satisfy each clause. Of two equivalent clauses, only one subsumes the other here, so there are no cycles.

    >>> clauses = Rows.of([[0], [0, 2], [2]])  # a; a or b; b
    >>> no_wider = Rows.of([[], [], [], []])
    >>> [row for row in wider_clauses(clauses, no_wider, np.array([0.1, 0.2, 0.1])).lists()]
    [[1], [], [1]]
    """
    owners = np.repeat(np.arange(len(clauses)), clauses.lengths)
    order = np.lexsort((owners, selectivities[owners])) if len(owners) else owners
    containing = Rows.grouped(clauses.values[order], owners[order].astype(np.int64), len(literals))
    pairs = _search(
        clauses.offsets,
        clauses.values,
        literals.offsets,
        literals.values,
        containing.offsets,
        containing.values,
        most,
        _MAX_COMPARED,
    )
    kept = pairs[:, 1][np.lexsort((selectivities[pairs[:, 1]], pairs[:, 0]))].astype(np.int32)
    return Rows.grouped(np.sort(pairs[:, 0]), kept, len(clauses))


@inlined
def _contains(literal: int, row: Array, start: int, stop: int) -> bool:
    is_contained = False
    for index in range(start, stop):
        is_contained = is_contained or row[index] == literal
    return is_contained


@kernel
def _subsumes(
    wide: int, narrow: int, offsets: Array, values: Array, wider_offsets: Array, wider_values: Array
) -> bool:
    """Return whether the wide clause contains each literal of the narrow clause or a wider literal."""
    for index in range(offsets[narrow], offsets[narrow + 1]):
        literal = values[index]
        is_contained = _contains(literal, values, offsets[wide], offsets[wide + 1])
        for other in range(wider_offsets[literal], wider_offsets[literal + 1]):
            if is_contained:
                break
            is_contained = _contains(wider_values[other], values, offsets[wide], offsets[wide + 1])
        if not is_contained:
            return False
    return True


@inlined
def _count_candidates(literal: int, wider_offsets: Array, wider_values: Array, containing_offsets: Array) -> int:
    """Count the clauses that contain a literal or a wider literal."""
    count = containing_offsets[literal + 1] - containing_offsets[literal]
    for other in range(wider_offsets[literal], wider_offsets[literal + 1]):
        wide = wider_values[other]
        count += containing_offsets[wide + 1] - containing_offsets[wide]
    return int(count)


@kernel
def _search(
    offsets: Array,
    values: Array,
    wider_offsets: Array,
    wider_values: Array,
    containing_offsets: Array,
    containing_values: Array,
    most: int,
    max_compared: int,
) -> Array:
    """Search pairs of a clause and a wider one, among the clauses that contain its rarest literal or a wider one."""
    count = len(offsets) - 1
    pairs = np.empty((count * most, 2), dtype=np.int64)
    size = 0
    for narrow in range(count):
        rarest, least = -1, 0
        for index in range(offsets[narrow], offsets[narrow + 1]):
            candidates = _count_candidates(values[index], wider_offsets, wider_values, containing_offsets)
            if rarest < 0 or candidates < least:
                rarest, least = values[index], candidates
        if rarest < 0:
            continue
        first, compared = size, 0
        for which in range(wider_offsets[rarest] - 1, wider_offsets[rarest + 1]):
            literal = rarest if which < wider_offsets[rarest] else wider_values[which]
            for index in range(containing_offsets[literal], containing_offsets[literal + 1]):
                wide = containing_values[index]
                compared += 1
                if size - first == most or compared > max_compared:
                    break
                if wide == narrow or not _subsumes(wide, narrow, offsets, values, wider_offsets, wider_values):
                    continue
                same = _subsumes(narrow, wide, offsets, values, wider_offsets, wider_values)
                is_listed = False
                for earlier in range(first, size):
                    is_listed = is_listed or pairs[earlier, 1] == wide
                if not is_listed and (not same or wide < narrow):
                    pairs[size, 0] = narrow
                    pairs[size, 1] = wide
                    size += 1
    return pairs[:size]
