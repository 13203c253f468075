"""Plug-ins by entry points: sinks, sources, operators and storages are found in the same way, built-in or not.

In: a group such as `runnel.sinks`, and a name. Out: the entry point of that name, or an instance of what it names.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from runnel.errors import InputError


@cache
def plugin_names(group: str) -> tuple[str, ...]:
    """The names of all installed plug-ins of a group.

    >>> "rss" in plugin_names("runnel.sinks")
    True
    """
    return tuple(sorted({entry.name for entry in entry_points(group=group)}))


def find_entry(group: str, name: str, shipped: str = "runnel.") -> EntryPoint | None:
    """The entry point of a name. Nobody can take a name of the `shipped` modules, those that come with Runnel."""
    named = [entry for entry in entry_points(group=group) if entry.name == name]
    return min(named, key=lambda entry: (not entry.value.startswith(shipped), entry.value), default=None)


def load_plugin(entry: EntryPoint, contract: type, noun: str) -> object:
    """An instance of the class that an entry point names; InputError if it is not a plug-in of this contract."""
    try:
        plugin = entry.load()()
    except Exception as error:  # the module of a plug-in may raise anything
        raise InputError(
            f"the {noun} {entry.name!r} cannot be loaded: {error}", hint=f"reinstall the package of {entry.value}"
        ) from error
    if not isinstance(plugin, contract):
        raise InputError(
            f"the {noun} {entry.name!r} is not a {contract.__name__}",
            hint=f"make {entry.value} a subclass of {contract.__module__}.{contract.__name__}",
        )
    return plugin
