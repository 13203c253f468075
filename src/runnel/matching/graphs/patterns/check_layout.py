"""Whether the stored graph patterns of a plan part fit together: before any kernel runs on them."""

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
    """Raise ValueError, naming the array, unless everything fits and names keys that are there."""
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
        raise ValueError("graphs.buckets leaves something out")
    _check_slots(layout.slots, len(layout.buckets))
    _check_lists(layout, shapes, patterns)


def _check_edges(layout: GraphLayout, terms: int, shapes: int) -> None:
    table, edges = layout.table, layout.table.shape_edges
    check_rows("graphs.shape_edges", edges, None, shapes)
    check_ids("graphs.shape_edges.values", edges.values, -MAX_VARIABLES, terms, len(edges.values))
    if np.any(edges.offsets % EDGE) or np.any(edges.lengths == 0):
        raise ValueError("graphs.shape_edges has something that is no edge")
    owners = np.repeat(np.arange(shapes), edges.lengths)
    if np.any(layout.depths > edges.lengths // EDGE):
        raise ValueError("graphs.depths refers to something that is not there")
    if np.any(-edges.values > table.shape_variables[owners]):
        raise ValueError("graphs.shape_edges has a variable too many")


def _check_filters(layout: GraphLayout, terms: int, patterns: int) -> None:
    table = layout.table
    check_rows("graphs.constraints", table.constraints, None, patterns)
    check_rows("graphs.programs", table.programs, None, patterns)
    values, variables = table.constraints.values, table.shape_variables[table.pattern_shapes]
    if np.any(table.constraints.offsets % CONSTRAINT):
        raise ValueError("graphs.constraints has something that is no constraint")
    check_ids("graphs.constraints", values[1::CONSTRAINT], 0, len(RELATIONS), len(values) // CONSTRAINT)
    check_ids("graphs.constraints", values[2::CONSTRAINT], 0, terms, len(values) // CONSTRAINT)
    owners = np.repeat(np.arange(patterns), table.constraints.lengths // CONSTRAINT)
    asked = values[::CONSTRAINT]
    if np.any(asked < 0) or np.any(asked >= variables[owners]):
        raise ValueError("graphs.constraints refers to a variable that is not there")
    programs = read_only(table.programs.offsets), read_only(table.programs.values)
    if not programs_are_whole(*programs, read_only(variables), terms):
        raise ValueError("graphs.programs refers to something that is not there")


def _check_slots(slots: Array, buckets: int) -> None:
    check_ids("graphs.slots", slots, -1, buckets, len(slots))
    # A power of two, and never full: a search for what is not there must end.
    if len(slots) < 1 or len(slots) & (len(slots) - 1) or not np.any(slots < 0):
        raise ValueError("graphs.slots has no room")


def _check_lists(layout: GraphLayout, shapes: int, patterns: int) -> None:
    lists = layout.lists
    groups = len(lists.variables)
    nothing = np.zeros(max(patterns, len(lists.values)), dtype=np.int8)
    check_rows("graphs.lists.shape_members", Rows(lists.shape_members, nothing[:patterns]), None, shapes)
    check_rows("graphs.lists.shape_groups", Rows(lists.shape_groups, lists.variables), MAX_VARIABLES, shapes)
    if np.any(lists.variables >= np.repeat(layout.table.shape_variables, np.diff(lists.shape_groups))):
        raise ValueError("graphs.lists.variables refers to a variable that is not there")
    check_ids("graphs.lists.sorts", lists.sorts, 0, len(Sort), groups)
    lengths = Rows(lists.value_offsets, nothing[: len(lists.values)])
    check_rows("graphs.lists.value_offsets", lengths, None, groups)
    if len(lists.below) != groups or len(lists.above) != groups:
        raise ValueError("graphs.lists.below does not fit its groups")
    owners = np.repeat(np.arange(shapes), np.diff(lists.shape_groups))
    check_ids("graphs.lists.members", lists.members, 0, None, groups)
    ends = lists.members.astype(np.int64) + np.diff(lists.value_offsets)
    if np.any(lists.members < lists.shape_members[owners]) or np.any(ends > lists.shape_members[owners + 1]):
        raise ValueError("graphs.lists.members refers to something that is not there")


@kernel
def programs_are_whole(offsets: Array, values: Array, variables: Array, terms: int) -> bool:
    """Whether every program leaves one value, and names terms and variables that are there."""
    for pattern in range(len(offsets) - 1):
        place, end = offsets[pattern], offsets[pattern + 1]
        height = 1 if place == end else 0
        while place < end:
            code = values[place]
            place += 1
            if code in (_AND, _OR):
                height -= 1
            elif 0 <= code < _AND:
                if place + 2 > end:
                    return False
                for node in values[place : place + 2]:
                    if node >= terms or node < -np.int64(variables[pattern]):
                        return False
                place += 2
                height += 1
            elif code not in (_NOT, _CERTAIN):
                return False
            if height < 1:
                return False
        if height != 1:
            return False
    return True
