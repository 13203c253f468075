"""Load implementations by name from the entry points of a group, when a name is first used.

In: a group such as `runnel.sinks`, and a name from a statement, a setting or a plan. Out: the object to which the
entry point refers. Built-in implementations and plug-ins are loaded in the same way, on the driver and on workers.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from runnel.errors import InputError


@cache
def plugin_names(group: str) -> tuple[str, ...]:
    """Return the names that are installed in a group, in alphabetical order.

    >>> "rss" in plugin_names("runnel.sinks")
    True
    """
    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


def plugin_packages(group: str) -> tuple[str, ...]:
    """Return the top-level packages of the plug-ins in a group, without Runnel itself.

    >>> plugin_packages("runnel.matchers")
    ()
    """
    packages = {entry.module.partition(".")[0] for entry in entry_points(group=group)}
    return tuple(sorted(packages - {"runnel"}))


def find_entry(group: str, name: str, built_in: str = "runnel.") -> EntryPoint | None:
    """Return the entry point of a name, or None. Entry points of modules below `built_in` take precedence."""
    named = [entry for entry in entry_points(group=group) if entry.name == name]
    return min(named, key=lambda entry: (not entry.value.startswith(built_in), entry.value), default=None)


@cache
def load_named(group: str, name: str) -> Any:
    """Load the object to which a name of a group refers. Raise InputError if it does not exist.

    >>> load_named("runnel.matchers", "index").__name__
    'IndexMatcher'
    >>> load_named("runnel.matchers", "inedx")
    Traceback (most recent call last):
    runnel.errors.InputError: runnel.matchers has no entry point named 'inedx' (did you mean index?)
    """
    entry = find_entry(group, name)
    if entry is None:
        raise InputError(f"{group} has no entry point named {name[:60]!r}", hint=_hint(group, name))
    return load_entry(entry, f"{name!r} of {group}")


def load_plugin(entry: EntryPoint, contract: type, noun: str) -> object:
    """Create an instance of an entry point's class. Raise InputError if it does not implement the contract."""
    loaded = load_entry(entry, f"the {noun} {entry.name!r}")
    try:
        plugin = loaded()
    except Exception as error:  # a plug-in may raise anything
        raise InputError(
            f"the {noun} {entry.name!r} cannot be created: {type(error).__name__}: {error}",
            hint=f"{entry.value} must implement all methods of its contract and be callable without arguments",
        ) from error
    if not isinstance(plugin, contract):
        raise InputError(
            f"the {noun} {entry.name!r} is not a {contract.__name__}",
            hint=f"make {entry.value} a subclass of {contract.__module__}.{contract.__name__}",
        )
    return plugin


def load_entry(entry: EntryPoint, description: str) -> Any:
    """Load the object to which an entry point refers. Raise InputError, with the description, if that fails."""
    try:
        return entry.load()
    except Exception as error:  # the module of a plug-in may raise anything
        raise InputError(
            f"{description} cannot be loaded: {error}", hint=f"reinstall the package of {entry.value}"
        ) from error


def _hint(group: str, name: str) -> str:
    known = plugin_names(group)
    near = get_close_matches(name.lower(), known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"installed: {', '.join(known)}" if known else "install the package that provides it"
