"""Choosing the matcher of every source when a plan is compiled, by expected cost.

In: a logical plan and its arrays. Out: a `MatcherChoice`. Streams and the index are judged by their arrays. A filter
tree must be made to be judged, so it is made only where it could cost less than what is best without it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from runnel.arrays import Array, Rows
from runnel.matching.compile.expected_work import by_source, expect_candidates, expect_streams
from runnel.matching.compile.matcher_choice import MatcherChoice
from runnel.matching.filters.atoms.anchors import Anchors
from runnel.matching.filters.atoms.atom_layout import AtomLayout
from runnel.matching.filters.streams.entries import sources_of
from runnel.matching.filters.streams.stream_layout import StreamLayout
from runnel.optimizer.matcher_costs import ALWAYS, EACH, ENOUGH, MATCHERS, MatcherName, tree_microseconds
from runnel.papers.roses.explain_tree import MOST_PREDICATES, source_tree
from runnel.papers.roses.factoring.filter_table import predicates_of
from runnel.plan.logical_plan import LogicalPlan

MOST_TREES = 32
"""How many trees are made to be judged, at most: a tree of thousands of predicates takes a second."""

MOST_IN_TABLE = 100_000
"""With more predicates no tree is chosen: the matcher of trees looks at all of them when a plan is loaded."""


def choose_matchers(
    logical: LogicalPlan, atoms: AtomLayout, anchors: Anchors, streams: StreamLayout, wanted: MatcherName | None
) -> MatcherChoice:
    """The matcher of every source: the one that is wanted, or the one that is expected to cost least."""
    sources, work = sources_of(logical), expect_streams(streams, atoms)
    found = MatcherChoice(
        sources=sources.astype(np.int64),
        matchers=np.full(len(sources), MATCHERS.index(wanted or "streams"), dtype=np.uint8),
        queries=by_source(logical, logical.targets.lengths).astype(np.int64),
        entries=work.entries.astype(np.float32),
        numbers=work.numbers.astype(np.float32),
        candidates=expect_candidates(logical, atoms, anchors).astype(np.float32),
        filters=np.full(len(sources), np.nan, dtype=np.float32),
        forced=np.array([wanted is not None], dtype=np.uint8),
    )
    if wanted is not None:
        return found
    found = replace(found, filters=_expect_filters(logical, atoms, found))
    costs = _costs(found)
    return replace(found, matchers=np.argmin(costs, axis=0).astype(np.uint8))


def _costs(found: MatcherChoice) -> Array:
    """Microseconds for an item, a row for each of MATCHERS; without end where it is not known.

    Of streams, what another matcher must cost less than to be chosen.
    """
    streams = ALWAYS["streams"] + EACH["streams"] * found.entries + EACH["numbers"] * found.numbers
    tree = tree_microseconds(np.where(np.isnan(found.filters), np.inf, found.filters), len(found.sources))
    index = ALWAYS["index"] + EACH["index"] * found.candidates
    return np.stack([ENOUGH * streams, tree, index])


def _expect_filters(logical: LogicalPlan, atoms: AtomLayout, found: MatcherChoice) -> Array:
    """The filters of a tree for the sources where one could cost less than the rest; not a number for the others."""
    filters = np.array(found.filters)
    if len(logical.predicates) > MOST_IN_TABLE:
        return filters
    # A tree asks at least one filter, so what costs less than that needs no tree to be compared with.
    hopeful = np.flatnonzero(_costs(found).min(axis=0) > tree_microseconds(1.0, len(found.sources)))
    trees: dict[bytes, float] = {}
    scopes = _scopes_of_sources(logical)
    for place in hopeful.tolist():
        key = scopes.row(place).tobytes()
        if key not in trees:
            if len(trees) == MOST_TREES:
                break
            predicates = predicates_of(logical, int(found.sources[place]))
            few = len(predicates) <= MOST_PREDICATES
            trees[key] = source_tree(logical, atoms.atom_shares, predicates)[0].cost if few else np.nan
        filters[place] = trees[key]
    return filters


def _scopes_of_sources(logical: LogicalPlan) -> Rows:
    """The scopes that each source is in; sources with the same ones are asked the same."""
    scopes, sources = logical.scopes, sources_of(logical)
    owners = np.repeat(np.arange(len(scopes)), scopes.lengths)
    return Rows.grouped(np.searchsorted(sources, scopes.values), owners, len(sources))
