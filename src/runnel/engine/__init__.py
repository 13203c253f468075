"""The engine: one object for a root, which the library, the commands and later the web all use.

In: scripts, items, questions. Out: outcomes, matches, progress. Everything below does the work.
"""

from runnel.engine.facade import Engine, MatchedItem, open_engine

__all__ = ["Engine", "MatchedItem", "open_engine"]
