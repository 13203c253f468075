"""An LRU cache of loaded plans with a budget in bytes.

In: keys of plans, their sizes, and functions that load them. Out: loaded plans. Plans are evicted before the next one
is loaded, so the mapped plans never exceed the budget together. A plan larger than the budget is cached alone.
"""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict, dataclass
from typing import Generic, Protocol, TypeVar


class Mapped(Protocol):
    """A loaded plan that maps files into memory."""

    @property
    def bytes(self) -> int:
        """The size of its files."""
        ...

    def mappings(self) -> tuple[object, ...]:
        """Return objects that exist for exactly as long as the files are mapped."""
        ...


Key = TypeVar("Key", bound=Hashable)
Loaded = TypeVar("Loaded", bound=Mapped)


@dataclass
class PlanLruCounters:
    """Counters of a cache. `reloads` counts the loads of plans that had been evicted before.

    Replacing a cached plan by another edition counts as a renewal, and neither as a load nor as a reload.
    """

    loads: int = 0
    reloads: int = 0
    renewals: int = 0
    evictions: int = 0
    held_bytes: int = 0
    peak_bytes: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the counters by name."""
        return asdict(self)


class PlanLru(Generic[Key, Loaded]):
    """A cache of loaded plans by key. Not thread-safe, because a worker matches one batch after the other.

    >>> class Plan:
    ...     bytes = 60
    ...     def mappings(self):
    ...         return (self,)
    >>> held = PlanLru[str, Plan](100)
    >>> for name in ("a", "a", "b", "a"):
    ...     plan = held.get(name, 60, Plan)
    >>> held.counters.loads, held.counters.reloads, held.counters.evictions, held.counters.peak_bytes
    (3, 1, 2, 60)
    """

    def __init__(self, budget_bytes: int | None = None) -> None:
        self.budget_bytes = budget_bytes
        self.counters = PlanLruCounters()
        self._held: OrderedDict[Key, tuple[int, Loaded, Hashable]] = OrderedDict()
        self._evicted: set[Key] = set()

    def __len__(self) -> int:
        return len(self._held)

    def is_held(self, key: Key) -> bool:
        """Return whether a plan is cached, in any edition."""
        return key in self._held

    def get(self, key: Key, size: int, load: Callable[[], Loaded], edition: Hashable = None) -> Loaded:
        """Return a plan in an edition, loaded if it is not cached. `size` is the number of bytes that it will map.

        Another edition of the same plan is released first, because no batch needs it again.
        """
        is_cached = key in self._held
        if is_cached and self._held[key][2] == edition:
            self._held.move_to_end(key)
            return self._held[key][1]
        if is_cached:
            self._release([key])
        self._make_room(size)
        loaded = load()
        self.counters.renewals += is_cached
        self.counters.loads += not is_cached
        self.counters.reloads += key in self._evicted
        self._evicted.discard(key)
        # The plan may be larger than `size`. In that case evict more plans now.
        self._make_room(loaded.bytes)
        self._held[key] = (loaded.bytes, loaded, edition)
        self.counters.held_bytes += loaded.bytes
        self.counters.peak_bytes = max(self.counters.peak_bytes, self.counters.held_bytes)
        return loaded

    def clear(self) -> None:
        """Release all plans."""
        self._release(list(self._held))

    def _make_room(self, size: int) -> None:
        if self.budget_bytes is None:
            return
        evicted: list[Key] = []
        total = self.counters.held_bytes + size
        # Read only the sizes: a local variable that refers to a plan would keep it mapped.
        for key, held_bytes in [(key, entry[0]) for key, entry in self._held.items()]:
            if total <= self.budget_bytes:
                break
            evicted.append(key)
            total -= held_bytes
        self._release(evicted)
        self._evicted.update(evicted)
        self.counters.evictions += len(evicted)

    def _release(self, keys: Iterable[Key]) -> None:
        mappings: list[weakref.ref[object]] = []
        for key in keys:
            size, loaded, _ = self._held.pop(key)
            self.counters.held_bytes -= size
            mappings += map(weakref.ref, loaded.mappings())
            del loaded
        if any(mapping() is not None for mapping in mappings):
            gc.collect()  # an object that refers to the plan is part of a cycle, which only the collector frees
