"""Kernels that compare terms, given by numbers, and decide whether one demand implies another.

The rules are those of `algebra.graphs.rdf_terms.compare_known` and `definition.implies`, applied to arrays.
"""

from __future__ import annotations

from runnel.algebra.graphs.rdf_terms import Sort
from runnel.arrays import Array
from runnel.kernel import Number, step

ANY_SORT = 9
"""The sort of a placeholder that meets every demand."""

EQUAL, DIFFERENT, LESS, AT_MOST, MORE, AT_LEAST = range(6)
"""The relations, by their index in RELATIONS."""

YES, NO, UNKNOWN = 1, 0, -1
"""The three values of a comparison; UNKNOWN is SPARQL's error."""

_TAGGED, _OTHER, _TEXT = int(Sort.TAGGED), int(Sort.OTHER), int(Sort.TEXT)


@step
def text_order(left: Number, right: Number, begins: Array, texts: Array) -> Number:
    """Return -1, 0 or 1: the order of two terms that are compared by their texts, byte by byte in UTF-8."""
    first, first_end = begins[left], begins[left + 1]
    second, second_end = begins[right], begins[right + 1]
    while first < first_end and second < second_end:
        if texts[first] != texts[second]:
            return -1 if texts[first] < texts[second] else 1
        first += 1
        second += 1
    if first < first_end:
        return 1
    return -1 if second < second_end else 0


@step
def is_same(left: Number, right: Number, sorts: Array, keys: Array, begins: Array, texts: Array) -> Number:
    """Return whether two terms have the same value."""
    if sorts[left] != sorts[right]:
        return False
    if sorts[left] > _TEXT:
        return keys[left] == keys[right]
    return left == right or text_order(left, right, begins, texts) == 0


@step
def in_order(
    left: Number, relation: Number, right: Number, sorts: Array, keys: Array, begins: Array, texts: Array
) -> Number:
    """Return whether two terms of the same ordered sort are in the relation <, <=, > or >=."""
    if sorts[left] == _TEXT:
        first: Number = float(text_order(left, right, begins, texts))
        second: Number = 0.0
    else:
        first, second = keys[left], keys[right]
    if relation == LESS:
        return first < second
    if relation == AT_MOST:
        return first <= second
    if relation == MORE:
        return first > second
    return first >= second


@step
def compare(
    left: Number, relation: Number, right: Number, sorts: Array, keys: Array, begins: Array, texts: Array
) -> Number:
    """Compare two terms: return YES, NO or UNKNOWN (see `algebra.graphs.rdf_terms.compare_known`)."""
    first, second = sorts[left], sorts[right]
    if first == ANY_SORT or second == ANY_SORT:
        return YES
    if relation <= DIFFERENT:
        same = is_same(left, right, sorts, keys, begins, texts)
        if not same and first > _TAGGED and second > _TAGGED and (first == _OTHER or second == _OTHER):
            return UNKNOWN
        return YES if same == (relation == EQUAL) else NO
    if first != second or first < _TEXT:
        return UNKNOWN
    return YES if in_order(left, relation, right, sorts, keys, begins, texts) else NO


@step
def demand_implies(
    relation: Number,
    term: Number,
    asked: Number,
    bound: Number,
    sorts: Array,
    keys: Array,
    begins: Array,
    texts: Array,
) -> Number:
    """Return whether every term in a relation to `term` is also in the relation `asked` to `bound`."""
    if relation == asked and term == bound:
        return True
    if relation == EQUAL:
        return compare(term, asked, bound, sorts, keys, begins, texts) == YES
    if relation == DIFFERENT:
        if asked != DIFFERENT:
            return False
        if sorts[term] == _OTHER and sorts[bound] > _TAGGED:
            return True
        return is_same(term, bound, sorts, keys, begins, texts)
    if sorts[term] != sorts[bound] or sorts[term] < _TEXT:
        return asked == DIFFERENT and sorts[term] >= _TEXT and sorts[bound] != _OTHER
    if asked == EQUAL:
        return False
    downwards = relation <= AT_MOST
    strict = relation in (LESS, MORE)
    if asked == DIFFERENT:
        weak = strict
    else:
        if (asked <= AT_MOST) != downwards:
            return False
        weak = strict or asked in (AT_MOST, AT_LEAST)
    needed = LESS if downwards else MORE
    return in_order(term, needed + 1 if weak else needed, bound, sorts, keys, begins, texts)
