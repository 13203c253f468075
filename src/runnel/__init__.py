"""Runnel: content-based publish/subscribe on Apache Spark.

    import runnel

    with runnel.open("news") as engine:
        engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
        engine.execute("subscribe to Rock output rss 'rock.xml';")
        engine.publish("Wire", [{"id": "1", "title": "Rock am Ring"}])
        engine.run(once=True)

`runnel.compile(statements).match(items)` matches without a workspace and without Spark; `runnel.spark.match` matches
the rows of any DataFrame.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel import spark
    from runnel.engine import Engine, MatchedItem
    from runnel.engine import open_engine as open
    from runnel.library import CompiledPlan, compile

__all__ = ["CompiledPlan", "Engine", "MatchedItem", "compile", "open", "spark"]
__version__ = "0.1.0"

_PLACES = {
    "CompiledPlan": ("runnel.library", "CompiledPlan"),
    "Engine": ("runnel.engine", "Engine"),
    "MatchedItem": ("runnel.engine", "MatchedItem"),
    "compile": ("runnel.library", "compile"),
    "open": ("runnel.engine", "open_engine"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: Spark's workers need a small part of this package, and quickly."""
    if name == "spark":
        return import_module("runnel.spark")
    if name not in _PLACES:
        raise AttributeError(f"module 'runnel' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)
