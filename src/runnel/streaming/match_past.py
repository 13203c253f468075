"""Matching of past items as a bounded Spark job, without a stream, a checkpoint or writes to the match log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel.matching.gates.claims import Claims
from runnel.matching.gates.resolve_gates import resolve_gates
from runnel.model.annotation import Annotation
from runnel.model.segment import Slice
from runnel.streaming.item_source import SLICE_DDL
from runnel.streaming.worker.match_job import MATCHING_ITEMS_DDL, find_matching_items


@dataclass(frozen=True, slots=True)
class PastMatches:
    """The sequences of the items that match any query, ascending, and annotations by sequence and query."""

    sequences: npt.NDArray[np.int64]
    annotations: Mapping[int, Mapping[int, tuple[Annotation, ...]]]


def match_past(
    spark: Any, storage_url: str, slices: Sequence[Slice], plan: str, operators: str | None = None
) -> PastMatches:
    """Return the items that match any query of a plan folder.

    `operators` is the text of an `OperatorSnapshot`.
    """
    plan_columns = (0, plan, None, (), None, operators, 0, 0)
    rows = [
        (
            *(slice_.tier, slice_.path, slice_.first_row, slice_.rows, slice_.first_sequence, slice_.accepted),
            *plan_columns,
        )
        for slice_ in slices
    ]
    frame = spark.createDataFrame(rows, SLICE_DDL).repartition(spark.sparkContext.defaultParallelism)
    results = frame.mapInArrow(find_matching_items(storage_url), MATCHING_ITEMS_DDL).collect()
    sequences = [np.array(row["sequences"], dtype=np.int64) for row in results]
    claims = Claims.of([Claims.decode(bytes(row["claims"])) for row in results if row["claims"]])
    # Gates start without a state, as if these items were the first of their feeds.
    gates = resolve_gates(claims.at_gates(), lambda keys: {})
    passed, _ = gates.matches(claims)
    return PastMatches(np.unique(np.concatenate([*sequences, passed])), gates.annotations_of(claims))
