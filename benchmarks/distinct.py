"""Distinct feeds, measured: what duplicates cost a batch, in the matching step and in its commit. JSON lines.

    python -m benchmarks.distinct [--items 20000] [--views 100] [--seen 1000000] [--seed 7]

One batch of items, two thirds of which repeat a title, goes through the runner's own parts without Spark: with a feed
that is not distinct, with a distinct one, with views over it, and with a table of keys that has grown. The reference
evaluator takes some of the same items in the same run. Seconds are CPU
seconds; counters (claims, matches, keys) are the same everywhere.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runnel.algebra.nodes.gate_rules import LoggedItem
from runnel.algebra.semantics.evaluate_log import evaluate_log
from runnel.catalog.declared import feeds
from runnel.catalog.logs import gate_states, match_segments
from runnel.catalog.store import leases
from runnel.engine import Engine, connect
from runnel.matching.gates.claims import Claims
from runnel.model.gate_state import GateState
from runnel.streaming.item_source import ItemReader
from runnel.streaming.job import FORM, Job
from runnel.streaming.match_sink import MatchWriter
from runnel.streaming.worker.match_job import match_slices

_NAIVE_ITEMS = 2_000
_WORDS = 400


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--views", type=int, default=100)
    parser.add_argument("--seen", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    items = make_items(options.items, options.seed)
    views = [f"create feed V{n} from News where words contains 'w{n}';" for n in range(options.views)]
    with root(items[:200], "distinct by title", []) as engine:  # kernels are compiled, files are warm
        batch(engine)
    for name, clause, readers, seen in (
        ("plain", "", [], 0),
        ("distinct", "distinct by title", [], 0),
        ("plain with views", "", views, 0),
        ("distinct with views", "distinct by title", views, 0),
        ("distinct, many keys", "distinct by title", [], options.seen),
        ("plain feeds", "", [view.replace("News", "Wire") for view in views], 0),
        ("distinct feeds", "", [view.replace("News", "Wire distinct by title") for view in views], 0),
    ):
        with root(items, clause, readers) as engine:
            grow(engine, seen)
            say(name, items=len(items), views=len(readers), keys_before=seen, **batch(engine))
    with root(items[:_NAIVE_ITEMS], "distinct by title", []) as engine:
        naive(engine)


def say(figure: str, **values: Any) -> None:
    """Print one figure as a line of JSON."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
    print(json.dumps({"benchmark": "distinct", "figure": figure, **rounded}), flush=True)


def make_items(count: int, seed: int) -> list[dict[str, Any]]:
    """Items of thirty words; a third of the titles is new, the others repeat one of them."""
    dice = random.Random(seed)
    words = [f"w{number}" for number in range(_WORDS)]
    return [
        {
            "id": str(number),
            "title": f"Title of {dice.randrange(max(1, count // 2))}",
            "words": " ".join(dice.choices(words, k=30)),
        }
        for number in range(count)
    ]


@contextmanager
def root(items: list[dict[str, Any]], clause: str, views: list[str]) -> Iterator[Engine]:
    """A root with items that wait for matching, and a feed that all of them come to."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder, connect(Path(folder) / "root") as engine:
        names = ["News", *(view.split()[2] for view in views)]
        declared = [f"create feed News from Wire {clause};", *views]
        held = [f"subscribe to {name} output log;" for name in names]
        engine.execute("\n".join(["register feed Wire;", *declared, *held]))
        engine.publish("Wire", items)
        yield engine


def grow(engine: Engine, count: int) -> None:
    """Let the feed remember the given number of keys of other items."""
    with engine.workspace.catalog.write() as connection:
        news = next(feed for feed, name in feeds.feed_names(connection).items() if name == "News")
        dice = random.Random(1)
        for start in range(0, count, 50_000):
            rows = range(start, min(start + 50_000, count))
            keys = [GateState(news, dice.randbytes(16), row.to_bytes(16), 1 << 60) for row in rows]
            gate_states.store_states(connection, keys)


def batch(engine: Engine) -> dict[str, Any]:
    """Match and commit all that waits as one batch."""
    root = engine.workspace
    with root.catalog.write() as connection:
        lease = leases.acquire(connection, 3600.0)
        lineage = match_segments.start_lineage(connection, FORM, reason="benchmark")
    job = Job(root.catalog.url, 0, root.storage.url, lineage.id, 0, lease.epoch, 1 << 30, 1 << 40, 4_096, 2)
    reader, writer = ItemReader(job), MatchWriter(job)
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    step = match_slices(job.storage, job.lineage)
    began = time.process_time()
    written = [writer.write(step(reader.read(partition))) for partition in reader.partitions(start, end)]
    matched = time.process_time()
    writer.commit(written, 0)
    committed = time.process_time()
    claims = [claim for message in written for claim in message.claims if claim]
    with root.catalog.read() as connection:
        match_count = match_segments.match_count(connection)
        news = next(feed for feed, name in feeds.feed_names(connection).items() if name == "News")
        keys = gate_states.count_states(connection, news)
    return {
        "match_seconds": matched - began,
        "commit_seconds": committed - matched,
        "claims": sum(len(Claims.decode(claim)) for claim in claims),
        "claim_bytes": sum(map(len, claims)),
        "matches": match_count,
        "keys_after": keys,
    }


def naive(engine: Engine) -> None:
    """The reference evaluator on the same log."""
    items = engine.workspace.items
    log = [
        LoggedItem(item.sequence or 0, item.time, int(feed), item.id, item.attributes)
        for batch in items.read(0, items.last_sequence())
        for feed, item in zip(batch.feeds, batch.items({}), strict=True)
        if item.time is not None
    ]
    with engine.workspace.catalog.read() as connection:
        definitions, since = feeds.definitions(connection), feeds.since_of(connection)
    began = time.process_time()
    passed = sum(len(entry.feeds) for entry in evaluate_log(log, definitions, since))
    say("reference evaluator", items=len(log), seconds=time.process_time() - began, matches=passed)


if __name__ == "__main__":
    main()
