"""For tests, demonstrations and benchmarks, ours and our users': worlds of news, and stand-ins for the outside.

In: a seed, or a script. Out: feeds, items, queries and subscriptions that are the same on every machine; a sink in
memory, a clock set by hand, a storage that kills.
"""

from runnel.testing.faulty_storage import CrashingStorage, FullStorage
from runnel.testing.stand_ins import FakeClock, MemorySink, ScriptedSource
from runnel.testing.world import World

__all__ = ["CrashingStorage", "FakeClock", "FullStorage", "MemorySink", "ScriptedSource", "World"]
