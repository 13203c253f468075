"""How many partitions: one while the plan fits, and never fewer for a larger plan or less memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import RunnelError
from runnel.scaleout.divide.choose_partitions import MOST, ROUTER, UNEVEN, choose_partitions

GENERATED = settings(deadline=None, derandomize=True, max_examples=200)
GIB = 1 << 30


def test_a_plan_that_fits_is_whole_on_every_worker() -> None:
    chosen = choose_partitions(queries=10_000, plan_bytes=GIB, budget_bytes=4 * GIB, cores=8)
    assert chosen.count == 1
    assert chosen.reason.startswith("the plan takes 1.0 GiB and a worker may map 4.0 GiB: every worker has all of it")
    assert "8 µs" in chosen.reason


def test_a_plan_that_does_not_fit_is_divided() -> None:
    chosen = choose_partitions(queries=10**7, plan_bytes=5 * GIB, budget_bytes=4 * GIB, cores=4)
    assert chosen.count == 4
    assert chosen.reason == (
        "the plan takes 5.0 GiB and a worker may map 4.0 GiB: in 4 partitions of up to 1.4 GiB, the router, one "
        "partition and another that is being loaded fit; with 4 cores, as many as they share evenly"
    )


@pytest.mark.parametrize(("cores", "count"), [(1, 4), (3, 6), (8, 8), (9, 4)])
def test_cores_share_partitions_evenly_unless_that_takes_more_than_twice_as_many(cores: int, count: int) -> None:
    assert choose_partitions(queries=10**7, plan_bytes=5 * GIB, budget_bytes=4 * GIB, cores=cores).count == count


def test_the_settings_decide() -> None:
    whole = choose_partitions(queries=9, plan_bytes=9 * GIB, budget_bytes=GIB, cores=4, wanted=1)
    several = choose_partitions(queries=9, plan_bytes=9, budget_bytes=GIB, cores=4, wanted=7)
    assert (whole.count, several.count) == (1, 7)
    assert "as the settings say" in whole.reason
    assert several.reason == "as many partitions as the settings say"


def test_there_are_no_more_partitions_than_queries() -> None:
    few = choose_partitions(queries=10, plan_bytes=9, budget_bytes=GIB, cores=4, wanted=1_024)
    assert (few.count, few.reason) == (10, "instead of the 1,024 of the settings, as there are 10 queries")
    alone = choose_partitions(queries=1, plan_bytes=9, budget_bytes=GIB, cores=4, wanted=1_024)
    assert alone.count == 1
    assert "a single query cannot be divided, although the settings say 1,024 partitions" in alone.reason
    none = choose_partitions(queries=0, plan_bytes=9, budget_bytes=GIB, cores=4, wanted=1)
    assert (none.count, none.brief) == (1, "there are no queries")
    assert choose_partitions(queries=10, plan_bytes=9, budget_bytes=GIB, cores=4, wanted=10).count == 10


def test_a_long_reason_has_a_brief_one() -> None:
    whole = choose_partitions(queries=9, plan_bytes=GIB, budget_bytes=4 * GIB, cores=4)
    assert whole.brief == "the plan takes 1.0 GiB and a worker may map 4.0 GiB"
    assert whole.reason.startswith(f"{whole.brief}: ")


def test_what_cannot_be_is_said() -> None:
    assert choose_partitions(queries=1, plan_bytes=9 * GIB, budget_bytes=GIB, cores=4).count == 1
    crowded = choose_partitions(queries=3, plan_bytes=9 * GIB, budget_bytes=GIB, cores=4)
    assert crowded.count == 3
    assert "may fit" in crowded.reason
    with pytest.raises(RunnelError, match="0 cores"):
        choose_partitions(queries=1, plan_bytes=1, budget_bytes=1, cores=0)


@GENERATED
@given(st.integers(1, 64), st.integers(0, 1 << 34), st.integers(0, 1 << 34), st.integers(1 << 20, 1 << 33))
def test_a_larger_plan_has_no_fewer_partitions_and_more_memory_no_more(
    cores: int, one: int, other: int, budget: int
) -> None:
    sizes = sorted((one, other))
    counts = [
        choose_partitions(queries=10**9, plan_bytes=size, budget_bytes=budget, cores=cores).count for size in sizes
    ]
    assert counts[0] <= counts[1]
    more = choose_partitions(queries=10**9, plan_bytes=sizes[1], budget_bytes=2 * budget, cores=cores).count
    assert more <= counts[1]
    if 1 < counts[1] < MOST and ROUTER * sizes[1] < budget / 2:
        assert ROUTER * sizes[1] + 2 * UNEVEN * sizes[1] / counts[1] <= budget * (1 + 1e-9)
