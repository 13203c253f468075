"""Parse the bytes of a term in a kernel. `algebra.graphs.rdf_terms.known_term` parses the less common terms.

Numbers of up to 15 digits are parsed here: such a number, divided by a power of ten, is the nearest double.
"""

from __future__ import annotations

import numpy as np

from runnel.algebra.graphs.rdf_terms import XSD, Sort
from runnel.arrays import Array
from runnel.kernel import Number, step

UNDECIDED = 255
"""Returned instead of a sort for a term that the kernel cannot parse."""

_QUOTE, _CARET, _AT, _OPEN, _UNDERSCORE, _PLUS, _MINUS, _POINT, _ZERO = 34, 94, 64, 60, 95, 43, 45, 46, 48
_IRI, _BLANK, _TAGGED = int(Sort.IRI), int(Sort.BLANK), int(Sort.TAGGED)
_TEXT, _NUMBER = int(Sort.TEXT), int(Sort.NUMBER)
_INTEGER = np.frombuffer(f'"^^<{XSD}integer>'.encode(), dtype=np.uint8)
_DECIMAL = np.frombuffer(f'"^^<{XSD}decimal>'.encode(), dtype=np.uint8)
_MAX_DIGITS = 15
_POWERS = 10.0 ** np.arange(_MAX_DIGITS + 1)


@step
def read_sort(data: Array, start: Number, end: Number) -> tuple[Number, Number]:
    """Return the sort and key of a term, or UNDECIDED."""
    if data[start] == _OPEN:
        return _IRI, 0.0
    if data[start] == _UNDERSCORE:
        return _BLANK, 0.0
    last = data[end - 1]
    if last == _QUOTE:
        return _TEXT, 0.0
    if last != 62:  # the literal does not end with a datatype IRI (>), so it has a language tag
        return _TAGGED, 0.0
    is_integer = _ends_with(data, start, end, _INTEGER)
    if is_integer or _ends_with(data, start, end, _DECIMAL):
        return _read_number(data, start + 1, end - len(_INTEGER), is_integer)
    return UNDECIDED, 0.0


@step
def _ends_with(data: Array, start: Number, end: Number, tail: Array) -> bool:
    if end - start <= len(tail):
        return False
    equal, position = True, 0
    while equal and position < len(tail):
        equal = data[end - len(tail) + position] == tail[position]
        position += 1
    return equal


@step
def _read_number(data: Array, position: Number, end: Number, is_integer: bool) -> tuple[Number, Number]:
    """Parse a decimal number. Return UNDECIDED if it has too many digits or is not a number."""
    negative = position < end and data[position] == _MINUS
    if position < end and (negative or data[position] == _PLUS):
        position += 1
    value, digits, decimals, has_point = np.int64(0), 0, 0, False
    while position < end:
        if data[position] == _POINT and not has_point and not is_integer:
            has_point = True
        elif _ZERO <= data[position] <= _ZERO + 9:
            value = 10 * value + (np.int64(data[position]) - _ZERO)
            digits += 1
            if has_point:
                decimals += 1
            if digits > _MAX_DIGITS:
                return UNDECIDED, 0.0
        else:
            return UNDECIDED, 0.0
        position += 1
    if digits == 0:
        return UNDECIDED, 0.0
    number = value / _POWERS[decimals]
    return _NUMBER, -number + 0.0 if negative else number
