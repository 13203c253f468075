"""Measured loads of partitions, on every supported database: summed, halved, and deleted with their partitioning."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.catalog.logs import match_segments
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.catalog.store import leases
from runnel.catalog.store.connection import Catalog
from runnel.errors import RunnelError
from runnel.model.segment import MatchPart
from runnel.scaleout.planning.partition_loads import PartitionLoad, fade_loads, forget_loads, known_loads, note_loads

_numbers = st.integers(0, 1 << 40)
_loads = st.lists(st.builds(PartitionLoad, st.integers(0, 3), _numbers, _numbers, _numbers, _numbers), max_size=6)
# Every case begins by forgetting what the one before it noted.
CASES = settings(
    max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def known(catalog: Catalog, partitioning: str) -> list[PartitionLoad]:
    with catalog.read() as connection:
        return known_loads(connection, partitioning)


def noted(catalog: Catalog, partitioning: str, *loads: PartitionLoad) -> None:
    with catalog.write() as connection:
        note_loads(connection, partitioning, loads)


def test_loads_add_up_by_partition_and_partitioning(catalog: Catalog) -> None:
    noted(catalog, "plans/a", PartitionLoad(2, 10, 7, 1_000, 1), PartitionLoad(0, 1, 0, 5, 1))
    noted(catalog, "plans/b", PartitionLoad(0, 3, 3, 3, 3))
    noted(catalog, "plans/a", PartitionLoad(2, 5, 0, 10, 0), PartitionLoad(2, 1, 1, 1, 1))
    assert known(catalog, "plans/a") == [PartitionLoad(0, 1, 0, 5, 1), PartitionLoad(2, 16, 8, 1_011, 2)]
    assert known(catalog, "plans/b") == [PartitionLoad(0, 3, 3, 3, 3)]
    assert known(catalog, "plans/c") == []


@CASES
@given(batches=st.lists(_loads, max_size=3))
def test_total_load_is_the_sum_of_all_records(catalog: Catalog, batches: list[list[PartitionLoad]]) -> None:
    with catalog.write() as connection:
        forget_loads(connection, ())
        for batch in batches:
            note_loads(connection, "plans/a", batch)
        loads = known_loads(connection, "plans/a")
    every = [load for batch in batches for load in batch]
    assert [element.partition for element in loads] == sorted({element.partition for element in every})
    for value in loads:
        own = [load for load in every if load.partition == value.partition]
        assert (value.items, value.matches) == (sum(each.items for each in own), sum(each.matches for each in own))
        assert value.microseconds == sum(each.microseconds for each in own)
        assert value.loads == sum(each.loads for each in own)


def test_loads_are_halved_and_stay_integers(catalog: Catalog) -> None:
    noted(catalog, "plans/a", PartitionLoad(0, 7, 3, 1_000_001, 1), PartitionLoad(1, 0, 0, 0, 0))
    noted(catalog, "plans/b", PartitionLoad(0, 7, 7, 7, 7))
    with catalog.write() as connection:
        fade_loads(connection, "plans/a")
    assert known(catalog, "plans/a") == [PartitionLoad(0, 3, 1, 500_000, 0), PartitionLoad(1, 0, 0, 0, 0)]
    assert all(type(load.items) is int for load in known(catalog, "plans/a"))
    assert known(catalog, "plans/b") == [PartitionLoad(0, 7, 7, 7, 7)]
    noted(catalog, "plans/a", PartitionLoad(0, 1, 1, 1, 1))
    assert known(catalog, "plans/a")[0] == PartitionLoad(0, 4, 2, 500_001, 1)


def test_loads_of_removed_partitionings_are_deleted(catalog: Catalog) -> None:
    for name in ("a", "b", "c"):
        noted(catalog, f"plans/{name}", PartitionLoad(0, 1, 1, 1, 1))
    with catalog.write() as connection:
        forget_loads(connection, ["plans/b", "plans/z"])
    assert [bool(known(catalog, f"plans/{name}")) for name in ("a", "b", "c")] == [False, True, False]
    with catalog.write() as connection:
        forget_loads(connection, ())
    assert known(catalog, "plans/b") == []


def test_load_record_is_part_of_its_transaction(catalog: Catalog) -> None:
    def note_and_fail() -> None:
        with catalog.write() as connection:
            note_loads(connection, "plans/a", [PartitionLoad(0, 1, 1, 1, 1)])
            raise RunnelError("no more room")

    with pytest.raises(RunnelError, match="no more room"):
        note_and_fail()
    assert known(catalog, "plans/a") == []


def test_limit_does_not_separate_layers(catalog: Catalog) -> None:
    with catalog.write() as connection:
        epoch = leases.acquire(connection, 60).epoch
        for first, layers in ((1, 3), (2, 1), (3, 4)):
            parts = [MatchPart(f"matches/{first}-{layer}", first, first, 1) for layer in range(layers)]
            segment = MatchSegment(1, first, first, first, 1, 1, 0)
            assert match_segments.commit_segment(connection, segment, parts, epoch=epoch)
    with catalog.read() as connection:
        for limit, count in ((1, 3), (3, 3), (4, 4), (5, 8), (99, 8)):
            match_parts = match_segments.match_parts(connection, 0, 9, limit=limit)
            assert len({match_part.path for match_part in match_parts}) == len(match_parts) == count
            assert match_segments.small_parts(connection, limit) == match_parts
            assert len({match_part.committed for match_part in match_parts if match_part.first_sequence == 1}) == 1
        assert [
            match_part.first_sequence for match_part in match_segments.match_parts(connection, 1, 2, limit=9)
        ] == [2]
        assert match_segments.match_parts(connection, 9, 20, limit=9) == []
    with catalog.write() as connection:
        assert match_segments.retain_matches(connection, 1) == 3
