"""`Engine`: declare, publish, run and query one workspace."""

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
    matched_since,
    names_for,
    stream_named,
)
from runnel.engine.answers import Answer
from runnel.engine.ask import show_dead_letters
from runnel.engine.ask.explain_feed import Explanation, explain_feed, picture_feed
from runnel.engine.ask.query_usage import ITEMS, QueryUsage, read_usage
from runnel.engine.ask.selection import Selection
from runnel.engine.ask.show import show_feed, show_feeds, show_quarantine, show_subscriptions
from runnel.engine.ask.show_tables import TableRow, matching_rows, read_view, show_rows, show_tables
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
from runnel.engine.trial.load_joined import load_joined_items
from runnel.engine.trial.preview import DEFAULT_SPAN, PreviewResult, preview_feed, preview_query
from runnel.engine.trial.try_items import TrialResult, source_for, try_adapted, try_items, try_past
from runnel.engine.workspace import Workspace, create_workspace, open_workspace
from runnel.errors import InputError, NotAllowedError, NotAWorkspaceError, NotFoundError, StatementError
from runnel.language.grammar.parser import parse
from runnel.language.phrase_notes import phrase_notes
from runnel.language.printing import print_statement
from runnel.language.syntax import statements
from runnel.language.syntax.parameters import Parameters, ParameterValue
from runnel.logs.items.item_log import Accepted
from runnel.logs.tables.table_store import Row
from runnel.model.annotation import JoinedItems, unite_annotations
from runnel.model.bindings import NO_BINDINGS, Bindings
from runnel.model.item import Item
from runnel.sources.acquire import Acquirer
from runnel.sources.registry import open_readers
from runnel.sources.web_feeds.websub_client import WebSubClient

if TYPE_CHECKING:
    from runnel.engine.run.health import Companion
    from runnel.engine.run.runner import Progress, Runner, RunnerParts

_ANNOTATED_ITEMS = 100
"""Matches with annotations whose joined items are read at once. There may be a hundred large ones each."""

_QUESTIONS = (
    statements.Show,
    statements.ShowRows,
    statements.Explain,
    statements.ExplainMessage,
    statements.Why,
    statements.Preview,
)


@dataclass(frozen=True, slots=True)
class MatchedItem:
    """An item of a feed, the sequence with which it was accepted, the bindings of the match, and the joined items."""

    sequence: int
    item: Item
    bindings: Bindings = NO_BINDINGS
    annotations: tuple[JoinedItems, ...] = ()


def connect(
    path: str | Path, *, create: bool = True, clock: Clock = time.time, token: str | None = None, **settings: Any
) -> Engine:
    """Open the workspace in a folder. If the folder contains none, create one, unless `create` is false.

    Keyword arguments override settings of the workspace's `runnel.toml`. With a token, the engine acts for the
    token's owner and never creates a workspace. Without a token, it acts for the admin: anyone who can open the files
    of the workspace is the admin.

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


def _rows_statement(table: str, where: str | None) -> tuple[str, statements.Parsed]:
    """Return the statement that shows the rows of a table, as text and parsed."""
    text = f"show rows {render_name(table)}" + ("" if where is None else f" where {where}")
    script = parse(text)
    if len(script) != 1:
        raise StatementError("expected one condition", span=script[1].span, text=text)
    return text, script[0]


class Engine:
    """An open workspace and the actor (the admin or an owner) on whose behalf the methods act.

    Any number of engines can declare, publish and read at the same time. Only one can `run`.

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
        self._owns_workspace = True
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
        if self._owns_workspace:
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
        """Owners, their quotas and their tokens. Only the admin may use this."""
        self.require_admin("manage owners")
        return Owners(self.workspace)

    def _for(self, actor: Actor) -> Engine:
        engine = Engine(self.workspace, actor)
        engine._owns_workspace = False
        return engine

    def _check_actor(self) -> None:
        """Raise NotAllowedError if this engine was opened with a token that is no longer valid."""
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

    # --- declaring and reading -----------------------------------------------------------------------------------

    def execute(self, text: str, /, **parameters: ParameterValue) -> list[Answer]:
        """Run a script and return one answer per statement. All declarations of the script are one transaction.

        The reading statements (`show`, `explain`, `why`, `preview`) must come before the first or after the last
        declaration, and run in that order. If one comes between two declarations, the script is refused.

        Keyword arguments are the values of parameters such as `:word`. A parameter can replace a constant, not a
        name. If a declaration is refused, nothing is changed, and the error contains its position in the text.
        """
        values = Parameters(parameters)
        script = parse(text, parameters=values)
        values.refuse_unused(text, script[0].span if script else statements.NO_SPAN)
        return self._run(script, text, values)

    def apply(self, statement: statements.Statement) -> Answer:
        """Run one statement that was built as an object instead of text."""
        text = print_statement(statement)
        return self._run([statements.Parsed(statement, statements.NO_SPAN)], text)[0]

    def _run(self, script: list[statements.Parsed], text: str, values: Parameters | None = None) -> list[Answer]:
        self._check_actor()
        declarations = [index for index, parsed in enumerate(script) if not isinstance(parsed.statement, _QUESTIONS)]
        first, end = (declarations[0], declarations[-1] + 1) if declarations else (len(script), len(script))
        if end - first != len(declarations):
            question = next(parsed for parsed in script[first:end] if isinstance(parsed.statement, _QUESTIONS))
            raise StatementError(
                "a `show`, `explain`, `why` or `preview` statement cannot come between declarations",
                span=question.span,
                text=text,
                hint="move it after the last declaration, or execute it separately",
            )
        answers = [self._answer_at(parsed, text) for parsed in script[:first]]
        if declarations:
            declared = declare(self.workspace, self.actor, list(enumerate(script))[first:end], text)
            answers += [declared[index] for index in declarations]
        done = "the script's declarations were applied" if declarations else None
        answers += [self._answer_at(parsed, text, done) for parsed in script[end:]]
        return self._add_notes(answers, script, text, values)

    @staticmethod
    def _add_notes(
        answers: list[Answer], script: list[statements.Parsed], text: str, values: Parameters | None
    ) -> list[Answer]:
        """Add to each answer the notes on its statement."""
        starts = [(parsed.span.line, parsed.span.column) for parsed in script]
        for position, note in phrase_notes(text, values):
            index = max(bisect_right(starts, position) - 1, 0)
            answers[index] = replace(answers[index], notes=(*answers[index].notes, note))
        return answers

    def _answer_at(self, question: statements.Parsed, text: str, done: str | None = None) -> Answer:
        with locate_errors(text, question.span, done):
            return self._answer(cast(statements.Question, question.statement))

    def _answer(self, question: statements.Question) -> Answer:
        match question:
            case statements.Show("feed", statements.Name(name)):
                return self.feed(name)
            case statements.Show("operator", statements.Name(name)):
                return self.operator(name)
            case statements.Show(kind):
                return self.show(kind)
            case statements.ShowRows():
                return show_rows(self.workspace, question, self.actor)
            case statements.Explain(feed):
                return self.explain(feed.text)
            case statements.ExplainMessage(key):
                return self.explain_message(key)
            case statements.Why(item, feed):
                return self.why(item, feed.text)
            case statements.Preview(statements.CreateFeed() as query, _, back):
                return preview_query(self.workspace, query, back, self._spark.session, self.actor)
            case statements.Preview(_, feed_or_none, back):
                name = "" if feed_or_none is None else feed_or_none.text
                return preview_feed(self.workspace, name, back, self._spark.session, self.actor)

    def show(self, kind: str) -> Answer:
        """Show `feeds`, `tables`, `subscriptions`, `quarantine`, `dead letters`, `operators`, `prefixes`, or a feed
        by name.
        """
        self._check_actor()
        match kind:
            case "feeds":
                return show_feeds(self.workspace, self.actor)
            case "tables":
                return show_tables(self.workspace, self.actor)
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
        """Return one feed with the feeds that it reads, the feeds that read it, and its subscriptions."""
        self._check_actor()
        return show_feed(self.workspace, name, self.actor)

    def tables(self) -> list[TableRow]:
        """Return the tables that the actor may read."""
        self._check_actor()
        return list(show_tables(self.workspace, self.actor).rows)

    def rows(self, table: str, *, where: str | None = None, at: int | None = None) -> Iterator[Row]:
        """Return the rows of a table that satisfy the condition `where`, sorted by key.

        `at` is a sequence: the rows are those after the change with this sequence and before the next one. Without
        it, they are the current rows. Raise NotFoundError if the rows at that sequence are no longer kept.
        """
        text, parsed = _rows_statement(table, where)
        view = read_view(self.workspace, table, self.actor, at)
        with locate_errors(text, parsed.span):
            return matching_rows(self.workspace, view, cast(statements.ShowRows, parsed.statement))

    def show_rows(self, table: str, *, where: str | None = None) -> Answer:
        """Show the first rows of a table that satisfy the condition `where`, sorted by key, and count them."""
        text, parsed = _rows_statement(table, where)
        return self._answer_at(parsed, text)

    def subscriptions(self) -> list[Subscription]:
        """Return the actor's subscriptions, or all if the actor is the admin."""
        self._check_actor()
        return list(show_subscriptions(self.workspace, self.actor).rows)

    def quarantine(self) -> list[Quarantined]:
        """Return the documents, items and evaluations that failed, newest first."""
        self._check_actor()
        return list(show_quarantine(self.workspace, self.actor).rows)

    def dead_letters(self) -> list[DeadLetter]:
        """Return the messages that were given up, newest first."""
        self._check_actor()
        return list(show_dead_letters.show_dead_letters(self.workspace, self.actor).rows)

    def explain_message(self, key: str) -> MessageDetails:
        """Describe a message: its items, its state, and the failed attempts to deliver it."""
        self._check_actor()
        return show_dead_letters.explain_message(self.workspace, key, self.actor)

    def operators(self) -> list[Operator]:
        """Return the operators that queries can use."""
        self._check_actor()
        return list(declare_operators.show_operators(self.workspace, self.actor).rows)

    def operator(self, name: str) -> OperatorDetails:
        """Return one operator and the queries that use it."""
        self._check_actor()
        return declare_operators.show_operator(self.workspace, name, self.actor)

    def prefixes(self) -> list[Prefix]:
        """Return the prefixes of graph patterns, registered ones before built-in ones."""
        self._check_actor()
        return list(declare_prefixes.show_prefixes(self.workspace).rows)

    def explain(self, name: str, *, steps: bool = False) -> Explanation:
        """Explain how a feed is matched and what it shares with other feeds.

        With `steps`, include the feed's plan after each pass of the optimizer.
        """
        self._check_actor()
        return explain_feed(self.workspace, name, self.actor, steps=steps)

    def pictures(self, name: str) -> dict[str, str]:
        """Draw the filter trees that match a feed, and return them as SVG by the names of the sources."""
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
        match [each.statement for each in parsed]:
            case [statements.CreateFeed() as query]:
                with locate_errors(text, parsed[0].span):
                    return preview_query(self.workspace, query, since, self._spark.session, self.actor, tell)
            case [statements.Preview(statements.CreateFeed() as query, _, back)]:
                with locate_errors(text, parsed[0].span):
                    return preview_query(self.workspace, query, since or back, self._spark.session, self.actor, tell)
            case [statements.Preview(None, statements.Name(name), back)]:
                return preview_feed(self.workspace, name, since or back, self._spark.session, self.actor, tell)
        raise StatementError(
            "preview expects exactly one `create feed` statement",
            text=text,
            hint="pass one `create feed … from … where …`, or the name of a feed",
        )

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
        """Evaluate queries on items as if they arrived in a source feed now, or on the items of the last `since`.

        Nothing is accepted, recorded or sent. Queries need no subscription. By default, all queries of the actor are
        evaluated; `owner`, `tag` and `queries` (names) restrict them.
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
        """Evaluate queries, as `test` does, on the items of a document (RSS, Atom, JSON Feed, JSON lines, RDF)."""
        self._check_actor()
        select = Selection(owner, tag, tuple(queries))
        source = source_for(self.workspace, self.actor, select, feed)
        read = self._acquirer.read_document(source, data, name.encode("utf-8", "replace").decode("utf-8"))
        return try_adapted(self.workspace, self.actor, select, source, read.items, limit, read.problems)

    def usage(self, items: int = ITEMS, *, tag: str | None = None) -> QueryUsage:
        """Count the matches of the actor's queries among the newest `items` items, and list the expensive queries.

        If `tag` is given, include only queries with this tag.
        """
        self._check_actor()
        return read_usage(self.workspace, self.actor, items, tag)

    def status(self) -> Status:
        """Return the state of the workspace: lag, plan, runner, failing sources, messages and quarantine."""
        self.require_admin("see the status of the workspace")
        return read_status(self.workspace)

    def matches(self, name: str, *, after: int = 0) -> Iterator[MatchedItem]:
        """Return the items with a sequence above `after` that matched a feed, in the order of acceptance.

        Matches are recorded for feeds with direct or indirect subscriptions. Raise NotFoundError if no match was
        recorded because nobody subscribes. If the feed belongs to the admin, an owner gets the items that matched
        since their own subscription to it began.
        """
        with self.workspace.catalog.read() as connection:
            check_actor(connection, self.actor)
            feed = stream_named(connection, name, self.actor)
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
        """Return whether matches of a feed are recorded, for example for a subscription that has ended."""
        rows = self.workspace.matches.read(0, self.workspace.matches.matched_upto())
        return any(len(matches.of_queries([feed])[0]) for matches in rows)

    def _read_matches(self, feed: int, names: Mapping[int, str], after: int) -> Iterator[MatchedItem]:
        for rows in self.workspace.matches.read(after, self.workspace.matches.matched_upto()):
            sequences, _ = rows.of_queries([feed])
            wanted = dict.fromkeys(sequences.tolist(), (feed,))
            bound, annotations = rows.bindings_of(wanted), rows.annotations_of(wanted)
            group_size = _ANNOTATED_ITEMS if annotations else max(len(sequences), 1)
            for start in range(0, len(sequences), group_size):
                group = sequences[start : start + group_size].tolist()
                several = {sequence: annotations.get((feed, sequence), ()) for sequence in group}
                joined = load_joined_items(self.workspace, several.values(), names)
                for item in (item for batch in self.workspace.items.get(group) for item in batch.items(names)):
                    sequence = item.sequence or 0
                    united = unite_annotations(several[sequence], joined)
                    yield MatchedItem(sequence, item, bound.get((feed, sequence), NO_BINDINGS), united)

    # --- publishing ----------------------------------------------------------------------------------------------

    def publish(self, feed: str, items: Iterable[Mapping[str, Any]]) -> Accepted:
        """Accept items, given as mappings with an `id` and attributes, into a source feed of the actor.

        If one of them is invalid, none is accepted. Valid items are accepted in transactions of a few thousand. Items
        that were accepted before are skipped. An item with a known id and other attributes is a new version.

        For a table, the mappings are rows, or deletions with the key and `"row:deleted": True`.
        """
        return self._publisher.publish(feed, items)

    def publish_document(
        self, feed: str, data: bytes, *, name: str = "document", whole: bool = False, force: bool = False
    ) -> tuple[Accepted, list[InputError]]:
        """Accept the valid items of a document (RSS, Atom, JSON Feed, JSON lines, RDF), and return the problems.

        Changes of a table are JSON lines or CSV. If the document is `whole`, rows that it does not contain are
        deleted, more than half of the rows only with `force`; if any row of it is invalid, nothing is accepted.
        """
        return self._publisher.publish_document(feed, data, name, is_whole=whole, force=force)

    # --- running -------------------------------------------------------------------------------------------------

    def run(
        self,
        *,
        once: bool = False,
        report: Callable[[Progress], None] = lambda progress: None,
        companions: Sequence[Companion] = (),
    ) -> Progress:
        """Acquire, match and deliver until all present items are processed (`once`), or until `stop` is called.

        `companions` are started and closed with the run. Raise RunnerActiveError while another runner is active on
        this workspace.
        """
        self.require_admin("run the workspace")
        from runnel.engine.run.runner import Runner  # only a runner needs Spark, whose import takes a second

        self._runner = Runner(self.workspace, self._spark.session, self._parts(companions))
        if self._stopping.is_set():  # `stop` was called while Spark was being imported
            self._runner.stop()
        try:
            return self._runner.run(once=once, report=report)
        finally:
            self._runner = None
            self._stopping.clear()

    def stop(self) -> None:
        """Request that a run in another thread finish its work and end. This includes a run that is just starting."""
        self._stopping.set()
        if self._runner is not None:
            self._runner.stop()

    def hubs(self) -> WebSubClient:
        """Return the client that subscribes to WebSub hubs and accepts their pushes."""
        return WebSubClient(self._acquirer)

    def _parts(self, companions: Sequence[Companion] = ()) -> RunnerParts:
        from runnel.engine.run.runner import RunnerParts

        return RunnerParts(self._acquirer, open_readers(self._acquirer), self._dispatcher(), companions)

    def _dispatcher(self) -> Dispatcher:
        return dispatcher_of(self.workspace, self._acquirer)
