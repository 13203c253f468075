"""What the stream has taught, as far as it helps to divide queries: it decides speed, never answers.

In: statistics in the catalog, and the newest files of the logs. Out: how frequent words are, how often queries match,
what operators cost, and some structured values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from sqlalchemy import Connection

from runnel.arrays import Array
from runnel.catalog.declared.operators import live_operators
from runnel.catalog.learned.operator_statistics import learned_operators
from runnel.catalog.learned.stream_statistics import word_frequencies
from runnel.catalog.logs.match_segments import matched_upto
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError, NotFoundError
from runnel.model.item import Value
from runnel.model.learned.operator_statistics import operator_key
from runnel.model.structured_value import StructuredValue
from runnel.plan.gates import visible

logger = logging.getLogger("runnel")

_NEWEST = 20_000
"""Items in whose matches is counted how often queries match."""

_LOOKED_AT = 2_000
_SAMPLED = 200
"""Values of a kind that tell which patterns are alike, and the newest items among which they are looked for."""


@dataclass(frozen=True)
class StreamKnowledge:
    """What is known of the stream: how frequent words are, how often queries match, and what operators cost."""

    frequencies: Mapping[str, float] = field(default_factory=dict)
    operator_milliseconds: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    matched: tuple[Array, Array] | None = None
    """Queries, ascending, and the matches of each for an item."""

    def matches(self, query_ids: Array) -> Array | None:
        """Matches for an item, by the places of queries in a plan; those of ways are not known (NaN)."""
        if self.matched is None:
            return None
        queries, rates = self.matched
        found = np.full(len(query_ids), np.nan)
        own = visible(query_ids)
        places = np.minimum(np.searchsorted(queries, own), max(0, len(queries) - 1))
        found[: len(own)] = np.where(queries[places] == own, rates[places], 0.0) if len(queries) else 0.0
        return found


def read_stream_knowledge(workspace: Workspace, connection: Connection, *, newest: bool = True) -> StreamKnowledge:
    """What the stream has taught. Looking at the newest items and their matches reads files of the logs."""
    learned = learned_operators(connection)
    dear = {
        name: 1_000.0 * learned.cost(operator_key(name, one.version), one.cost.total_seconds())
        for name, one in live_operators(connection).items()
    }
    upto = matched_upto(connection) if newest else 0
    if not upto:
        return StreamKnowledge(word_frequencies(connection), dear)
    return StreamKnowledge(
        word_frequencies(connection), dear, newest_values(workspace, upto), match_rates(workspace, upto)
    )


def match_rates(workspace: Workspace, upto: int) -> tuple[Array, Array] | None:
    """The queries that matched any of the newest items up to a sequence, ascending, and matches for an item."""
    after = max(0, upto - _NEWEST)
    try:
        found = [rows.queries for rows in workspace.matches.read(after, upto)]
    except (NotFoundError, CorruptDataError) as error:
        logger.debug("matches are not counted: %s", error)
        return None
    if not found:
        return None
    queries, counts = np.unique(np.concatenate(found), return_counts=True)
    return queries, counts / (upto - after)


def newest_values(workspace: Workspace, upto: int) -> dict[str, list[Value]]:
    """The structured values of the newest items up to a sequence, by kind: from them patterns are merged (§4.3)."""
    found: dict[str, list[Value]] = {}
    try:
        for batch in workspace.items.read(max(0, upto - _LOOKED_AT), upto):
            for attributes in batch.attributes():
                for value in (one for several in attributes.values() for one in several):
                    if isinstance(value, StructuredValue):
                        found.setdefault(value.kind, []).append(value)
    except (NotFoundError, CorruptDataError) as error:
        logger.debug("values are not sampled: %s", error)
    return {kind: values[-_SAMPLED:] for kind, values in found.items()}
