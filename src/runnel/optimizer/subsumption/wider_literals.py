"""The literals of a predicate table that subsume others, pair_array by lookup instead of comparing all pairs.

In: the atoms, by number. Out: for every literal (`atom * 2 + negated`) up to `most` strictly wider literals, which
hold whenever it holds. The nearest ones are chosen, because factorization needs the most selective filters.
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
from runnel.optimizer.subsumption.word_steps import MAX_STEPS, Steps, is_pattern, is_prefix, parts, steps_of

MAX_WIDER = 16

Pair = tuple[int, int]
"""A narrow atom and a wider one."""


def wider_literals(atoms: Sequence[Atom], most: int = MAX_WIDER) -> Rows:
    """Return for every literal up to `most` literals that subsume it.

    >>> from runnel.algebra.nodes.expressions import Compare
    >>> price = Attribute("price")
    >>> rows = wider_literals([Compare(price, ">", 10.0), Compare(price, ">", 20.0)])
    >>> rows.row(2).tolist(), rows.row(1).tolist()  # `> 20` needs `> 10`; `not > 10` needs `not > 20`
    ([0], [3])
    """
    pairs = list(_pairs(atoms, most))
    pair_array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    narrow = np.concatenate([2 * pair_array[:, 0], 2 * pair_array[:, 1] + 1])
    wide = np.concatenate([2 * pair_array[:, 1], 2 * pair_array[:, 0] + 1])  # if b subsumes a, not a subsumes not b
    kept = _first_of_groups(narrow, most)
    return Rows.grouped(narrow[kept], wide[kept].astype(np.int32), 2 * len(atoms))


def _first_of_groups(groups: Array, most: int) -> Array:
    """Return the indexes of the first `most` entries of every group."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    ranks = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    return np.sort(order[ranks < most])


def _pairs(atoms: Sequence[Atom], most: int) -> Iterator[Pair]:
    """Yield pairs of a narrow and a wider atom, each once. There are no cycles, even if two atoms are equivalent."""
    compared: dict[tuple[Attribute, ValueKind], list[tuple[int, Intervals]]] = defaultdict(list)
    for number, atom in enumerate(atoms):
        intervals = intervals_of(atom)
        if intervals is not None and len({interval.kind for interval in intervals}) == 1:
            compared[atom.attribute, intervals[0].kind].append((number, intervals))
    for group in compared.values():
        yield from _comparison_pairs(group, most)
    yield from _word_pairs(atoms)
    yield from _presence_pairs(atoms)


def _word_pairs(atoms: Sequence[Atom]) -> Iterator[Pair]:
    """Yield pairs of a phrase (or a text that a value must equal) and the phrases and prefixes that it contains."""
    phrases: dict[tuple[Attribute, Steps], int] = {}
    prefixes: dict[tuple[Attribute, str], int] = {}
    for number, atom in enumerate(atoms):
        match atom:
            case Contains(attribute, phrase) if phrase:
                phrases[attribute, phrase] = number
            case ContainsPattern(attribute, (pattern,)) if is_prefix(pattern):
                prefixes[attribute, literal_start(pattern)] = number
    longest = min(MAX_STEPS, max((len(phrase) for _, phrase in phrases), default=0))
    for number, atom in enumerate(atoms):
        steps = steps_of(atom)
        if not steps:
            continue
        attributes = {atom.attribute, replace(WHOLE, part=atom.attribute.part)}
        wider = {phrases.get((each, part)) for each in attributes for part in _plain_parts(atom, steps, longest)}
        if prefixes:
            wider |= {prefixes.get((each, start)) for each in attributes for start in _prefixes_of_steps(steps)}
        yield from (
            (number, other) for other in sorted(each for each in wider if each is not None and each != number)
        )


def _plain_parts(atom: Atom, steps: Steps, longest: int) -> Iterator[Steps]:
    """Return the sequences of steps inside `steps` that contain no pattern."""
    if not isinstance(atom, ContainsPattern):
        return parts(steps, longest)
    return (part for part in parts(steps, longest) if not any(is_pattern(atom, step) for step in part))


def _prefixes_of_steps(steps: Steps) -> Iterator[str]:
    """Yield all prefixes of the letters that the steps begin with."""
    for step in steps:
        letters = literal_start(step)
        yield from (letters[:length] for length in range(len(letters) + 1))


def _presence_pairs(atoms: Sequence[Atom]) -> Iterator[Pair]:
    """Yield pairs of an atom and `exists` on its attribute."""
    present = {atom.attribute: number for number, atom in enumerate(atoms) if isinstance(atom, Exists)}
    if not present:
        return
    for number, atom in enumerate(atoms):
        name, part = atom.attribute.name, atom.attribute.part
        attributes = {atom.attribute, Attribute(name), replace(WHOLE, part=part), WHOLE}
        wider = sorted(present[each] for each in attributes if present.get(each, number) != number)
        yield from ((number, other) for other in wider)


def _comparison_pairs(group: list[tuple[int, Intervals]], most: int) -> Iterator[Pair]:
    """Yield pairs among comparisons of one attribute with values of one kind."""
    lows, highs = _ranks([_hull(intervals) for _, intervals in group])
    is_single = np.array([len(intervals) == 1 for _, intervals in group])
    narrow, wide = nearest_wider(lows, highs, is_single, most)
    numbers = np.array([number for number, _ in group], dtype=np.int64)
    yield from zip(numbers[narrow].tolist(), numbers[wide].tolist(), strict=True)
    yield from _list_pairs(group)


def _hull(intervals: Intervals) -> Interval:
    """Return the interval from the least to the greatest value of several intervals."""
    if len(intervals) == 1:
        return intervals[0]
    low = min(intervals, key=lambda interval: interval.low)
    unbounded = [interval for interval in intervals if interval.high is None]
    last = unbounded or [max(intervals, key=lambda interval: interval.high)]
    return Interval(low.kind, low.low, last[0].high, low.with_low, last[0].with_high)


def _ranks(intervals: list[Interval]) -> tuple[Array, Array]:
    """Return the bounds of intervals as integers in the same order. Excluded bounds differ from included ones."""
    bounds = {bound for each in intervals for bound in (each.low, each.high) if bound is not None}
    ranks = {bound: 3 * rank for rank, bound in enumerate(sorted(bounds), start=1)}
    end = 3 * len(ranks) + 3
    lows = [0 if each.low is None else ranks[each.low] + (not each.with_low) for each in intervals]
    highs = [end if each.high is None else ranks[each.high] - (not each.with_high) for each in intervals]
    return np.array(lows, dtype=np.int64), np.array(highs, dtype=np.int64)


def _list_pairs(group: list[tuple[int, Intervals]]) -> Iterable[Pair]:
    """Yield pairs of a single value and the lists that contain it, unless the list is equivalent to the value."""
    lists: dict[Any, list[int]] = defaultdict(list)
    for number, intervals in group:
        hull = _hull(intervals)
        for interval in set(intervals) if len(intervals) > 1 else ():
            if hull not in interval:
                lists[interval].append(number)
    for number, intervals in group:
        if len(intervals) == 1:
            yield from ((number, wide) for wide in lists.get(intervals[0], ()))
