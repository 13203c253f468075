"""Writing streams: groups and entries become numbers. One pass counts, the next writes; `stream_layout` says the
form.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step
from runnel.matching.filters.atoms.atom_layout import NOTHING
from runnel.matching.filters.streams.shared_groups import PredicateGroups

INLINE = 5
"""Keys of the clause that stands in the entry itself."""

ENTRY = 2 + INLINE
HEAD = 2
"""Numbers at the beginning of a stream."""

GROUPED = 1 << 31
"""The bit of a stream's first number that tells that it has groups."""

KIND = 24
"""The bits of a header below the kind of its clause: how many literals it has."""

KEYS, MISSING, MIXED, FORMULA = 0, 1, 2, 3
"""The kinds of clause in a tail: only keys, one key that must be missing, any literals; or: the formula decides."""

KEY, RANGE, PHRASE, OTHER = 0, 1, 2, 3
"""How a literal of a mixed clause is known; in its number, above the sign and below the index."""


class Written(NamedTuple):
    """What entries are made of: the checks of predicates, the literals of clauses as codes, whose formula decides.

    `keys` is how many there are: the key after the last is one that all items have, the next one that none has.
    """

    check_offsets: Array
    checks: Array
    clause_offsets: Array
    codes: Array
    formulas: Array
    keys: int


@kernel
def write_streams(offsets: Array, predicates: Array, groups: PredicateGroups, source: Written) -> tuple[Array, Array]:
    """Where each stream begins, and all of them."""
    # Arrays are taken out of their tuples once: each time would count their references, for every entry.
    check_offsets, checks, formulas = source.check_offsets, source.checks, source.formulas
    clause_offsets, codes, keys = source.clause_offsets, source.codes, source.keys
    parents, clauses, entry_groups = groups.parents, groups.clauses, groups.entry_groups
    kinds = clause_kinds(clause_offsets, codes)
    streams = len(offsets) - 1
    rest = np.empty(_longest(check_offsets) + 1, np.int64)
    ready_offsets, ready = _prepare(source, kinds)
    sizes, tails = _measure(predicates, groups, source, kinds, rest, streams, ready_offsets)
    starts = np.zeros(streams + 1, np.int64)
    for stream in range(streams):
        size = sizes[stream].sum()
        starts[stream + 1] = starts[stream] + (HEAD + (sizes[stream, 2] > 0) + size + tails[stream] if size else 0)
    written = np.zeros(starts[streams], np.uint32)
    # Where the next direct entry, joined entry and group of each group goes; and the next tail of a stream.
    spots, next_tail = np.zeros((len(sizes), 3), np.int64), np.zeros(streams, np.int64)
    tops = np.zeros(len(sizes), np.int64)
    for group in range(len(sizes)):
        direct, joined, inner = sizes[group]
        if group < streams:
            tops[group], spot = group, starts[group]
            if direct + joined + inner == 0:
                continue
            written[spot], written[spot + 1] = direct | (GROUPED if inner else 0), joined
            spot += HEAD
            if inner:
                written[spot] = inner
                spot += 1
            next_tail[group] = spot + direct + joined + inner
        else:
            above = parents[group]
            tops[group], spot = tops[above], spots[above, 2]
            spots[above, 2] += ENTRY + 1 + direct + joined + inner
            rest[0] = clauses[group]
            _write_keys(written, spot + 2, rest, 0, clause_offsets, codes, keys)
            written[spot], written[spot + 1] = 1 + direct + joined + inner, direct
            written[spot + ENTRY] = joined
            spot += ENTRY + 1
        spots[group, 0], spots[group, 1], spots[group, 2] = spot, spot + direct, spot + direct + joined
    for place in range(len(predicates)):
        predicate, group = predicates[place], entry_groups[place]
        first, last, top = ready_offsets[predicate], ready_offsets[predicate + 1], tops[group]
        if group < streams and first < last:
            entry, tail = spots[group, 1], next_tail[group]
            spots[group, 1] += ENTRY
            next_tail[group] += last - first - INLINE
            written[entry] = predicate
            written[entry + 1] = tail - starts[group] if last > first + INLINE else 0
            _copy(written, entry + 2, ready, first, first + INLINE)
            _copy(written, tail, ready, first + INLINE, last)
            continue
        left = _left(check_offsets[predicate], check_offsets[predicate + 1], group, parents, clauses, checks, rest)
        formula = formulas[predicate]
        if left == 0 and not formula:
            written[spots[group, 0]] = predicate
            spots[group, 0] += 1
            continue
        entry = spots[group, 1]
        spots[group, 1] += ENTRY
        written[entry] = predicate
        inline = _inline(rest, left, clause_offsets, kinds)
        _write_keys(written, entry + 2, rest, inline, clause_offsets, codes, keys)
        size = _tail_size(rest, left, inline, clause_offsets, formula)
        if size:
            tail = next_tail[top]
            next_tail[top] += size
            written[entry + 1] = tail - starts[top]
            written[tail] = size - 1
            _write_tail(written, tail + 1, rest, left, inline, clause_offsets, codes, kinds, formula)
    return starts, written


@kernel
def _prepare(source: Written, kinds: Array) -> tuple[Array, Array]:
    """For each predicate that has anything to check: the keys of its entry outside groups, and its tail.

    A predicate stands in several streams. What it is made of lies far apart, so it is put together once.
    """
    check_offsets, checks, formulas = source.check_offsets, source.checks, source.formulas
    clause_offsets, codes, keys = source.clause_offsets, source.codes, source.keys
    count = len(check_offsets) - 1
    offsets, inlines = np.zeros(count + 1, np.int64), np.empty(count, np.int64)
    for predicate in range(count):
        rest = checks[check_offsets[predicate] : check_offsets[predicate + 1]]
        inlines[predicate] = _inline(rest, len(rest), clause_offsets, kinds)
        size = _tail_size(rest, len(rest), inlines[predicate], clause_offsets, formulas[predicate])
        offsets[predicate + 1] = offsets[predicate] + (INLINE + size if len(rest) or formulas[predicate] else 0)
    ready = np.zeros(offsets[count], np.uint32)
    for predicate in range(count):
        spot, tail = offsets[predicate], offsets[predicate] + INLINE
        if spot == offsets[predicate + 1]:
            continue
        rest = checks[check_offsets[predicate] : check_offsets[predicate + 1]]
        _write_keys(ready, spot, rest, inlines[predicate], clause_offsets, codes, keys)
        if tail < offsets[predicate + 1]:
            ready[tail] = offsets[predicate + 1] - tail - 1
            _write_tail(
                ready,
                tail + 1,
                rest,
                len(rest),
                inlines[predicate],
                clause_offsets,
                codes,
                kinds,
                formulas[predicate],
            )
    return offsets, ready


@step
def _copy(written: Array, spot: Number, ready: Array, first: Number, last: Number) -> None:
    for place in range(first, last):
        written[spot + place - first] = ready[place]


@kernel
def _measure(
    predicates: Array,
    groups: PredicateGroups,
    source: Written,
    kinds: Array,
    rest: Array,
    streams: int,
    ready_offsets: Array,
) -> tuple[Array, Array]:
    """How many numbers the direct entries, the joined ones and the groups in each group take; and its tails."""
    check_offsets, checks, formulas = source.check_offsets, source.checks, source.formulas
    parents, clauses, clause_offsets = groups.parents, groups.clauses, source.clause_offsets
    entry_groups = groups.entry_groups
    sizes, tails = np.zeros((len(parents), 3), np.int64), np.zeros(len(parents), np.int64)
    for place in range(len(predicates)):
        predicate, group = predicates[place], entry_groups[place]
        size = ready_offsets[predicate + 1] - ready_offsets[predicate]
        if group < streams and size:
            sizes[group, 1] += ENTRY
            tails[group] += size - INLINE
            continue
        left = _left(check_offsets[predicate], check_offsets[predicate + 1], group, parents, clauses, checks, rest)
        if left == 0 and not formulas[predicate]:
            sizes[group, 0] += 1
        else:
            sizes[group, 1] += ENTRY
            inline = _inline(rest, left, clause_offsets, kinds)
            tails[group] += _tail_size(rest, left, inline, clause_offsets, formulas[predicate])
    for group in range(len(sizes) - 1, streams - 1, -1):
        above = parents[group]
        sizes[above, 2] += ENTRY + 1 + sizes[group].sum()
        tails[above] += tails[group]
    return sizes, tails


@kernel
def _longest(check_offsets: Array) -> int:
    most = 0
    for predicate in range(len(check_offsets) - 1):
        most = max(most, check_offsets[predicate + 1] - check_offsets[predicate])
    return most


@kernel
def _left(
    first: Number, last: Number, group: Number, parents: Array, clauses: Array, checks: Array, rest: Array
) -> Number:
    """Put into `rest` what is left to check of a predicate after its groups; gives how much it is."""
    left = 0
    for place in range(first, last):
        clause = checks[place]
        above = group
        while above != NOTHING and clauses[above] != clause:
            above = parents[above]
        if above == NOTHING:
            rest[left] = clause
            left += 1
    return left


@kernel
def clause_kinds(clause_offsets: Array, codes: Array) -> Array:
    """The kind of every clause."""
    kinds = np.zeros(len(clause_offsets) - 1, dtype=np.uint8)
    for clause in range(len(kinds)):
        first, last = clause_offsets[clause], clause_offsets[clause + 1]
        for place in range(first, last):
            if codes[place] & 7:
                kinds[clause] = MIXED
        if last - first == 1 and codes[first] & 7 == 1:
            kinds[clause] = MISSING
    return kinds


@kernel
def inline_clauses(clause_offsets: Array, codes: Array) -> Array:
    """Which clauses can stand in an entry: those made of few keys."""
    kinds = clause_kinds(clause_offsets, codes)
    fits = np.zeros(len(kinds), dtype=np.bool_)
    for clause in range(len(kinds)):
        fits[clause] = kinds[clause] == KEYS and clause_offsets[clause + 1] - clause_offsets[clause] <= INLINE
    return fits


@kernel
def _inline(checks: Array, count: Number, clause_offsets: Array, kinds: Array) -> Number:
    """Which of the first so many checks stands in the entry: the first that is made of few keys."""
    for place in range(count):
        clause = checks[place]
        if kinds[clause] == KEYS and clause_offsets[clause + 1] - clause_offsets[clause] <= INLINE:
            return place
    return NOTHING


@kernel
def _tail_size(checks: Array, count: Number, inline: Number, clause_offsets: Array, formula: bool) -> Number:
    size = 1 if formula else 0
    for place in range(count):
        if place != inline:
            size += 1 + clause_offsets[checks[place] + 1] - clause_offsets[checks[place]]
    return size + 1 if size else 0


@kernel
def _write_keys(
    written: Array, spot: Number, checks: Array, inline: Number, clause_offsets: Array, codes: Array, keys: Number
) -> None:
    """The keys of the inline clause; the key of always without one, that of never where there are fewer."""
    for place in range(INLINE):
        written[spot + place] = keys + 1
    if inline == NOTHING:
        written[spot] = keys
        return
    for place in range(clause_offsets[checks[inline]], clause_offsets[checks[inline] + 1]):
        written[spot] = codes[place] >> 3
        spot += 1


@kernel
def _write_tail(
    written: Array,
    spot: Number,
    checks: Array,
    count: Number,
    inline: Number,
    clause_offsets: Array,
    codes: Array,
    kinds: Array,
    formula: bool,
) -> None:
    for which in range(count):
        if which == inline:
            continue
        clause = checks[which]
        kind = kinds[clause]
        written[spot] = (clause_offsets[clause + 1] - clause_offsets[clause]) | (kind << KIND)
        spot += 1
        for place in range(clause_offsets[clause], clause_offsets[clause + 1]):
            written[spot] = codes[place] if kind == MIXED else codes[place] >> 3
            spot += 1
    if formula:
        written[spot] = FORMULA << KIND
