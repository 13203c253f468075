"""The literals of a predicate table that subsume others, found by lookup rather than by comparing all pairs.

In: the atoms, by number. Out: for every literal (`atom * 2 + negated`) some literals that are strictly wider: it can
hold only where they hold. At most `most` for each, the nearest: who factorises by them needs the tight ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from runnel.algebra.nodes.attributes import WHOLE, Attribute
from runnel.algebra.nodes.expressions import Atom, Contains, ContainsPattern, Exists
from runnel.algebra.values.word_patterns import literal_start
from runnel.arrays import Array, Rows
from runnel.optimizer.subsumption.intervals import Interval, Intervals, ValueKind, intervals_of
from runnel.optimizer.subsumption.nearest_wider import nearest_wider
from runnel.optimizer.subsumption.word_steps import LONGEST, Steps, is_pattern, is_prefix, parts, steps_of

MOST = 16

Pair = tuple[int, int]
"""A narrow atom and a wider one."""


def wider_literals(atoms: Sequence[Atom], most: int = MOST) -> Rows:
    """For every literal the literals that subsume it, at most so many.

    >>> from runnel.algebra.nodes.expressions import Compare
    >>> price = Attribute("price")
    >>> rows = wider_literals([Compare(price, ">", 10.0), Compare(price, ">", 20.0)])
    >>> rows.row(2).tolist(), rows.row(1).tolist()  # `> 20` needs `> 10`; `not > 10` needs `not > 20`
    ([0], [3])
    """
    pairs = list(_pairs(atoms, most))
    found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    narrow = np.concatenate([2 * found[:, 0], 2 * found[:, 1] + 1])
    wide = np.concatenate([2 * found[:, 1], 2 * found[:, 0] + 1])  # not a subsumes not b where b subsumes a
    kept = _first(narrow, most)
    return Rows.grouped(narrow[kept], wide[kept].astype(np.int32), 2 * len(atoms))


def _first(groups: Array, most: int) -> Array:
    """The positions of the first so many of every group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    ranks = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    return np.sort(order[ranks < most])


def _pairs(atoms: Sequence[Atom], most: int) -> Iterator[Pair]:
    """Pairs of a narrow and a strictly wider atom, each once; never a circle, also where two atoms say the same."""
    compared: dict[tuple[Attribute, ValueKind], list[tuple[int, Intervals]]] = defaultdict(list)
    for number, atom in enumerate(atoms):
        found = intervals_of(atom)
        if found is not None and len({one.kind for one in found}) == 1:
            compared[atom.attribute, found[0].kind].append((number, found))
    for group in compared.values():
        yield from _compared_pairs(group, most)
    yield from _word_pairs(atoms)
    yield from _presence_pairs(atoms)


def _word_pairs(atoms: Sequence[Atom]) -> Iterator[Pair]:
    """A row of words needs the rows inside it, and the prefixes of its words; so does a value that equals a text."""
    rows: dict[tuple[Attribute, Steps], int] = {}
    prefixes: dict[tuple[Attribute, str], int] = {}
    for number, atom in enumerate(atoms):
        match atom:
            case Contains(attribute, phrase) if phrase:
                rows[attribute, phrase] = number
            case ContainsPattern(attribute, (pattern,)) if is_prefix(pattern):
                prefixes[attribute, literal_start(pattern)] = number
    longest = min(LONGEST, max((len(phrase) for _, phrase in rows), default=0))
    for number, atom in enumerate(atoms):
        steps = steps_of(atom)
        if not steps:
            continue
        looked_at = {atom.attribute, replace(WHOLE, part=atom.attribute.part)}
        inside = {rows.get((one, part)) for one in looked_at for part in _plain_parts(atom, steps, longest)}
        if prefixes:
            inside |= {prefixes.get((one, start)) for one in looked_at for start in _starts(steps)}
        found = sorted(one for one in inside if one is not None and one != number)
        yield from ((number, one) for one in found)


def _plain_parts(atom: Atom, steps: Steps, longest: int) -> Iterator[Steps]:
    """The rows inside a row, without those that hold a pattern."""
    if not isinstance(atom, ContainsPattern):
        return parts(steps, longest)
    return (part for part in parts(steps, longest) if not any(is_pattern(atom, step) for step in part))


def _starts(steps: Steps) -> Iterator[str]:
    """All prefixes of the letters that the steps begin with."""
    for step in steps:
        letters = literal_start(step)
        yield from (letters[:length] for length in range(len(letters) + 1))


def _presence_pairs(atoms: Sequence[Atom]) -> Iterator[Pair]:
    """Any atom needs that its attribute is there at all."""
    present = {atom.attribute: number for number, atom in enumerate(atoms) if isinstance(atom, Exists)}
    if not present:
        return
    for number, atom in enumerate(atoms):
        name, part = atom.attribute.name, atom.attribute.part
        looked_at = {atom.attribute, Attribute(name), replace(WHOLE, part=part), WHOLE}
        found = sorted(present[one] for one in looked_at if present.get(one, number) != number)
        yield from ((number, one) for one in found)


def _compared_pairs(group: list[tuple[int, Intervals]], most: int) -> Iterator[Pair]:
    """Pairs among comparisons of one attribute with values of one kind."""
    lows, highs = _ranks([_hull(found) for _, found in group])
    whole = np.array([len(found) == 1 for _, found in group])
    narrow, wide = nearest_wider(lows, highs, whole, most)
    numbers = np.array([number for number, _ in group], dtype=np.int64)
    yield from zip(numbers[narrow].tolist(), numbers[wide].tolist(), strict=True)
    yield from _list_pairs(group)


def _hull(found: Intervals) -> Interval:
    """The interval from the least to the greatest value of several."""
    if len(found) == 1:
        return found[0]
    low = min(found, key=lambda one: one.low)
    last = [one for one in found if one.high is None] or [max(found, key=lambda one: one.high)]
    return Interval(low.kind, low.low, last[0].high, low.with_low, last[0].with_high)


def _ranks(intervals: list[Interval]) -> tuple[Array, Array]:
    """The bounds of intervals as integers that compare as the bounds do; an open bound lies beside a closed one."""
    bounds = {bound for one in intervals for bound in (one.low, one.high) if bound is not None}
    places = {bound: 3 * place for place, bound in enumerate(sorted(bounds), start=1)}
    end = 3 * len(places) + 3
    lows = [0 if one.low is None else places[one.low] + (not one.with_low) for one in intervals]
    highs = [end if one.high is None else places[one.high] - (not one.with_high) for one in intervals]
    return np.array(lows, dtype=np.int64), np.array(highs, dtype=np.int64)


def _list_pairs(group: list[tuple[int, Intervals]]) -> Iterable[Pair]:
    """A single value needs every list that it is in, unless the list says no more than the value does."""
    lists: dict[Any, list[int]] = defaultdict(list)
    for number, found in group:
        hull = _hull(found)
        for one in set(found) if len(found) > 1 else ():
            if hull not in one:
                lists[one].append(number)
    for number, found in group:
        if len(found) == 1:
            yield from ((number, wide) for wide in lists.get(found[0], ()))
