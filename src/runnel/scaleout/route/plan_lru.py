"""Plans that a process holds, within a budget of bytes: the least recently used goes when room is needed.

In: keys of plans, their sizes, and how to load them. Out: loaded plans. Room is made before a plan is loaded, so
that what is mapped together never exceeds the budget; a plan that is larger than the budget is held alone.
"""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict, dataclass
from typing import Generic, Protocol, TypeVar


class Mapped(Protocol):
    """Something loaded that maps files into memory."""

    @property
    def bytes(self) -> int:
        """The bytes of its files."""
        ...

    def mappings(self) -> tuple[object, ...]:
        """What is there for exactly as long as the files are mapped."""
        ...


Key = TypeVar("Key", bound=Hashable)
Loaded = TypeVar("Loaded", bound=Mapped)


@dataclass
class PlanLruCounters:
    """What holding took: `reloads` are the loads of plans that were held before and had to go.

    A plan that was held in another edition, and is there in a new one, is none of these but a renewal.
    """

    loads: int = 0
    reloads: int = 0
    renewals: int = 0
    evictions: int = 0
    held_bytes: int = 0
    peak_bytes: int = 0

    def to_json(self) -> dict[str, int]:
        """The counters by name."""
        return asdict(self)


class PlanLru(Generic[Key, Loaded]):
    """Loaded plans by key. For one thread: a worker matches one batch after the other.

    >>> class Plan:
    ...     bytes = 60
    ...     def mappings(self):
    ...         return (self,)
    >>> held = PlanLru[str, Plan](100)
    >>> for name in ("a", "a", "b", "a"):
    ...     found = held.get(name, 60, Plan)
    >>> held.counters.loads, held.counters.reloads, held.counters.evictions, held.counters.peak_bytes
    (3, 1, 2, 60)
    """

    def __init__(self, budget_bytes: int | None = None) -> None:
        self.budget_bytes = budget_bytes
        self.counters = PlanLruCounters()
        self._held: OrderedDict[Key, tuple[int, Loaded, Hashable]] = OrderedDict()
        self._went: set[Key] = set()

    def __len__(self) -> int:
        return len(self._held)

    def is_held(self, key: Key) -> bool:
        """Whether a plan is here now, in whatever edition."""
        return key in self._held

    def get(self, key: Key, size: int, load: Callable[[], Loaded], edition: Hashable = None) -> Loaded:
        """The plan of a key in an edition, loaded where it is not here; `size` is how many bytes it is going to map.

        The same plan in another edition goes first: no batch needs it again.
        """
        there = key in self._held
        if there and self._held[key][2] == edition:
            self._held.move_to_end(key)
            return self._held[key][1]
        if there:
            self._let_go([key])
        self._make_room(size)
        loaded = load()
        self.counters.renewals += there
        self.counters.loads += not there
        self.counters.reloads += key in self._went
        self._went.discard(key)
        # A folder may be larger than it was said to be: then others go late rather than never.
        self._make_room(loaded.bytes)
        self._held[key] = (loaded.bytes, loaded, edition)
        self.counters.held_bytes += loaded.bytes
        self.counters.peak_bytes = max(self.counters.peak_bytes, self.counters.held_bytes)
        return loaded

    def clear(self) -> None:
        """Let go of all plans."""
        self._let_go(list(self._held))

    def _make_room(self, size: int) -> None:
        if self.budget_bytes is None:
            return
        going: list[Key] = []
        left = self.counters.held_bytes + size
        # Only sizes are looked at: a plan that a name here refers to would stay mapped.
        for key, held_bytes in [(key, entry[0]) for key, entry in self._held.items()]:
            if left <= self.budget_bytes:
                break
            going.append(key)
            left -= held_bytes
        self._let_go(going)
        self._went.update(going)
        self.counters.evictions += len(going)

    def _let_go(self, keys: Iterable[Key]) -> None:
        traces: list[weakref.ref[object]] = []
        for key in keys:
            size, loaded, _ = self._held.pop(key)
            self.counters.held_bytes -= size
            traces += map(weakref.ref, loaded.mappings())
            del loaded
        if any(trace() is not None for trace in traces):
            gc.collect()  # something made of a plan leads back to itself: only this finds that nobody needs it
