"""Shards: the slots of the keyed second stage, and the keys by which Spark puts rows into them.

Spark keeps the state of a slot on one executor, and so it keeps the partitions of a shard there, with their plans
mapped. A row goes to the slot that is the hash of its key, modulo the number of slots; keys from 0 on would leave
some slots empty and others full, so for each slot a key is looked for that is hashed into it.
"""

from __future__ import annotations

from functools import lru_cache

_SEED = 42
_MASK = 0xFFFFFFFF


def shard_count(partitions: int, parallelism: int) -> int:
    """How many shards so many partitions are dealt over: enough for all cores, twice over, so that they end together.

    >>> shard_count(8, 2), shard_count(3, 16), shard_count(0, 2)
    (4, 3, 0)
    """
    return min(partitions, 2 * max(1, parallelism))


@lru_cache(maxsize=8)
def shard_keys(shards: int) -> tuple[int, ...]:
    """A key for each shard.

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
    """The hash by which Spark distributes rows with a 64-bit key: Murmur3 over its two halves, signed.

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
