"""Killing runners and judging what is left: the promises of the logs and the ledger, checked against the oracle."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from lxml import etree

from runnel.algebra.evaluate_log import LoggedItem, evaluate_log
from runnel.catalog import feeds, ledger, matches, subscriptions
from runnel.engine import Engine
from runnel.model.delivery import MessageState

SCRIPT = """
register feed Wire;
register feed Other;
create feed Rock from Wire where title contains 'rock';
create feed Loud from (Rock as $r | Other) where $r[volume > 5] and not title contains 'quiet';
create feed Everything from Wire | Other;
create feed Stories from Everything distinct by story within 30 days;
create feed RockStories from (Stories | Rock) where title contains 'rock';
subscribe to Rock output jsonl 'rock.jsonl';
subscribe to Loud output rss 'loud.xml';
subscribe to Loud output atom 'loud.atom';
subscribe to Everything output jsonl 'everything.jsonl';
subscribe to Everything output json 'everything.json';
subscribe to Stories output jsonl 'stories.jsonl';
subscribe to RockStories output log;
subscribe to Wire output log;
"""


def item(number: int) -> dict[str, object]:
    """A small item whose words and volume vary; its story was told just before, or long ago, or never."""
    words = ["rock", "jazz", "quiet", "loud", "concert"]
    title = f"{words[number % 5]} {words[number * 7 % 3]} number {number}"
    story = number // 4 if number % 2 else number * 7 % 40
    return {"id": str(number), "title": title, "volume": number % 11, "story": story}


class Victim:
    """A runner in a process group of its own."""

    def __init__(self, root: Path, *arguments: str) -> None:
        script = Path(__file__).with_name("victim.py")
        command = [sys.executable, str(script), str(root), *arguments]
        self._log = (root / "victim.log").open("ab")
        self._process = subprocess.Popen(command, start_new_session=True, stdout=self._log, stderr=subprocess.STDOUT)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL to the runner, its JVM and all its workers."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM to the runner alone."""
        self._process.terminate()

    def wait(self, seconds: float = 240) -> int:
        """The exit code; whatever is left of the group is killed then."""
        try:
            return self._process.wait(seconds)
        finally:
            self._signal(signal.SIGKILL)
            self._log.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def wait_until(condition: Callable[[], bool], seconds: float = 180, pause: float = 0.02) -> None:
    """Wait for a condition; an AssertionError if it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(pause)


def verify(engine: Engine, published: int) -> None:
    """Everything that was promised, of a root where `published` items went in and all were matched."""
    _verify_items(engine, published)
    _verify_segments(engine)
    found = _verify_matches(engine)
    _verify_deliveries(engine, found)


def _verify_items(engine: Engine, published: int) -> None:
    seen = [one.id for batch in engine.root.items.read(0, 1 << 60) for one in batch.items({})]
    assert len(seen) == len(set(seen)) == published, "an item was lost or accepted twice"


def _verify_segments(engine: Engine) -> None:
    with engine.root.catalog.read() as connection:
        segments = matches.match_segments(connection)
    last = 0
    for segment in segments:
        assert segment.first_sequence == last + 1, "segments overlap or leave a gap"
        last = segment.last_sequence
    assert last == engine.root.items.last_sequence(), "not everything is matched"


def _verify_matches(engine: Engine) -> dict[str, list[str]]:
    """The match log is exactly what the reference evaluator says; gives item ids by feed."""
    root = engine.root
    with root.catalog.read() as connection:
        names = feeds.feed_names(connection)
        nodes = feeds.definitions(connection)
        live = feeds.since_of(connection)
    recorded: Counter[tuple[int, int]] = Counter()
    for rows in root.matches.read(0, 1 << 60):
        sequences, queries = rows.of_queries(names)
        recorded.update(zip(sequences.tolist(), queries.tolist(), strict=True))
    expected: Counter[tuple[int, int]] = Counter()
    found: dict[str, list[str]] = {names[query]: [] for query in live}
    for one in evaluate_log(_logged(engine), nodes, live):
        for query in one.feeds:
            expected[one.item.sequence, query] += 1
            found[names[query]].append(one.item.id)
    assert recorded == expected, "a match is missing, wrong, or there twice"
    return found


def _logged(engine: Engine) -> Iterator[LoggedItem]:
    for batch in engine.root.items.read(0, 1 << 60):
        for feed, one in zip(batch.feeds.tolist(), batch.items({}), strict=True):
            assert one.sequence is not None
            assert one.time is not None
            yield LoggedItem(one.sequence, one.time, feed, one.id, one.attributes)


def _verify_deliveries(engine: Engine, found: dict[str, list[str]]) -> None:
    out = engine.root.out
    with engine.root.catalog.read() as connection:
        held = subscriptions.live_subscriptions(connection)
        messages = [one for held_one in held for one in ledger.messages_of(connection, held_one.id)]
    assert all(one.state is MessageState.DONE for one in messages), "a message is not settled"
    keys = [one.key for one in messages]
    assert len(keys) == len(set(keys)), "a message is in the ledger twice"
    for name, file in (("Rock", "rock.jsonl"), ("Everything", "everything.jsonl"), ("Stories", "stories.jsonl")):
        lines = [json.loads(line) for line in (out / file).read_text("utf-8").splitlines()]
        assert [line["id"] for line in lines] == found[name], f"{file} lost or repeated an item"
    counts: Counter[int] = Counter()
    for one in messages:
        counts[one.subscription] += one.count
    by_target = {held_one.target: counts[held_one.id] for held_one in held}
    assert by_target["rock.jsonl"] == len(found["Rock"]), "the ledger's counts are not the matches'"
    assert 0 < len(found["Stories"]) < len(found["Everything"]), "there is nothing that a distinct feed leaves out"
    newest = set(found["Loud"][-200:])
    assert _entries(out / "loud.xml", ".//item/{urn:runnel:feed/1}entry") == newest
    assert _entries(out / "loud.atom", ".//{urn:runnel:feed/1}entry") == newest
    page = json.loads((out / "everything.json").read_text("utf-8"))
    assert len(page["items"]) == min(200, len(found["Everything"]))
    torn = [path.name for path in out.rglob("*") if path.name.startswith(".") or "foreign" in path.name]
    assert torn == [], "drafts or files set aside were left"


def _entries(path: Path, pattern: str) -> set[str]:
    return {str(one.get("item")) for one in etree.parse(path).iterfind(pattern)}
