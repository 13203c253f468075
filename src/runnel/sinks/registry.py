"""Sinks by name: the entry points of the group `runnel.sinks`, built-in and plug-in alike."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points

from runnel.errors import InputError
from runnel.sinks.contract import RemoteSink, Sink

GROUP = "runnel.sinks"
_NOT_OFFERED = frozenset({"memory", "feed"})
"""One is for tests, one is behind materialised feeds."""


def sink_kinds() -> list[str]:
    """The names of all sinks that are installed."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


@cache
def open_sink(kind: str) -> Sink | RemoteSink:
    """The sink of a name such as `rss`; an unknown one is refused, with the name that was probably meant."""
    for entry in entry_points(group=GROUP):
        if entry.name == kind:
            try:
                sink = entry.load()()
            except (ImportError, AttributeError, TypeError) as error:
                raise InputError(
                    f"the output {kind!r} cannot be loaded: {error}", hint=f"reinstall the package of {entry.value}"
                ) from error
            if not isinstance(sink, Sink | RemoteSink):
                raise InputError(f"the output {kind!r} is not a sink", hint=f"correct {entry.value}")
            return sink
    known = [name for name in sink_kinds() if name not in _NOT_OFFERED]
    near = get_close_matches(kind.lower(), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}" if known else "install runnel"
    raise InputError(f"there is no output named {kind[:60]!r}", hint=hint)
