"""Filters of patterns in kernels: comparisons with SPARQL's three truth values, constraints and programs.

`algebra.graphs.rdf_terms.compare_known` defines the comparisons. Here terms are numbers, and equal numbers are equal
terms. The truth values are false, unknown and true.
"""

from __future__ import annotations

from runnel.algebra.graphs.rdf_terms import Sort
from runnel.arrays import Array
from runnel.kernel import Number, inlined, step
from runnel.matching.graphs.patterns.pattern_table import Code

FALSE, UNKNOWN, TRUE = 0, 1, 2
_EQUAL, _NOT_EQUAL, _AT_MOST = 0, 1, 3
"""Indexes of relations in RELATIONS. From 2 on, relations with an odd index include equality."""
_TAGGED, _OTHER, _TEXT = Sort.TAGGED.value, Sort.OTHER.value, Sort.TEXT.value
_AND, _OR, _NOT, _CERTAIN = Code.AND.value, Code.OR.value, Code.NOT.value, Code.CERTAIN.value


@step
def compared(sorts: Array, values: Array, left: Number, relation: Number, right: Number) -> Number:
    """Return whether a relation holds between two terms: TRUE, FALSE or UNKNOWN."""
    first, second = sorts[left], sorts[right]
    result = UNKNOWN
    if relation <= _NOT_EQUAL:
        equal = first == second and (left == right if first <= _TEXT else values[left] == values[right])
        # A literal of an unknown type may equal any other literal except those with a language tag.
        if equal or min(first, second) <= _TAGGED or (first != _OTHER and second != _OTHER):
            result = TRUE if equal == (relation == _EQUAL) else FALSE
    elif first == second and first >= _TEXT:
        left_value, right_value = values[left], values[right]
        holds = left_value < right_value if relation <= _AT_MOST else left_value > right_value
        if relation & 1:
            holds = holds or left_value == right_value
        result = TRUE if holds else FALSE
    return result


@inlined
def constraints_hold(
    pattern: Number,
    variable: Number,
    constraint_offsets: Array,
    constraints: Array,
    sorts: Array,
    values: Array,
    bound: Array,
) -> bool:
    """Return whether the constraints of a pattern on a variable hold, or all of them if `variable` is negative."""
    position, end = constraint_offsets[pattern], constraint_offsets[pattern + 1]
    hold = True
    while hold and position < end:
        left = constraints[position]
        if variable < 0 or left == variable:
            relation, right = constraints[position + 1], constraints[position + 2]
            hold = compared(sorts, values, bound[left], relation, right) == TRUE
        position += 3
    return hold


@inlined
def program_holds(
    pattern: Number,
    program_offsets: Array,
    programs: Array,
    sorts: Array,
    values: Array,
    bound: Array,
    stack: Array,
) -> bool:
    """Return whether the program of a pattern evaluates to TRUE for the bound terms. A missing program holds."""
    position, end, height = program_offsets[pattern], program_offsets[pattern + 1], 0
    stack[0] = TRUE
    while position < end:
        code = programs[position]
        position += 1
        if code == _NOT:
            stack[height - 1] = TRUE - stack[height - 1]
        elif code == _CERTAIN:
            stack[height - 1] = TRUE if stack[height - 1] == TRUE else FALSE
        elif code == _AND:
            height -= 1
            stack[height - 1] = min(stack[height - 1], stack[height])
        elif code == _OR:
            height -= 1
            stack[height - 1] = max(stack[height - 1], stack[height])
        else:
            left, right = programs[position], programs[position + 1]
            left_term = bound[-1 - left] if left < 0 else left
            right_term = bound[-1 - right] if right < 0 else right
            stack[height] = compared(sorts, values, left_term, code, right_term)
            position += 2
            height += 1
    return bool(stack[0] == TRUE)
