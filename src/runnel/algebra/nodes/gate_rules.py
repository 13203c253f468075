"""Gate rules: which of the items that reach a feed pass, given those that reached it earlier.

A filter decides about each item alone. A gate depends on the order of the log: matchers only report which items reach
it, and the commit of the batch decides. A `GateRule` is the interface of a kind of gate. `runnel.families` lists the
kinds.
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
    """An item in the item log. `feed` is the ID of its source feed."""

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
    """The rule by which a gate decides about the items that reach it: an immutable value."""

    __slots__ = ()

    kind: ClassVar[str]
    """The name of its kind, which is the tag of its stored form."""

    stores_items: ClassVar[bool] = False
    """Whether the items that reach the gate are stored, because other gates compare with them."""

    reaches_back: ClassVar[bool] = False
    """Whether items count that were accepted before the start of the gate's feed."""

    @property
    def annotation_name(self) -> str:
        """The name under which the gate annotates items, or an empty text if it does not."""
        return ""

    @property
    def window_rule(self) -> GateRule | None:
        """The rule of the feed whose earlier items the gate compares with, if there is one."""
        return None

    @property
    @abstractmethod
    def lookback(self) -> timedelta:
        """The time window of the rule: items accepted at least this long before an item have no effect on it."""

    @abstractmethod
    def history(self) -> GateHistory:
        """Return the history of a gate that no item has reached yet. Its decisions define the rule."""

    @abstractmethod
    def encode(self) -> list[Any]:
        """Return the JSON values of the stored form, after the tag."""

    @classmethod
    @abstractmethod
    def decode(cls, values: Sequence[Any], /) -> Self:
        """Return the rule of values that `encode` returned. Raise ValueError for any other values."""

    def split(self) -> tuple[GateRule, int]:
        """Return a rule that many queries share, and the number by which their rules differ (see `with_number`)."""
        return self, 0

    def with_number(self, number: int) -> GateRule:
        """Return the rule of which `split` returned this rule and a number."""
        return self

    @abstractmethod
    def render(self) -> str:
        """Return the clause in its shortest form, which parses to the same rule."""

    @abstractmethod
    def describe(self) -> str:
        """Return the reason for which an item passes, as a phrase."""


def encode_rule(rule: GateRule) -> list[Any]:
    """Return the stored form of a rule: the name of its kind, and its values."""
    return [rule.kind, *rule.encode()]


def decode_rule(value: Sequence[Any]) -> GateRule:
    """Return the rule of a stored form. Raise ValueError if its kind is unknown."""
    kind, *values = value
    if kind not in registry().gates:
        raise ValueError(f"unknown kind of gate {kind!r}")
    return cast(type[GateRule], load_part(registry().gates[kind].rule)).decode(values)
