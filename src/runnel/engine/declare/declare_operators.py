"""Register, drop and show operators. Because they run code, only the admin may change them, without an API token.

In: statements, and an open transaction. Out: registrations in the catalog, and queries bound to them.
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
"""The operators that statements register, before they have a version."""

DropFeeds = Callable[[set[int]], tuple[list[str], list[int]]]
"""Drops feeds, and returns their names and the numbers of the subscriptions that ended."""

_T = TypeVar("_T")


# --- registering -------------------------------------------------------------------------------------------------


def load_registrations(workspace: Workspace, actor: Actor, statements: Iterable[Statement]) -> Registrations:
    """Load the operator of each `register operator` statement once, before any transaction begins."""
    registrations: dict[RegisterOperator, OperatorDeclaration] = {}
    for statement in statements:
        if isinstance(statement, RegisterOperator):
            _require_admin(actor, statement.name.span)
            registrations[statement] = _load(workspace, statement)
    return registrations


def _require_admin(actor: Actor, span: Span) -> None:
    """Raise StatementError unless the actor is the local admin: no API token may let its holder run code."""
    if not actor.is_local_admin:
        raise StatementError(
            "operators run code, so only the admin can register or drop them, and not with an API token",
            span=span,
            hint="ask the admin; `show operators` lists the operators that you can use",
        )


def _load(workspace: Workspace, statement: RegisterOperator) -> OperatorDeclaration:
    defaults = OperatorDeclaration(statement.name.text, 0, statement.source, configuration=statement.configuration)
    defaults = replace(
        defaults,
        time_limit=_choose(statement.time_limit, None, defaults.time_limit),
        concurrency=_choose(statement.concurrency, None, defaults.concurrency),
    )
    own = _read_signature(workspace, statement, defaults)
    _refuse_other_parameters(statement, own)
    return replace(
        defaults,
        parameters=_choose(statement.parameters, own.parameters, ()),
        release=_choose(statement.release, None, defaults.release),
        cost=_choose(statement.cost, own.cost, defaults.cost),
        pure=_choose(statement.pure, own.pure, defaults.pure),
        reads=_choose(statement.reads, own.reads, defaults.reads),
        batch=_choose(statement.batch, own.batch, defaults.batch),
        budget=Budget(statement.calls, statement.seconds),
        on_error=_choose(statement.on_error, None, defaults.on_error),
        retry_for=_choose(statement.retry_for, None, defaults.retry_for),
    )


def _read_signature(workspace: Workspace, statement: RegisterOperator, declared: OperatorDeclaration) -> Signature:
    """Create the operator with its configuration, read its signature, and close it, without evaluating anything."""
    environment = OperatorEnvironment.of(workspace.settings, workspace.storage)
    context = environment.context(declared)
    try:
        return describe_operator(declared.source, context, environment.modules, environment.megabytes)
    except InputError as error:
        hint = error.hint
        if ":" in statement.source and "not allowed" in error.message:
            hint = f"{hint}; the setting operator_modules lists the allowed modules"
        elif hint is None and statement.configuration:
            hint = f"check the configuration in `with (…)`; files that it names must be in {environment.folder}"
        message = f"{error.place}: {error.message}" if error.place else error.message
        raise StatementError(message, hint=hint, span=statement.source_span) from error


def _choose(declared: _T | None, own: _T | None, default: _T) -> _T:
    """Return the value of the statement, else the value of the operator itself, else the default."""
    return declared if declared is not None else own if own is not None else default


def _refuse_other_parameters(statement: RegisterOperator, own: Signature) -> None:
    """Raise StatementError if the declared parameters do not match those of the operator itself.

    Parameter names can differ, attributes can be added, and the last of several results can be left out.
    """
    if statement.parameters is None or not own.parameters:
        return
    inputs, results = _types(statement.parameters)
    own_inputs, own_results = _types(own.parameters)
    is_prefix = results == own_results[: len(results)] and bool(results) == bool(own_results)
    if inputs != own_inputs or not is_prefix:
        raise StatementError(
            f"the parameters do not match those of {statement.source}",
            span=statement.name.span,
            hint=f"it takes {print_parameters(own.parameters)}; leave the parameters out to use these",
        )


def _types(parameters: tuple[Parameter, ...]) -> tuple[list[str], list[str]]:
    """Return the types of the inputs, without attributes, and the types of the results."""
    inputs: list[str] = [parameter.type for parameter in parameters if parameter.role == "input"]
    return inputs, [parameter.type for parameter in parameters if parameter.role == "result"]


def register(scope: DeclarationScope, statement: RegisterOperator) -> OperatorDone:
    """Register an operator. Queries that use an earlier registration with the same name use this one from now on.

    Like with `create or replace feed`, their subscriptions continue.
    """
    _require_admin(scope.actor, statement.name.span)
    registered = operators.register_operator(scope.connection, scope.registrations[statement])
    scope.forget_operators()
    users = operators.users_of(scope.connection, registered.name)
    if users:
        nodes = operators.current_nodes(scope.connection, users)
        operators.replace_nodes(scope.connection, _bind_again(scope, statement.name, nodes))
        scope.forget_feeds()
        scope.pending.redefined |= users
    name, version, bound = registered.name, registered.version, scope.visible_names(users)
    verb = "uses" if len(bound) == 1 else "use"
    again = f" again; {listed('feed', bound)} now {verb} the new registration" if bound else ""
    return OperatorDone(f"registered operator {name}{again}", name, version, signature(registered), bound)


def _bind_again(scope: DeclarationScope, name: Name, nodes: Mapping[int, Node]) -> dict[int, Node]:
    bound: dict[int, Node] = {}
    errors: dict[int, StatementError] = {}
    for feed, node in nodes.items():
        try:
            bound[feed] = bind_node(node, scope.operator, scope.operator_names)
        except StatementError as error:
            errors[feed] = error
    if errors:
        first = next(iter(errors.values()))
        raise StillNeededError(
            f"{listed('feed', scope.visible_names(errors))} could no longer use {name.text}: {first.message}",
            span=name.span,
            hint="register it under another name, or drop or replace the feeds first",
        )
    return bound


def drop(scope: DeclarationScope, statement: DropOperator, drop_feeds: DropFeeds) -> OperatorDone:
    """Drop an operator. With `cascade`, also drop the queries that use it, and everything that depends on them."""
    _require_admin(scope.actor, statement.name.span)
    name = statement.name.text
    if scope.operator(name) is None:
        near = did_you_mean(name, scope.operator_names()) or "`show operators` lists all operators"
        raise UnknownNameError(f"there is no operator {name}", span=statement.name.span, hint=near)
    users = operators.users_of(scope.connection, name)
    if users and not statement.cascade:
        raise StillNeededError(
            f"{name} is still needed by {listed('feed', scope.visible_names(users))}",
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
    """List all operators, each with its learned figures and the number of the actor's queries that use it."""
    with workspace.catalog.read() as connection:
        live = operators.live_operators(connection)
        uses = operators.use_counts(connection, None if actor.is_admin else {actor.owner})
        learned = _learned_for(connection, actor)
    rows = tuple(_row(declared, actor, uses[name], learned) for name, declared in live.items())
    return Listing(f"{len(rows)} {'operator' if len(rows) == 1 else 'operators'}", "operators", rows)


def show_operator(workspace: Workspace, name: str, actor: Actor) -> OperatorDetails:
    """Describe one operator: its registration, and the queries that use it among those that the actor may read."""
    with workspace.catalog.read() as connection:
        declared = operators.operator_named(connection, name)
        if declared is None:
            near = did_you_mean(name, operators.live_operators(connection))
            raise NotFoundError(f"there is no operator {name}", hint=near or "`show operators` lists all operators")
        names = names_for(connection, actor)
        users = sorted(names[feed] for feed in operators.users_of(connection, name) if feed in names)
        learned = _learned_for(connection, actor)
    statement = print_statement(statement_of(declared)) if actor.is_admin else None
    return OperatorDetails(_row(declared, actor, len(users), learned), tuple(users), statement)


def statement_of(declaration: OperatorDeclaration) -> RegisterOperator:
    """Return the statement that registers an operator, with all options, including those left at their defaults."""
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
    """Return an operator as it is shown. Only the admin sees its source and its configuration."""
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
        _recent_calls(declared, learned),
        declared.source if actor.is_admin else None,
        dict(declared.configuration) if actor.is_admin else None,
    )


def _learned_for(connection: Connection, actor: Actor) -> OperatorStatistics:
    """Return the statistics of calls. Owners get none, because the statistics include calls for other owners."""
    return learned_operators(connection) if actor.is_admin else OperatorStatistics()


def _recent_calls(declared: OperatorDeclaration, learned: OperatorStatistics) -> LearnedCalls | None:
    """Return the figures of recent calls, or None if there were none."""
    use = learned.operators.get(operator_key(declared.name, declared.version))
    total = 0.0 if use is None else use.calls + use.hits
    if use is None or not total:
        return None
    return LearnedCalls(
        round(use.seconds / use.calls, 9) if use.calls else 0.0,
        round(use.failures / use.calls, 4) if use.calls else 0.0,
        round(use.hits / total, 4),
    )


def _policy(declared: OperatorDeclaration) -> str:
    return f"retry for {render_duration(declared.retry_for)}" if declared.on_error == "retry" else "unknown"
