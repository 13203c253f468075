"""The contract of operators: questions about items in, rows of result values out.

A built-in or plug-in is found through an entry point of the group `runnel.operators`, or as `module:function` of a
module that the settings allow. It is either a plain function, called with an item's attributes and the inputs of the
call, or a class, made once for each worker and asked in batches.

- A plain function `function(attributes, *inputs)` gives: None or False (does not hold), True (holds, no results), one
  value (one result), a tuple (one row), or a list, set or generator of values or tuples (several rows).
- A class is called as `cls(place)` with an `OperatorContext`, and has `answer(asks)`. It may have `close()`. A class
  attribute `parameters: tuple[Parameter, ...]` is the signature that a registration without one takes; other class
  attributes of that kind: `cost: timedelta`, `pure: bool`, `batch: int`, `reads: tuple[str, ...]`.

An `answer` that raises fails all of its asks; one ask fails alone by a `Failed` in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from runnel.model.item import Attributes, Value
from runnel.model.operator import Rows

Input = Value | tuple[Value, ...]
"""What a call gives an operator: a constant of the parameter's type, or all values of an attribute of the item."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question: an item's attributes (those that the operator reads), and the inputs of the call, in order."""

    attributes: Attributes
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A question for an operator, by its name and version: an item's attributes, all of them, and the inputs."""

    operator: tuple[str, int]
    attributes: Attributes
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """An ask that could not be answered, with the reason in the user's words. Some failures pass with time."""

    reason: str
    passing: bool = True


Answer = Rows | Failed


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """Where an operator is loaded: its name and configuration from the registration, and what settings give.

    `folder` is the root's folder for files that configurations name (regions, rules): names below it alone.
    `databases` are the URLs by name that look-ups may use; `allowed_addresses` are private ones that may be asked.
    """

    configuration: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    databases: Mapping[str, str] = field(default_factory=dict)
    allowed_addresses: tuple[str, ...] = ()
    user_agent: str = "Runnel"
    name: str = ""
    time_limit: float = 10.0
    concurrency: int = 1


class Asker(Protocol):
    """Has questions for any operators answered."""

    def ask(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """One answer for every question, in order."""
        ...


class Operator(Protocol):
    """Answers questions about items."""

    def answer(self, asks: Sequence[Ask]) -> Sequence[Answer]:
        """One answer for every ask, in order."""
        ...
