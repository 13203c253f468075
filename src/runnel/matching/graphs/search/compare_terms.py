"""Filters of patterns inside kernels: comparisons in SPARQL's three values, constraints and programs.

`algebra.graphs.rdf_terms.compare_known` is the definition; terms are numbers here, which stand for the same term
where they are equal. Three values: false, unknown, true.
"""

from __future__ import annotations

from runnel.algebra.graphs.rdf_terms import Sort
from runnel.arrays import Array
from runnel.kernel import Number, inlined, step
from runnel.matching.graphs.patterns.pattern_table import Code

FALSE, UNKNOWN, TRUE = 0, 1, 2
_EQUAL, _NOT_EQUAL, _AT_MOST = 0, 1, 3
"""Relations by their places in RELATIONS; from 2 on the odd ones allow equality."""
_TAGGED, _OTHER, _TEXT = Sort.TAGGED.value, Sort.OTHER.value, Sort.TEXT.value
_AND, _OR, _NOT, _CERTAIN = Code.AND.value, Code.OR.value, Code.NOT.value, Code.CERTAIN.value


@step
def compared(sorts: Array, values: Array, left: Number, relation: Number, right: Number) -> Number:
    """Whether two terms stand in a relation."""
    first, second = sorts[left], sorts[right]
    result = UNKNOWN
    if relation <= _NOT_EQUAL:
        equal = first == second and (left == right if first <= _TEXT else values[left] == values[right])
        # A literal of an unknown type may be equal to any other but those with a language.
        if equal or min(first, second) <= _TAGGED or (first != _OTHER and second != _OTHER):
            result = TRUE if equal == (relation == _EQUAL) else FALSE
    elif first == second and first >= _TEXT:
        one, other = values[left], values[right]
        holds = one < other if relation <= _AT_MOST else one > other
        if relation & 1:
            holds = holds or one == other
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
    """Whether the constraints of a pattern hold: those on one variable, or all where it is below 0."""
    place, end = constraint_offsets[pattern], constraint_offsets[pattern + 1]
    hold = True
    while hold and place < end:
        asked = constraints[place]
        if variable < 0 or asked == variable:
            hold = compared(sorts, values, bound[asked], constraints[place + 1], constraints[place + 2]) == TRUE
        place += 3
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
    """Whether the program of a pattern, if it has one, gives true for what the variables are bound to."""
    place, end, height = program_offsets[pattern], program_offsets[pattern + 1], 0
    stack[0] = TRUE
    while place < end:
        code = programs[place]
        place += 1
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
            left, right = programs[place], programs[place + 1]
            one = bound[-1 - left] if left < 0 else left
            other = bound[-1 - right] if right < 0 else right
            stack[height] = compared(sorts, values, one, code, other)
            place += 2
            height += 1
    return bool(stack[0] == TRUE)
