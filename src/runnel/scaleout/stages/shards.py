"""Shards: the slots of the keyed second stage, and a key for each of them.

Spark keeps the state of a slot on one executor, so the partitions of a shard stay loaded on that executor. Spark puts
a row into the slot whose number is the hash of the row's key modulo the number of slots. The keys 0, 1, 2, … would
leave some slots empty and fill others twice, so this module finds one key per slot.
"""

from __future__ import annotations

from functools import lru_cache

_SEED = 42
_MASK = 0xFFFFFFFF


def shard_count(partitions: int, parallelism: int) -> int:
    """Return the number of shards for a number of partitions: two per core at most, to balance the load of the cores.

    >>> shard_count(8, 2), shard_count(3, 16), shard_count(0, 2)
    (4, 3, 0)
    """
    return min(partitions, 2 * max(1, parallelism))


@lru_cache(maxsize=8)
def shard_keys(shards: int) -> tuple[int, ...]:
    """Return a key for each shard.

    >>> [spark_hash(key) % 4 for key in shard_keys(4)]
    [0, 1, 2, 3]
    """
    keys: dict[int, int] = {}
    key = 0
    while len(keys) < shards:
        keys.setdefault(spark_hash(key) % shards, key)
        key += 1
    return tuple(keys[shard] for shard in range(shards))


def spark_hash(value: int) -> int:
    """Return the signed hash by which Spark distributes rows with a 64-bit key: Murmur3 of its two halves.

    >>> spark_hash(0), spark_hash(14)
    (-1670924195, 167136754)
    """
    mixed = _mix(_mix(_SEED, value & _MASK), (value >> 32) & _MASK)
    mixed ^= 8
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B & _MASK
    mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35 & _MASK
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _mix(state: int, half: int) -> int:
    half = half * 0xCC9E2D51 & _MASK
    half = (half << 15 | half >> 17) & _MASK
    state ^= half * 0x1B873593 & _MASK
    state = (state << 13 | state >> 19) & _MASK
    return (state * 5 + 0xE6546B64) & _MASK
