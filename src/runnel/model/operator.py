"""Declarations of operators: expensive predicates, backed by models, lookups, reasoners and services.

An operator evaluates one item and returns rows of result values. An operator without results returns one empty row if
it holds. Inputs are constants or attributes of the item. Results are bound to variables or compared with constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from runnel.errors import CorruptDataError
from runnel.model.item import Value

ValueType = Literal["text", "number", "int", "boolean", "date"]
VALUE_TYPES: tuple[ValueType, ...] = ("text", "number", "int", "boolean", "date")
"""`int` is a number without a fraction, `date` a point in time in UTC."""

Role = Literal["input", "attribute", "result"]
ErrorPolicy = Literal["unknown", "retry"]

Row = tuple[Value, ...]
Rows = tuple[Row, ...]
"""An operator's answer for an item: one row per solution, without duplicates."""

HOLDS: Rows = ((),)
"""The answer of an operator without results that holds."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operator: a constant, an attribute of the item, or a result."""

    name: str
    role: Role
    type: ValueType = "text"


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on an operator per minute, over all workers. None means no limit."""

    calls: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class OperatorDeclaration:
    """A registered operator. `version` counts registrations of the name; `release` is the user's own version.

    `source` is the name of an entry point of `runnel.operators`, or `module:function` of a module that the settings
    allow. `configuration` is passed to the operator when it is loaded. `reads` are the attributes that it reads;
    empty means all.
    """

    name: str
    version: int
    source: str
    parameters: tuple[Parameter, ...] = ()
    release: str = ""
    cost: timedelta = timedelta(milliseconds=1)
    pure: bool = True
    reads: tuple[str, ...] = ()
    batch: int = 64
    time_limit: timedelta = timedelta(seconds=10)
    concurrency: int = 1
    budget: Budget = field(default_factory=Budget)
    on_error: ErrorPolicy = "unknown"
    retry_for: timedelta = timedelta(hours=6)
    configuration: tuple[tuple[str, str], ...] = ()

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """The parameters that are not results, in order."""
        return tuple(parameter for parameter in self.parameters if parameter.role != "result")

    @property
    def results(self) -> tuple[Parameter, ...]:
        """The parameters that are results, in order."""
        return tuple(parameter for parameter in self.parameters if parameter.role == "result")

    def to_json(self) -> dict[str, Any]:
        """Return the declaration as a JSON value."""
        return {
            "name": self.name,
            "version": self.version,
            "source": self.source,
            "parameters": [[parameter.name, parameter.role, parameter.type] for parameter in self.parameters],
            "release": self.release,
            "cost": self.cost.total_seconds(),
            "pure": self.pure,
            "reads": list(self.reads),
            "batch": self.batch,
            "time_limit": self.time_limit.total_seconds(),
            "concurrency": self.concurrency,
            "budget": [self.budget.calls, self.budget.seconds],
            "on_error": self.on_error,
            "retry_for": self.retry_for.total_seconds(),
            "configuration": dict(self.configuration),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> OperatorDeclaration:
        """Read the output of `to_json`."""
        try:
            return OperatorDeclaration(
                name=value["name"],
                version=int(value["version"]),
                source=value["source"],
                parameters=tuple(Parameter(name, role, kind) for name, role, kind in value["parameters"]),
                release=value["release"],
                cost=timedelta(seconds=value["cost"]),
                pure=bool(value["pure"]),
                reads=tuple(value["reads"]),
                batch=int(value["batch"]),
                time_limit=timedelta(seconds=value["time_limit"]),
                concurrency=int(value["concurrency"]),
                budget=Budget(*value["budget"]),
                on_error=value["on_error"],
                retry_for=timedelta(seconds=value["retry_for"]),
                configuration=tuple(sorted(value["configuration"].items())),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptDataError(f"not a valid declaration of an operator: {str(value)[:200]}") from error

    def as_version(self, version: int) -> OperatorDeclaration:
        """Return the declaration with this registration number."""
        return replace(self, version=version)
