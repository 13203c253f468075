"""Tools for tests, demonstrations and benchmarks: generated news, a memory sink, a fake clock and faulty storage.

The generated feeds, items, queries and subscriptions depend only on a seed and on sizes, not on the machine.
"""

from runnel.testing.faulty_storage import CrashingStorage, FullStorage
from runnel.testing.stand_ins import FakeClock, MemorySink, ScriptedSource
from runnel.testing.world import World

__all__ = ["CrashingStorage", "FakeClock", "FullStorage", "MemorySink", "ScriptedSource", "World"]
