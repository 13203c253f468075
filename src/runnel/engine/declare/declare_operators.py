"""Register, drop and show operators. They run code, so only the admin registers and drops them, without a token.

In: statements, and an open transaction. Out: registrations in the catalog, and queries bound to what operators are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from sqlalchemy import Connection

from runnel.algebra.nodes.durations import render_duration
from runnel.algebra.nodes.query import Node
from runnel.catalog.declared import feeds, operators
from runnel.catalog.learned.operator_statistics import learned_operators
from runnel.engine.actors import Actor, names_for
from runnel.engine.answers import Listing, OperatorDone, listed
from runnel.engine.ask.shown import LearnedCalls, Operator, OperatorDetails
from runnel.engine.declare.scope import DeclarationScope
from runnel.engine.workspace import Workspace
from runnel.errors import InputError, NotFoundError, Span, StatementError, StillNeededError, UnknownNameError
from runnel.language.binding.bind_operators import bind_node, signature
from runnel.language.nearest import did_you_mean
from runnel.language.printing import print_parameters, print_statement, render_budget
from runnel.language.syntax.statements import DropOperator, Name, RegisterOperator, Statement
from runnel.matching.operators.ask.operator_environment import OperatorEnvironment
from runnel.matching.operators.plugins.operator_process import describe_operator
from runnel.matching.operators.plugins.registry import Signature
from runnel.model.learned.operator_statistics import OperatorStatistics, operator_key
from runnel.model.operator import Budget, OperatorDeclaration, Parameter

Registrations = Mapping[RegisterOperator, OperatorDeclaration]
"""What statements register, before it has a version."""

DropFeeds = Callable[[set[int]], tuple[list[str], list[int]]]
"""Drops feeds with what depends on them; gives their names, and the numbers of subscriptions that ended."""

_T = TypeVar("_T")


# --- registering -------------------------------------------------------------------------------------------------


def load_registrations(workspace: Workspace, actor: Actor, statements: Iterable[Statement]) -> Registrations:
    """What the `register operator` statements of a script declare: each is loaded once, before any transaction."""
    found: dict[RegisterOperator, OperatorDeclaration] = {}
    for statement in statements:
        if isinstance(statement, RegisterOperator):
            _require_admin(actor, statement.name.span)
            found[statement] = _load(workspace, statement)
    return found


def _require_admin(actor: Actor, span: Span) -> None:
    """A token lets its holder declare what is matched, never which code runs here."""
    if not actor.is_local_admin:
        raise StatementError(
            "operators run code, so only the admin, without a token, can register or drop them",
            span=span,
            hint="ask the admin; `show operators` lists the operators that you can use",
        )


def _load(workspace: Workspace, statement: RegisterOperator) -> OperatorDeclaration:
    known = OperatorDeclaration(statement.name.text, 0, statement.source, configuration=statement.configuration)
    known = replace(
        known,
        time_limit=_first(statement.time_limit, None, known.time_limit),
        concurrency=_first(statement.concurrency, None, known.concurrency),
    )
    says = _says(workspace, statement, known)
    _refuse_other_parameters(statement, says)
    return replace(
        known,
        parameters=_first(statement.parameters, says.parameters, ()),
        release=_first(statement.release, None, known.release),
        cost=_first(statement.cost, says.cost, known.cost),
        pure=_first(statement.pure, says.pure, known.pure),
        reads=_first(statement.reads, says.reads, known.reads),
        batch=_first(statement.batch, says.batch, known.batch),
        budget=Budget(statement.calls, statement.seconds),
        on_error=_first(statement.on_error, None, known.on_error),
        retry_for=_first(statement.retry_for, None, known.retry_for),
    )


def _says(workspace: Workspace, statement: RegisterOperator, known: OperatorDeclaration) -> Signature:
    """The signature of the operator. It is made with its configuration and closed again; nothing is asked."""
    environment = OperatorEnvironment.of(workspace.settings, workspace.storage)
    try:
        return describe_operator(known.source, environment.context(known), environment.modules, environment.megabytes)
    except InputError as error:
        hint = error.hint
        if ":" in statement.source and "not allowed" in error.message:
            hint = f"{hint}; the setting operator_modules says which are"
        elif hint is None and statement.configuration:
            hint = f"look at what `with (…)` says; files that it names lie in {environment.folder}"
        message = f"{error.place}: {error.message}" if error.place else error.message
        raise StatementError(message, hint=hint, span=statement.source_span) from error


def _first(said: _T | None, by_itself: _T | None, otherwise: _T) -> _T:
    return said if said is not None else by_itself if by_itself is not None else otherwise


def _refuse_other_parameters(statement: RegisterOperator, says: Signature) -> None:
    """An operator that names its parameters cannot be registered with quite others.

    Names are free, attributes may be added for it to look at, and of several results the last left out where its
    configuration leaves them out too.
    """
    if statement.parameters is None or not says.parameters:
        return
    constants, results = _types(statement.parameters)
    own_constants, own_results = _types(says.parameters)
    shortened = results == own_results[: len(results)] and bool(results) == bool(own_results)
    if constants != own_constants or not shortened:
        raise StatementError(
            f"{statement.source} has other parameters",
            span=statement.name.span,
            hint=f"it takes {print_parameters(says.parameters)}; leave the parameters out to use these",
        )


def _types(parameters: tuple[Parameter, ...]) -> tuple[list[str], list[str]]:
    """The types of what is given to an operator, attributes left out, and of its results."""
    constants: list[str] = [one.type for one in parameters if one.role == "input"]
    return constants, [one.type for one in parameters if one.role == "result"]


def register(scope: DeclarationScope, statement: RegisterOperator) -> OperatorDone:
    """Register an operator; the queries that used an earlier registration use this one from now on.

    They keep their subscriptions and go on where they are, as with `create or replace feed`.
    """
    _require_admin(scope.actor, statement.name.span)
    registered = operators.register_operator(scope.connection, scope.registrations[statement])
    scope.forget_operators()
    users = operators.users_of(scope.connection, registered.name)
    if users:
        nodes = operators.current_nodes(scope.connection, users)
        operators.replace_nodes(scope.connection, _bound_again(scope, statement.name, nodes))
        scope.forget_all()
        scope.pending.redefined |= users
    name, version, bound = registered.name, registered.version, scope.shown(users)
    again = f" again; {listed('feed', bound)} {'uses' if len(bound) == 1 else 'use'} it as it is now" if bound else ""
    return OperatorDone(f"registered operator {name}{again}", name, version, signature(registered), bound)


def _bound_again(scope: DeclarationScope, name: Name, nodes: Mapping[int, Node]) -> dict[int, Node]:
    bound: dict[int, Node] = {}
    unfit: dict[int, StatementError] = {}
    for feed, node in nodes.items():
        try:
            bound[feed] = bind_node(node, scope.operator, scope.operator_names)
        except StatementError as error:
            unfit[feed] = error
    if unfit:
        first = next(iter(unfit.values()))
        raise StillNeededError(
            f"{listed('feed', scope.shown(unfit))} could not use {name.text} any more: {first.message}",
            span=name.span,
            hint="register it under another name, or drop or replace the feeds first",
        )
    return bound


def drop(scope: DeclarationScope, statement: DropOperator, drop_feeds: DropFeeds) -> OperatorDone:
    """Drop an operator; with `cascade` the queries that use it, and what depends on them, too."""
    _require_admin(scope.actor, statement.name.span)
    name = statement.name.text
    if scope.operator(name) is None:
        near = did_you_mean(name, scope.operator_names()) or "`show operators` lists what there is"
        raise UnknownNameError(f"there is no operator {name}", span=statement.name.span, hint=near)
    users = operators.users_of(scope.connection, name)
    if users and not statement.cascade:
        raise StillNeededError(
            f"{name} is still needed by {listed('feed', scope.shown(users))}",
            span=statement.name.span,
            hint=f"`{print_statement(replace(statement, cascade=True))[:-1]}` drops them too",
        )
    dropped, ended = drop_feeds(feeds.all_dependents(scope.connection, users)) if users else ([], [])
    operators.drop_operator(scope.connection, name)
    scope.forget_operators()
    also = f", {listed('feed', dropped)}" if dropped else ""
    also += f" and ended {listed('subscription', ended)}" if ended else ""
    return OperatorDone(f"dropped operator {name}{also}", name, feeds=dropped, subscriptions=ended)


# --- showing -----------------------------------------------------------------------------------------------------


def show_operators(workspace: Workspace, actor: Actor) -> Listing[Operator]:
    """All operators that can be used, each with what is known of it and how many of one's queries use it."""
    with workspace.catalog.read() as connection:
        live = operators.live_operators(connection)
        uses = operators.use_counts(connection, None if actor.is_admin else {actor.owner})
        learned = _learned_for(connection, actor)
    rows = tuple(_row(declared, actor, uses[name], learned) for name, declared in live.items())
    return Listing(f"{len(rows)} {'operator' if len(rows) == 1 else 'operators'}", "operators", rows)


def show_operator(workspace: Workspace, name: str, actor: Actor) -> OperatorDetails:
    """One operator: its registration, and the queries that use it, of those that the actor may read."""
    with workspace.catalog.read() as connection:
        found = operators.operator_named(connection, name)
        if found is None:
            near = did_you_mean(name, operators.live_operators(connection))
            raise NotFoundError(f"there is no operator {name}", hint=near or "`show operators` lists what there is")
        names = names_for(connection, actor)
        using = sorted(names[feed] for feed in operators.users_of(connection, name) if feed in names)
        learned = _learned_for(connection, actor)
    statement = print_statement(statement_of(found)) if actor.is_admin else None
    return OperatorDetails(_row(found, actor, len(using), learned), tuple(using), statement)


def statement_of(declaration: OperatorDeclaration) -> RegisterOperator:
    """The statement that registers an operator as it is: everything is said, whether it was or not."""
    return RegisterOperator(
        Name(declaration.name),
        declaration.source,
        declaration.parameters,
        release=declaration.release or None,
        cost=declaration.cost,
        pure=declaration.pure,
        reads=declaration.reads or None,
        batch=declaration.batch,
        time_limit=declaration.time_limit,
        concurrency=declaration.concurrency,
        calls=declaration.budget.calls,
        seconds=declaration.budget.seconds,
        on_error=declaration.on_error,
        retry_for=declaration.retry_for if declaration.on_error == "retry" else None,
        configuration=declaration.configuration,
    )


def _row(declared: OperatorDeclaration, actor: Actor, queries: int, learned: OperatorStatistics) -> Operator:
    """An operator as it is shown. Where its code is and how it is configured is shown to the admin only."""
    return Operator(
        declared.name,
        declared.version,
        signature(declared),
        declared.cost,
        declared.pure,
        _policy(declared),
        tuple(render_budget(declared.budget.calls, declared.budget.seconds)),
        declared.reads,
        declared.release,
        queries,
        _learned(declared, learned),
        declared.source if actor.is_admin else None,
        dict(declared.configuration) if actor.is_admin else None,
    )


def _learned_for(connection: Connection, actor: Actor) -> OperatorStatistics:
    """Statistics of calls. Owners get none: the calls that others' subscriptions cause are counted there too."""
    return learned_operators(connection) if actor.is_admin else OperatorStatistics()


def _learned(declared: OperatorDeclaration, learned: OperatorStatistics) -> LearnedCalls | None:
    """What recent calls have shown; None if there were none."""
    use = learned.operators.get(operator_key(declared.name, declared.version))
    asked = 0.0 if use is None else use.calls + use.hits
    if use is None or not asked:
        return None
    return LearnedCalls(
        round(use.seconds / use.calls, 9) if use.calls else 0.0,
        round(use.failures / use.calls, 4) if use.calls else 0.0,
        round(use.hits / asked, 4),
    )


def _policy(one: OperatorDeclaration) -> str:
    return f"retry for {render_duration(one.retry_for)}" if one.on_error == "retry" else "unknown"
