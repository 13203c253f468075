"""Scripts of declarations: one transaction each, all or nothing, ending with a new plan version.

A script is compiled before its transaction writes anything, while others go on writing: see `commit_change`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext

from sqlalchemy import Connection

from runnel.engine.actors import Actor, check_actor
from runnel.engine.declare.commit_change import Applied, commit_change
from runnel.engine.declare.declare_operators import Registrations, load_registrations
from runnel.engine.declare.declarer import BoundQueries, Declarer
from runnel.engine.declare.keep_stylesheets import keep_stylesheets
from runnel.engine.declare.locate_errors import locate_errors
from runnel.engine.declare.pending import NeedsLockError
from runnel.engine.declare.scope import DeclarationScope
from runnel.engine.outcome import Outcome
from runnel.engine.workspace import Workspace
from runnel.errors import RunnelError
from runnel.language.gc_paused import gc_paused
from runnel.language.syntax import statements as said

LARGE = 200
"""Declarations from which on Python's garbage collector is paused."""

_MANY = 20
"""Declarations from which on all names are looked up at once."""

Numbered = tuple[int, said.Parsed]
"""A statement, and its place in the script."""


def declare(root: Workspace, actor: Actor, declarations: Sequence[Numbered], text: str) -> dict[int, Outcome]:
    """Apply the declarations of a script; gives their outcomes by the statements' places in the script."""
    statements = [one.statement for _, one in declarations]
    with locate_errors(text, declarations[0][1].span):
        registrations = load_registrations(root, actor, statements)
        sheets = keep_stylesheets(root, statements)
    script = _Script(root, actor, declarations, text, sheets, registrations)
    with gc_paused() if len(declarations) >= LARGE else nullcontext():
        return commit_change(root, script.apply, owner=actor.owner, before_commit=script.before_commit)


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
        self._bound: BoundQueries = {}

    def apply(
        self, connection: Connection, *, ahead: bool, numbers: Mapping[str, int]
    ) -> Applied[dict[int, Outcome]]:
        """Apply the declarations one by one."""
        scope = self._scope(connection, ahead, numbers)
        declarer = Declarer(scope, self._bound)
        outcomes: dict[int, Outcome] = {}
        for number, one in self._declarations:
            with locate_errors(self._text, one.span):
                try:
                    outcomes[number] = declarer.apply(one.statement)  # type: ignore[arg-type]
                except NeedsLockError:
                    self._bind_rest(declarer, number)
                    raise
        return Applied(
            outcomes, scope.pending, scope.touched, scope.redefined, scope.dropped, scope.regrouped - scope.dropped
        )

    def before_commit(self, connection: Connection) -> None:
        """Check that the actor may still declare, and keep the stylesheets again that were tidied away meanwhile."""
        check_actor(connection, self._actor)
        if not all(self._root.storage.local(path).exists() for path in self._sheets.values()):
            self._sheets |= keep_stylesheets(self._root, [one.statement for _, one in self._declarations])

    def _bind_rest(self, declarer: Declarer, after: int) -> None:
        """Bind queries while no lock is held, as far as what they read is known already."""
        for number, one in self._declarations:
            if number > after and isinstance(one.statement, said.CreateFeed):
                try:
                    declarer.bind(one.statement)
                except RunnelError:
                    continue  # it is bound again under the lock, where the statements before it have been applied

    def _scope(self, connection: Connection, ahead: bool, numbers: Mapping[str, int]) -> DeclarationScope:
        names = set(_names(self._declarations)) if len(self._declarations) >= _MANY else ()
        return DeclarationScope(
            self._root,
            connection,
            self._actor,
            self._sheets,
            registrations=self._registrations,
            names=names,
            ahead=ahead,
            numbers=numbers,
        )


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
