"""Runnel: content-based publish/subscribe on Apache Spark.

    import runnel

    with runnel.open("news") as engine:
        engine.execute("register feed Wire; create feed Rock from Wire where title contains 'rock';")
        engine.execute("subscribe to Rock output rss 'rock.xml';")
        engine.publish("Wire", [{"id": "1", "title": "Rock am Ring"}])
        engine.run(once=True)

`runnel.compile(statements).match(items)` matches without a root and without Spark; `runnel.spark.match` matches the
rows of any DataFrame.
"""

from runnel.engine import Engine, MatchedItem
from runnel.engine import open_engine as open
from runnel.library import CompiledPlan, compile

__all__ = ["CompiledPlan", "Engine", "MatchedItem", "compile", "open"]
__version__ = "0.1.0"
