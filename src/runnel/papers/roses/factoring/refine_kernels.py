"""Kernels of the refinement: the best parent of a node, and the saving of removing or adding a filter."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.papers.roses.factoring.filter_nodes import ABSENT, SOURCE, Nodes, closed_mask

_TINY = 1e-12


@kernel
def best_parent(nodes: Nodes, parents: Array, node: int, without: int) -> int:
    """Return the most selective filter of the plan, other than `without`, that subsumes a node.

    A parent comes after its child in the order of candidates, so that parents never form a cycle.
    """
    if node < nodes.predicates:
        holder, limit, floor = node, ~np.uint64(0), nodes.candidates[node]
    else:
        floor = node - nodes.predicates
        entry = nodes.offsets[floor]
        holder, limit = nodes.members[entry], closed_mask(nodes, entry)
    for index in range(nodes.listed_offsets[holder], nodes.listed_offsets[holder + 1]):
        entry = nodes.listed[index]
        candidate = nodes.candidate_of[entry]
        other = nodes.nodes[candidate]
        if candidate > floor and other != without and parents[other] != ABSENT and not nodes.masks[entry] & ~limit:
            return int(other)
    return SOURCE


@kernel
def rate_of(nodes: Nodes, node: int) -> float:
    """Return the share of all items that pass a node or the source."""
    return 1.0 if node == SOURCE else float(nodes.rates[node])


@kernel
def attach_nodes(nodes: Nodes, parents: Array) -> None:
    """Attach every node of the plan to its best parent."""
    for node in range(len(parents)):
        if parents[node] != ABSENT:
            parents[node] = best_parent(nodes, parents, node, node)


@kernel
def drop_nodes(nodes: Nodes, parents: Array) -> None:
    """Remove the filters that cost more than they save, the least selective first."""
    count = len(parents)
    degrees = np.zeros(count, dtype=np.int64)
    first_child = np.full(count, SOURCE, dtype=np.int64)
    next_sibling = np.full(count, SOURCE, dtype=np.int64)
    for node in range(count):
        if parents[node] >= 0:
            degrees[parents[node]] += 1
            next_sibling[node] = first_child[parents[node]]
            first_child[parents[node]] = node
    for node in range(count - 1, nodes.predicates - 1, -1):
        if parents[node] == ABSENT:
            continue
        gain = rate_of(nodes, parents[node])
        seen, child = 0, first_child[node]
        while child != SOURCE:
            if parents[child] == node:
                seen += 1
                gain -= rate_of(nodes, best_parent(nodes, parents, child, node)) - nodes.rates[node]
            child = next_sibling[child]
        # A node that took children from another in this round is examined in the next round.
        if gain <= _TINY or seen != degrees[node]:
            continue
        child = first_child[node]
        while child != SOURCE:
            if parents[child] == node:
                parents[child] = best_parent(nodes, parents, child, node)
                if parents[child] >= 0:
                    degrees[parents[child]] += 1
            child = next_sibling[child]
        if parents[node] >= 0:
            degrees[parents[node]] -= 1
        parents[node] = ABSENT


@kernel
def filters_below(nodes: Nodes, parents: Array) -> tuple[Array, Array]:
    """Return for every candidate outside the plan the inserted filters of the plan that it subsumes, as rows."""
    count = len(nodes.nodes)
    offsets = np.zeros(count + 1, dtype=np.int64)
    values = np.empty(0, dtype=np.int64)
    counts = np.zeros(count, dtype=np.int64)
    for pass_number in range(2):
        for below in range(count):
            if nodes.nodes[below] < nodes.predicates or parents[nodes.nodes[below]] == ABSENT:
                continue
            holder, limit = nodes.members[nodes.offsets[below]], closed_mask(nodes, nodes.offsets[below])
            for index in range(nodes.listed_offsets[holder], nodes.listed_offsets[holder + 1]):
                entry = nodes.listed[index]
                above = nodes.candidate_of[entry]
                if above <= below or parents[nodes.nodes[above]] != ABSENT or nodes.masks[entry] & ~limit:
                    continue
                if pass_number:
                    values[offsets[above] + counts[above]] = nodes.nodes[below]
                    counts[above] += 1
                else:
                    offsets[above + 1] += 1
        if not pass_number:
            for candidate in range(count):
                offsets[candidate + 1] += offsets[candidate]
            values = np.empty(offsets[count], dtype=np.int64)
    return offsets, values


@kernel
def gain_of(nodes: Nodes, parents: Array, candidate: int, offsets: Array, values: Array) -> float:
    """Return what adding a candidate to the plan would save for the nodes below it, minus its own cost."""
    node = nodes.nodes[candidate]
    rate = nodes.rates[node]
    gain = 0.0
    for entry in range(nodes.offsets[candidate], nodes.offsets[candidate + 1]):
        member = nodes.members[entry]
        if nodes.candidates[member] < candidate:
            gain += max(0.0, rate_of(nodes, parents[member]) - rate)
    for index in range(offsets[candidate], offsets[candidate + 1]):
        gain += max(0.0, rate_of(nodes, parents[values[index]]) - rate)
    # The parent's rate is at least the candidate's, so a small gain needs no search for the parent.
    return gain - rate if gain <= rate else gain - rate_of(nodes, best_parent(nodes, parents, node, node))


@kernel
def all_gains(nodes: Nodes, parents: Array, offsets: Array, values: Array) -> Array:
    """Return what adding each candidate alone to the plan would save."""
    gains = np.zeros(len(nodes.nodes), dtype=np.float64)
    for candidate in range(len(gains)):
        if parents[nodes.nodes[candidate]] == ABSENT:
            gains[candidate] = gain_of(nodes, parents, candidate, offsets, values)
    return gains


@kernel
def add_nodes(nodes: Nodes, parents: Array, wanted: Array, offsets: Array, values: Array) -> None:
    """Add the wanted candidates in order. Skip those that no longer save anything."""
    for candidate in wanted:
        if gain_of(nodes, parents, candidate, offsets, values) <= _TINY:
            continue
        node = nodes.nodes[candidate]
        rate = nodes.rates[node]
        parents[node] = best_parent(nodes, parents, node, node)
        for entry in range(nodes.offsets[candidate], nodes.offsets[candidate + 1]):
            member = nodes.members[entry]
            if nodes.candidates[member] < candidate and rate_of(nodes, parents[member]) > rate:
                parents[member] = node
        for index in range(offsets[candidate], offsets[candidate + 1]):
            if rate_of(nodes, parents[values[index]]) > rate:
                parents[values[index]] = node
