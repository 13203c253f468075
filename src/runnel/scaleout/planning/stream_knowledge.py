"""Statistics of the stream that are used for partitioning queries. They affect only speed, never results.

In: statistics in the catalog, and the newest files of the logs. Out: word frequencies, match rates of queries, costs
of operators, and samples of structured values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

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

_RATE_ITEMS = 20_000
"""Match rates are computed from the matches of this many recent items."""

_SAMPLE_ITEMS = 2_000
_MAX_SAMPLES = 200
"""Up to this many structured values per kind are sampled from the newest `_SAMPLE_ITEMS` items."""


@dataclass(frozen=True)
class StreamKnowledge:
    """Statistics of the stream: word frequencies, milliseconds per operator call, sampled values and match rates."""

    frequencies: Mapping[str, float] = field(default_factory=dict)
    operator_milliseconds: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    matched: tuple[Array, Array] | None = None
    """Queries in ascending order, and the matches per item of each."""

    def matches(self, query_ids: Array) -> Array | None:
        """Return the matches per item for the queries of a plan, or None. They are NaN for disjuncts."""
        if self.matched is None:
            return None
        queries, rates = self.matched
        result = np.full(len(query_ids), np.nan)
        own = visible(query_ids)
        positions = np.minimum(np.searchsorted(queries, own), max(0, len(queries) - 1))
        result[: len(own)] = np.where(queries[positions] == own, rates[positions], 0.0) if len(queries) else 0.0
        return result


def read_stream_knowledge(workspace: Workspace, connection: Connection, *, newest: bool = True) -> StreamKnowledge:
    """Read the statistics of the stream. With `newest`, also read the newest items and matches from the logs."""
    learned = learned_operators(connection)
    milliseconds = {
        name: 1_000.0 * learned.cost(operator_key(name, declaration.version), declaration.cost.total_seconds())
        for name, declaration in live_operators(connection).items()
    }
    upto = matched_upto(connection) if newest else 0
    if not upto:
        return StreamKnowledge(word_frequencies(connection), milliseconds)
    return StreamKnowledge(
        word_frequencies(connection), milliseconds, newest_values(workspace, upto), match_rates(workspace, upto)
    )


def match_rates(workspace: Workspace, upto: int) -> tuple[Array, Array] | None:
    """Return the queries that matched recent items up to a sequence, in ascending order, and their matches per item.

    Return None if there are no matches, or they cannot be read.
    """
    after = max(0, upto - _RATE_ITEMS)
    try:
        matched = [rows.queries for rows in workspace.matches.read(after, upto)]
    except (NotFoundError, CorruptDataError) as error:
        logger.debug("cannot compute match rates: %s", error)
        return None
    if not matched:
        return None
    queries, counts = np.unique(np.concatenate(matched), return_counts=True)
    return queries, counts / (upto - after)


def newest_values(workspace: Workspace, upto: int) -> dict[str, list[Value]]:
    """Return structured values of the newest items up to a sequence, by kind, for merging patterns (§4.3)."""
    values: dict[str, list[Value]] = {}
    try:
        for batch in workspace.items.read(max(0, upto - _SAMPLE_ITEMS), upto):
            for attributes in batch.attributes():
                for value in chain.from_iterable(attributes.values()):
                    if isinstance(value, StructuredValue):
                        values.setdefault(value.kind, []).append(value)
    except (NotFoundError, CorruptDataError) as error:
        logger.debug("cannot sample structured values: %s", error)
    return {kind: kind_values[-_MAX_SAMPLES:] for kind, kind_values in values.items()}
