"""Sinks by name: the entry points of the group `runnel.sinks`, for built-in sinks and plug-ins."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint
from typing import cast

from runnel.entry_points import find_entry, load_plugin, plugin_names
from runnel.errors import InputError
from runnel.sinks.contract import ConfirmingSink, LocalSink, RemoteSink, Sink

GROUP = "runnel.sinks"

OPENED: dict[str, Sink] = {}
"""Sinks that were loaded, by kind. A sink keeps no state between calls, so one instance serves all subscriptions."""


def open_sink(kind: str) -> Sink:
    """Return the sink of a name such as `rss`. Raise InputError for an unknown name and suggest a similar one."""
    if kind not in OPENED:
        entry = find_entry(GROUP, kind)
        if entry is None:
            raise _unknown(kind)
        OPENED[kind] = _load(entry)
    return OPENED[kind]


def find_sink(kind: str) -> Sink | None:
    """Return the sink of a name, or None if it is not installed."""
    try:
        return open_sink(kind)
    except InputError:
        return None


def installed_sinks() -> list[Sink]:
    """Return all sinks that can be loaded, by name."""
    return [sink for kind in plugin_names(GROUP) if (sink := find_sink(kind)) is not None]


@cache
def silent_kinds() -> frozenset[str]:
    """Return the kinds of the sinks that send no messages."""
    return frozenset(sink.kind for sink in installed_sinks() if not sink.sends_messages)


def _load(entry: EntryPoint) -> Sink:
    sink = cast("Sink", load_plugin(entry, Sink, "output"))
    if not hasattr(sink, "kind"):
        raise InputError(
            f"the class of the output {entry.name!r} does not set kind",
            hint=f"set kind = {entry.name!r} in the class {entry.value}",
        )
    if sink.kind != entry.name:
        raise InputError(
            f"the kind of the output {entry.name!r} is {sink.kind!r}, but must equal the name of its entry point",
            hint=f"set kind = {entry.name!r} in {entry.value}, or rename the entry point",
        )
    if sink.sends_messages and not isinstance(sink, LocalSink | RemoteSink):
        raise InputError(
            f"the output {entry.name!r} sends messages, but is not a LocalSink or RemoteSink",
            hint=f"derive {entry.value} from LocalSink or RemoteSink",
        )
    if sink.is_for_owners and isinstance(sink, RemoteSink) and not isinstance(sink, ConfirmingSink):
        raise InputError(
            f"the output {entry.name!r} is open to owners, but its recipients cannot confirm subscriptions",
            hint=f"derive {entry.value} from ConfirmingSink, or set is_for_owners = False",
        )
    return sink


def _unknown(kind: str) -> InputError:
    names = [sink.kind for sink in installed_sinks() if sink.is_offered]
    near = get_close_matches(kind.lower(), names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}" if names else "install runnel"
    return InputError(f"there is no output named {kind[:60]!r}", hint=hint)
