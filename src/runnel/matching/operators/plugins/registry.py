"""Finding and loading operators. In: the source of a registration. Out: an operator that can be called.

A source is the name of an entry point of the group `runnel.operators`, or `module:function` of a module that the
settings allow. A module that is not allowed is refused before it is imported, because importing runs code.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib.metadata import EntryPoint
from typing import Any, cast, get_args

from runnel.entry_points import find_entry, plugin_names
from runnel.errors import OperatorRefusedError
from runnel.matching.operators.plugins.check_answers import InvalidAnswerError, rows_of
from runnel.matching.operators.plugins.contract import Answer, FailedCall, Operator, OperatorCall, OperatorContext
from runnel.model.operator import VALUE_TYPES, Parameter, Role, Rows

GROUP = "runnel.operators"
BUILTIN_PREFIX = "runnel.matching.operators.builtin."
"""The prefix of built-in operators, which run in the worker's own process."""

_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z]\w*)", re.ASCII)
_MAX_SOURCE = 500
_MAX_BATCH = 100_000


@dataclass(frozen=True, slots=True)
class Signature:
    """The class attributes with which an operator describes itself. None means that the attribute is missing."""

    parameters: tuple[Parameter, ...] | None = None
    cost: timedelta | None = None
    pure: bool | None = None
    batch: int | None = None
    reads: tuple[str, ...] | None = None


def operator_names() -> list[str]:
    """Return the names of the installed entry points."""
    return list(plugin_names(GROUP))


def is_builtin(source: str) -> bool:
    """Return whether a source names a built-in operator.

    >>> is_builtin("region"), is_builtin("city.vision:mob_pattern")
    (True, False)
    """
    entry = _entry(source)
    return entry is not None and entry.value.startswith(BUILTIN_PREFIX)


def release_of(source: str) -> str:
    """Return the distribution and version of an entry point, or an empty text if they are not known."""
    entry = _entry(source)
    return "" if entry is None or entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def check_source(source: str, modules: Collection[str]) -> None:
    """Raise OperatorRefusedError if `find_operator` would refuse the source before importing anything.

    >>> check_source("os:system", ["city"])
    Traceback (most recent call last):
    runnel.errors.OperatorRefusedError: operators of the module os are not allowed (allowed modules: city)
    """
    if _entry(source) is None:
        _check_function(source, modules)


def find_operator(source: str, modules: Collection[str]) -> Callable[..., Any]:
    """Import the function or class that a source names. `modules` are the allowed modules, including submodules.

    >>> find_operator("pathlib:Path", ["pathlib"]).__name__
    'Path'
    """
    entry = _entry(source)
    if entry is not None:
        implementation = _load(source, entry.load)
    else:
        module, name = _check_function(source, modules)
        imported = _load(source, lambda: importlib.import_module(module))
        implementation = getattr(imported, name, None)
        if implementation is None:
            raise OperatorRefusedError(f"the module {module} does not define {name}", hint="check the spelling")
        # A name that the module imports from elsewhere is refused: `vision:system` must not be `os.system`.
        if str(getattr(implementation, "__module__", "")).partition(".")[0] != module.partition(".")[0]:
            raise OperatorRefusedError(
                f"{name} is not defined in the package of {module}", hint="define a function there that calls it"
            )
    if not callable(implementation):
        raise OperatorRefusedError(f"{source} is not a function or a class")
    function: Callable[..., Any] = implementation
    return function


@lru_cache(maxsize=256)
def _entry(source: str) -> EntryPoint | None:
    return None if ":" in source else find_entry(GROUP, source, BUILTIN_PREFIX)


def _check_function(source: str, modules: Collection[str]) -> tuple[str, str]:
    parts = _FUNCTION.fullmatch(source) if len(source) <= _MAX_SOURCE else None
    if parts is None:
        known = operator_names()
        near = get_close_matches(source[:100].lower(), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use 'module:function' or one of {', '.join(known)}"
        raise OperatorRefusedError(f"there is no operator {source[:100]!r}", hint=hint)
    module, name = parts.groups()
    if not any(module == allowed or module.startswith(f"{allowed}.") for allowed in modules if allowed):
        names = ", ".join(sorted(modules)) or "none"
        raise OperatorRefusedError(
            f"operators of the module {module} are not allowed", hint=f"allowed modules: {names}"
        )
    return module, name


def _load(source: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except OperatorRefusedError:
        raise
    except Exception as error:  # a plug-in's module may raise anything
        reason = f"{type(error).__name__}: {error}"[:300]
        hint = "install its package on all workers" if isinstance(error, ImportError) else None
        raise OperatorRefusedError(f"{source} cannot be loaded: {reason}", hint=hint) from error


def signature_of(implementation: Callable[..., Any]) -> Signature:
    """Return the signature that a class or function declares in its attributes. Raise an error if it is invalid."""
    attributes = {
        name: getattr(implementation, name, None) for name in ("parameters", "cost", "pure", "batch", "reads")
    }
    match attributes:
        case {"cost": None | timedelta(), "pure": None | bool(), "batch": None | int(), "reads": None | tuple()}:
            pass
        case _:
            raise OperatorRefusedError(
                "its attribute cost, pure, batch or reads has a wrong type", place=_name(implementation)
            )
    reads, batch = attributes["reads"], attributes["batch"]
    if reads is not None and not all(isinstance(name, str) for name in reads):
        raise OperatorRefusedError("reads must be a tuple of attribute names", place=_name(implementation))
    if batch is not None and not 1 <= batch <= _MAX_BATCH:
        raise OperatorRefusedError(f"batch must be between 1 and {_MAX_BATCH:,}", place=_name(implementation))
    parameters = _check_parameters(implementation, attributes["parameters"])
    return Signature(parameters, attributes["cost"], attributes["pure"], batch, reads)


def _check_parameters(implementation: Callable[..., Any], declared: object) -> tuple[Parameter, ...] | None:
    if declared is None:
        return None
    if isinstance(declared, tuple) and all(
        isinstance(parameter, Parameter) and parameter.role in get_args(Role) and parameter.type in VALUE_TYPES
        for parameter in declared
    ):
        return declared
    raise OperatorRefusedError(
        "parameters must be a tuple of Parameter with valid roles and types", place=_name(implementation)
    )


def open_operator(implementation: Callable[..., Any], context: OperatorContext) -> Operator:
    """Create an instance of a class, or wrap a function, which is called once per question."""
    if not isinstance(implementation, type):
        return FunctionOperator(implementation)
    instance = _load(_name(implementation), lambda: implementation(context))
    if not callable(getattr(instance, "answer", None)):
        raise OperatorRefusedError("the class has no method answer(calls)", place=_name(implementation))
    operator: Operator = instance
    return operator


def check_operator(implementation: Callable[..., Any], context: OperatorContext) -> None:
    """Load an operator as a worker does, and close it. Raise OperatorRefusedError if it cannot be used.

    The operator is not called. An operator that waits in a worker instead of failing, for example for a database, may
    have a method `check()`, which raises OperatorRefusedError in that case.
    """
    operator = open_operator(implementation, context)
    check, close = getattr(operator, "check", None), getattr(operator, "close", None)
    try:
        if callable(check):
            check()
    finally:
        if callable(close):
            with suppress(Exception):  # a failing close() is no reason to refuse the operator
                close()


class FunctionOperator:
    """A plain function as an operator: `function(attributes, *inputs)`.

    >>> operator = FunctionOperator(lambda attributes, least: len(attributes) >= least)
    >>> operator.answer([OperatorCall({"a": ("x",)}, (1.0,))])
    [((),)]
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def answer(self, calls: Sequence[OperatorCall]) -> list[Answer]:
        """Return one answer per call. If the function raises an exception, only that call fails."""
        return [self._answer(call) for call in calls]

    def _answer(self, call: OperatorCall) -> Answer:
        try:
            return cast(Rows, rows_of(self._function(call.attributes, *call.inputs)))  # the client checks the rows
        except InvalidAnswerError as error:
            return FailedCall(str(error), passing=False)
        except MemoryError:
            raise
        except Exception as error:  # a plug-in may raise anything
            return FailedCall(f"{type(error).__name__}: {error}"[:300])


def _name(implementation: Callable[..., Any]) -> str:
    return str(getattr(implementation, "__qualname__", type(implementation).__name__))
