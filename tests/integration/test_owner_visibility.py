"""Visibility for owners: canaries in data of the admin and another owner must not be in any answer to an owner.

The statements, the methods of the engine and the commands are enumerated from the code, so that these tests fail for
a new one until they cover it.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from tests.integration.in_process import InProcess
from tests.integration.test_tokens_of_commands import FOR_OWNERS
from typer.testing import CliRunner

import runnel
from runnel.catalog.polling import polls
from runnel.catalog.store import schema
from runnel.cli.main import app
from runnel.engine import Engine
from runnel.engine.answers import Answer
from runnel.engine.opml import export_feeds, import_feeds
from runnel.errors import NotAllowedError, NotFoundError, RunnelError, StatementError
from runnel.language.grammar.parser import parse
from runnel.language.syntax import statements as said
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.streaming.worker import operator_work
from runnel.testing import FakeClock
from runnel.web.collect_report import collect_report

CANARY = re.compile("canary", re.IGNORECASE)
OPERATORS = """
class Moody:
    def __init__(self, place):
        self.model = place.configuration["model"]

    def answer(self, asks):
        raise ConnectionError(f"canary-reason: {self.model} does not answer")
"""
TABLES = ("BobRows", "Wire", "No")
FEEDS = ("Web", "Inbox", "Wire", "News", "Fresh", "Alarms", "Shaped", "BobWeb", "BobWire", "BobNews", "AnnNews", "No")
"""The feeds of everybody, and one that does not exist."""

COPY = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="@*|node()"><xsl:copy><xsl:apply-templates select="@*|node()"/></xsl:copy></xsl:template>
</xsl:stylesheet>"""


class World:
    """A workspace of the admin and the owners ann and bob, with canaries in all data that ann must not see."""

    def __init__(self, folder: Path) -> None:
        self.admin = runnel.connect(
            folder / "root",
            clock=FakeClock(),
            operator_modules=("moody_operators",),
            operator_databases={"places": "sqlite:///canary-database"},
            out_folders=(folder / "canary-out",),
            allowed_addresses=("canary-allowed.example",),
            smtp_host="canary-smtp.invalid",
            smtp_user="canary-user",
            smtp_password="canary-password",
            mail_from="Runnel <runnel@muse.example>",
        )
        OperatorEnvironment.of(self.admin.workspace.settings).keep(self.admin.workspace.storage)
        (folder / "root" / "sheets").mkdir(exist_ok=True)
        (folder / "root" / "sheets" / "copy.xsl").write_text(COPY)
        inbox = folder / "canary-inbox"
        inbox.mkdir()
        self.admin.execute(
            "register feed 'https://web.example/canary-path?token=canary-query' as Web every 2 hours title 'The web'"
            " home 'https://home.example/canary-home?key=canary-key' tagged news;"
            f"register feed '{inbox}' as Inbox; register feed Wire;"
            "register operator moody() from 'moody_operators:Moody' on error retry for 1 hours"
            " with (model 'canary-model');"
            "create feed News from Wire where n > 1; create feed Fresh from Wire distinct by title within 9 days;"
            "create feed Alarms from Wire where moody(); register feed News apply 'copy.xsl' as Shaped;"
            "subscribe to News output rss 'canary-file.xml'; subscribe to News output mail 'canary@mail.example';"
            "subscribe to Web output webhook 'https://hook.example/canary-hook';"
        )
        for name in ("ann", "bob"):
            self.admin.owners.add(name)
        self.ann, self.bob = self.admin.acting_as("ann"), self.admin.acting_as("bob")
        self.token = self.admin.owners.new_token("ann", "test").to_json()["token"]
        self.bob.execute(
            "register feed 'https://bob.example/canary-bob?token=canary-bob' as BobWeb title 'canary-title' tagged"
            " canarytag; register feed BobWire; register table BobRows (a text key);"
            "create feed BobNews tagged canarytag from BobWire | News where title contains 'canary';"
            "subscribe to BobNews output webhook 'https://bob.example/canary-bob-hook';"
            "subscribe to Fresh output webhook 'https://bob.example/canary-bob-hook';"
            "subscribe to Alarms output mail 'canary-bob@mail.example';"
        )
        self.ann.execute(
            "register feed 'https://ann.example/feed?token=mine' as AnnWeb; register feed AnnWire;"
            "create feed AnnNews from News | AnnWire where not moody();"
            "subscribe to AnnNews output log; subscribe to News output mail 'ann@mail.example';"
            "subscribe to Wire output webhook 'https://ann.example/hook';"
        )
        self._cause_failures()

    def _cause_failures(self) -> None:
        """Let polls and deliveries fail, documents be refused, and items be matched."""
        admin, runner = self.admin, InProcess(self.admin)
        with admin.workspace.catalog.write() as connection:
            polls.maintain_polls(connection)
            polls.adopt(connection)
            columns = {"address": "https://web.example/canary-moved", "problem": "canary-problem", "failures": 3}
            connection.execute(update(schema.polls).values(**columns, checked=1, status=500))
            connection.execute(update(schema.consents).values(state="confirmed"))
        for engine, feed in ((admin, "Wire"), (self.bob, "BobWire")):
            with pytest.raises(RunnelError):
                engine.publish_document(feed, b"<rss", name="canary-document.xml")
        admin.publish("Wire", [{"id": "1", "title": "rock", "n": 5}, {"id": "2", "title": "rock", "n": 5}])
        self.bob.publish("BobWire", [{"id": "3", "title": "canary-item", "n": 5}])
        self.bob.publish("BobRows", [{"a": "canary-row"}])
        self.ann.publish("AnnWire", [{"id": "4", "title": "rock", "n": 5}])
        runner.match()
        runner.dispatcher.recorder.record(runner.epoch)
        runner.close()
        messages = schema.messages
        with admin.workspace.catalog.write() as connection:
            connection.execute(update(messages).where(messages.c.state == "open").values(state="dead", finished=1))
            held = schema.subscriptions
            bobs = held.select().where(held.c.owner == self.bob.actor.owner).with_only_columns(held.c.id)
            connection.execute(
                update(messages).where(messages.c.subscription.in_(bobs)).values(outcome="canary-outcome")
            )
            self.keys = [row.key for row in connection.execute(messages.select())]
        assert self.ann.show("dead letters").to_json()["letters"]

    def close(self) -> None:
        self.admin.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    (folder / "moody_operators.py").write_text(OPERATORS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        operator_work.operators.cache_clear()
        made = World(folder)
        yield made
        made.close()
        operator_work.operators.cache_clear()


def statements(world: World) -> Iterator[str]:
    """Return statements of every kind about all data. Those that succeed change only ann's data."""
    yield from (f"show {what};" for what in typing.get_args(typing.get_type_hints(said.Show)["what"])[:7])
    for feed in FEEDS:
        yield from (
            f"show feed {feed};",
            f"explain feed {feed};",
            *(f"why item '{item}' in {feed};" for item in (1, 3, 4)),
            f"preview feed {feed};",
            f"preview create feed New from {feed} where n > 0;",
            f"tag feed {feed} as seen;",
            f"drop feed {feed};",
            f"pause feed {feed};",
            f"resume feed {feed};",
            f"unsubscribe from {feed} output webhook 'https://nowhere.example/';",
            f"create or replace feed {feed} from No;",
            f"register feed {feed} apply 'no.xsl' as Mine;",
            f"subscribe to {feed} output rss 'mine.xml';",
            f"subscribe to {feed} apply 'no.xsl' output log;",
            f"register feed '/etc/passwd' as {feed}2;",
            f"register feed 'https://10.0.0.1/x' as {feed}3;",
        )
    for table in TABLES:
        yield f"show rows {table} where a contains 'row'; register table {table}2 (a text key); drop table {table};"
    yield "show operator moody; show operator none;"
    yield "register operator mine() from 'moody_operators:Moody';"
    yield "drop operator moody cascade;"
    yield "register prefix ex as 'https://ex.example/'; "
    yield "drop prefix ex;"
    for number in range(1, 12):
        yield from (
            f"pause subscription {number};",
            f"resume subscription {number};",
            f"send subscription {number} now;",
            f"confirm subscription {number};",
            f"confirm subscription {number} 'AAAA';",
            f"replay subscription {number};",
            f"renew subscription {number} for 3 days;",
            f"rotate key of subscription {number};",
        )
    yield "renew ticket 'no'; unsubscribe ticket 'no';"
    yield "unsubscribe 99; send all now;"
    for key in (*world.keys, "0-1-1"):
        yield f"explain message '{key}';"
        yield f"replay message '{key}';"


def test_every_kind_of_statement_is_covered(world: World) -> None:
    asked = {type(parsed.statement) for text in statements(world) for parsed in parse(text)}
    assert asked == set(typing.get_args(said.Statement))
    shown = {
        entry.statement.what
        for text in statements(world)
        for entry in parse(text)
        if isinstance(entry.statement, said.Show)
    }
    assert shown == set(typing.get_args(typing.get_type_hints(said.Show)["what"]))


def texts_of(act: Callable[[], Any]) -> str:
    """Return the content of answers: their fields, text and JSON, or an error with its hint and position."""
    try:
        messages = act()
        answers = [
            message
            for message in (messages if isinstance(messages, list) else [messages])
            if isinstance(message, Answer)
        ]
        return f"{messages!r} {[f'{answer} {answer.to_json()}' for answer in answers]}"
    except StatementError as error:
        return f"{error.render()} {error.hint} {vars(error)}"
    except RunnelError as error:
        return f"{error} {vars(error)}"


def refused(act: Callable[[], Any]) -> None:
    """Assert that the error is a refusal, because `texts_of` would treat any error as an answer."""
    try:
        act()
    except NotAllowedError:
        return
    except RunnelError as error:
        raise AssertionError(f"not refused: {error}") from error
    raise AssertionError("not refused")


def test_no_statement_shows_a_canary_to_an_owner(world: World) -> None:
    for text in statements(world):
        answer = texts_of(lambda text=text: world.ann.execute(text))  # type: ignore[misc]
        assert not CANARY.search(answer), f"{text}\n{answer}"


def test_the_admin_and_the_other_owner_see_the_canaries(world: World) -> None:
    """Verify the check itself: the same questions show the canaries to their owners."""
    for question in ("show feeds;", "show feed Web;", "show operators;", "show quarantine;", "explain feed Web;"):
        assert CANARY.search(texts_of(lambda text=question: world.admin.execute(text))), question  # type: ignore[misc]
    for question in ("show feeds;", "show subscriptions;", "show dead letters;", "show quarantine;"):
        assert CANARY.search(texts_of(lambda text=question: world.bob.execute(text))), question  # type: ignore[misc]
    assert "canary-reason" in texts_of(lambda: world.admin.why("4", "Alarms"))


def test_owners_see_hosts_of_feeds_that_are_not_theirs(world: World) -> None:
    rows = {row["name"]: row for row in world.ann.show("feeds").to_json()["feeds"]}
    expected = "register feed 'https://web.example' as Web every 2 hours title 'The web' home 'https://home.example'"
    assert rows["Web"]["statement"] == f"{expected} tagged news;"
    assert rows["Web"]["home"] == "https://home.example"
    assert rows["Inbox"]["statement"] == "register feed Inbox;"
    assert rows["AnnWeb"]["statement"] == "register feed 'https://ann.example/feed?token=mine' as AnnWeb;"
    assert set(rows) == {"Web", "Inbox", "Wire", "News", "Fresh", "Alarms", "Shaped", "AnnWeb", "AnnWire", "AnnNews"}
    assert "poll" not in world.ann.execute("show feed Web;")[0].to_json()
    lines = world.ann.show("feeds").lines
    parse("\n".join(lines))  # still a script


ENGINE: dict[str, Callable[[World, Engine], Any]] = {
    "execute": lambda world, ann: ann.execute("show feeds;"),
    "apply": lambda world, ann: ann.apply(said.Show("feeds")),
    "show": lambda world, ann: [texts_of(lambda: ann.show(name)) for name in FEEDS],  # noqa: B023
    "feeds": lambda world, ann: ann.feeds(),
    "feed": lambda world, ann: [texts_of(lambda: ann.feed(name)) for name in FEEDS],  # noqa: B023
    "tables": lambda world, ann: ann.tables(),
    "rows": lambda world, ann: [texts_of(lambda: list(ann.rows(name))) for name in TABLES],  # noqa: B023
    "show_rows": lambda world, ann: [texts_of(lambda: ann.show_rows(name)) for name in TABLES],  # noqa: B023
    "subscriptions": lambda world, ann: ann.subscriptions(),
    "quarantine": lambda world, ann: ann.quarantine(),
    "dead_letters": lambda world, ann: ann.dead_letters(),
    "explain_message": lambda world, ann: [
        texts_of(lambda: ann.explain_message(letter.key))  # noqa: B023
        for letter in world.admin.dead_letters()
    ],
    "operators": lambda world, ann: ann.operators(),
    "operator": lambda world, ann: ann.operator("moody"),
    "prefixes": lambda world, ann: ann.prefixes(),
    "explain": lambda world, ann: [texts_of(lambda: ann.explain(name)) for name in FEEDS],  # noqa: B023
    "pictures": lambda world, ann: [texts_of(lambda: ann.pictures(name)) for name in FEEDS],  # noqa: B023
    "why": lambda world, ann: [texts_of(lambda: ann.why("1", name)) for name in FEEDS],  # noqa: B023
    "preview": lambda world, ann: [texts_of(lambda: ann.preview(name)) for name in FEEDS],  # noqa: B023
    "test": lambda world, ann: [
        texts_of(lambda: ann.test([{"id": "9", "n": 5}], feed="Wire", queries=["AnnNews", "Alarms"])),
        texts_of(lambda: ann.test(owner="bob")),
        texts_of(lambda: ann.test(tag="anarytag")),
        texts_of(lambda: ann.test()),
    ],
    "test_document": lambda world, ann: ann.test_document(b'{"id": "9", "n": 5}', feed="AnnWire"),
    "usage": lambda world, ann: str(
        replace(ann.usage(), shown=frozenset({"never", "busiest", "slow", "idle"}), limit=99)
    ),
    "matches": lambda world, ann: [texts_of(lambda: list(ann.matches(name))) for name in FEEDS],  # noqa: B023
    "publish": lambda world, ann: [texts_of(lambda: ann.publish(name, [{"id": "7"}])) for name in FEEDS],  # noqa: B023
    "publish_document": lambda world, ann: [
        texts_of(lambda: ann.publish_document(name, b"<rss"))  # noqa: B023
        for name in FEEDS
    ],
    "status": lambda world, ann: refused(ann.status),
    "owners": lambda world, ann: refused(lambda: ann.owners),
    "acting_as": lambda world, ann: refused(lambda: ann.acting_as("bob")),
    "authenticated": lambda world, ann: refused(lambda: ann.authenticated(world.token)),
    "run": lambda world, ann: refused(lambda: ann.run(once=True)),
    "require_admin": lambda world, ann: refused(lambda: ann.require_admin("see everything")),
    "collect_report": lambda world, ann: refused(lambda: collect_report(ann, "report")),
    "export_feeds": lambda world, ann: export_feeds(ann),
    "import_feeds": lambda world, ann: import_feeds(
        ann, b'<opml version="2.0"><body><outline xmlUrl="https://web.example/x"/></body></opml>'
    ),
}
NO_QUESTIONS = {"close", "stop", "hubs"}
"""Methods that answer nothing: they end things, or serve the runner."""


def test_every_method_of_the_engine_is_covered() -> None:
    public = {name for name in vars(Engine) if not name.startswith("_")}
    assert public - ENGINE.keys() == NO_QUESTIONS


@pytest.mark.parametrize("method", ENGINE)
def test_no_method_shows_a_canary_to_an_owner(world: World, method: str) -> None:
    answer = texts_of(lambda: ENGINE[method](world, world.ann))
    assert not CANARY.search(answer), answer


COMMANDS: dict[str, list[list[str]]] = {
    "exec": [["show feeds;"], ["show feed No;"]],
    "publish": [["Wire", "/nothing"]],
    "show": [
        [what] for what in ("feeds", "subscriptions", "quarantine", "dead letters", "operators", "Web", "Inbox")
    ],
    "explain": [["Web"], ["Alarms"], ["BobNews"]],
    "why": [["1", "News"], ["3", "BobNews"], ["4", "AnnNews"]],
    "preview": [["News"], ["BobNews"]],
    "status": [[]],
    "test": [["--tag", "seen"], ["--owner", "bob"]],
    "queries": [[], ["--slow"]],
    "operators": [[], ["moody"]],
    "dead-letters list": [[]],
    "dead-letters explain": [["0-1-1"]],
    "dead-letters replay": [["0-1-1"]],
    "dead-letters send-now": [["1"]],
    "opml import": [["/nothing"]],
    "opml export": [[]],
    "run": [["--once"]],
}


def test_every_command_for_owners_is_covered() -> None:
    assert COMMANDS.keys() >= FOR_OWNERS, "all other commands refuse the token of an owner"


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_shows_a_canary_to_an_owner(world: World, command: str) -> None:
    root = str(world.admin.workspace.folder)
    for arguments in COMMANDS[command]:
        for form in ([], ["--json"]):
            ran = CliRunner().invoke(app, [*command.split(), *arguments, "-w", root, "--token", world.token, *form])
            # The folder of the test is given by the caller.
            assert not CANARY.search(ran.output), ran.output


# --- what others subscribe to ------------------------------------------------------------------------------------

QUESTIONS = [
    "show feeds;",
    "show operators;",
    "show quarantine;",
    "show subscriptions;",
    *(f"{ask} {feed};" for feed in ("Wire", "News", "Fresh", "Top") for ask in ("show feed", "explain feed")),
    *(f"why item '{item}' in {feed};" for feed in ("Wire", "News", "Fresh", "Top") for item in range(1, 7)),
    *(f"preview feed {feed};" for feed in ("News", "Fresh", "Top")),
]


def answers_of_ann(folder: Path, *, others: bool, subscribes: bool) -> list[str]:
    """Return ann's answers about feeds of the admin, with or without subscriptions of others and of ann."""
    items = [{"id": str(number), "title": f"rock {number % 2}", "n": number} for number in range(1, 7)]
    with runnel.connect(folder, clock=FakeClock()) as admin:
        admin.execute(
            "register feed Wire; create feed News from Wire where n > 1; create feed Top from News where n > 2;"
            "create feed Fresh from Wire distinct by title within 9 days;"
        )
        for name in ("ann", "bob"):
            admin.owners.add(name)
        ann, bob = admin.acting_as("ann"), admin.acting_as("bob")
        ann.execute(
            "register feed AnnWire; create feed AnnTop from Top where n > 3; subscribe to AnnWire output log;"
        )
        runner = InProcess(admin)
        admin.publish("Wire", items[:2])
        runner.match()
        if others:
            bob.execute("".join(f"subscribe to {feed} output log;" for feed in ("Wire", "News", "Top", "Fresh")))
        admin.publish("Wire", items[2:4])
        runner.match()
        if subscribes:
            ann.execute("subscribe to AnnTop output log;")
        admin.publish("Wire", items[4:])
        runner.match()
        texts = [f"{text} {ann.execute(text)}" for text in QUESTIONS]
        texts += [f"{feed} {recorded(ann, feed)}" for feed in ("Wire", "News", "Top", "Fresh")]
        runner.close()
        # The numbers of subscriptions are counted for the whole workspace.
        return [re.sub(r"(?<=Subscription\(id=)\d|subscriptions=\(\d,\)", "N", value) for value in texts]


def recorded(engine: Engine, feed: str) -> list[str] | str:
    """Return the ids of the recorded matches of a feed, or the reason why there are none."""
    try:
        return [match.item.id for match in engine.matches(feed)]
    except NotFoundError as error:
        return error.message


@pytest.mark.parametrize("subscribes", [False, True])
def test_answers_do_not_depend_on_the_subscriptions_of_others(subscribes: bool, tmp_path: Path) -> None:
    alone = answers_of_ann(tmp_path / "alone", others=False, subscribes=subscribes)
    watched = answers_of_ann(tmp_path / "watched", others=True, subscribes=subscribes)
    assert alone == watched


def test_owners_see_the_matches_that_their_own_subscriptions_cause(tmp_path: Path) -> None:
    assert answers_of_ann(tmp_path, others=True, subscribes=True)[-4:] == [
        "Wire no matches of Wire are recorded, because you do not subscribe to it",
        "News ['5', '6']",
        "Top ['5', '6']",
        "Fresh no matches of Fresh are recorded, because you do not subscribe to it",
    ]


def test_matches_of_other_subscriptions_are_still_recorded(tmp_path: Path) -> None:
    answers_of_ann(tmp_path, others=True, subscribes=False)
    with runnel.connect(tmp_path) as admin:
        assert [match.item.id for match in admin.matches("News")] == ["3", "4", "5", "6"]
