"""Declarations: a script is one transaction, errors have positions, and the plan contains only subscribed queries."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest
from tests.integration.in_process import InProcess, live_names

from runnel.algebra.nodes.query import Read
from runnel.algebra.semantics.evaluate import accepts
from runnel.catalog.declared import feeds
from runnel.catalog.logs import plan_versions
from runnel.engine import Engine
from runnel.engine.planning import plan_change
from runnel.errors import (
    CyclicFeedsError,
    DuplicateNameError,
    NotFoundError,
    StatementError,
    StatementSyntaxError,
    StillNeededError,
    UnknownNameError,
)
from runnel.matching.compile.build_matcher import build_matcher
from runnel.model.item import Item, attributes_of
from runnel.model.item_batch import ItemBatch
from runnel.plan.store import PlanVersion, load
from runnel.testing import FakeClock

WIRE = "register feed Wire; create feed Rock from Wire where title contains 'rock';"


def _state(engine: Engine) -> tuple[object, ...]:
    """Return all data that declarations change."""
    status = engine.status()
    shown = [entry.lines for entry in engine.execute("show feeds; show subscriptions;")]
    files = sorted(path.name for path in (engine.workspace.folder / "plans").glob("*"))
    return status.plan_version, status.plan_queries, live_names(engine), shown, files


# --- one transaction -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "last",
    [
        "create feed Bad from Wrie;",
        "create feed Rock from Wire;",
        "subscribe to Rock output rss '../../etc/passwd';",
        "unsubscribe 99;",
        "drop feed Wire;",
        "pause subscription 7;",
        "creat feed X from Wire;",
    ],
)
def test_a_script_whose_last_statement_is_refused_changes_nothing(engine: Engine, last: str) -> None:
    engine.execute(f"{WIRE} subscribe to Rock output log;")
    before = _state(engine)
    script = f"register feed Other; create feed Both from Rock | Other; subscribe to Both output log;\n{last}"
    with pytest.raises(StatementError) as refused:
        engine.execute(script)
    assert refused.value.span is not None
    assert refused.value.span.line == 2
    assert refused.value.text == script
    assert _state(engine) == before


def test_statements_see_earlier_statements_of_the_script(engine: Engine) -> None:
    outcomes = engine.execute(
        "register feed Wire; create feed Rock from Wire where title contains 'rock';"
        "create or replace feed Rock from Wire where title contains 'roll';"
        "subscribe to Rock output log; drop feed Wire cascade; register feed Wire;"
        "show subscriptions; show feeds;"
    )
    assert [outcome.message for outcome in outcomes] == [
        "registered feed Wire",
        "created feed Rock",
        "replaced feed Rock",
        "subscription 1 to Rock: log",
        "dropped feeds Rock, Wire and ended subscription 1",
        "registered feed Wire",
        "0 subscriptions",
        "1 feeds",
    ]
    assert live_names(engine) == set()


def test_refused_question_does_not_undo_declarations(engine: Engine) -> None:
    with pytest.raises(StatementError, match="there is no feed Nope"):
        engine.execute("register feed Wire; show feed Nope;")
    assert engine.status().sources == 1


def test_empty_script_and_comment_have_no_effect(engine: Engine) -> None:
    assert engine.execute("") == []
    assert engine.execute("  -- nothing to see\n") == []
    assert engine.status().plan_version is None


# --- refusals ------------------------------------------------------------------------------------------------------

REFUSALS: list[tuple[str, type[StatementError], str, tuple[int, int], str]] = [
    ("create feed X\n  from Wrie;", UnknownNameError, "there is no feed Wrie", (2, 8), "Wire"),
    ("subscribe to\n Rokc output log;", UnknownNameError, "there is no feed Rokc", (2, 2), "Rock"),
    ("register feed Rock;", DuplicateNameError, "a feed Rock already exists", (1, 15), "or replace"),
    ("create feed Rock from Wire;", DuplicateNameError, "a feed Rock already exists", (1, 13), "or replace"),
    ("create or replace feed Wire from Rock;", DuplicateNameError, "a feed Wire already exists", (1, 24), ""),
    (
        "create feed X from Wire as $w\n where $v[n > 1];",
        UnknownNameError,
        "there is no variable $v",
        (2, 8),
        "$w",
    ),
    ("create or replace feed Rock\n from Rock;", CyclicFeedsError, "Rock would read itself", (1, 24), ""),
    ("create or replace feed Rock from Hard;", CyclicFeedsError, "it reads Hard, which reads Rock", (1, 24), ""),
    ("subscribe to Rock output rss '../x';", StatementError, "", (1, 30), ""),
    ("subscribe to Rock output rss;", StatementError, "requires a target", (1, 26), ""),
    ("subscribe to Rock output log 'x';", StatementError, "no target", (1, 30), ""),
    ("subscribe to Rock\n output rsss 'x';", StatementError, "no output named 'rsss'", (2, 9), "rss"),
    ("subscribe to Rock\n apply '../x.xsl' output log;", StatementError, "folder `sheets`", (2, 8), "title.xsl"),
    ("subscribe to Rock apply 'x.xsl' output rss 'x';", StatementError, "cannot be read", (1, 25), "sheets"),
    ("register feed Rock apply 'x.xsl' as R;", StatementError, "cannot be read", (1, 26), "sheets"),
    ("register feed 'gopher://x/y' as X;", StatementError, "gopher", (1, 15), "path"),
    ("register feed 'http://127.0.0.1/x' as X;", StatementError, "127.0.0.1", (1, 15), ""),
    ("register feed 'drop' as X every 1 hour;", StatementError, "cannot have `every`", (1, 15), "scan_seconds"),
    ("drop feed Nope;", UnknownNameError, "there is no feed Nope", (1, 11), ""),
    ("drop feed Wire;", StillNeededError, "Wire is still needed by feeds Hard, Rock", (1, 11), "cascade"),
    ("drop feed Hard;", StillNeededError, "Hard is still needed by subscription 1", (1, 11), "cascade"),
    ("unsubscribe 12;", UnknownNameError, "there is no subscription 12", (1, 13), "show subscriptions"),
    ("unsubscribe from Rock;", UnknownNameError, "no such subscription to Rock", (1, 18), "show subscriptions"),
    ("unsubscribe from Hard output rss;", UnknownNameError, "no such subscription to Hard", (1, 18), ""),
    ("pause feed Nope;", UnknownNameError, "there is no feed Nope", (1, 12), ""),
    ("resume subscription 5;", UnknownNameError, "there is no subscription 5", (1, 21), ""),
    ("renew subscription 5;", UnknownNameError, "there is no subscription 5", (1, 20), ""),
    ("renew ticket 'x';", UnknownNameError, "no live subscription has this ticket", (1, 14), "may be incomplete"),
    (
        "unsubscribe ticket 'x';",
        UnknownNameError,
        "no live subscription has this ticket",
        (1, 20),
        "may be incomplete",
    ),
    ("rotate key of subscription 5;", UnknownNameError, "there is no subscription 5", (1, 28), ""),
    ("rotate key of subscription 1;", StatementError, "are not signed", (1, 28), "signing keys: webhook"),
    ("replay message 'a';", UnknownNameError, "there is no message a", (1, 16), "show dead letters"),
    ("send subscription 5 now;", UnknownNameError, "there is no subscription 5", (1, 19), ""),
    ("replay subscription 5;", UnknownNameError, "there is no subscription 5", (1, 21), ""),
    ("replay subscription 1;", UnknownNameError, "there is no dead letter", (1, 21), ""),
    ("explain message 'a';", StatementError, "there is no message a", (1, 1), "show dead letters"),
    ("show feed Rokc;", StatementError, "there is no feed Rokc", (1, 1), "Rock"),
    ("explain feed Nope;", StatementError, "there is no feed Nope", (1, 1), "show feeds"),
    ("why item 'x' in Rock;", StatementError, "no item x was accepted", (1, 1), ""),
    ("preview create feed P from Nope;", UnknownNameError, "there is no feed Nope", (1, 28), ""),
    ("creat feed X from Wire;", StatementSyntaxError, "", (1, 1), "create"),
]


@pytest.mark.parametrize(("text", "kind", "message", "place", "hint"), REFUSALS)
def test_error_has_message_position_and_hint(
    engine: Engine, text: str, kind: type[StatementError], message: str, place: tuple[int, int], hint: str
) -> None:
    engine.execute(f"{WIRE} create feed Hard from Rock where n > 3; subscribe to Hard output log;")
    with pytest.raises(kind) as refused:
        engine.execute(text)
    error = refused.value
    assert message in error.message
    assert error.span is not None
    assert (error.span.line, error.span.column) == place
    assert hint in (error.hint or "")
    assert "^" in error.render()


def test_cycle_through_a_paused_view_is_refused(engine: Engine) -> None:
    engine.execute(f"{WIRE} create feed Hard from Rock; subscribe to Hard output log; pause feed Hard;")
    with pytest.raises(CyclicFeedsError, match="Rock would read itself"):
        engine.execute("create or replace feed Rock from Hard;")


def test_unknown_name_outside_a_script_raises_not_found(engine: Engine) -> None:
    engine.execute(WIRE)
    with pytest.raises(NotFoundError, match="there is no feed Rokc") as missing:
        engine.explain("Rokc")
    assert "Rock" in (missing.value.hint or "")
    with pytest.raises(NotFoundError, match="no item 1"):
        engine.why("1", "Rock")


# --- unsubscribe, drop, pause --------------------------------------------------------------------------------------


def test_unsubscribe_by_number_by_feed_by_kind_and_by_target(engine: Engine) -> None:
    engine.execute(
        f"{WIRE} subscribe to Rock output log; subscribe to Rock output rss 'a.xml';"
        "subscribe to Rock output rss 'b.xml'; subscribe to Rock output atom 'c.atom'; subscribe to Rock output log;"
    )

    def ended(text: str) -> object:
        return engine.execute(text)[0].to_json()["subscriptions"]

    assert ended("unsubscribe 5;") == [5]
    assert ended("unsubscribe from Rock output rss 'a.xml';") == [2]
    assert ended("unsubscribe from Rock output atom;") == [4]
    assert ended("unsubscribe from Rock;") == [1, 3]
    assert engine.status().subscriptions == 0
    assert live_names(engine) == set()
    with pytest.raises(UnknownNameError, match="there is no subscription 5"):
        engine.execute("unsubscribe 5;")


def test_drop_cascade_drops_readers_and_subscriptions_and_frees_the_name(engine: Engine) -> None:
    engine.execute(
        f"{WIRE} create feed Hard from Rock; create feed Soft from Wire; subscribe to Hard output log;"
        "subscribe to Soft output log;"
    )
    old = engine.execute("show feed Rock;")[0].to_json()["id"]
    outcome = engine.execute("drop feed Rock cascade;")[0]
    assert outcome.to_json()["feeds"] == ["Hard", "Rock"]
    assert live_names(engine) == {"Soft"}
    assert engine.status().subscriptions == 1
    engine.execute("create feed Rock from Wire; subscribe to Rock output log;")
    assert engine.execute("show feed Rock;")[0].to_json()["id"] > old
    assert live_names(engine) == {"Soft", "Rock"}


def test_pause_and_resume_are_shown(engine: Engine) -> None:
    engine.execute(f"{WIRE} subscribe to Rock output log; pause feed Rock; pause subscription 1;")
    assert "paused" in engine.execute("show feed Rock;")[0].lines
    assert "paused" in engine.execute("show subscriptions;")[0].lines[0]
    engine.execute("resume feed Rock; resume subscription 1;")
    assert "matched" in engine.execute("show feed Rock;")[0].lines
    assert "paused" not in engine.execute("show subscriptions;")[0].lines[0]


# --- questions -----------------------------------------------------------------------------------------------------


def test_show_feed_lists_read_feeds_and_readers(engine: Engine) -> None:
    engine.execute(f"{WIRE} create feed Hard from Rock | Wire where n > 3; subscribe to Hard output jsonl 'h.jsonl';")
    feed = engine.execute("show feed Rock;")[0].to_json()
    assert (feed["reads"], feed["read_by"], feed["matched"], feed["subscriptions"]) == (["Wire"], ["Hard"], True, [])
    everything = engine.execute("show feeds;")[0].to_json()["feeds"]
    assert [(entry["name"], entry["kind"], entry["matched"]) for entry in everything] == [
        ("Wire", "source", False),
        ("Rock", "virtual", True),
        ("Hard", "virtual", True),
    ]
    assert engine.execute("show feed Hard;")[0].lines[0].startswith("create feed Hard from Rock | Wire where n > 3")
    row = engine.execute("show subscriptions;")[0].to_json()["subscriptions"][0]
    assert (row["feed"], row["kind"], row["target"], row["messages"]) == ("Hard", "jsonl", "h.jsonl", 0)


def test_explain_of_feeds_with_and_without_subscribers(engine: Engine) -> None:
    engine.execute(
        f"{WIRE} create feed Twin from Wire where title contains 'rock'; create feed Idle from Rock where n > 3;"
        "subscribe to Rock output log; subscribe to Twin output log;"
    )
    matched = engine.explain("Rock")
    assert matched.to_json()["matched"] is True
    assert "plan version 1" in matched.lines
    assert "    shared by 2 queries" in matched.lines, "Rock and Twin have one condition"
    idle = engine.explain("Idle")
    assert idle.to_json()["matched"] is False
    assert any("nobody subscribes" in line for line in idle.lines)
    assert any("n > 3" in line for line in idle.lines)
    source = engine.explain("Wire")
    assert source.lines[0].startswith("register feed Wire")
    assert engine.status().plan_version == 1, "a question compiles nothing that stays"


# --- activation ----------------------------------------------------------------------------------------------------

DIAMOND = """
register feed Wire; register feed Other;
create feed Base from Wire where n > 1;
create feed Left from Base where n > 2;
create feed Right from Base | Other where n > 3;
create feed Top from Left | Right where n > 4;
create feed Alone from Base where n > 5;
"""


def test_only_queries_with_direct_or_indirect_subscribers_are_matched(engine: Engine) -> None:
    def after(text: str) -> set[str]:
        engine.execute(text)
        names = live_names(engine)
        assert engine.status().matched_feeds == len(names)
        return names

    assert after(DIAMOND) == set()
    assert engine.status().plan_version is None, "nothing is wanted, so nothing is compiled"
    assert after("subscribe to Left output log;") == {"Base", "Left"}
    assert after("subscribe to Top output log;") == {"Base", "Left", "Right", "Top"}
    assert after("unsubscribe from Left;") == {"Base", "Left", "Right", "Top"}
    assert after("subscribe to Wire output log;") == {"Base", "Left", "Right", "Top", "Wire"}
    assert after("create or replace feed Top from Right;") == {"Base", "Right", "Top", "Wire"}
    assert after("create or replace feed Right from Other;") == {"Right", "Top", "Wire"}
    assert after("create or replace feed Right from Alone;") == {"Alone", "Base", "Right", "Top", "Wire"}
    assert after("pause feed Base; pause feed Top;") == {"Alone", "Base", "Right", "Top", "Wire"}
    assert after("resume feed Base; resume feed Top;") == {"Alone", "Base", "Right", "Top", "Wire"}
    assert after("drop feed Alone cascade;") == {"Wire"}
    assert after("unsubscribe from Wire;") == set()
    assert engine.status().plan_queries == 0


def test_resubscribed_feed_matches_from_the_new_subscription_on(engine: Engine) -> None:
    def since() -> dict[str, int]:
        with engine.workspace.catalog.read() as connection:
            names = feeds.feed_names(connection)
            return {names[feed]: sequence for feed, sequence in feeds.since_of(connection).items()}

    engine.execute(f"{DIAMOND} subscribe to Left output log;")
    engine.publish("Wire", [{"id": str(number), "n": number} for number in range(3)])
    engine.execute("subscribe to Right output log;")
    assert since() == {"Base": 0, "Left": 0, "Right": 3}
    engine.publish("Other", [{"id": "o"}])
    engine.execute("unsubscribe from Left;")
    assert since() == {"Base": 0, "Right": 3}
    engine.execute("create or replace feed Right from Base where n > 7;")
    assert since() == {"Base": 0, "Right": 3}, "a query that is changed stays live"
    engine.execute("subscribe to Left output log;")
    assert since() == {"Base": 0, "Right": 3, "Left": 4}


def test_moving_a_subscription_inside_one_script_leaves_no_gap(engine: Engine) -> None:
    engine.execute(f"{WIRE} subscribe to Rock output log;")
    engine.publish("Wire", [{"id": "1", "title": "rock"}])
    engine.execute("unsubscribe from Rock; subscribe to Rock output rss 'r.xml';")
    with engine.workspace.catalog.read() as connection:
        assert list(feeds.since_of(connection).values()) == [0]


# --- plan versions -------------------------------------------------------------------------------------------------


def test_small_changes_are_deltas_and_many_become_a_base(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_change, "_MIN_DELTA_QUERIES", 3)
    engine.execute(f"{WIRE} subscribe to Rock output log;")

    def current() -> plan_versions.PlanRow:
        with engine.workspace.catalog.read() as connection:
            current_plan = plan_versions.current_plan(connection)
        assert current_plan is not None
        return current_plan

    first = current()
    assert (first.version, first.delta, first.queries) == (1, None, 1)
    seen = []
    for number in range(6):
        engine.execute(f"create feed F{number} from Wire where n > {number}; subscribe to F{number} output log;")
        row = current()
        assert row.queries == number + 2
        seen.append((row.version, row.base == first.base, row.delta is not None))
    assert seen[:3] == [(2, True, True), (3, True, True), (4, True, True)]
    assert seen[3] == (5, False, False), "the fourth is too much for a delta"
    assert [pair[0] for pair in seen] == [2, 3, 4, 5, 6, 7]
    before = current().version
    engine.execute("create feed Unwanted from Wire; register feed Third; show feeds;")
    assert current().version == before, "what nobody subscribes to makes no version"


class _RandomDeclarations:
    """A random sequence of declarations. After each, the current plan must match like the reference evaluator."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.views: list[str] = []
        self.count = 0
        engine.execute("register feed A; register feed B; register feed C;")
        with engine.workspace.catalog.read() as connection:
            self.sources = {name: feeds.feed_by_name(connection, name) for name in "ABC"}
        ids = {name: feed.id for name, feed in self.sources.items() if feed is not None}
        items = [
            Item("ABC"[number % 3], str(number), attributes_of(self._attributes(number), place="item"))
            for number in range(30)
        ]
        self.batch = ItemBatch.of(items, ids, first_sequence=1_000_000)

    def _attributes(self, number: int) -> dict[str, object]:
        words = ["rock", "jazz", "pop", "loud", "quiet"]
        return {"title": f"{words[number % 5]} {words[number * 3 % 4]}", "n": number % 7}

    def step(self) -> str:
        choices = [self._create, self._create, self._replace, self._subscribe, self._subscribe, self._unsubscribe]
        choices += [self._drop, self._pause, self._several]
        statement = self.random.choice(choices)()
        try:
            self.engine.execute(statement)
        except (CyclicFeedsError, UnknownNameError):
            return f"refused: {statement}"  # a cycle, or nothing to unsubscribe
        with self.engine.workspace.catalog.read() as connection:
            self.views = [feed.name for feed in feeds.live_feeds(connection) if feed.name not in self.sources]
        return statement

    def _query(self) -> str:
        word = self.random.choice(["rock", "jazz", "pop", "loud", "quiet"])
        number = self.random.randrange(7)
        condition = self.random.choice(
            [f"title contains '{word}'", f"n > {number}", f"not title contains '{word}' or n = {number}"]
        )
        known = ["A", "B", "C", *self.views]
        chosen = self.random.sample(known, min(len(known), self.random.randint(1, 3)))
        return f"{' | '.join(chosen)} where {condition}"

    def _create(self) -> str:
        self.count += 1
        return f"create feed V{self.count} from {self._query()};"

    def _view(self) -> str:
        return self.random.choice(self.views) if self.views else "A"

    def _replace(self) -> str:
        return f"create or replace feed {self._view()} from {self._query()};" if self.views else self._create()

    def _subscribe(self) -> str:
        return f"subscribe to {self._view()} output log;"

    def _unsubscribe(self) -> str:
        return f"unsubscribe from {self._view()};"

    def _drop(self) -> str:
        few = len(self.views) < 6
        return self._create() if few else f"drop feed {self._view()} cascade;"

    def _pause(self) -> str:
        return f"{self.random.choice(['pause', 'resume', 'resume'])} feed {self._view()};"

    def _several(self) -> str:
        return f"{self._create()} {self._subscribe()} {self._create()}"

    def verify(self, after: str) -> None:
        root = self.engine.workspace
        with root.catalog.read() as connection:
            row = plan_versions.current_plan(connection)
            nodes = feeds.definitions(connection)
            live = feeds.since_of(connection)
        if row is None:
            assert live == {}
            return
        matcher = build_matcher(load(root.storage, PlanVersion.of(row)))
        matches = matcher.match(self.batch)
        assert row.queries == len(live), after
        for index, (feed, attributes) in enumerate(
            zip(self.batch.feeds.tolist(), self.batch.attributes(), strict=True)
        ):
            expected = sorted(query for query in live if accepts(Read(query), feed, attributes, nodes))
            assert matches.row(index).tolist() == expected, after


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_plan_matches_like_the_reference_after_any_declarations(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    import runnel

    monkeypatch.setattr(plan_change, "_MIN_DELTA_QUERIES", 6)
    with runnel.connect(tmp_path / "root", clock=clock) as engine:
        walk = _RandomDeclarations(engine, seed)
        steps = 0
        for _ in range(60):
            done = walk.step()
            steps += not done.startswith("refused")
            walk.verify(done)
        with engine.workspace.catalog.read() as connection:
            folders = plan_versions.plan_folders(connection)
        assert steps > 40
        assert len(folders) > 10, "the walk changed the plan"


# --- since and why, without Spark ----------------------------------------------------------------------------------


def test_replacing_a_query_keeps_earlier_matches(engine: Engine, clock: FakeClock) -> None:
    engine.execute("register feed Wire; create feed Hot from Wire where n > 5; subscribe to Hot output log;")
    runner = InProcess(engine)
    engine.publish("Wire", [{"id": "matched before", "n": 3}])
    runner.match()
    engine.publish("Wire", [{"id": "waiting", "n": 3}])
    clock.advance(timedelta(seconds=1))
    engine.execute("create or replace feed Hot from Wire where n > 2;")
    runner.match()
    assert [match.item.id for match in engine.matches("Hot")] == ["waiting"]
    document = engine.why("matched before", "Hot").to_json()
    assert (document["holds"], document["recorded"]) == (False, False)
    assert any("n > 5" in line for line in document["trace"])
    document = engine.why("waiting", "Hot").to_json()
    assert (document["holds"], document["recorded"]) == (True, True)


def test_why_finds_the_revision_even_if_the_clock_was_set_back(engine: Engine, clock: FakeClock) -> None:
    engine.execute("register feed Wire; create feed Hot from Wire where n > 5; subscribe to Hot output log;")
    engine.publish("Wire", [{"id": "1", "n": 3}])
    InProcess(engine).match()
    clock.advance(timedelta(hours=-1))
    engine.execute("create or replace feed Hot from Wire where n > 2;")
    document = engine.why("1", "Hot").to_json()
    assert (document["holds"], document["recorded"]) == (False, False)


def test_why_considers_that_a_view_was_paused(engine: Engine, clock: FakeClock) -> None:
    engine.execute(f"{WIRE} create feed Hard from Rock; subscribe to Hard output log; pause feed Rock;")
    engine.publish("Wire", [{"id": "1", "title": "rock"}])
    InProcess(engine).match()
    assert [match.item.id for match in engine.matches("Hard")] == []
    document = engine.why("1", "Hard").to_json()
    assert (document["holds"], document["recorded"]) == (False, False)
