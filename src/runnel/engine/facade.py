"""`Engine`: declare, publish, run and ask, for one root."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from runnel.catalog import feeds
from runnel.catalog.connection import Clock
from runnel.engine import answer
from runnel.engine.activation import activate
from runnel.engine.adhoc import past_matches
from runnel.engine.declare import Declarer, Outcome
from runnel.engine.planning import publish_change
from runnel.engine.preview import Preview, preview_feed, preview_query
from runnel.engine.root import Root, create_root, open_root
from runnel.engine.status import Status, read_status
from runnel.errors import Backlogged, BrokenDocument, InputError, NotARoot, NotFound, StatementError
from runnel.language import statements as said
from runnel.language.parser import parse
from runnel.log.item_log import Accepted
from runnel.model.feed import Feed, FeedKind
from runnel.model.item import Item
from runnel.sinks.dispatch import Dispatcher
from runnel.sinks.shares import Shares
from runnel.sources.acquire import Acquirer
from runnel.sources.adapt import item_of_object

if TYPE_CHECKING:
    from runnel.engine.runner import Progress, Runner

_QUESTIONS = (said.Show, said.Explain, said.Why, said.Preview)


@dataclass(frozen=True, slots=True)
class MatchedItem:
    """An item in a feed, with the sequence under which it was accepted."""

    sequence: int
    item: Item


def open_engine(root: str | Path, *, create: bool = True, clock: Clock = time.time, **settings: Any) -> Engine:
    """Open the root in a folder; a folder that is no root yet becomes one unless `create` is false.

    Keyword arguments are settings that stand in for those of the root's `runnel.toml`.
    """
    folder = Path(root)
    try:
        return Engine(open_root(folder, clock=clock, **settings))
    except NotARoot:
        if not create:
            raise
        return Engine(create_root(folder, clock=clock, **settings))


class Engine:
    """One root, open. Use it as a context manager, or call `close`.

    Any number of engines may declare, publish and ask at the same time; only one may `run`.
    """

    def __init__(self, root: Root) -> None:
        self.root = root
        self._spark: Any = None
        self._owns_spark = False
        self._runner: Runner | None = None
        self._acquirer = Acquirer(root.catalog, root.storage, root.items, root.folder, root.settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the catalog, and of Spark if this engine started it."""
        if self._spark is not None and self._owns_spark:
            self._spark.stop()
        self._spark = None
        self.root.close()

    # --- declaring and asking ------------------------------------------------------------------------------------

    def execute(self, text: str) -> list[Outcome]:
        """Run a script: all its declarations in one transaction, then its questions, in order.

        If a declaration is refused nothing has changed, and the error knows its place in the text.
        """
        script = parse(text)
        outcomes: dict[int, Outcome] = {}
        declarations = [
            (number, one) for number, one in enumerate(script) if not isinstance(one.statement, _QUESTIONS)
        ]
        if declarations:
            with self.root.catalog.write() as connection:
                declarer = Declarer(self.root, connection)
                for number, one in declarations:
                    with _placed(text, one.span):
                        outcomes[number] = declarer.apply(one.statement)  # type: ignore[arg-type]
                change = activate(connection, declarer.touched, declarer.redefined)
                publish_change(self.root, connection, change, declarer.dropped)
        done = "the script's declarations were applied" if declarations else None
        for number, one in enumerate(script):
            if isinstance(one.statement, _QUESTIONS):
                with _placed(text, one.span, done):
                    outcomes[number] = self._answer(one.statement)
        return [outcomes[number] for number in range(len(script))]

    def _answer(self, question: said.Question) -> Outcome:
        match question:
            case said.Show("feed", said.Name(name)):
                return answer.show_feed(self.root, name)
            case said.Show(what):
                return self.show(what)
            case said.Explain(feed):
                return answer.explain_feed(self.root, feed.text)
            case said.Why(item, feed):
                return answer.why(self.root, item, feed.text)
            case said.Preview(said.CreateFeed() as query, _, back):
                return preview_query(self.root, query, back, self._session).outcome()
            case said.Preview(_, feed_or_none, back):
                name = "" if feed_or_none is None else feed_or_none.text
                return preview_feed(self.root, name, back, self._session).outcome()

    def show(self, what: str) -> Outcome:
        """`feeds`, `subscriptions`, `quarantine`, or one feed by its name."""
        match what:
            case "feeds":
                return answer.show_feeds(self.root)
            case "subscriptions":
                return answer.show_subscriptions(self.root)
            case "quarantine":
                return answer.show_quarantine(self.root)
            case name:
                return answer.show_feed(self.root, name)

    def explain(self, name: str) -> Outcome:
        """How a feed is matched, and what it shares with others."""
        return answer.explain_feed(self.root, name)

    def why(self, item_id: str, name: str) -> Outcome:
        """Why an item is, or is not, in a feed."""
        return answer.why(self.root, item_id, name)

    def preview(self, text: str, *, since: timedelta | None = None) -> Preview:
        """What a query would have matched: a `create feed` statement or a feed's name, over the last `since`."""
        if not re.match(r"(create|preview)\s", text.strip(), re.IGNORECASE):
            try:
                return preview_feed(self.root, text.strip(), since, self._session)
            except NotFound as error:
                error.hint = error.hint or "give a whole `create feed … from … where …`, or the name of a feed"
                raise
        parsed = parse(text)
        match [one.statement for one in parsed]:
            case [said.CreateFeed() as query]:
                with _placed(text, parsed[0].span):
                    return preview_query(self.root, query, since, self._session)
            case [said.Preview(said.CreateFeed() as query, _, back)]:
                with _placed(text, parsed[0].span):
                    return preview_query(self.root, query, since or back, self._session)
            case [said.Preview(None, said.Name(name), back)]:
                return preview_feed(self.root, name, since or back, self._session)
        raise StatementError("one `create feed` statement can be previewed", text=text, hint="give just one")

    def status(self) -> Status:
        """How the root is: lag, plan, runner, failing sources, messages, what was put aside."""
        return read_status(self.root)

    def matches(self, name: str, *, after: int = 0) -> Iterator[MatchedItem]:
        """The items that matched a feed, in the order of acceptance, after a sequence."""
        with self.root.catalog.read() as connection:
            feed = answer.feed_named(connection, name)
            names = feeds.feed_names(connection)
        for rows in self.root.matches.read(after, self.root.matches.matched_upto()):
            sequences, _ = rows.of_queries([feed.id])
            for batch in self.root.items.get(sequences.tolist()):
                for item in batch.items(names):
                    yield MatchedItem(item.sequence or 0, item)

    # --- publishing ----------------------------------------------------------------------------------------------

    def publish(self, feed: str, items: Iterable[Mapping[str, Any]]) -> Accepted:
        """Accept items given as mappings (`id` and attributes) into a source feed.

        If one of them is not valid none is accepted. Very many are accepted some thousand at a time.
        Items that are known are passed over; an item with a known id and other attributes is a new version.
        """
        target = self._source(feed)
        adapted = [item_of_object(one, feed, f"item {number}") for number, one in enumerate(items, 1)]
        self._wait_for_room()
        return self.root.items.accept(target.id, adapted)

    def publish_document(
        self, feed: str, data: bytes, *, name: str = "document"
    ) -> tuple[Accepted, list[InputError]]:
        """Accept the items of a document (RSS, Atom, JSON Feed, JSON lines); gives also what was refused in it."""
        target = self._source(feed)
        self._wait_for_room()
        try:
            accepted, problems = self._acquirer.take_document(target, data, name)
        except BrokenDocument as error:
            self._acquirer.keep_aside(target, [error], "document", data)
            raise
        if problems:
            self._acquirer.keep_aside(target, problems, "item", data)
        return accepted, problems

    def _source(self, name: str) -> Feed:
        with self.root.catalog.read() as connection:
            feed = answer.feed_named(connection, name)
        if feed.kind is not FeedKind.SOURCE:
            raise NotFound(f"{name} is a virtual feed", hint="items are published into source feeds")
        if feed.paused:
            raise NotFound(f"{name} is paused", hint=f"`resume feed {name}`")
        return feed

    def _wait_for_room(self) -> None:
        settings = self.root.settings
        deadline = time.monotonic() + settings.publish_wait_seconds
        while (lag := self._acquirer.lag()) >= settings.lag_limit:
            if time.monotonic() >= deadline:
                raise Backlogged(f"{lag} items wait for matching", hint="start `runnel run`, or try later")
            time.sleep(0.1)

    # --- running -------------------------------------------------------------------------------------------------

    def run(self, *, once: bool = False, report: Callable[[Progress], None] = lambda progress: None) -> Progress:
        """Acquire, match and deliver: until nothing is left (`once`), or until `stop` is called.

        Raises RunnerActive while another process runs this root.
        """
        from runnel.engine.runner import Runner  # only a runner needs Spark, whose import takes a second

        self._runner = Runner(self.root, self._session, self._acquirer, self._dispatcher())
        try:
            return self._runner.run(once=once, report=report)
        finally:
            self._runner = None

    def stop(self) -> None:
        """Ask a run in another thread to drain and end."""
        if self._runner is not None:
            self._runner.stop()

    def _dispatcher(self) -> Dispatcher:
        root = self.root

        def history(feed: int, after: int, upto: int, plan: int | None) -> list[int]:
            with root.catalog.read() as connection:
                nodes = (
                    feeds.definitions(connection, [feed])
                    if plan is None
                    else feeds.definitions_at(connection, feed, plan)
                )
            return [int(one) for one in past_matches(root, feed, nodes, after, upto)]

        shares = Shares(root.catalog, root.items, root.matches, history)
        return Dispatcher(root.catalog, shares, root.out, root.settings)

    def _session(self) -> Any:
        """Spark, started when it is first needed; a session that the caller already has is used and kept."""
        from pyspark.sql import SparkSession

        from runnel.streaming.session import open_session

        active = self._spark or SparkSession.getActiveSession()
        if active is not None:
            return active
        settings = self.root.settings
        self._spark = open_session(
            master=settings.master, driver_memory=settings.driver_memory, logs=self.root.folder / "logs"
        )
        self._owns_spark = True
        return self._spark


class _placed:  # noqa: N801
    """Gives statement errors raised inside their place in the script."""

    def __init__(self, text: str, span: Any, done: str | None = None) -> None:
        self._text, self._span, self._done = text, span, done

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StatementError | NotFound):
            error.hint = "; ".join(part for part in (error.hint, self._done) if part) or None
        if isinstance(error, StatementError):
            error.located(self._text, self._span)
        elif isinstance(error, NotFound):
            raise StatementError(error.message, hint=error.hint, span=self._span, text=self._text) from error
