"""`Engine`: declares, publishes, runs and queries in one workspace on behalf of one actor."""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from runnel.algebra.nodes.render import render_name
from runnel.catalog.store.connection import Clock
from runnel.delivery.dead_letters import DeadLetter
from runnel.delivery.dispatcher import Dispatcher
from runnel.engine.actors import (
    ADMIN_ACTOR,
    Actor,
    actor_named,
    authenticate,
    check_actor,
    feed_named,
    matched_since,
    names_for,
)
from runnel.engine.answers import Answer
from runnel.engine.ask import show_dead_letters
from runnel.engine.ask.explain_feed import Explanation, explain_feed, picture_feed
from runnel.engine.ask.query_usage import ITEMS, QueryUsage, read_usage
from runnel.engine.ask.selection import Selection
from runnel.engine.ask.show import show_feed, show_feeds, show_quarantine, show_subscriptions
from runnel.engine.ask.shown import (
    Feed,
    FeedDetails,
    MessageDetails,
    Operator,
    OperatorDetails,
    Prefix,
    Quarantined,
    Subscription,
)
from runnel.engine.ask.status import Status, read_status
from runnel.engine.ask.why import Why, explain_match
from runnel.engine.declare import declare_operators, declare_prefixes
from runnel.engine.declare.locate_errors import locate_errors
from runnel.engine.declare.script import declare
from runnel.engine.open_delivery import dispatcher_of
from runnel.engine.own_spark import OwnSpark
from runnel.engine.owners import Owners
from runnel.engine.publish import Publisher
from runnel.engine.trial.collect_matches import SHOWN
from runnel.engine.trial.preview import DEFAULT_SPAN, PreviewResult, preview_feed, preview_query
from runnel.engine.trial.try_items import TrialResult, source_for, try_adapted, try_items, try_past
from runnel.engine.workspace import Workspace, create_workspace, open_workspace
from runnel.errors import InputError, NotAllowedError, NotAWorkspaceError, NotFoundError, StatementError
from runnel.language.grammar.parser import parse
from runnel.language.phrase_notes import phrase_notes
from runnel.language.printing import print_statement
from runnel.language.syntax import statements as said
from runnel.language.syntax.parameters import Parameters, ParameterValue
from runnel.logs.items.item_log import Accepted
from runnel.model.bindings import NO_BINDINGS, Bindings
from runnel.model.item import Item
from runnel.sources.acquire import Acquirer
from runnel.sources.registry import open_readers
from runnel.sources.web_feeds.websub_client import WebSubClient

if TYPE_CHECKING:
    from runnel.engine.run.health import Companion
    from runnel.engine.run.runner import Progress, Runner, RunnerParts

_QUESTIONS = (said.Show, said.Explain, said.ExplainMessage, said.Why, said.Preview)


@dataclass(frozen=True, slots=True)
class MatchedItem:
    """An item that matched a feed, its sequence in the item log, and the bindings of the match."""

    sequence: int
    item: Item
    bindings: Bindings = NO_BINDINGS


def connect(
    path: str | Path, *, create: bool = True, clock: Clock = time.time, token: str | None = None, **settings: Any
) -> Engine:
    """Open the workspace in a folder. Create it if it does not exist, unless `create` is false or a token is given.

    Other keyword arguments override settings in the workspace's `runnel.toml`. With a token, the engine acts on
    behalf of the token's owner. Without a token, it acts as the admin, which requires access to the workspace's
    files.

    >>> import runnel, tempfile
    >>> with tempfile.TemporaryDirectory() as folder, runnel.connect(folder) as engine:
    ...     print(engine.execute("register feed Wire")[0])
    registered feed Wire
    """
    folder = Path(path)
    try:
        opened = open_workspace(folder, clock=clock, **settings)
    except NotAWorkspaceError:
        if not create or token is not None:
            raise
        opened = create_workspace(folder, clock=clock, **settings)
    if token is None:
        return Engine(opened)
    try:
        return Engine(opened, authenticate(opened, token))
    except BaseException:
        opened.close()
        raise


class Engine:
    """An open workspace and the actor (the admin or an owner) on whose behalf the methods act.

    Use it as a context manager, or call `close`. Any number of engines may use a workspace at the same time, but only
    one of them can be in `run`.

    >>> import runnel, tempfile
    >>> with tempfile.TemporaryDirectory() as folder, runnel.connect(folder) as engine:
    ...     answers = engine.execute("register feed Wire")
    ...     answers += engine.execute("create feed Rock from Wire where title contains :word", word="rock")
    ...     published = engine.publish("Wire", [{"id": "1", "title": "Rock am Ring"}, {"id": "2", "title": "Jazz"}])
    ...     names = [feed.name for feed in engine.feeds()]
    ...     preview = engine.preview("Rock")
    ...     why = engine.why("2", "Rock")
    >>> names, preview.matched, why.holds
    (['Wire', 'Rock'], 1, False)
    >>> print(preview)
    Rock would have matched 1 of the 2 items accepted in that time
      Wire  Rock am Ring
    """

    def __init__(self, workspace: Workspace, actor: Actor = ADMIN_ACTOR) -> None:
        self.workspace = workspace
        self.actor = actor
        self._spark = OwnSpark(workspace)
        self._owns_root = True
        self._runner: Runner | None = None
        self._stopping = threading.Event()
        self._acquirer = Acquirer(
            workspace.catalog, workspace.storage, workspace.items, workspace.folder, workspace.settings
        )
        self._publisher = Publisher(workspace, self._acquirer, actor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the catalog, and stop Spark if this engine started it."""
        self._spark.close()
        if self._owns_root:
            self.workspace.close()

    def acting_as(self, name: str) -> Engine:
        """Return an engine on the same workspace that acts on behalf of the owner `name`. For the admin only."""
        self.require_admin("act for others")
        return self._for(replace(actor_named(self.workspace, name), token=self.actor.token))

    def authenticated(self, token: str) -> Engine:
        """Return an engine on the same workspace that acts on behalf of the token's owner. For the admin only."""
        self.require_admin("act for others")
        return self._for(authenticate(self.workspace, token))

    @property
    def owners(self) -> Owners:
        """Management of owners, their quotas and their tokens. For the admin only."""
        self.require_admin("look after owners")
        return Owners(self.workspace)

    def _for(self, actor: Actor) -> Engine:
        engine = Engine(self.workspace, actor)
        engine._owns_root = False
        return engine

    def _check_actor(self) -> None:
        """Raise NotAllowedError if the token with which this engine was opened is no longer valid."""
        if self.actor.token is not None:
            with self.workspace.catalog.read() as connection:
                check_actor(connection, self.actor)

    def require_admin(self, action: str) -> None:
        """Raise NotAllowedError unless this engine acts as the admin. `action` completes "only the admin can …"."""
        self._check_actor()
        if not self.actor.is_admin:
            raise NotAllowedError(
                f"only the admin can {action}; you act for {self.actor.name}",
                hint="run it without a token, or ask the admin",
            )

    # --- declaring and asking ------------------------------------------------------------------------------------

    def execute(self, text: str, /, **parameters: ParameterValue) -> list[Answer]:
        """Run a script and return one answer per statement. All declarations of the script are one transaction.

        If a declaration is refused, none takes effect, and the error contains the position of the statement.

        The questions `show`, `explain`, `why` and `preview` may come before the first declaration, and are then
        answered before it, or after the last declaration. A script with a question between two declarations is
        refused.

        Keyword arguments are the values of parameters such as `:word`. A parameter can replace a constant, but not a
        name.
        """
        values = Parameters(parameters)
        script = parse(text, parameters=values)
        values.refuse_unused(text, script[0].span if script else said.NO_SPAN)
        return self._run(script, text, values)

    def apply(self, statement: said.Statement) -> Answer:
        """Run one statement that was built as a syntax tree instead of parsed from text."""
        text = print_statement(statement)
        return self._run([said.Parsed(statement, said.NO_SPAN)], text)[0]

    def _run(self, script: list[said.Parsed], text: str, values: Parameters | None = None) -> list[Answer]:
        self._check_actor()
        places = [place for place, parsed in enumerate(script) if not isinstance(parsed.statement, _QUESTIONS)]
        first, end = (places[0], places[-1] + 1) if places else (len(script), len(script))
        if end - first != len(places):
            question = next(parsed for parsed in script[first:end] if isinstance(parsed.statement, _QUESTIONS))
            raise StatementError(
                "a question cannot stand between declarations, which are applied together",
                span=question.span,
                text=text,
                hint="move it behind the last declaration, or execute it on its own",
            )
        answers = [self._answer_at(parsed, text) for parsed in script[:first]]
        if places:
            declared = declare(self.workspace, self.actor, list(enumerate(script))[first:end], text)
            answers += [declared[place] for place in places]
        done = "the script's declarations were applied" if places else None
        answers += [self._answer_at(parsed, text, done) for parsed in script[end:]]
        return self._noted(answers, script, text, values)

    @staticmethod
    def _noted(
        answers: list[Answer], script: list[said.Parsed], text: str, values: Parameters | None
    ) -> list[Answer]:
        """The answers, each with the notes on its statement."""
        starts = [(parsed.span.line, parsed.span.column) for parsed in script]
        for position, note in phrase_notes(text, values):
            place = max(bisect_right(starts, position) - 1, 0)
            answers[place] = replace(answers[place], notes=(*answers[place].notes, note))
        return answers

    def _answer_at(self, question: said.Parsed, text: str, done: str | None = None) -> Answer:
        with locate_errors(text, question.span, done):
            return self._answer(cast(said.Question, question.statement))

    def _answer(self, question: said.Question) -> Answer:
        match question:
            case said.Show("feed", said.Name(name)):
                return self.feed(name)
            case said.Show("operator", said.Name(name)):
                return self.operator(name)
            case said.Show(kind):
                return self.show(kind)
            case said.Explain(feed):
                return self.explain(feed.text)
            case said.ExplainMessage(key):
                return self.explain_message(key)
            case said.Why(item, feed):
                return self.why(item, feed.text)
            case said.Preview(said.CreateFeed() as query, _, back):
                return preview_query(self.workspace, query, back, self._spark.session, self.actor)
            case said.Preview(_, feed_or_none, back):
                name = "" if feed_or_none is None else feed_or_none.text
                return preview_feed(self.workspace, name, back, self._spark.session, self.actor)

    def show(self, kind: str) -> Answer:
        """Return the answer to `show KIND`.

        Kinds are `feeds`, `subscriptions`, `quarantine`, `dead letters`, `operators` and `prefixes`. Any other text
        is the name of a feed.
        """
        self._check_actor()
        match kind:
            case "feeds":
                return show_feeds(self.workspace, self.actor)
            case "subscriptions":
                return show_subscriptions(self.workspace, self.actor)
            case "quarantine":
                return show_quarantine(self.workspace, self.actor)
            case "dead letters":
                return show_dead_letters.show_dead_letters(self.workspace, self.actor)
            case "operators":
                return declare_operators.show_operators(self.workspace, self.actor)
            case "prefixes":
                return declare_prefixes.show_prefixes(self.workspace)
            case name:
                return show_feed(self.workspace, name, self.actor)

    def feeds(self) -> list[Feed]:
        """Return the feeds that the actor may read."""
        self._check_actor()
        return list(show_feeds(self.workspace, self.actor).rows)

    def feed(self, name: str) -> FeedDetails:
        """Return one feed, with the feeds that it reads, the feeds that read it, and its subscriptions."""
        self._check_actor()
        return show_feed(self.workspace, name, self.actor)

    def subscriptions(self) -> list[Subscription]:
        """Return the actor's subscriptions. The admin gets the subscriptions of all owners."""
        self._check_actor()
        return list(show_subscriptions(self.workspace, self.actor).rows)

    def quarantine(self) -> list[Quarantined]:
        """Return the documents, items and evaluations in quarantine, newest first."""
        self._check_actor()
        return list(show_quarantine(self.workspace, self.actor).rows)

    def dead_letters(self) -> list[DeadLetter]:
        """Return up to 1,000 dead letters (messages that were given up), newest first."""
        self._check_actor()
        return list(show_dead_letters.show_dead_letters(self.workspace, self.actor).rows)

    def explain_message(self, key: str) -> MessageDetails:
        """Return the state of a message, the titles of its items, and its failed delivery attempts."""
        self._check_actor()
        return show_dead_letters.explain_message(self.workspace, key, self.actor)

    def operators(self) -> list[Operator]:
        """Return the operators that queries can use."""
        self._check_actor()
        return list(declare_operators.show_operators(self.workspace, self.actor).rows)

    def operator(self, name: str) -> OperatorDetails:
        """Return one operator, with the queries that use it."""
        self._check_actor()
        return declare_operators.show_operator(self.workspace, name, self.actor)

    def prefixes(self) -> list[Prefix]:
        """Return the prefixes for graph patterns: first the registered ones, then the predefined ones."""
        self._check_actor()
        return list(declare_prefixes.show_prefixes(self.workspace).rows)

    def explain(self, name: str, *, steps: bool = False) -> Explanation:
        """Explain how a feed is matched. With `steps`, include the plan after each pass of the optimizer."""
        self._check_actor()
        return explain_feed(self.workspace, name, self.actor, steps=steps)

    def pictures(self, name: str) -> dict[str, str]:
        """Return drawings (SVG) of the filter trees that match a feed, by the names of the source feeds."""
        self._check_actor()
        return picture_feed(self.workspace, name, self.actor)

    def why(self, item_id: str, name: str) -> Why:
        """Explain why the item `item_id` is or is not in the feed `name`."""
        self._check_actor()
        return explain_match(self.workspace, item_id, name, self.actor)

    def preview(
        self, text: str, *, since: timedelta | None = None, tell: Callable[[str], None] = lambda text: None
    ) -> PreviewResult:
        """Return the items of the last `since` (by default 7 days) that a query would have matched. Declare nothing.

        `text` is a `create feed` statement or the name of a feed. If the query calls operators, `tell` receives an
        estimate of the cost before the first call.
        """
        self._check_actor()
        if not re.match(r"(create|preview)\s", text.strip(), re.IGNORECASE):
            try:
                return preview_feed(self.workspace, text.strip(), since, self._spark.session, self.actor, tell)
            except NotFoundError as error:
                error.hint = error.hint or "give a whole `create feed … from … where …`, or the name of a feed"
                raise
        parsed = parse(text)
        match [one.statement for one in parsed]:
            case [said.CreateFeed() as query]:
                with locate_errors(text, parsed[0].span):
                    return preview_query(self.workspace, query, since, self._spark.session, self.actor, tell)
            case [said.Preview(said.CreateFeed() as query, _, back)]:
                with locate_errors(text, parsed[0].span):
                    return preview_query(self.workspace, query, since or back, self._spark.session, self.actor, tell)
            case [said.Preview(None, said.Name(name), back)]:
                return preview_feed(self.workspace, name, since or back, self._spark.session, self.actor, tell)
        raise StatementError("one `create feed` statement can be previewed", text=text, hint="give just one")

    def test(
        self,
        items: Iterable[Mapping[str, Any]] | None = None,
        *,
        feed: str | None = None,
        owner: str | None = None,
        tag: str | None = None,
        queries: Sequence[str] = (),
        since: timedelta | None = None,
        limit: int = SHOWN,
    ) -> TrialResult:
        """Match declared queries with the given items, as if `feed` had just accepted them.

        Without items, match the items that were accepted in the last `since`. Nothing is accepted, recorded or sent.
        `owner`, `tag` and `queries` (names) select queries. By default, all queries of the actor are matched,
        including queries without a subscription. The result contains up to `limit` items.
        """
        self._check_actor()
        select = Selection(owner, tag, tuple(queries))
        if items is None:
            return try_past(self.workspace, self.actor, select, since or DEFAULT_SPAN, limit)
        return try_items(self.workspace, self.actor, select, feed, items, limit)

    def test_document(
        self,
        data: bytes,
        *,
        name: str = "document",
        feed: str | None = None,
        owner: str | None = None,
        tag: str | None = None,
        queries: Sequence[str] = (),
        limit: int = SHOWN,
    ) -> TrialResult:
        """Call `test` with the items of a document (RSS, Atom, JSON Feed, JSON lines or RDF)."""
        self._check_actor()
        select = Selection(owner, tag, tuple(queries))
        source = source_for(self.workspace, self.actor, select, feed)
        read = self._acquirer.read_document(source, data, name.encode("utf-8", "replace").decode("utf-8"))
        return try_adapted(self.workspace, self.actor, select, source, read.items, limit, read.problems)

    def usage(self, items: int = ITEMS, *, tag: str | None = None) -> QueryUsage:
        """Count the matches of the actor's queries among the newest `items` items, and list the expensive queries.

        With `tag`, consider only queries with that tag.
        """
        self._check_actor()
        return read_usage(self.workspace, self.actor, items, tag)

    def status(self) -> Status:
        """Return the state of the workspace: lag, plan, runner, failing sources, messages and quarantine."""
        self.require_admin("see the status of the workspace")
        return read_status(self.workspace)

    def matches(self, name: str, *, after: int = 0) -> Iterator[MatchedItem]:
        """Return the items that matched a feed and have a sequence above `after`, in the order of acceptance.

        Matches are recorded only while someone subscribes to the feed or to a feed that reads it. Raise NotFoundError
        if there is no subscription and no match was recorded. For a feed of the admin, an owner gets only the items
        that matched since the owner's subscription to it began.
        """
        with self.workspace.catalog.read() as connection:
            check_actor(connection, self.actor)
            feed = feed_named(connection, name, self.actor)
            names = names_for(connection, self.actor)
            since = matched_since(connection, self.actor, [feed.id]).get(feed.id)
        sees_all = self.actor.sees_all_of(feed)
        if since is None and not (sees_all and self._has_matches(feed.id)):
            reason = "nobody subscribes" if sees_all else "you do not subscribe"
            raise NotFoundError(
                f"no matches of {feed.name} are recorded, because {reason} to it",
                hint=f"`subscribe to {render_name(feed.name)} output log` records them from now on",
            )
        return self._read_matches(feed.id, names, after if sees_all else max(after, since or 0))

    def _has_matches(self, feed: int) -> bool:
        """Whether matches of a feed are recorded, for example of a subscription that has ended."""
        rows = self.workspace.matches.read(0, self.workspace.matches.matched_upto())
        return any(len(matches.of_queries([feed])[0]) for matches in rows)

    def _read_matches(self, feed: int, names: Mapping[int, str], after: int) -> Iterator[MatchedItem]:
        for rows in self.workspace.matches.read(after, self.workspace.matches.matched_upto()):
            sequences, _ = rows.of_queries([feed])
            bound = rows.bindings_of(dict.fromkeys(sequences.tolist(), (feed,)))
            for batch in self.workspace.items.get(sequences.tolist()):
                for item in batch.items(names):
                    sequence = item.sequence or 0
                    yield MatchedItem(sequence, item, bound.get((feed, sequence), NO_BINDINGS))

    # --- publishing ----------------------------------------------------------------------------------------------

    def publish(self, feed: str, items: Iterable[Mapping[str, Any]]) -> Accepted:
        """Accept items, given as mappings with an `id` and attributes, into a source feed of the actor.

        If one of the items is invalid, none is accepted. Valid items are accepted in transactions of up to 5,000
        items. Unchanged items are skipped. An item whose `id` is known but whose attributes differ becomes a new
        version.
        """
        return self._publisher.publish(feed, items)

    def publish_document(
        self, feed: str, data: bytes, *, name: str = "document"
    ) -> tuple[Accepted, list[InputError]]:
        """Accept the valid items of a document (RSS, Atom, JSON Feed, JSON lines or RDF).

        Return the result and the errors of the invalid items.
        """
        return self._publisher.publish_document(feed, data, name)

    # --- running -------------------------------------------------------------------------------------------------

    def run(
        self,
        *,
        once: bool = False,
        report: Callable[[Progress], None] = lambda progress: None,
        companions: Sequence[Companion] = (),
    ) -> Progress:
        """Acquire, match and deliver items until `stop` is called or, with `once`, until no work is left.

        `companions`, such as the web server, are started and closed with the run. Raise RunnerActiveError if another
        process is already running this workspace.
        """
        self.require_admin("run the workspace")
        from runnel.engine.run.runner import Runner  # only a runner needs Spark, whose import takes a second

        self._runner = Runner(self.workspace, self._spark.session, self._parts(companions))
        if self._stopping.is_set():  # asked for while Spark and the rest were being imported
            self._runner.stop()
        try:
            return self._runner.run(once=once, report=report)
        finally:
            self._runner = None
            self._stopping.clear()

    def stop(self) -> None:
        """Make a `run` in another thread finish its current work and return, even if it is still starting."""
        self._stopping.set()
        if self._runner is not None:
            self._runner.stop()

    def hubs(self) -> WebSubClient:
        """Return the WebSub client, which subscribes to hubs and receives the documents that they push."""
        return WebSubClient(self._acquirer)

    def _parts(self, companions: Sequence[Companion] = ()) -> RunnerParts:
        from runnel.engine.run.runner import RunnerParts

        return RunnerParts(self._acquirer, open_readers(self._acquirer), self._dispatcher(), companions)

    def _dispatcher(self) -> Dispatcher:
        return dispatcher_of(self.workspace, self._acquirer)
