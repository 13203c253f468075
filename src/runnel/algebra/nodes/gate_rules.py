"""Gate rules: which of the items that reach a feed pass, given those that reached it earlier.

A filter decides about each item alone. A gate depends on the order of the log, so matchers only report which items
reach it, and the commit decides. A `GateRule` has all that the rest of the code asks of a kind of gate, and
`runnel.families` lists the kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol, Self, cast

from runnel.families import load_part, registry
from runnel.model.item import Attributes


@dataclass(frozen=True, slots=True)
class LoggedItem:
    """An item in the log; `feed` is the id of its source feed."""

    sequence: int
    accepted: datetime
    feed: int
    id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a gate stopped an item: the sequence of the earlier item that caused it, if a single item did."""

    earlier: int | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """An item passes a gate, which annotates it with the sequences of these items, the newest first."""

    annotation: tuple[int, ...] = ()


class GateHistory(Protocol):
    """The items that have reached a gate so far."""

    def add(self, item: LoggedItem, window: Sequence[LoggedItem], /) -> Stop | Pass:
        """Add the next item that reaches the gate, and decide about it.

        `window` has the earlier items of the feed that the gate compares with, in order; none if it has no such feed.
        """


class GateRule(ABC):
    """What a gate asks of the items that reach it: an immutable value."""

    __slots__ = ()

    kind: ClassVar[str]
    """The name of its kind, which is the tag of its stored form."""

    stores_items: ClassVar[bool] = False
    """Whether the items that reach the gate are stored, because other gates compare with them."""

    @property
    def window_rule(self) -> GateRule | None:
        """The rule of the feed whose earlier items the gate compares with, if there is one."""
        return None

    @property
    @abstractmethod
    def lookback(self) -> timedelta:
        """How far back the answer about an item reaches: items accepted this long before it have no effect."""

    @abstractmethod
    def history(self) -> GateHistory:
        """A gate that no item has reached yet. Its answers are the definition of the rule."""

    @abstractmethod
    def encode(self) -> list[Any]:
        """The JSON values of the stored form, after the tag."""

    @classmethod
    @abstractmethod
    def decode(cls, values: Sequence[Any], /) -> Self:
        """The rule of values made by `encode`; any other values raise ValueError."""

    @abstractmethod
    def render(self) -> str:
        """The clause in its shortest form; it parses to the same rule."""

    @abstractmethod
    def describe(self) -> str:
        """What holds of an item that passes, in words."""


def encode_rule(rule: GateRule) -> list[Any]:
    """The stored form of a rule: the name of its kind, and its values."""
    return [rule.kind, *rule.encode()]


def decode_rule(value: Sequence[Any]) -> GateRule:
    """The rule of a stored form."""
    kind, *values = value
    if kind not in registry().gates:
        raise ValueError(f"unknown kind of gate {kind!r}")
    return cast(type[GateRule], load_part(registry().gates[kind].rule)).decode(values)
