"""Runnel as a library, end to end: declare, publish, match on Spark, ask.

Run it with `python examples/library.py`. It works in a temporary folder and takes about as long as Spark takes to
start.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import runnel

DECLARATIONS = """
register feed Wire;
create feed Rock from Wire where title contains 'rock';
create feed Cheap from Rock where price <= 30;
subscribe to Rock output rss 'rock.xml';
subscribe to Cheap output log;
"""

ITEMS = [
    {"id": "1", "title": "Rock am Ring", "price": 180},
    {"id": "2", "title": "Rock in the cellar", "price": 12},
    {"id": "3", "title": "Jazz on the river", "price": 20},
]


def main() -> None:
    """Declare, publish, run once, and look at the result in three ways."""
    with tempfile.TemporaryDirectory() as folder, runnel.connect(Path(folder) / "news") as engine:
        for answer in engine.execute(DECLARATIONS):
            print(answer.message)

        accepted = engine.publish("Wire", ITEMS)
        print(f"{accepted.accepted} items accepted, the last one has sequence {accepted.last_sequence}")

        progress = engine.run(once=True)
        print(f"{progress.matched} items matched, {progress.delivered} messages delivered")

        # The matches of a feed, from the match log.
        for match in engine.matches("Cheap"):
            print(f"Cheap has item {match.item.id}: {match.item.first('title')}")

        # The feed file that the subscription wrote.
        written = (engine.workspace.out / "rock.xml").read_text("utf-8")
        print(f"rock.xml has {written.count('<item>')} entries")

        # Why an item is not in a feed.
        for line in engine.why("1", "Cheap").lines:
            print(line)


if __name__ == "__main__":
    main()
