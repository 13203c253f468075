"""The matching step as a bounded Spark job over slices of the past: no stream, no checkpoint, no log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from runnel.matching.gates.claims import Claims
from runnel.matching.gates.resolve_gates import resolve_gates
from runnel.model.segment import Slice
from runnel.streaming.item_source import SLICE_DDL
from runnel.streaming.worker.match_job import LOOKED_DDL, look_at_slices


def match_past(
    spark: Any, storage_url: str, slices: Sequence[Slice], plan: str, operators: str | None = None
) -> npt.NDArray[np.int64]:
    """The sequences of the items that match any query of a plan folder, in order; `operators` is a brief for them."""
    of_plan = (0, plan, None, (), None, operators, 0, 0)
    rows = [
        (one.tier, one.path, one.first_row, one.rows, one.first_sequence, one.accepted, *of_plan) for one in slices
    ]
    frame = spark.createDataFrame(rows, SLICE_DDL).repartition(spark.sparkContext.defaultParallelism)
    looked = frame.mapInArrow(look_at_slices(storage_url), LOOKED_DDL).collect()
    found = [np.array(row["sequences"], dtype=np.int64) for row in looked]
    claims = Claims.of([Claims.opened(bytes(row["claims"])) for row in looked if row["claims"]])
    passed, _ = resolve_gates(claims.at_gates(), lambda keys: {}).matches(claims)  # no item came before
    return np.unique(np.concatenate([*found, passed]))
