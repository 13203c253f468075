"""The engine: one object for a workspace, which the library, the commands and the web use.

In: scripts, items, requests. Out: answers, matches, progress. The other packages do the work.
"""

from runnel.engine.engine import Engine, MatchedItem, connect

__all__ = ["Engine", "MatchedItem", "connect"]
