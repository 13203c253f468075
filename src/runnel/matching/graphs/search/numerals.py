"""What the bytes of a term stand for, in a kernel: the common cases; the others are left to
`algebra.graphs.rdf_terms.known`.

Numbers of up to fifteen digits are read here: such a number, divided by a power of ten, is the nearest double.
"""

from __future__ import annotations

import numpy as np

from runnel.algebra.graphs.rdf_terms import XSD, Sort
from runnel.arrays import Array
from runnel.kernel import Number, step

UNDECIDED = 255
"""In place of the sort of a term that a kernel does not know."""

_QUOTE, _CARET, _AT, _OPEN, _UNDERSCORE, _PLUS, _MINUS, _POINT, _ZERO = 34, 94, 64, 60, 95, 43, 45, 46, 48
_IRI, _BLANK, _TAGGED = int(Sort.IRI), int(Sort.BLANK), int(Sort.TAGGED)
_TEXT, _NUMBER = int(Sort.TEXT), int(Sort.NUMBER)
_INTEGER = np.frombuffer(f'"^^<{XSD}integer>'.encode(), dtype=np.uint8)
_DECIMAL = np.frombuffer(f'"^^<{XSD}decimal>'.encode(), dtype=np.uint8)
_MOST_DIGITS = 15
_POWERS = 10.0 ** np.arange(_MOST_DIGITS + 1)


@step
def read_sort(data: Array, start: Number, end: Number) -> tuple[Number, Number]:
    """The sort and key of a term, or UNDECIDED."""
    if data[start] == _OPEN:
        return _IRI, 0.0
    if data[start] == _UNDERSCORE:
        return _BLANK, 0.0
    last = data[end - 1]
    if last == _QUOTE:
        return _TEXT, 0.0
    if last != 62:  # no IRI behind it, so a language
        return _TAGGED, 0.0
    whole = _ends_with(data, start, end, _INTEGER)
    if whole or _ends_with(data, start, end, _DECIMAL):
        return _read_number(data, start + 1, end - len(_INTEGER), whole)
    return UNDECIDED, 0.0


@step
def _ends_with(data: Array, start: Number, end: Number, tail: Array) -> bool:
    if end - start <= len(tail):
        return False
    equal, place = True, 0
    while equal and place < len(tail):
        equal = data[end - len(tail) + place] == tail[place]
        place += 1
    return equal


@step
def _read_number(data: Array, place: Number, end: Number, whole: bool) -> tuple[Number, Number]:
    """A number written in digits; UNDECIDED where it is long, or none."""
    negative = place < end and data[place] == _MINUS
    if place < end and (negative or data[place] == _PLUS):
        place += 1
    value, digits, behind, pointed = np.int64(0), 0, 0, False
    while place < end:
        if data[place] == _POINT and not pointed and not whole:
            pointed = True
        elif _ZERO <= data[place] <= _ZERO + 9:
            value = 10 * value + (np.int64(data[place]) - _ZERO)
            digits += 1
            if pointed:
                behind += 1
            if digits > _MOST_DIGITS:
                return UNDECIDED, 0.0
        else:
            return UNDECIDED, 0.0
        place += 1
    if digits == 0:
        return UNDECIDED, 0.0
    number = value / _POWERS[behind]
    return _NUMBER, -number + 0.0 if negative else number
