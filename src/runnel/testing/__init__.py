"""Tools for tests, demonstrations and benchmarks, of Runnel itself and of its users.

`World` generates feeds, items, queries and subscriptions from a seed, identically on every machine. `MemorySink`,
`ScriptedSource` and `FakeClock` replace external systems. `CrashingStorage` and `FullStorage` inject storage faults.
"""

from runnel.testing.faulty_storage import CrashingStorage, FullStorage
from runnel.testing.stand_ins import FakeClock, MemorySink, ScriptedSource
from runnel.testing.world import World

__all__ = ["CrashingStorage", "FakeClock", "FullStorage", "MemorySink", "ScriptedSource", "World"]
