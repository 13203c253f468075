"""Printing of statements. In: statements. Out: their canonical texts, which parse to equal statements."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from runnel.algebra.nodes.durations import render_duration
from runnel.algebra.nodes.expressions import Or
from runnel.algebra.nodes.render import quote, render, render_constant, render_name
from runnel.language.syntax.statements import (
    AllTerm,
    ColumnClause,
    Condition,
    Confirm,
    CreateFeed,
    Drop,
    DropOperator,
    DropPrefix,
    DropTable,
    Explain,
    ExplainMessage,
    FeedTerm,
    GroupTerm,
    JoinClause,
    MaterializeFeed,
    Name,
    Pause,
    Preview,
    QueryText,
    RegisterFeed,
    RegisterOperator,
    RegisterPrefix,
    RegisterTable,
    Renew,
    Replay,
    RotateKey,
    SendNow,
    Show,
    ShowRows,
    Statement,
    Subscribe,
    TagFeed,
    Term,
    Unsubscribe,
    Why,
)
from runnel.model.operator import Parameter
from runnel.model.table import ChangeForm


def print_statement(statement: Statement) -> str:
    """Return the canonical text of a statement.

    >>> from runnel.language.grammar.parser import parse
    >>> print_statement(parse("CREATE feed Rock FROM News WHERE title contains 'ROCK' and votes>2e3")[0].statement)
    "create feed Rock from News where title contains 'rock' and votes > 2000;"
    """
    return f"{_print(statement)};"


def print_script(statements: Iterable[Statement]) -> str:
    """Return the canonical text of several statements, one per line.

    >>> print_script([Show("feeds"), Drop(Name("Old"), cascade=True)])
    'show feeds;\\ndrop feed Old cascade;\\n'
    """
    return "".join(f"{print_statement(statement)}\n" for statement in statements)


def _print(statement: Statement) -> str:
    match statement:
        case RegisterFeed():
            return _print_feed(statement)
        case TagFeed(name, ()):
            return f"untag feed {_print_name(name)}"
        case TagFeed(name, tags):
            return f"tag feed {_print_name(name)} as {', '.join(map(render_name, tags))}"
        case MaterializeFeed(name, origin, sheet):
            return f"register feed {_print_name(origin)} apply {quote(sheet)} as {_print_name(name)}"
        case RegisterOperator():
            return _print_operator(statement)
        case CreateFeed(name, query, replace, tags):
            keywords = "create or replace feed" if replace else "create feed"
            return f"{keywords} {_print_name(name)}{_print_tags(tags)} {_print_query(query)}"
        case Subscribe():
            return _print_subscribe(statement)
        case Unsubscribe():
            return _print_unsubscribe(statement)
        case Renew(number, ticket, lifetime):
            subject = f"subscription {number}" if ticket is None else f"ticket {quote(ticket)}"
            return f"renew {subject}{_print_clause('for', lifetime)}"
        case RotateKey(subscription):
            return f"rotate key of subscription {subscription}"
        case Replay(message, subscription_or_none):
            subject = f"subscription {subscription_or_none}" if message is None else f"message {quote(message)}"
            return f"replay {subject}"
        case SendNow(subscription_or_none):
            return f"send {'all' if subscription_or_none is None else f'subscription {subscription_or_none}'} now"
        case Confirm(subscription, code):
            return f"confirm subscription {subscription}{'' if code is None else f' {quote(code)}'}"
        case Drop(name, cascade):
            return f"drop feed {_print_name(name)}{' cascade' if cascade else ''}"
        case DropOperator(name, cascade):
            return f"drop operator {_print_name(name)}{' cascade' if cascade else ''}"
        case RegisterPrefix(name, iri):
            return f"register prefix {_print_name(name)} as {quote(iri)}"
        case DropPrefix(name):
            return f"drop prefix {_print_name(name)}"
        case RegisterTable():
            return _print_table(statement)
        case DropTable(name):
            return f"drop table {_print_name(name)}"
        case Pause(paused, feed, number):
            subject = f"feed {_print_name(feed)}" if feed is not None else f"subscription {number}"
            return f"{'pause' if paused else 'resume'} {subject}"
        case Show(what, name):
            return f"show {what}" if name is None else f"show {what} {_print_name(name)}"
        case ShowRows(table, condition):
            where = "" if condition is None else f" where {render(condition)}"
            return f"show rows {_print_name(table)}{where}"
        case Explain(name):
            return f"explain feed {_print_name(name)}"
        case ExplainMessage(message):
            return f"explain message {quote(message)}"
        case Why(item, feed):
            return f"why item {quote(item)} in {_print_name(feed)}"
        case Preview():
            return _print_preview(statement)
    raise TypeError(f"not a statement: {statement!r}")


def _print_feed(statement: RegisterFeed) -> str:
    text = f"register feed {_print_name(statement.name)}"
    if statement.address is not None:
        text = f"register feed {quote(statement.address)} as {_print_name(statement.name)}"
    text += _print_clause("every", statement.every)
    if statement.title is not None:
        text += f" title {quote(statement.title)}"
    if statement.home is not None:
        text += f" home {quote(statement.home)}"
    text += _print_tags(statement.tags)
    if statement.open_items is not None:
        text += f" open to {statement.open_items} items per minute" if statement.open_items else " open"
    return text


def _print_table(statement: RegisterTable) -> str:
    text = f"register table {_print_name(statement.name)} ({', '.join(map(_print_column, statement.columns))})"
    if statement.form is not ChangeForm.ROWS:
        text += f" as {statement.form.value}"
    text += _print_clause("keep", statement.keep)
    return text if statement.ordered_by is None else f"{text} ordered by {_print_name(statement.ordered_by)}"


def _print_column(column: ColumnClause) -> str:
    return f"{_print_name(column.name)} {column.type.value}{' key' if column.is_key else ''}"


def _print_tags(tags: tuple[str, ...]) -> str:
    return f" tagged {', '.join(map(render_name, tags))}" if tags else ""


def _print_operator(statement: RegisterOperator) -> str:
    parts = [
        f"register operator {_print_name(statement.name)}{print_parameters(statement.parameters)}",
        f"from {quote(statement.source)}",
    ]
    if statement.release is not None:
        parts.append(f"release {quote(statement.release)}")
    if statement.cost is not None:
        parts.append(f"cost {render_short_time(statement.cost)}")
    if statement.pure is not None:
        parts.append("pure" if statement.pure else "impure")
    if statement.reads is not None:
        parts.append(f"reading {', '.join(map(render_name, statement.reads))}")
    if statement.batch is not None:
        parts.append(f"batch {statement.batch}")
    if statement.time_limit is not None:
        parts.append(f"limit {render_short_time(statement.time_limit)}")
    if statement.concurrency is not None:
        parts.append(f"concurrency {statement.concurrency}")
    parts += render_budget(statement.calls, statement.seconds)
    if statement.on_error is not None:
        parts.append(f"on error {statement.on_error}{_print_clause('for', statement.retry_for)}")
    if statement.configuration:
        pairs = (f"{render_name(key)} {quote(value)}" for key, value in statement.configuration)
        parts.append(f"with ({', '.join(pairs)})")
    return " ".join(parts)


def render_short_time(length: timedelta) -> str:
    """Render a short time in the largest unit of seconds, ms and us that divides it.

    >>> render_short_time(timedelta(milliseconds=40)), render_short_time(timedelta(microseconds=1500))
    ('40 ms', '1500 us')
    """
    microseconds = length // timedelta(microseconds=1)
    if microseconds % 1_000_000 == 0:
        seconds = microseconds // 1_000_000
        return f"{seconds} second{'' if seconds == 1 else 's'}"
    return f"{microseconds // 1_000} ms" if microseconds % 1_000 == 0 else f"{microseconds} us"


def render_budget(calls: int | None, seconds: float | None) -> list[str]:
    """Return the `budget` options of an operator registration.

    >>> render_budget(100, 2.5)
    ['budget 100 calls per minute', 'budget 2.5 seconds per minute']
    """
    options = [] if calls is None else [f"budget {calls} calls per minute"]
    return options if seconds is None else [*options, f"budget {render_constant(seconds)} seconds per minute"]


def print_parameters(parameters: tuple[Parameter, ...] | None) -> str:
    """Return the parameters of an operator as declared, or an empty text if none were declared.

    >>> print_parameters((Parameter("place", "input", "text"), Parameter("metres", "result", "number")))
    '(place text, ?metres number)'
    """
    return "" if parameters is None else f"({', '.join(map(_print_parameter, parameters))})"


def _print_parameter(parameter: Parameter) -> str:
    match parameter.role:
        case "result":
            return f"?{parameter.name} {parameter.type}"
        case "attribute":
            return f"{render_name(parameter.name)} attribute"
        case "input":
            return f"{render_name(parameter.name)} {parameter.type}"


def _print_subscribe(statement: Subscribe) -> str:
    sheet = "" if statement.sheet is None else f" apply {quote(statement.sheet)}"
    text = f"subscribe to {_print_name(statement.feed)}{sheet} {_print_output(statement.kind, statement.target)}"
    clauses = (("every", statement.every), ("for", statement.lifetime), ("from last", statement.back))
    return text + "".join(_print_clause(word, duration) for word, duration in clauses)


def _print_clause(word: str, duration: timedelta | None) -> str:
    return "" if duration is None else f" {word} {render_duration(duration)}"


def _print_unsubscribe(statement: Unsubscribe) -> str:
    if statement.ticket is not None:
        return f"unsubscribe ticket {quote(statement.ticket)}"
    if statement.feed is None:
        return f"unsubscribe {statement.number}"
    text = f"unsubscribe from {_print_name(statement.feed)}"
    return text if statement.kind is None else f"{text} {_print_output(statement.kind, statement.target)}"


def _print_output(kind: str, target: str | None) -> str:
    return f"output {kind}" if target is None else f"output {kind} {quote(target)}"


def _print_preview(statement: Preview) -> str:
    if statement.query is not None:
        subject = _print(statement.query)
    elif statement.feed is not None:
        subject = f"feed {_print_name(statement.feed)}"
    else:
        raise ValueError("a preview needs a query or a feed")
    return f"preview {subject}{_print_clause('over last', statement.back)}"


def _print_query(query: QueryText) -> str:
    match query.source:
        case GroupTerm(terms, None) if len(terms) > 1:
            source = " | ".join(map(_print_term, terms))
        case term:
            source = _print_term(term)
    source += "".join(f" {_print_join(clause)}" for clause in query.joins)
    if query.gate is not None:
        source += f" {query.gate.render()}"
    if not query.conditions:
        return f"from {source}"
    is_only = len(query.conditions) == 1
    conditions = (_print_condition(condition, is_only) for condition in query.conditions)
    return f"from {source} where {' and '.join(conditions)}"


def _print_join(clause: JoinClause) -> str:
    extent = f"{clause.extent} items" if isinstance(clause.extent, int) else render_duration(clause.extent)
    condition = f"${clause.variable.text}[{render(clause.condition)}]"
    return f"join last {extent} on {_print_term(clause.window)} with {condition}"


def _print_term(term: Term) -> str:
    match term:
        case FeedTerm(feed, variable):
            text = _print_name(feed)
        case AllTerm(tags, variable):
            text = f"all feeds{_print_tags(tags)}"
        case GroupTerm(terms, variable):
            text = f"({' | '.join(map(_print_term, terms))})"
    return text if variable is None else f"{text} as ${variable.text}"


def _print_condition(condition: Condition, is_only: bool) -> str:
    text = render(condition.expression)
    if condition.variable is not None:
        return f"${condition.variable.text}[{text}]"
    return f"({text})" if isinstance(condition.expression, Or) and not is_only else text


def _print_name(name: Name) -> str:
    return render_name(name.text)
