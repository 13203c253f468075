"""The health of a runner for monitoring: whether it is live and ready, and the reasons if not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Health:
    """`live`: the loops and matching make progress. `ready`: items are matched as they arrive.

    `reasons` describe the problems.
    """

    live: bool
    ready: bool
    reasons: tuple[str, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    """Counts of this run by name, such as `items accepted`, `messages delivered` and `turns failed`."""


class Watched(Protocol):
    """An object whose health can be read at any time, from any thread."""

    def health(self) -> Health:
        """Return the current health."""


class Companion(Protocol):
    """A service alongside a run, such as the web server: started after the run has its lease, closed at its end."""

    def start(self, run: Watched) -> None:
        """Start the service. `run` reports the health of the run."""

    def close(self) -> None:
        """Stop the service. Finish or abort its work within seconds."""
