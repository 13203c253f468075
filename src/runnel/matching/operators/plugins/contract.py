"""The contract of operators. In: questions about items. Out: rows of result values.

A built-in or plug-in operator is an entry point of the group `runnel.operators`, or `module:function` of a module
that the settings allow. It is either a plain function, called with an item's attributes and the inputs of the call,
or a class, whose instances are called with batches.

- A plain function `function(attributes, *inputs)` returns None or False (does not hold), True (holds, no results), a
  value (one result), a tuple (one row), or a list, set or generator of values or tuples (several rows).
- A class is called as `cls(context)` with an `OperatorContext`, and its instances have a method `answer(calls)`. They
  may have a method `close()`. The class attributes `parameters: tuple[Parameter, ...]`, `cost: timedelta`,
  `pure: bool`, `batch: int` and `reads: tuple[str, ...]` are the defaults of a registration that omits them.

An `answer` that raises an exception fails all of its calls. To fail a single call, return `FailedCall` as its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from runnel.model.item import Attributes, Value
from runnel.model.operator import Rows

Input = Value | tuple[Value, ...]
"""An input of a call: a constant of the parameter's type, or all values of an attribute of the item."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One call of an operator: the attributes of an item that the operator reads, and the inputs, in order."""

    attributes: Attributes
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A question for the operator with this name and version: all attributes of an item, and the inputs."""

    operator: tuple[str, int]
    attributes: Attributes
    inputs: tuple[Input, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedCall:
    """The answer of a failed call, with the reason for the user. `passing` means that a later call may succeed."""

    reason: str
    passing: bool = True


Answer = Rows | FailedCall


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """The context that an operator class is created with: values of the registration and of the settings.

    `folder` is the workspace's folder for files that configurations name, such as regions and rules; a configuration
    cannot name files outside it. `databases` maps names to the URLs that look-ups may use. `allowed_addresses` are
    the private network addresses that operators may connect to.
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
    """Calls operators to answer questions."""

    def ask(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Return one answer per question, in order."""
        ...


class Operator(Protocol):
    """An operator that is loaded and can be called."""

    def answer(self, calls: Sequence[OperatorCall]) -> Sequence[Answer]:
        """Return one answer per call, in order."""
        ...
