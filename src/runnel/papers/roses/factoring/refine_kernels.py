"""Kernels of the refinement: the best parent of a node, and what leaving out or taking in a filter saves."""

from __future__ import annotations

import numpy as np

from runnel.arrays import Array
from runnel.kernel import kernel
from runnel.papers.roses.factoring.filter_nodes import ABSENT, SOURCE, Nodes, closed_mask

_TINY = 1e-12


@kernel
def best_parent(nodes: Nodes, parents: Array, node: int, without: int) -> int:
    """The most selective filter of the plan that subsumes a node; `without` is left out of account.

    A parent comes after its child in the order of candidates, so that parents never form a circle.
    """
    if node < nodes.predicates:
        holder, limit, floor = node, ~np.uint64(0), nodes.candidates[node]
    else:
        floor = node - nodes.predicates
        entry = nodes.offsets[floor]
        holder, limit = nodes.members[entry], closed_mask(nodes, entry)
    for place in range(nodes.listed_offsets[holder], nodes.listed_offsets[holder + 1]):
        entry = nodes.listed[place]
        candidate = nodes.candidate_of[entry]
        other = nodes.nodes[candidate]
        if candidate > floor and other != without and parents[other] != ABSENT and not nodes.masks[entry] & ~limit:
            return int(other)
    return SOURCE


@kernel
def rate_of(nodes: Nodes, node: int) -> float:
    """The part of all items that a node, or the source, lets through."""
    return 1.0 if node == SOURCE else float(nodes.rates[node])


@kernel
def attach_nodes(nodes: Nodes, parents: Array) -> None:
    """Every node below its best parent."""
    for node in range(len(parents)):
        if parents[node] != ABSENT:
            parents[node] = best_parent(nodes, parents, node, node)


@kernel
def drop_nodes(nodes: Nodes, parents: Array) -> None:
    """Leave out the filters that cost more than they save, the least selective first."""
    count = len(parents)
    degrees = np.zeros(count, dtype=np.int64)
    first = np.full(count, SOURCE, dtype=np.int64)
    after = np.full(count, SOURCE, dtype=np.int64)
    for node in range(count):
        if parents[node] >= 0:
            degrees[parents[node]] += 1
            after[node] = first[parents[node]]
            first[parents[node]] = node
    for node in range(count - 1, nodes.predicates - 1, -1):
        if parents[node] == ABSENT:
            continue
        gain = rate_of(nodes, parents[node])
        seen, child = 0, first[node]
        while child != SOURCE:
            if parents[child] == node:
                seen += 1
                gain -= rate_of(nodes, best_parent(nodes, parents, child, node)) - nodes.rates[node]
            child = after[child]
        # A node that took children from another in this round is looked at in the next.
        if gain <= _TINY or seen != degrees[node]:
            continue
        child = first[node]
        while child != SOURCE:
            if parents[child] == node:
                parents[child] = best_parent(nodes, parents, child, node)
                if parents[child] >= 0:
                    degrees[parents[child]] += 1
            child = after[child]
        if parents[node] >= 0:
            degrees[parents[node]] -= 1
        parents[node] = ABSENT


@kernel
def filters_below(nodes: Nodes, parents: Array) -> tuple[Array, Array]:
    """For every candidate that is not in the plan the inserted filters of the plan that it subsumes, as rows."""
    count = len(nodes.nodes)
    offsets = np.zeros(count + 1, dtype=np.int64)
    values = np.empty(0, dtype=np.int64)
    filled = np.zeros(count, dtype=np.int64)
    for filling in range(2):
        for below in range(count):
            if nodes.nodes[below] < nodes.predicates or parents[nodes.nodes[below]] == ABSENT:
                continue
            holder, limit = nodes.members[nodes.offsets[below]], closed_mask(nodes, nodes.offsets[below])
            for place in range(nodes.listed_offsets[holder], nodes.listed_offsets[holder + 1]):
                entry = nodes.listed[place]
                above = nodes.candidate_of[entry]
                if above <= below or parents[nodes.nodes[above]] != ABSENT or nodes.masks[entry] & ~limit:
                    continue
                if filling:
                    values[offsets[above] + filled[above]] = nodes.nodes[below]
                    filled[above] += 1
                else:
                    offsets[above + 1] += 1
        if not filling:
            for candidate in range(count):
                offsets[candidate + 1] += offsets[candidate]
            values = np.empty(offsets[count], dtype=np.int64)
    return offsets, values


@kernel
def gain_of(nodes: Nodes, parents: Array, candidate: int, offsets: Array, values: Array) -> float:
    """What a candidate that is not in the plan would save: what it takes over, less what it costs itself."""
    node = nodes.nodes[candidate]
    rate = nodes.rates[node]
    gain = 0.0
    for entry in range(nodes.offsets[candidate], nodes.offsets[candidate + 1]):
        member = nodes.members[entry]
        if nodes.candidates[member] < candidate:
            gain += max(0.0, rate_of(nodes, parents[member]) - rate)
    for place in range(offsets[candidate], offsets[candidate + 1]):
        gain += max(0.0, rate_of(nodes, parents[values[place]]) - rate)
    # Its parent lets through at least as much as it does, so a small gain needs no search for the parent.
    return gain - rate if gain <= rate else gain - rate_of(nodes, best_parent(nodes, parents, node, node))


@kernel
def all_gains(nodes: Nodes, parents: Array, offsets: Array, values: Array) -> Array:
    """What each candidate that is not in the plan would save by itself."""
    gains = np.zeros(len(nodes.nodes), dtype=np.float64)
    for candidate in range(len(gains)):
        if parents[nodes.nodes[candidate]] == ABSENT:
            gains[candidate] = gain_of(nodes, parents, candidate, offsets, values)
    return gains


@kernel
def add_nodes(nodes: Nodes, parents: Array, wanted: Array, offsets: Array, values: Array) -> None:
    """Take in the wanted candidates, one after the other, as far as they still save something."""
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
        for place in range(offsets[candidate], offsets[candidate + 1]):
            if rate_of(nodes, parents[values[place]]) > rate:
                parents[values[place]] = node
