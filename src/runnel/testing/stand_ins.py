"""Replacements for external systems in tests: a sink in memory, a scripted source, and a clock set by the test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from runnel.engine import Engine
from runnel.errors import DeliveryError, InputError
from runnel.logs.items.item_log import Accepted
from runnel.sinks.contract import Delivery, LocalSink


class MemorySink(LocalSink):
    """`output memory 'name'`: keeps deliveries in this process, by target name.

    >>> MemorySink.clear(); MemorySink.delivered("inbox")
    []
    """

    kind = "memory"
    is_offered = False
    _boxes: ClassVar[dict[str, dict[str, Delivery]]] = {}
    _failing: ClassVar[dict[str, str]] = {}

    def validate_target(self, target: str | None, folder: Path, allowed: Sequence[Path] = ()) -> str | None:
        """Return the target, which can be any name."""
        if not target:
            raise InputError("this output needs a target", hint="write `output memory 'inbox'`")
        return target

    def deliver(self, delivery: Delivery) -> str:
        """Keep a delivery, unless a delivery with the same key was kept before."""
        target = delivery.subscription.target or ""
        if target in self._failing:
            raise DeliveryError(self._failing[target])
        self._boxes.setdefault(target, {}).setdefault(delivery.key, delivery)
        return f"{len(delivery.items)} items kept"

    @classmethod
    def delivered(cls, target: str) -> list[Delivery]:
        """Return the deliveries to a target, in order."""
        return list(cls._boxes.get(target, {}).values())

    @classmethod
    def item_ids(cls, target: str) -> list[str]:
        """Return the ids of all items that were delivered to a target, in order."""
        return [matched.item.id for delivery in cls.delivered(target) for matched in delivery.items]

    @classmethod
    def fail(cls, target: str, reason: str | None) -> None:
        """Make every delivery to a target fail with this reason, or succeed again if it is None."""
        cls._failing.pop(target, None)
        if reason is not None:
            cls._failing[target] = reason

    @classmethod
    def clear(cls) -> None:
        """Delete all deliveries and failures."""
        cls._boxes.clear()
        cls._failing.clear()


@dataclass
class FakeClock:
    """A clock that changes only when it is advanced: `runnel.connect(path, clock=FakeClock())`.

    >>> clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC)); clock.advance(timedelta(hours=1)); clock.now.hour
    1
    """

    now: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))

    def __call__(self) -> float:
        return self.now.timestamp()

    def advance(self, by: timedelta) -> None:
        """Advance the clock. A negative time sets it back."""
        self.now += by


@dataclass
class ScriptedSource:
    """Publishes prepared batches of items into a feed, one per call of `step`.

    >>> ScriptedSource("Wire", [[{"id": "1"}], []]).remaining
    2
    """

    feed: str
    batches: Iterable[Iterable[Mapping[str, Any]]]

    def __post_init__(self) -> None:
        self._waiting = [list(batch) for batch in self.batches]

    @property
    def remaining(self) -> int:
        """The number of batches that are not published yet."""
        return len(self._waiting)

    def step(self, engine: Engine) -> Accepted:
        """Publish the next batch."""
        return engine.publish(self.feed, self._waiting.pop(0))
