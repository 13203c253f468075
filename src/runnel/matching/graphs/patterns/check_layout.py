"""Check that the stored graph patterns of a plan part are consistent, before any kernel uses them."""

from __future__ import annotations

import numpy as np

from runnel.algebra.graphs.edges import MAX_VARIABLES
from runnel.algebra.graphs.rdf_terms import Sort
from runnel.algebra.nodes.calls import RELATIONS
from runnel.arrays import Array, Rows, read_only
from runnel.kernel import kernel
from runnel.matching.graphs.patterns.graph_layout import GraphLayout
from runnel.matching.graphs.patterns.pattern_table import CONSTRAINT, EDGE, Code
from runnel.plan.validate import check_ids, check_rows, check_texts

_AND, _OR, _NOT, _CERTAIN = Code.AND.value, Code.OR.value, Code.NOT.value, Code.CERTAIN.value


def check_layout(layout: GraphLayout, keys: int) -> None:
    """Raise ValueError with the name of the array if an array is invalid. `keys` is the number of pattern keys."""
    table = layout.table
    terms, shapes, patterns = len(table.terms), len(table.shape_edges), len(table)
    check_texts("graphs.terms", table.terms)
    check_ids("graphs.sorts", table.sorts, 0, len(Sort), terms)
    check_ids("graphs.keys", layout.keys, 0, keys, patterns)
    check_ids("graph_terms.sorts", layout.terms.sorts, 0, len(Sort), terms)
    check_ids("graph_terms.ranks", layout.terms.ranks, 0, None, terms)
    check_ids("graphs.shape_variables", table.shape_variables, 0, MAX_VARIABLES + 1, shapes)
    check_ids("graphs.pattern_shapes", table.pattern_shapes, 0, shapes, patterns)
    check_ids("graphs.depths", layout.depths, 0, None, shapes)
    check_ids("graphs.masks", layout.masks, 0, 2, 8)
    _check_edges(layout, terms, shapes)
    _check_filters(layout, terms, patterns)
    check_rows("graphs.buckets", layout.buckets, shapes)
    if np.any(layout.buckets.lengths == 0) or len(layout.buckets.values) != shapes:
        raise ValueError("graphs.buckets has an empty bucket, or does not contain each shape exactly once")
    _check_slots(layout.slots, len(layout.buckets))
    _check_lists(layout, shapes, patterns)


def _check_edges(layout: GraphLayout, terms: int, shapes: int) -> None:
    table, edges = layout.table, layout.table.shape_edges
    check_rows("graphs.shape_edges", edges, None, shapes)
    check_ids("graphs.shape_edges.values", edges.values, -MAX_VARIABLES, terms, len(edges.values))
    if np.any(edges.offsets % EDGE) or np.any(edges.lengths == 0):
        raise ValueError("graphs.shape_edges has a shape without edges or an incomplete edge")
    owners = np.repeat(np.arange(shapes), edges.lengths)
    if np.any(layout.depths > edges.lengths // EDGE):
        raise ValueError("graphs.depths exceeds the number of edges of a shape")
    if np.any(-edges.values > table.shape_variables[owners]):
        raise ValueError("graphs.shape_edges refers to a variable that does not exist")


def _check_filters(layout: GraphLayout, terms: int, patterns: int) -> None:
    table = layout.table
    check_rows("graphs.constraints", table.constraints, None, patterns)
    check_rows("graphs.programs", table.programs, None, patterns)
    values, variables = table.constraints.values, table.shape_variables[table.pattern_shapes]
    if np.any(table.constraints.offsets % CONSTRAINT):
        raise ValueError("graphs.constraints has an incomplete constraint")
    check_ids("graphs.constraints", values[1::CONSTRAINT], 0, len(RELATIONS), len(values) // CONSTRAINT)
    check_ids("graphs.constraints", values[2::CONSTRAINT], 0, terms, len(values) // CONSTRAINT)
    owners = np.repeat(np.arange(patterns), table.constraints.lengths // CONSTRAINT)
    constrained = values[::CONSTRAINT]
    if np.any(constrained < 0) or np.any(constrained >= variables[owners]):
        raise ValueError("graphs.constraints refers to a variable that does not exist")
    programs = read_only(table.programs.offsets), read_only(table.programs.values)
    if not programs_are_valid(*programs, read_only(variables), terms):
        raise ValueError(
            "graphs.programs has an invalid program, or refers to a term or variable that does not exist"
        )


def _check_slots(slots: Array, buckets: int) -> None:
    check_ids("graphs.slots", slots, -1, buckets, len(slots))
    # The search for a missing key ends at an empty slot.
    if len(slots) < 1 or len(slots) & (len(slots) - 1) or not np.any(slots < 0):
        raise ValueError("graphs.slots must have an empty slot, and its length must be a power of two")


def _check_lists(layout: GraphLayout, shapes: int, patterns: int) -> None:
    lists = layout.lists
    groups = len(lists.variables)
    zeros = np.zeros(max(patterns, len(lists.values)), dtype=np.int8)
    check_rows("graphs.lists.shape_members", Rows(lists.shape_members, zeros[:patterns]), None, shapes)
    check_rows("graphs.lists.shape_groups", Rows(lists.shape_groups, lists.variables), MAX_VARIABLES, shapes)
    if np.any(lists.variables >= np.repeat(layout.table.shape_variables, np.diff(lists.shape_groups))):
        raise ValueError("graphs.lists.variables refers to a variable that does not exist")
    check_ids("graphs.lists.sorts", lists.sorts, 0, len(Sort), groups)
    lengths = Rows(lists.value_offsets, zeros[: len(lists.values)])
    check_rows("graphs.lists.value_offsets", lengths, None, groups)
    if len(lists.below) != groups or len(lists.above) != groups:
        raise ValueError("graphs.lists.below or above does not have one element per group")
    owners = np.repeat(np.arange(shapes), np.diff(lists.shape_groups))
    check_ids("graphs.lists.members", lists.members, 0, None, groups)
    ends = lists.members.astype(np.int64) + np.diff(lists.value_offsets)
    if np.any(lists.members < lists.shape_members[owners]) or np.any(ends > lists.shape_members[owners + 1]):
        raise ValueError("graphs.lists.members refers to a member that is not in the shape")


@kernel
def programs_are_valid(offsets: Array, values: Array, variables: Array, terms: int) -> bool:
    """Return whether every program leaves one value on the stack, and uses only existing terms and variables."""
    for pattern in range(len(offsets) - 1):
        position, end = offsets[pattern], offsets[pattern + 1]
        height = 1 if position == end else 0
        while position < end:
            code = values[position]
            position += 1
            if code in (_AND, _OR):
                height -= 1
            elif 0 <= code < _AND:
                if position + 2 > end:
                    return False
                for node in values[position : position + 2]:
                    if node >= terms or node < -np.int64(variables[pattern]):
                        return False
                position += 2
                height += 1
            elif code not in (_NOT, _CERTAIN):
                return False
            if height < 1:
                return False
        if height != 1:
            return False
    return True
