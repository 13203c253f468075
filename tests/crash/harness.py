"""Kill runners, and then verify the logs and the ledger against the oracle."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from lxml import etree

from runnel.algebra.nodes.calls import Call
from runnel.algebra.nodes.gate_rules import LoggedItem
from runnel.algebra.nodes.query import Gated, Node, Read
from runnel.algebra.semantics.bindings import asking
from runnel.algebra.semantics.evaluate import accepts, views_below
from runnel.algebra.semantics.evaluate_log import evaluate_log
from runnel.catalog.declared import feeds, subscriptions
from runnel.catalog.declared.operators import calls_in
from runnel.catalog.delivery import ledger
from runnel.catalog.logs import match_segments, undecided, windows
from runnel.catalog.logs.windows import FilledWindow, WindowSegment
from runnel.catalog.store import schema
from runnel.catalog.store.connection import now
from runnel.engine import Engine
from runnel.model.message import MessageState
from runnel.model.operator import Rows
from runnel.streaming.window_store import read_segment
from tests.crash.city_operators import is_moody, loudness

SCRIPT = """
register feed Wire;
register feed Other;
create feed Rock from Wire where title contains 'rock';
create feed Loud from (Rock as $r | Other) where $r[volume > 5] and not title contains 'quiet';
create feed Everything from Wire | Other;
create feed Stories from Everything distinct by story within 30 days;
create feed RockStories from (Stories | Rock) where title contains 'rock';
create feed Heard from Everything
  where graph { ?song <urn:volume> ?volume ; <urn:heard_in> ?place . filter(?volume > 4) };
create feed HeardRock from Heard where title contains 'rock' and not graph { [] <urn:heard_in> <urn:place:1> };
subscribe to Rock output jsonl 'rock.jsonl';
subscribe to Loud output rss 'loud.xml';
subscribe to Loud output atom 'loud.atom';
subscribe to Everything output jsonl 'everything.jsonl';
subscribe to Everything output json 'everything.json';
subscribe to Stories output jsonl 'stories.jsonl';
subscribe to RockStories output log;
subscribe to Heard output jsonl 'heard.jsonl';
subscribe to HeardRock output log;
subscribe to Wire output log;
"""

JOINS = """
create feed Echoed from Wire as $w join last 2 days on Other as $echoes with $w[story = window.story];
create feed Near from Wire as $w
  join last 5 items on (Other as $o | Wire) as $near with $w[title similar window.title] where $o[volume > 3];
create feed EchoedRock from Echoed where title contains 'rock';
create feed Echoes from Echoed distinct by story within 30 days;
create feed Twice from EchoedRock as $e join last 1 hours on Near as $nearby with $e[volume = window.volume];
subscribe to Echoed output jsonl 'echoed.jsonl';
subscribe to Near output log;
subscribe to EchoedRock output log;
subscribe to Echoes output log;
subscribe to Twice output log;
"""
"""Queries with a time window and a window of the last items, a view and `distinct` over them, and a join of both."""

OPERATORS = "tests.crash.city_operators"
_SEARCHED = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
"""The path on which runners find the operators of these tests."""

_ASKING = """
register operator loudness(?level int) from '{module}:loudness' reading volume;
register operator moody(switch text) from '{module}:moody' on error retry for 6 hours;
create feed Noisy from Wire where title contains 'number' and loudness(?level) and ?level > 4;
create feed Sure from Rock | Other where moody('{switch}');
create feed Either from Wire where volume > 8 or moody('{switch}');
create feed Level from Noisy where not moody('{switch}');
subscribe to Noisy output jsonl 'noisy.jsonl';
subscribe to Sure output jsonl 'sure.jsonl';
subscribe to Either output jsonl 'either.jsonl';
subscribe to Level output log;
"""
_ASKING_FILES = (("Noisy", "noisy.jsonl"), ("Sure", "sure.jsonl"), ("Either", "either.jsonl"))


def allow_operators(root: Path) -> None:
    """Allow the operators of these tests in a workspace."""
    with (root / "runnel.toml").open("a") as file:
        file.write(f'operator_modules = ["{OPERATORS}"]\n')


def asking_script(switch: Path) -> str:
    """Return queries that call operators, one of which fails for some items while the given file does not exist."""
    return _ASKING.format(module=OPERATORS, switch=switch)


def item(number: int) -> dict[str, object]:
    """Return a small item with varying words, volume and graph. Its story is new, recent or old."""
    words = ["rock", "jazz", "quiet", "loud", "concert"]
    title = f"{words[number % 5]} {words[number * 7 % 3]} number {number}"
    story = number // 4 if number % 2 else number * 7 % 40
    graph = "".join(f"<urn:song:{number}> <urn:heard_in> <urn:place:{place}> .\n" for place in range(number % 3))
    graph += f'<urn:song:{number}> <urn:volume> "{number % 11}"^^<http://www.w3.org/2001/XMLSchema#integer> .'
    return {"id": str(number), "title": title, "volume": number % 11, "story": story, "graph": graph}


def heard(number: int) -> list[dict[str, object]]:
    """Return the bindings of the pattern of the feed Heard for such an item."""
    song, volume = f"urn:song:{number}", number % 11
    places = [f"urn:place:{place}" for place in range(number % 3)] if volume > 4 else []
    return [{"song": song, "volume": volume, "place": place} for place in places]


def deadly_storage(root: Path, counter: Path, below: str, when: str) -> str:
    """Return the URL of a storage that kills its process group before or after the first write below a folder."""
    counter.unlink(missing_ok=True)
    return f"crash+{root.as_uri()}?at=1&below={below}&when={when}&counter={counter}&group=GROUP"


class Victim:
    """A runner in its own process group. With `partitions`, its plan is partitioned."""

    def __init__(self, root: Path, *arguments: str, partitions: int = 1) -> None:
        script = Path(__file__).with_name("victim.py")
        command = [sys.executable, str(script), str(root), *arguments]
        self._log = (root / "victim.log").open("ab")
        self._process = subprocess.Popen(
            command,
            start_new_session=True,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": _SEARCHED, "RUNNEL_PARTITIONS": str(partitions)},
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL to the runner, its JVM and all its workers."""
        self._signal(signal.SIGKILL)

    def kill_jvm(self) -> int:
        """Send SIGKILL only to the JVM, as the kernel does when memory runs out. Return its process ID."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        jvms = [int(one) for one in children if Path(f"/proc/{one}/comm").read_text().strip() == "java"]
        assert len(jvms) == 1, f"{len(jvms)} JVMs"
        os.kill(jvms[0], signal.SIGKILL)
        return jvms[0]

    def terminate(self) -> None:
        """Send SIGTERM only to the runner."""
        self._process.terminate()

    def wait(self, seconds: float = 240) -> int:
        """Wait for the end of the runner, kill the rest of its process group, and return the exit code."""
        try:
            return self._process.wait(seconds)
        finally:
            self._signal(signal.SIGKILL)
            self._log.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def wait_until(condition: Callable[[], bool], seconds: float = 180, pause: float = 0.02) -> None:
    """Wait for a condition. Raise an AssertionError after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(pause)


def undecided_items(engine: Engine) -> int:
    """Count the items that wait for a retry."""
    with engine.workspace.catalog.read() as connection:
        return undecided.undecided_count(connection)


def items_again(engine: Engine) -> int:
    """Count the items that were logged again."""
    with engine.workspace.catalog.read() as connection:
        return len(undecided.supplements_between(connection, 0, 1 << 60))


def set_due(engine: Engine, *, minutes: int = 0) -> None:
    """Make all waiting items due in some minutes, at most 60, because no item waits longer than an hour."""
    with engine.workspace.catalog.write() as connection:
        moment = now(connection) + minutes * 60_000_000
        connection.execute(schema.undecided.update().values(not_before=moment))


def verify(engine: Engine, published: int) -> None:
    """Verify all guarantees for a workspace in which `published` items were published and all were matched."""
    _verify_items(engine, published)
    _verify_segments(engine)
    found = _verify_matches(engine)
    verify_windows(engine)
    _verify_deliveries(engine, found)


def _verify_items(engine: Engine, published: int) -> None:
    origins = _origins(engine)
    ids = {one.sequence: one.id for one in _logged(engine)}
    seen = [known for sequence, known in ids.items() if sequence not in origins]
    assert len(seen) == len(set(seen)) == published, "an item was lost or accepted twice"
    assert all(ids[sequence] == ids[origin] for sequence, origin in origins.items()), (
        "a different item was logged again"
    )
    with engine.workspace.catalog.read() as connection:
        assert undecided.undecided_count(connection) == 0, "an item still waits for a retry"


def _origins(engine: Engine) -> dict[int, int]:
    """Map the sequences of items that were logged again to their first sequences."""
    with engine.workspace.catalog.read() as connection:
        again = undecided.supplements_between(connection, 0, 1 << 60)
    origins: dict[int, int] = {}
    for one in again:
        origins[one.sequence] = origins.get(one.supplements, one.supplements)
    return origins


def _verify_segments(engine: Engine) -> None:
    with engine.workspace.catalog.read() as connection:
        segments = match_segments.match_segments(connection)
    last = 0
    for segment in segments:
        assert segment.first_sequence == last + 1, "segments overlap or leave a gap"
        last = segment.last_sequence
    assert last == engine.workspace.items.last_sequence(), "not everything is matched"


def _verify_matches(engine: Engine) -> dict[str, list[str]]:
    """Verify that the match log agrees with the reference evaluator. Return item IDs by feed.

    A match of an item that was logged again counts for its first sequence, and must not occur twice.
    """
    root = engine.workspace
    with root.catalog.read() as connection:
        names = feeds.feed_names(connection)
        nodes = feeds.definitions(connection)
        live = feeds.since_of(connection)
    origins = _origins(engine)
    recorded: Counter[tuple[int, int]] = Counter()
    for rows in root.matches.read(0, 1 << 60):
        sequences, queries = rows.of_queries(names)
        firsts = [origins.get(sequence, sequence) for sequence in sequences.tolist()]
        recorded.update(zip(firsts, queries.tolist(), strict=True))
    expected: Counter[tuple[int, int]] = Counter()
    found: dict[str, list[str]] = {names[query]: [] for query in live}
    at_first = [one for one in _logged(engine) if one.sequence not in origins]
    askers = _askers(nodes, live)
    known = {query: since for query, since in live.items() if query not in askers}
    for one in evaluate_log(at_first, nodes, known):
        for query in one.feeds | _answered(one.item, nodes, {query: live[query] for query in askers}):
            expected[one.item.sequence, query] += 1
            found[names[query]].append(one.item.id)
    assert recorded == expected, "a match is missing, wrong or duplicated"
    return found


def verify_windows(engine: Engine) -> None:
    """Verify the annotations in the match log, and the items in the files of windows, with the reference evaluator.

    The feeds below windows must have no `distinct` and no operators.
    """
    root = engine.workspace
    with root.catalog.read() as connection:
        nodes, live = feeds.definitions(connection), feeds.since_of(connection)
        filled = windows.filled_windows(connection)
        segments = windows.live_segments(connection)
    origins = _origins(engine)
    known = {query: since for query, since in live.items() if query not in _askers(nodes, live)}
    gates = [node for query in known if isinstance(node := nodes.get(query), Gated)]
    if all(gate.window is None for gate in gates):
        assert segments == [], "files of windows that nothing needs"
        return
    items = [one for one in _logged(engine) if one.sequence not in origins]
    expected = {
        (query, one.item.sequence): dict(joined)
        for one in evaluate_log(items, nodes, known)
        for query, joined in one.annotations.items()
    }
    recorded = {
        key: {each.gate: each.newest for each in several}
        for rows in root.matches.read(0, 1 << 60)
        for key, several in rows.annotations_of(dict.fromkeys(rows.sequences.tolist(), known)).items()
        if several
    }
    assert recorded == expected, "an annotation is missing or wrong"
    assert expected, "no item joins another"
    _verify_files(engine, items, nodes, filled, segments)


def _verify_files(
    engine: Engine,
    items: list[LoggedItem],
    nodes: Mapping[int, Node],
    filled: Mapping[int, FilledWindow],
    segments: list[WindowSegment],
) -> None:
    """Verify that each filled window has the items that it needs, and no others."""
    parts = [read_segment(engine.workspace.storage, segment.path) for segment in segments]
    members: dict[int, list[int]] = {feed: [] for feed in filled}
    for one in evaluate_log(items, nodes, dict.fromkeys(filled, 0)):
        for feed in one.feeds:
            members[feed].append(one.item.sequence)
    newest = max(one.accepted for one in items)
    young = {one.sequence: one.accepted for one in items}
    for feed, window in filled.items():
        stored = {number for part in parts for number in part.sequences[part.members_of(window.key)].tolist()}
        assert stored <= set(members[feed]), "a window has an item that is not in its feed"
        begin = newest - timedelta(microseconds=window.microseconds)
        needed = {number for number in members[feed] if young[number] > begin}
        needed |= set(members[feed][-window.items :] if window.items else ())
        assert needed <= stored, "a window lacks an item"


def _askers(nodes: Mapping[int, Node], live: Collection[int]) -> set[int]:
    """Return the queries that call operators, directly or through the feeds that they read."""
    return {query for query in live if any(any(calls_in(nodes[view])) for view in views_below(Read(query), nodes))}


def _answered(one: LoggedItem, nodes: Mapping[int, Node], since: Mapping[int, int]) -> set[int]:
    """Return the queries that an item matches according to the final answers of the operators."""

    def answers(call: Call) -> Rows:
        if call.operator == "loudness":
            return tuple((value,) for value in loudness(one.attributes))
        return ((),) if is_moody(one.attributes) else ()

    holding = asking(answers)
    return {
        query
        for query, start in since.items()
        if one.sequence > start
        and accepts(Read(query), one.feed, one.attributes, nodes, one.accepted, holding=holding)
    }


def _logged(engine: Engine) -> Iterator[LoggedItem]:
    for batch in engine.workspace.items.read(0, 1 << 60):
        for feed, one in zip(batch.feeds.tolist(), batch.items({}), strict=True):
            assert one.sequence is not None
            assert one.time is not None
            yield LoggedItem(one.sequence, one.time, feed, one.id, one.attributes)


def _verify_deliveries(engine: Engine, found: dict[str, list[str]]) -> None:
    out = engine.workspace.out
    with engine.workspace.catalog.read() as connection:
        held = subscriptions.live_subscriptions(connection)
        messages = [one for held_one in held for one in ledger.messages_of(connection, held_one.id)]
    assert all(one.state is MessageState.DONE for one in messages), "a message is not settled"
    keys = [one.key for one in messages]
    assert len(keys) == len(set(keys)), "the ledger contains a message twice"
    in_order = (("Rock", "rock.jsonl"), ("Everything", "everything.jsonl"), ("Stories", "stories.jsonl"))
    for name, file in (one for one in in_order if one[0] in found):
        lines = [json.loads(line) for line in (out / file).read_text("utf-8").splitlines()]
        assert [line["id"] for line in lines] == found[name], f"{file} lost or repeated an item"
    if "Heard" in found:
        lines = [json.loads(line) for line in (out / "heard.jsonl").read_text("utf-8").splitlines()]
        assert [line["id"] for line in lines] == found["Heard"], "heard.jsonl lost or repeated an item"
        for line in lines:
            rows = sorted(line["bindings"], key=lambda row: str(row["place"]))
            assert rows == heard(int(line["id"])), "a match has other bindings than its graph"
    for name, file in _ASKING_FILES if "Sure" in found else ():
        ids = [json.loads(line)["id"] for line in (out / file).read_text("utf-8").splitlines()]
        assert sorted(ids) == sorted(found[name]), f"{file} lost or repeated an item"
    counts: Counter[int] = Counter()
    for one in messages:
        counts[one.subscription] += one.count
    by_target = {held_one.target: counts[held_one.id] for held_one in held}
    assert by_target["rock.jsonl"] == len(found["Rock"]), "the counts in the ledger differ from the matches"
    if "Stories" in found:
        assert 0 < len(found["Stories"]) < len(found["Everything"]), "a distinct feed leaves nothing out"
    newest = set(found["Loud"][-200:])
    assert _entries(out / "loud.xml", ".//item/{https://runnel.example/ns/feed/1}entry") == newest
    assert _entries(out / "loud.atom", ".//{https://runnel.example/ns/feed/1}entry") == newest
    page = json.loads((out / "everything.json").read_text("utf-8"))
    assert len(page["items"]) == min(200, len(found["Everything"]))
    torn = [path.name for path in out.rglob("*") if path.name.startswith(".") or "foreign" in path.name]
    assert torn == [], "temporary or quarantined files were left"


def _entries(path: Path, pattern: str) -> set[str]:
    return {str(one.get("item")) for one in etree.parse(path).iterfind(pattern)}
