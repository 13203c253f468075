"""Scripts of declarations: one transaction each, all or nothing, ending with a new plan version.

A large script that only adds is prepared ahead of its transaction: bound and compiled against the catalog as it is,
while others go on writing. The transaction then looks whether what it rests on has changed; if so it is prepared
again, and at last under the lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from runnel.catalog.access.owners import Owner, owner_by_id
from runnel.catalog.declared.changes import changes, note_change
from runnel.catalog.logs import plan_versions
from runnel.catalog.store.sequencer import last_sequence
from runnel.engine.actors import Actor, check_actor
from runnel.engine.declare.activation import Activation, find_activation
from runnel.engine.declare.declare_operators import Registrations, load_registrations
from runnel.engine.declare.declarer import Declarer
from runnel.engine.declare.keep_stylesheets import keep_stylesheets
from runnel.engine.declare.locate_errors import locate_errors
from runnel.engine.declare.scope import DeclarationScope, NeedsLockError
from runnel.engine.outcome import Outcome
from runnel.engine.planning.plan_change import PlanChange, compile_change, publish_draft, read_change
from runnel.engine.workspace import Workspace
from runnel.errors import CorruptDataError
from runnel.language.bulk.gc_paused import gc_paused
from runnel.language.syntax import statements as said

LARGE = 200
"""Declarations from which on a script is prepared ahead of its transaction."""

_TRIES = 3
_MANY = 20
"""Declarations from which on all names are looked up at once."""

_ADDING = (said.RegisterFeed, said.CreateFeed, said.Subscribe)

Numbered = tuple[int, said.Parsed]
"""A statement, and its place in the script."""


class _OutdatedError(Exception):
    """What was prepared does not fit the catalog any more."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What a script's declarations mean for the plan, and what is to be compiled for it."""

    activation: Activation
    change: PlanChange | None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a prepared change rests on: as long as this is the same, so are all names, queries and quotas."""

    changes: int
    plan: int | None
    owner: Owner


def declare(root: Workspace, actor: Actor, declarations: Sequence[Numbered], text: str) -> dict[int, Outcome]:
    """Apply the declarations of a script; gives their outcomes by the statements' places in the script."""
    statements = [one.statement for _, one in declarations]
    with locate_errors(text, declarations[0][1].span):
        registrations = load_registrations(root, actor, statements)
        sheets = keep_stylesheets(root, statements)
    script = _Script(root, actor, declarations, text, sheets, registrations)
    if len(declarations) < LARGE:
        return script.declare_locked()
    with gc_paused():
        for _ in range(_TRIES if all(isinstance(one, _ADDING) for one in statements) else 0):
            try:
                outcomes = script.declare_ahead()
            except NeedsLockError:
                break
            if outcomes is not None:
                return outcomes
        return script.declare_locked()


class _Script:
    """The declarations of one script, on their way into the catalog."""

    def __init__(
        self,
        root: Workspace,
        actor: Actor,
        declarations: Sequence[Numbered],
        text: str,
        sheets: dict[str, str],
        registrations: Registrations,
    ) -> None:
        self._root = root
        self._actor = actor
        self._declarations = declarations
        self._text = text
        self._sheets = sheets
        self._registrations = registrations

    def declare_locked(self) -> dict[int, Outcome]:
        """Everything in one transaction that excludes other writers."""
        with self._root.catalog.write() as connection:
            self._find_sheets()
            scope = self._scope(connection)
            outcomes = self._apply(scope)
            if scope.redefined or scope.dropped:
                scope.settle()
            prepared = self._prepare(connection, scope)
            self._write(connection, scope, prepared)
            if prepared.change is not None:
                publish_draft(self._root, connection, compile_change(self._root, prepared.change))
        return outcomes

    def declare_ahead(self) -> dict[int, Outcome] | None:
        """Bind and compile first, and write then; None if meanwhile something changed, and nothing was written."""
        with self._root.catalog.read() as connection:
            seen = self._seen(connection)
        try:
            with self._root.catalog.read() as connection:
                scope = self._scope(connection, ahead=True)
                outcomes = self._apply(scope)
                prepared = self._prepare(connection, scope)
            draft = None if prepared.change is None else compile_change(self._root, prepared.change)
        except CorruptDataError:
            # A plan is collected when a newer one is in use; nothing holds on to it here.
            with self._root.catalog.read() as connection:
                if self._seen(connection) == seen:
                    raise
            return None
        try:
            with self._root.catalog.write() as connection:
                check_actor(connection, self._actor)
                if self._seen(connection) != seen or not scope.pending.fits(connection):
                    raise _OutdatedError
                self._find_sheets()
                self._write(connection, scope, prepared)
                if draft is not None and publish_draft(self._root, connection, draft) is None:
                    raise _OutdatedError
        except _OutdatedError:
            return None
        return outcomes

    def _find_sheets(self) -> None:
        """Keep the stylesheets again that were tidied away meanwhile, since nobody used them yet."""
        if not all(self._root.storage.local(path).exists() for path in self._sheets.values()):
            self._sheets |= keep_stylesheets(self._root, [one.statement for _, one in self._declarations])

    def _scope(self, connection: Connection, *, ahead: bool = False) -> DeclarationScope:
        names = set(_names(self._declarations)) if len(self._declarations) >= _MANY else ()
        return DeclarationScope(
            self._root,
            connection,
            self._actor,
            self._sheets,
            registrations=self._registrations,
            names=names,
            ahead=ahead,
        )

    def _apply(self, scope: DeclarationScope) -> dict[int, Outcome]:
        declarer = Declarer(scope)
        outcomes: dict[int, Outcome] = {}
        for number, one in self._declarations:
            with locate_errors(self._text, one.span):
                outcomes[number] = declarer.apply(one.statement)  # type: ignore[arg-type]
        return outcomes

    def _prepare(self, connection: Connection, scope: DeclarationScope) -> _Prepared:
        activation = find_activation(connection, scope.touched, scope.redefined, scope.pending)
        return _Prepared(activation, read_change(self._root, connection, activation, scope.dropped, scope.pending))

    def _write(self, connection: Connection, scope: DeclarationScope, prepared: _Prepared) -> None:
        note_change(connection)
        new = frozenset(scope.pending.feeds)
        scope.pending.write(connection, last_sequence(connection), prepared.activation.fresh)
        prepared.activation.write(connection, but=new)

    def _seen(self, connection: Connection) -> _Seen:
        current = plan_versions.current_plan(connection)
        owner = owner_by_id(connection, self._actor.owner)
        return _Seen(changes(connection), None if current is None else current.version, owner)


def _names(declarations: Sequence[Numbered]) -> Iterator[str]:
    """The names of feeds that a script gives or speaks of."""
    for _, one in declarations:
        match one.statement:
            case said.CreateFeed(name, query):
                yield name.text
                yield from _terms(query.source)
            case said.RegisterFeed(name) | said.Subscribe(name):
                yield name.text


def _terms(source: said.Term) -> Iterator[str]:
    waiting = [source]
    while waiting:
        match waiting.pop():
            case said.FeedTerm(feed):
                yield feed.text
            case said.GroupTerm(terms):
                waiting.extend(terms)
