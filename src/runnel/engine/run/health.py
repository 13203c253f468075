"""How a runner is, said to those who watch it: does it live, is it ready, and if not, why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Health:
    """`live`: the loops and matching make progress. `ready`: items are matched as they come.

    `reasons` say what is wrong.
    """

    live: bool
    ready: bool
    reasons: tuple[str, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    """What this run did so far, by name: items accepted, messages delivered, turns that failed."""


class Watched(Protocol):
    """Something whose health can be asked at any time, from any thread."""

    def health(self) -> Health:
        """How it is now."""


class Companion(Protocol):
    """Something that lives beside a run: started when the run has its lease, closed when it ends."""

    def start(self, run: Watched) -> None:
        """Begin; `run` can be asked how it is."""

    def close(self) -> None:
        """End; whatever is under way is finished or dropped within seconds."""
