"""Write groups and entries as streams of integers: one pass measures, the next writes.

`stream_layout` describes the format.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runnel.arrays import Array
from runnel.kernel import Number, kernel, step
from runnel.matching.filters.atoms.atom_layout import NOTHING
from runnel.matching.filters.streams.shared_groups import PredicateGroups

INLINE = 5
"""Maximum number of keys of the clause that is stored in the entry itself."""

ENTRY = 2 + INLINE
HEAD = 2
"""Integers at the beginning of a stream, without the size of its groups."""

GROUPED = 1 << 31
"""The bit of a stream's first integer that is set if the stream has groups."""

KIND = 24
"""The number of lower bits of a header, which contain the number of literals; the kind of clause is above them."""

KEYS, MISSING, MIXED, FORMULA = 0, 1, 2, 3
"""The kinds of clause in a tail: only keys, one key that must be missing, any literals, or a formula."""

KEY, RANGE, PHRASE, OTHER = 0, 1, 2, 3
"""How a literal of a mixed clause is decided; stored in its code above the sign bit and below the index."""


class StreamSource(NamedTuple):
    """The input of writing: the checks of predicates, the codes of the clauses' literals, and whose formula decides.

    `keys` is the number of keys. The key after the last stands for all items, the next one for no items.
    """

    check_offsets: Array
    checks: Array
    clause_offsets: Array
    codes: Array
    formulas: Array
    keys: int


@kernel
def write_streams(
    offsets: Array, predicates: Array, groups: PredicateGroups, source: StreamSource
) -> tuple[Array, Array]:
    """Return the offsets of all streams, and the streams."""
    # Unpack the tuples once, because numba counts references each time a field is read.
    check_offsets, checks, formulas = source.check_offsets, source.checks, source.formulas
    clause_offsets, codes, keys = source.clause_offsets, source.codes, source.keys
    parents, clauses, entry_groups = groups.parents, groups.clauses, groups.entry_groups
    kinds = clause_kinds(clause_offsets, codes)
    streams = len(offsets) - 1
    rest = np.empty(_max_checks(check_offsets) + 1, np.int64)
    prepared_offsets, prepared = _prepare(source, kinds)
    sizes, tails = _measure(predicates, groups, source, kinds, rest, streams, prepared_offsets)
    starts = np.zeros(streams + 1, np.int64)
    for stream in range(streams):
        size = sizes[stream].sum()
        starts[stream + 1] = starts[stream] + (HEAD + (sizes[stream, 2] > 0) + size + tails[stream] if size else 0)
    written = np.zeros(starts[streams], np.uint32)
    # The positions of the next direct entry, joined entry and nested group of each group, and of the next tail.
    positions, next_tail = np.zeros((len(sizes), 3), np.int64), np.zeros(streams, np.int64)
    tops = np.zeros(len(sizes), np.int64)
    for group in range(len(sizes)):
        direct, joined, inner = sizes[group]
        if group < streams:
            tops[group], position = group, starts[group]
            if direct + joined + inner == 0:
                continue
            written[position], written[position + 1] = direct | (GROUPED if inner else 0), joined
            position += HEAD
            if inner:
                written[position] = inner
                position += 1
            next_tail[group] = position + direct + joined + inner
        else:
            above = parents[group]
            tops[group], position = tops[above], positions[above, 2]
            positions[above, 2] += ENTRY + 1 + direct + joined + inner
            rest[0] = clauses[group]
            _write_keys(written, position + 2, rest, 0, clause_offsets, codes, keys)
            written[position], written[position + 1] = 1 + direct + joined + inner, direct
            written[position + ENTRY] = joined
            position += ENTRY + 1
        positions[group, 0], positions[group, 1], positions[group, 2] = (
            position,
            position + direct,
            position + direct + joined,
        )
    for index in range(len(predicates)):
        predicate, group = predicates[index], entry_groups[index]
        first, last, top = prepared_offsets[predicate], prepared_offsets[predicate + 1], tops[group]
        if group < streams and first < last:
            entry, tail = positions[group, 1], next_tail[group]
            positions[group, 1] += ENTRY
            next_tail[group] += last - first - INLINE
            written[entry] = predicate
            written[entry + 1] = tail - starts[group] if last > first + INLINE else 0
            _copy(written, entry + 2, prepared, first, first + INLINE)
            _copy(written, tail, prepared, first + INLINE, last)
            continue
        left = _remaining_checks(
            check_offsets[predicate], check_offsets[predicate + 1], group, parents, clauses, checks, rest
        )
        formula = formulas[predicate]
        if left == 0 and not formula:
            written[positions[group, 0]] = predicate
            positions[group, 0] += 1
            continue
        entry = positions[group, 1]
        positions[group, 1] += ENTRY
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
def _prepare(source: StreamSource, kinds: Array) -> tuple[Array, Array]:
    """Prepare the keys of the entry outside groups, and the tail, of each predicate that has checks or a formula.

    A predicate is in several streams, and its parts are scattered in memory, so they are assembled only once.
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
    prepared = np.zeros(offsets[count], np.uint32)
    for predicate in range(count):
        position, tail = offsets[predicate], offsets[predicate] + INLINE
        if position == offsets[predicate + 1]:
            continue
        rest = checks[check_offsets[predicate] : check_offsets[predicate + 1]]
        _write_keys(prepared, position, rest, inlines[predicate], clause_offsets, codes, keys)
        if tail < offsets[predicate + 1]:
            prepared[tail] = offsets[predicate + 1] - tail - 1
            _write_tail(
                prepared,
                tail + 1,
                rest,
                len(rest),
                inlines[predicate],
                clause_offsets,
                codes,
                kinds,
                formulas[predicate],
            )
    return offsets, prepared


@step
def _copy(written: Array, position: Number, prepared: Array, first: Number, last: Number) -> None:
    for index in range(first, last):
        written[position + index - first] = prepared[index]


@kernel
def _measure(
    predicates: Array,
    groups: PredicateGroups,
    source: StreamSource,
    kinds: Array,
    rest: Array,
    streams: int,
    prepared_offsets: Array,
) -> tuple[Array, Array]:
    """Return the sizes of the direct entries, joined entries and nested groups of each group, and of its tails."""
    check_offsets, checks, formulas = source.check_offsets, source.checks, source.formulas
    parents, clauses, clause_offsets = groups.parents, groups.clauses, source.clause_offsets
    entry_groups = groups.entry_groups
    sizes, tails = np.zeros((len(parents), 3), np.int64), np.zeros(len(parents), np.int64)
    for index in range(len(predicates)):
        predicate, group = predicates[index], entry_groups[index]
        size = prepared_offsets[predicate + 1] - prepared_offsets[predicate]
        if group < streams and size:
            sizes[group, 1] += ENTRY
            tails[group] += size - INLINE
            continue
        left = _remaining_checks(
            check_offsets[predicate], check_offsets[predicate + 1], group, parents, clauses, checks, rest
        )
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
def _max_checks(check_offsets: Array) -> int:
    """Return the maximum number of checks of a predicate."""
    maximum = 0
    for predicate in range(len(check_offsets) - 1):
        maximum = max(maximum, check_offsets[predicate + 1] - check_offsets[predicate])
    return maximum


@kernel
def _remaining_checks(
    first: Number, last: Number, group: Number, parents: Array, clauses: Array, checks: Array, rest: Array
) -> Number:
    """Write to `rest` the checks of a predicate that none of its groups has made; return their number."""
    left = 0
    for index in range(first, last):
        clause = checks[index]
        above = group
        while above != NOTHING and clauses[above] != clause:
            above = parents[above]
        if above == NOTHING:
            rest[left] = clause
            left += 1
    return left


@kernel
def clause_kinds(clause_offsets: Array, codes: Array) -> Array:
    """Return the kind of every clause."""
    kinds = np.zeros(len(clause_offsets) - 1, dtype=np.uint8)
    for clause in range(len(kinds)):
        first, last = clause_offsets[clause], clause_offsets[clause + 1]
        for index in range(first, last):
            if codes[index] & 7:
                kinds[clause] = MIXED
        if last - first == 1 and codes[first] & 7 == 1:
            kinds[clause] = MISSING
    return kinds


@kernel
def inline_clauses(clause_offsets: Array, codes: Array) -> Array:
    """Return a mask of the clauses that can be stored in an entry: those with few keys and no other literals."""
    kinds = clause_kinds(clause_offsets, codes)
    fits = np.zeros(len(kinds), dtype=np.bool_)
    for clause in range(len(kinds)):
        fits[clause] = kinds[clause] == KEYS and clause_offsets[clause + 1] - clause_offsets[clause] <= INLINE
    return fits


@kernel
def _inline(checks: Array, count: Number, clause_offsets: Array, kinds: Array) -> Number:
    """Return the index of the check that is stored in the entry, the first one with few keys, or NOTHING."""
    for index in range(count):
        clause = checks[index]
        if kinds[clause] == KEYS and clause_offsets[clause + 1] - clause_offsets[clause] <= INLINE:
            return index
    return NOTHING


@kernel
def _tail_size(checks: Array, count: Number, inline: Number, clause_offsets: Array, formula: bool) -> Number:
    """Return the size of a tail in integers, including its own size; 0 if there is no tail."""
    size = 1 if formula else 0
    for index in range(count):
        if index != inline:
            size += 1 + clause_offsets[checks[index] + 1] - clause_offsets[checks[index]]
    return size + 1 if size else 0


@kernel
def _write_keys(
    written: Array, position: Number, checks: Array, inline: Number, clause_offsets: Array, codes: Array, keys: Number
) -> None:
    """Write the keys of the inline clause, padded with the key of no items; without one, the key of all items."""
    for index in range(INLINE):
        written[position + index] = keys + 1
    if inline == NOTHING:
        written[position] = keys
        return
    for index in range(clause_offsets[checks[inline]], clause_offsets[checks[inline] + 1]):
        written[position] = codes[index] >> 3
        position += 1


@kernel
def _write_tail(
    written: Array,
    position: Number,
    checks: Array,
    count: Number,
    inline: Number,
    clause_offsets: Array,
    codes: Array,
    kinds: Array,
    formula: bool,
) -> None:
    """Write the clauses of a tail, except the inline clause, and the marker of a formula."""
    for check in range(count):
        if check == inline:
            continue
        clause = checks[check]
        kind = kinds[clause]
        written[position] = (clause_offsets[clause + 1] - clause_offsets[clause]) | (kind << KIND)
        position += 1
        for index in range(clause_offsets[clause], clause_offsets[clause + 1]):
            written[position] = codes[index] if kind == MIXED else codes[index] >> 3
            position += 1
    if formula:
        written[position] = FORMULA << KIND
