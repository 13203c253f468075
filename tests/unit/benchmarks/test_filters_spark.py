"""The figures of `benchmarks.filters_spark` for any number of micro-batches."""

from __future__ import annotations

import pytest
from benchmarks.filters_spark import warm_waits


@pytest.mark.parametrize(
    ("count", "left"), [(1, 1), (2, 1), (3, 2), (5, 3), (6, 3), (9, 5), (10, 5), (11, 6), (30, 25)]
)
def test_some_waits_are_left_however_few_there_are(count: int, left: int) -> None:
    waits = [float(number) for number in range(count, 0, -1)]
    assert warm_waits(waits) == [float(number) for number in range(1, left + 1)]
