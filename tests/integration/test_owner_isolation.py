"""Isolation of owners: whatever two owners and the admin do, no owner can read or change data of the other.

All data of an owner contains that owner's mark. No answer, listing or error for the other owner may contain the mark,
except for text that the other owner wrote in the question.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.integration.in_process import InProcess

import runnel
from runnel.catalog.store import schema
from runnel.engine import Engine
from runnel.engine.answers import Answer
from runnel.errors import RunnelError, StatementError

MARKS = {"ann": "Qannq", "bob": "Qbobq"}
_feeds, _subscriptions = schema.feeds, schema.subscriptions


class World:
    """A workspace with the admin and two owners, and the answers and secrets that each of them received."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.operator = runnel.connect(folder)
        self.operator.execute("register feed Wire; create feed News from Wire where n > 1;")
        self.runner: InProcess | None = None
        self.engines: dict[str, Engine] = {}
        self.secrets: dict[str, list[str]] = {}
        self.made: dict[str, list[str]] = {name: [] for name in MARKS}
        self.numbers: dict[str, list[int]] = {name: [] for name in MARKS}
        self.keys: dict[str, list[str]] = {name: [] for name in MARKS}
        self.count = itertools.count(1)
        for name in MARKS:
            self.operator.owners.add(name)
            self.engines[name] = self.operator.acting_as(name)
            self.secrets[name] = []

    def create_data(self) -> None:
        """Give both owners feeds, items, quarantined items, messages and dead letters."""
        for name, engine in self.engines.items():
            source, view, mark = self.fresh(name), self.fresh(name), MARKS[name]
            for value in (
                f"register feed {source};",
                f"create feed {view} from {source} | Wire;",
                f"subscribe to {view} output webhook 'https://{mark.lower()}.example/hook';",
                f"subscribe to {view} output log;",
            ):
                _remembered(self, name, value)
            engine.publish(source, [{"id": f"{mark}-1", "title": mark, "n": 5}])
            with pytest.raises(RunnelError):
                engine.publish_document(source, b"<rss", name=f"{mark}.xml")
        self.deliver()
        _fail_messages(self)

    def deliver(self) -> None:
        """Match waiting items and record messages, without sending them."""
        self.runner = self.runner or InProcess(self.operator)
        self.runner.match()
        self.runner.dispatcher.recorder.record(self.runner.epoch)
        _gather_keys(self)

    def fresh(self, name: str) -> str:
        return f"{MARKS[name]}{next(self.count)}"

    def any_feed(self, name: str) -> str:
        """Return the name of a feed of the owner, the admin or the other owner."""
        other = _other(name)
        pools = [self.made[name], ["Wire", "News"], self.made[other], [f"{MARKS[other]}77"]]
        return self.random.choice(self.random.choice([pool for pool in pools if pool]))

    def any_number(self) -> int:
        return self.random.randint(1, max([1, *self.numbers["ann"], *self.numbers["bob"]]) + 1)

    def statement(self, name: str) -> str:
        """Return a random statement that an owner may try."""
        mark, feed, number = MARKS[name], self.any_feed(name), self.any_number()
        # One's own feeds bear one's own mark; a name of the operator's may be given again.
        own = [*self.made[name], "Wire", "News"]
        new = self.fresh(name) if self.random.random() < 0.7 else self.random.choice(own)
        key = self.random.choice([*self.keys["ann"], *self.keys["bob"], "0-1-1"])
        return self.random.choice(
            [
                f"register feed {new};",
                f"register feed 'https://{mark.lower()}.example/{new}' as {new};",
                f"create feed {new} from {feed} where title contains '{mark}';",
                f"create feed {new} from {feed} | Wire;",
                f"create or replace feed {self.random.choice(own)} from {self.any_feed(name)} where n > {number};",
                f"subscribe to {feed} output log;",
                f"subscribe to {feed} output webhook 'https://{mark.lower()}.example/hook';",
                f"subscribe to {feed} output mail '{mark.lower()}@mail.example' every 1 hour;",
                f"subscribe to {feed} output rss '{mark}.xml';",
                f"unsubscribe {number};",
                f"unsubscribe from {feed};",
                f"renew subscription {number} for 3 days;",
                f"rotate key of subscription {number};",
                f"pause subscription {number};",
                f"resume subscription {number};",
                f"pause feed {feed};",
                f"resume feed {feed};",
                f"drop feed {feed};",
                f"drop feed {feed} cascade;",
                f"replay subscription {number};",
                f"send subscription {number} now;",
                f"replay message '{key}';",
                f"explain message '{key}';",
                f"explain feed {feed};",
                f"show feed {feed};",
                f"why item '{MARKS[_other(name)]}-1' in {feed};",
                f"why item '{mark}-1' in {feed};",
                f"preview feed {feed};",
                f"preview create feed {new} from {feed};",
                "show feeds;",
                "show subscriptions;",
                "show quarantine;",
                "show dead letters;",
            ]
        )

    def others_state(self, name: str) -> list[object]:
        """Return all declarations except those of one owner."""
        mine = self.engines[name].actor.owner
        feed, held = _feeds.c, _subscriptions.c
        columns = [feed.id, feed.name, feed.revision, feed.paused, feed.dropped, feed.address, feed.bytes]
        kept = [held.id, held.feed, held.kind, held.target, held.paused, held.ended, held.expires, held.disabled]
        theirs = select(held.id).where(held.owner != mine)
        key, message = schema.signing_keys.c, schema.messages.c
        with self.operator.workspace.catalog.read() as connection:
            return [
                *connection.execute(select(*columns).where(feed.owner != mine).order_by(feed.id)).all(),
                *connection.execute(select(*kept).where(held.owner != mine).order_by(held.id)).all(),
                *connection.execute(select(schema.signing_keys).where(key.subscription.in_(theirs))).all(),
                *connection.execute(select(schema.messages).where(message.subscription.in_(theirs))).all(),
            ]

    def close(self) -> None:
        self.operator.close()


def _other(name: str) -> str:
    return "bob" if name == "ann" else "ann"


def _shown_texts(act: Callable[[], object]) -> str:
    """Return everything that an actor is shown: answers as fields, text and JSON, or an error with its hint."""
    try:
        messages = act()
        answers = (
            [message for message in messages if isinstance(message, Answer)] if isinstance(messages, list) else []
        )
        return f"{messages!r} {[f'{answer} {answer.to_json()}' for answer in answers]}"
    except StatementError as error:
        return f"{error.message} {error.hint}"  # the text that it shows is the asker's own
    except RunnelError as error:
        return str(error)


def _act(world: World, name: str) -> None:
    engine, mark = world.engines[name], MARKS[name]
    dice = world.random.random()
    text = ""
    if dice < 0.1:
        feed = world.any_feed(name)
        text = feed
        messages = _shown_texts(lambda: engine.publish(feed, [{"id": f"{mark}-1", "title": mark, "n": 5}]))
    elif dice < 0.15:
        feed = world.any_feed(name)
        text = feed
        messages = _shown_texts(lambda: engine.publish_document(feed, b"<rss", name=f"{mark}.xml"))
    elif dice < 0.2:
        feed = world.any_feed(name)
        text = feed
        messages = _shown_texts(lambda: [match.item for match in engine.matches(feed)])
    else:
        text = world.statement(name)
        messages = _shown_texts(lambda: _remembered(world, name, text))
    _check(world, name, text, messages)


def _remembered(world: World, name: str, text: str) -> object:
    outcomes = world.engines[name].execute(text)
    for outcome in outcomes:
        if "subscription" in outcome.to_json() and text.startswith("subscribe"):
            world.numbers[name].append(outcome.to_json()["subscription"])
        for secret in ("ticket", "key"):
            if secret in outcome.to_json() and text.startswith(("subscribe", "rotate")):
                world.secrets[name].append(outcome.to_json()[secret])
        if text.startswith(("register", "create")):
            world.made[name].append(outcome.to_json()["feed"])
    return outcomes


def _check(world: World, name: str, text: str, messages: str) -> None:
    other = _other(name)
    mark = MARKS[other]
    for secret in world.secrets[other]:
        assert secret not in messages, f"{name} said {text!r} and was told {messages!r}"
    known = {word for word in text.replace("'", " ").replace(";", " ").split() if mark in word}
    left = messages
    for word in sorted(known, key=len, reverse=True):
        left = left.replace(word, "…")
    assert mark.lower() not in left.lower(), f"{name} said {text!r} and was told {messages!r}"


def _act_as_admin(world: World) -> None:
    """Let the admin publish, match, drop and pause feeds, and list everything."""
    match world.random.randrange(5):
        case 0:
            world.operator.publish("Wire", [{"id": f"w{next(world.count)}", "title": "news", "n": 5}])
        case 1:
            world.deliver()
        case 2:
            world.operator.execute("create or replace feed News from Wire where n > 2;")
        case 3:
            _fail_messages(world)
        case _:
            shown = json.dumps(
                [entry.to_json() for entry in world.operator.execute("show feeds; show subscriptions;")]
            )
            for name in MARKS:
                live = world.engines[name].execute("show feeds;")[0].to_json()["feeds"]
                assert all(entry["name"] in shown for entry in live)


def _gather_keys(world: World) -> None:
    with world.operator.workspace.catalog.read() as connection:
        messages = schema.messages.c
        query = select(messages.key, _subscriptions.c.owner).join(
            _subscriptions, _subscriptions.c.id == messages.subscription
        )
        rows = connection.execute(query).all()
    for name, engine in world.engines.items():
        world.keys[name] = [row.key for row in rows if row.owner == engine.actor.owner]


def _fail_messages(world: World) -> None:
    """Turn all open messages into dead letters, with reasons that contain their owners' marks."""
    messages = schema.messages
    with world.operator.workspace.catalog.write() as connection:
        for name, keys in world.keys.items():
            dead = messages.update().where(messages.c.key.in_(keys), messages.c.state == "open")
            connection.execute(dead.values(state="dead", outcome=f"no {MARKS[name]}", finished=1))


@pytest.mark.parametrize("seed", range(5))
def test_owners_cannot_read_or_change_data_of_each_other(seed: int, tmp_path: Path) -> None:
    world = World(tmp_path / "root", seed)
    world.create_data()
    for name, engine in world.engines.items():
        messages = _shown_texts(lambda: engine.execute("show dead letters; show quarantine; show subscriptions;"))  # noqa: B023
        assert messages.count(MARKS[name]) > 5, "there is something to find"
    for _ in range(60):
        who = world.random.choice(["ann", "ann", "bob", "bob", "operator"])
        if who == "operator":
            _act_as_admin(world)
            continue
        before = world.others_state(who)
        _act(world, who)
        assert world.others_state(who) == before
    world.close()


def test_isolation_check_detects_a_leak(tmp_path: Path) -> None:
    world = World(tmp_path / "root", 1)
    world.engines["bob"].execute("register feed Qbobq1;")
    with pytest.raises(AssertionError):
        _check(world, "ann", "show feeds;", repr(world.operator.execute("show feeds;")))
    _check(world, "ann", "show feed Qbobq1;", _shown_texts(lambda: world.engines["ann"].execute("show feed Qbobq1;")))
    world.close()
