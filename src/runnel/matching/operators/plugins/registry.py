"""Finding operators: a source in, what it names out, ready to be asked.

A source is the name of an entry point of the group `runnel.operators`, or `module:function` of a module that the
settings allow. What is not allowed is refused before anything is imported: importing runs code.
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
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed, Operator, OperatorContext
from runnel.model.operator import VALUE_TYPES, Parameter, Role, Rows

GROUP = "runnel.operators"
SHIPPED = "runnel.matching.operators.builtin."
"""Where the operators are that come with Runnel; they run in the worker itself."""

_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z]\w*)", re.ASCII)
_MAX_SOURCE = 500
_MAX_BATCH = 100_000


@dataclass(frozen=True, slots=True)
class Signature:
    """What an operator says of itself; None where it says nothing."""

    parameters: tuple[Parameter, ...] | None = None
    cost: timedelta | None = None
    pure: bool | None = None
    batch: int | None = None
    reads: tuple[str, ...] | None = None


def operator_names() -> list[str]:
    """The names of the entry points that are installed."""
    return list(plugin_names(GROUP))


def is_shipped(source: str) -> bool:
    """Whether a source names an operator that comes with Runnel.

    >>> is_shipped("region"), is_shipped("city.vision:mob_pattern")
    (True, False)
    """
    entry = _entry(source)
    return entry is not None and entry.value.startswith(SHIPPED)


def release_of(source: str) -> str:
    """The distribution and version that a source comes from, where that is known without importing anything."""
    entry = _entry(source)
    return "" if entry is None or entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def check_source(source: str, modules: Collection[str]) -> None:
    """Refuse what `find_operator` would refuse without importing anything.

    >>> check_source("os:system", ["city"])
    Traceback (most recent call last):
    runnel.errors.OperatorRefusedError: operators of the module os are not allowed (allowed modules: city)
    """
    if _entry(source) is None:
        _check_function(source, modules)


def find_operator(source: str, modules: Collection[str]) -> Callable[..., Any]:
    """The function or class that a source names. `modules` are those that are allowed, with all below them.

    >>> find_operator("pathlib:Path", ["pathlib"]).__name__
    'Path'
    """
    entry = _entry(source)
    if entry is not None:
        found = _loaded(source, entry.load)
    else:
        module, name = _check_function(source, modules)
        imported = _loaded(source, lambda: importlib.import_module(module))
        found = getattr(imported, name, None)
        if found is None:
            raise OperatorRefusedError(f"the module {module} has no {name}", hint="look at its spelling")
        # What a module has only imported is not its own: `vision:system` must not be `os.system`.
        if str(getattr(found, "__module__", "")).partition(".")[0] != module.partition(".")[0]:
            raise OperatorRefusedError(
                f"{name} does not belong to {module}", hint="define a function there that calls it"
            )
    if not callable(found):
        raise OperatorRefusedError(f"{source} is not a function or a class")
    function: Callable[..., Any] = found
    return function


@lru_cache(maxsize=256)
def _entry(source: str) -> EntryPoint | None:
    return None if ":" in source else find_entry(GROUP, source, SHIPPED)


def _check_function(source: str, modules: Collection[str]) -> tuple[str, str]:
    parts = _FUNCTION.fullmatch(source) if len(source) <= _MAX_SOURCE else None
    if parts is None:
        known = operator_names()
        near = get_close_matches(source[:100].lower(), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}; or 'module:function'"
        raise OperatorRefusedError(f"there is no operator {source[:100]!r}", hint=hint)
    module, name = parts.groups()
    if not any(module == one or module.startswith(f"{one}.") for one in modules if one):
        allowed = ", ".join(sorted(modules)) or "none"
        raise OperatorRefusedError(
            f"operators of the module {module} are not allowed", hint=f"allowed modules: {allowed}"
        )
    return module, name


def _loaded(source: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except OperatorRefusedError:
        raise
    except Exception as error:  # a plug-in's module may raise anything
        reason = f"{type(error).__name__}: {error}"[:300]
        hint = "is its package installed where the workers run?" if isinstance(error, ImportError) else None
        raise OperatorRefusedError(f"{source} cannot be loaded: {reason}", hint=hint) from error


def signature_of(found: Callable[..., Any]) -> Signature:
    """What a class, or a function with attributes, says of itself; checked."""
    said = {name: getattr(found, name, None) for name in ("parameters", "cost", "pure", "batch", "reads")}
    match said:
        case {"cost": None | timedelta(), "pure": None | bool(), "batch": None | int(), "reads": None | tuple()}:
            pass
        case _:
            raise OperatorRefusedError("its cost, pure, batch or reads are of a wrong type", place=_name(found))
    reads, batch = said["reads"], said["batch"]
    if reads is not None and not all(isinstance(one, str) for one in reads):
        raise OperatorRefusedError("what it reads are not names of attributes", place=_name(found))
    if batch is not None and not 1 <= batch <= _MAX_BATCH:
        raise OperatorRefusedError(f"its batch is not between 1 and {_MAX_BATCH:,}", place=_name(found))
    return Signature(_parameters(found, said["parameters"]), said["cost"], said["pure"], batch, reads)


def _parameters(found: Callable[..., Any], said: object) -> tuple[Parameter, ...] | None:
    if said is None:
        return None
    if isinstance(said, tuple) and all(
        isinstance(one, Parameter) and one.role in get_args(Role) and one.type in VALUE_TYPES for one in said
    ):
        return said
    raise OperatorRefusedError("its parameters are not a tuple of Parameter", place=_name(found))


def open_operator(found: Callable[..., Any], place: OperatorContext) -> Operator:
    """An operator, ready to be asked: a class is made, a function is called once for every question."""
    if not isinstance(found, type):
        return FunctionOperator(found)
    made = _loaded(_name(found), lambda: found(place))
    if not callable(getattr(made, "answer", None)):
        raise OperatorRefusedError("the class has no method answer(asks)", place=_name(found))
    operator: Operator = made
    return operator


def check_operator(found: Callable[..., Any], place: OperatorContext) -> None:
    """Make an operator as it will be made for its work, and let go of it: OperatorRefused where it cannot be used.

    Nothing is asked. One that would rather wait than refuse has a method `check()`, which refuses all the same.
    """
    operator = open_operator(found, place)
    check, close = getattr(operator, "check", None), getattr(operator, "close", None)
    try:
        if callable(check):
            check()
    finally:
        if callable(close):
            with suppress(Exception):  # what it is to say was said
                close()


class FunctionOperator:
    """A plain function as an operator: `function(attributes, *inputs)`.

    >>> FunctionOperator(lambda attributes, least: len(attributes) >= least).answer([Ask({"a": ("x",)}, (1.0,))])
    [((),)]
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        """One answer for every ask; one that raises fails alone."""
        return [self._answer(ask) for ask in asks]

    def _answer(self, ask: Ask) -> Answer:
        try:
            return cast(Rows, rows_of(self._function(ask.attributes, *ask.inputs)))  # checked by who asked
        except InvalidAnswerError as wrong:
            return Failed(str(wrong), passing=False)
        except MemoryError:
            raise
        except Exception as error:  # a plug-in may raise anything
            return Failed(f"{type(error).__name__}: {error}"[:300])


def _name(found: Callable[..., Any]) -> str:
    return str(getattr(found, "__qualname__", type(found).__name__))
