"""Implementations that are found by name: the entry points of a group, loaded when a name is first used.

In: a group such as `runnel.matchers`, and a name that a setting or a plan gives. Out: what the entry point names. The
implementations that come with Runnel and those of plug-ins are found alike, on the driver and on workers.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from runnel.errors import InputError

_OWN = "runnel."


@cache
def entry_point_names(group: str) -> tuple[str, ...]:
    """The names that are installed in a group, in alphabetical order."""
    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


@cache
def load_entry_point(group: str, name: str) -> Any:
    """What a name of a group stands for. A plug-in cannot take a name that Runnel itself uses.

    >>> load_entry_point("runnel.matchers", "index").__name__
    'IndexMatcher'
    >>> load_entry_point("runnel.matchers", "inedx")
    Traceback (most recent call last):
    runnel.errors.InputError: runnel.matchers has no entry point named 'inedx' (did you mean index?)
    """
    named = [entry for entry in entry_points(group=group) if entry.name == name]
    if not named:
        raise InputError(f"{group} has no entry point named {name[:60]!r}", hint=_hint(group, name))
    entry = min(named, key=lambda entry: (not entry.value.startswith(_OWN), entry.value))
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{name!r} of {group} cannot be loaded: {error}", hint=f"reinstall the package of {entry.value}"
        ) from error


def _hint(group: str, name: str) -> str:
    known = entry_point_names(group)
    near = get_close_matches(name.lower(), known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"installed: {', '.join(known)}" if known else "install the package that provides it"
