"""The number of partitions: one if the plan fits, and never fewer for a larger plan or less memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import RunnelError
from runnel.scaleout.divide.choose_partitions import (
    MAX_PARTITIONS,
    MAX_SIZE_RATIO,
    ROUTER_FRACTION,
    choose_partitions,
)

GENERATED = settings(deadline=None, derandomize=True, max_examples=200)
GIB = 1 << 30


def test_plan_within_the_budget_is_not_partitioned() -> None:
    chosen = choose_partitions(queries=10_000, plan_bytes=GIB, budget_bytes=4 * GIB, cores=8)
    assert chosen.count == 1
    assert chosen.reason.startswith("the plan takes 1.0 GiB and a worker may map 4.0 GiB: every worker loads the")
    assert "8 µs" in chosen.reason


def test_plan_above_the_budget_is_partitioned() -> None:
    chosen = choose_partitions(queries=10**7, plan_bytes=5 * GIB, budget_bytes=4 * GIB, cores=4)
    assert chosen.count == 4
    assert chosen.reason == (
        "the plan takes 5.0 GiB and a worker may map 4.0 GiB: with 4 partitions of up to 1.4 GiB, the router and two "
        "partitions fit into the memory of a worker; their number is a multiple of the 4 cores"
    )


@pytest.mark.parametrize(("cores", "count"), [(1, 4), (3, 6), (8, 8), (9, 4)])
def test_count_is_a_multiple_of_the_cores_unless_that_more_than_doubles_it(cores: int, count: int) -> None:
    assert choose_partitions(queries=10**7, plan_bytes=5 * GIB, budget_bytes=4 * GIB, cores=cores).count == count


def test_number_in_the_settings_takes_precedence() -> None:
    whole = choose_partitions(queries=9, plan_bytes=9 * GIB, budget_bytes=GIB, cores=4, wanted=1)
    several = choose_partitions(queries=9, plan_bytes=9, budget_bytes=GIB, cores=4, wanted=7)
    assert (whole.count, several.count) == (1, 7)
    assert "as the settings say" in whole.reason
    assert several.reason == "the number is set in the settings"


def test_there_are_no_more_partitions_than_queries() -> None:
    few = choose_partitions(queries=10, plan_bytes=9, budget_bytes=GIB, cores=4, wanted=1_024)
    assert (few.count, few.reason) == (10, "instead of the 1,024 in the settings, because there are only 10 queries")
    alone = choose_partitions(queries=1, plan_bytes=9, budget_bytes=GIB, cores=4, wanted=1_024)
    assert alone.count == 1
    assert "a single query cannot be divided, although the settings say 1,024 partitions" in alone.reason
    none = choose_partitions(queries=0, plan_bytes=9, budget_bytes=GIB, cores=4, wanted=1)
    assert (none.count, none.brief) == (1, "there are no queries")
    assert choose_partitions(queries=10, plan_bytes=9, budget_bytes=GIB, cores=4, wanted=10).count == 10


def test_reason_starts_with_the_brief_reason() -> None:
    whole = choose_partitions(queries=9, plan_bytes=GIB, budget_bytes=4 * GIB, cores=4)
    assert whole.brief == "the plan takes 1.0 GiB and a worker may map 4.0 GiB"
    assert whole.reason.startswith(f"{whole.brief}: ")


def test_impossible_budgets_are_reported_and_zero_cores_rejected() -> None:
    assert choose_partitions(queries=1, plan_bytes=9 * GIB, budget_bytes=GIB, cores=4).count == 1
    crowded = choose_partitions(queries=3, plan_bytes=9 * GIB, budget_bytes=GIB, cores=4)
    assert crowded.count == 3
    assert "may not fit" in crowded.reason
    with pytest.raises(RunnelError, match="0 cores"):
        choose_partitions(queries=1, plan_bytes=1, budget_bytes=1, cores=0)


@GENERATED
@given(st.integers(1, 64), st.integers(0, 1 << 34), st.integers(0, 1 << 34), st.integers(1 << 20, 1 << 33))
def test_count_grows_with_the_plan_and_shrinks_with_memory(cores: int, one: int, other: int, budget: int) -> None:
    sizes = sorted((one, other))
    counts = [
        choose_partitions(queries=10**9, plan_bytes=size, budget_bytes=budget, cores=cores).count for size in sizes
    ]
    assert counts[0] <= counts[1]
    more = choose_partitions(queries=10**9, plan_bytes=sizes[1], budget_bytes=2 * budget, cores=cores).count
    assert more <= counts[1]
    if 1 < counts[1] < MAX_PARTITIONS and ROUTER_FRACTION * sizes[1] < budget / 2:
        assert ROUTER_FRACTION * sizes[1] + 2 * MAX_SIZE_RATIO * sizes[1] / counts[1] <= budget * (1 + 1e-9)
