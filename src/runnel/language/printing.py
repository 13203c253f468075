"""Statements to canonical text. In: statements. Out: one line each; parse(print_statement(s)) gives s again."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from runnel.algebra.nodes.durations import render_duration
from runnel.algebra.nodes.expressions import Or
from runnel.algebra.nodes.render import quote, render, render_constant, render_name
from runnel.language.syntax.statements import (
    AllTerm,
    Condition,
    Confirm,
    CreateFeed,
    Drop,
    DropOperator,
    DropPrefix,
    Explain,
    ExplainMessage,
    FeedTerm,
    GroupTerm,
    JoinClause,
    MaterialiseFeed,
    Name,
    Pause,
    Preview,
    QueryText,
    RegisterFeed,
    RegisterOperator,
    RegisterPrefix,
    Renew,
    Replay,
    RotateKey,
    SendNow,
    Show,
    Statement,
    Subscribe,
    TagFeed,
    Term,
    Unsubscribe,
    Why,
)
from runnel.model.operator import Parameter


def print_statement(statement: Statement) -> str:
    """The canonical text of a statement.

    >>> from runnel.language.grammar.parser import parse
    >>> print_statement(parse("CREATE feed Rock FROM News WHERE title contains 'ROCK' and votes>2e3")[0].statement)
    "create feed Rock from News where title contains 'rock' and votes > 2000;"
    """
    return f"{_text(statement)};"


def print_script(statements: Iterable[Statement]) -> str:
    """The canonical text of several statements, one per line.

    >>> print_script([Show("feeds"), Drop(Name("Old"), cascade=True)])
    'show feeds;\\ndrop feed Old cascade;\\n'
    """
    return "".join(f"{print_statement(statement)}\n" for statement in statements)


def _text(statement: Statement) -> str:
    match statement:
        case RegisterFeed():
            return _register(statement)
        case TagFeed(name, ()):
            return f"untag feed {_name(name)}"
        case TagFeed(name, tags):
            return f"tag feed {_name(name)} as {', '.join(map(render_name, tags))}"
        case MaterialiseFeed(name, origin, sheet):
            return f"register feed {_name(origin)} apply {quote(sheet)} as {_name(name)}"
        case RegisterOperator():
            return _register_operator(statement)
        case CreateFeed(name, query, replace, tags):
            return f"create {'or replace ' if replace else ''}feed {_name(name)}{_tagged(tags)} {_query(query)}"
        case Subscribe():
            return _subscribe(statement)
        case Unsubscribe():
            return _unsubscribe(statement)
        case Renew(number, ticket, lifetime):
            subject = f"subscription {number}" if ticket is None else f"ticket {quote(ticket)}"
            return f"renew {subject}{_clause('for', lifetime)}"
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
            return f"drop feed {_name(name)}{' cascade' if cascade else ''}"
        case DropOperator(name, cascade):
            return f"drop operator {_name(name)}{' cascade' if cascade else ''}"
        case RegisterPrefix(name, iri):
            return f"register prefix {_name(name)} as {quote(iri)}"
        case DropPrefix(name):
            return f"drop prefix {_name(name)}"
        case Pause(paused, feed, number):
            subject = f"feed {_name(feed)}" if feed is not None else f"subscription {number}"
            return f"{'pause' if paused else 'resume'} {subject}"
        case Show(what, name):
            return f"show {what}" if name is None else f"show {what} {_name(name)}"
        case Explain(name):
            return f"explain feed {_name(name)}"
        case ExplainMessage(message):
            return f"explain message {quote(message)}"
        case Why(item, feed):
            return f"why item {quote(item)} in {_name(feed)}"
        case Preview():
            return _preview(statement)
    raise TypeError(f"not a statement: {statement!r}")


def _register(statement: RegisterFeed) -> str:
    text = f"register feed {_name(statement.name)}"
    if statement.address is not None:
        text = f"register feed {quote(statement.address)} as {_name(statement.name)}"
    text += _clause("every", statement.every)
    if statement.title is not None:
        text += f" title {quote(statement.title)}"
    if statement.home is not None:
        text += f" home {quote(statement.home)}"
    text += _tagged(statement.tags)
    if statement.open_items is not None:
        text += f" open to {statement.open_items} items per minute" if statement.open_items else " open"
    return text


def _tagged(tags: tuple[str, ...]) -> str:
    return f" tagged {', '.join(map(render_name, tags))}" if tags else ""


def _register_operator(said: RegisterOperator) -> str:
    parts = [f"register operator {_name(said.name)}{print_parameters(said.parameters)} from {quote(said.source)}"]
    if said.release is not None:
        parts.append(f"release {quote(said.release)}")
    if said.cost is not None:
        parts.append(f"cost {render_span(said.cost)}")
    if said.pure is not None:
        parts.append("pure" if said.pure else "impure")
    if said.reads is not None:
        parts.append(f"reading {', '.join(map(render_name, said.reads))}")
    if said.batch is not None:
        parts.append(f"batch {said.batch}")
    if said.time_limit is not None:
        parts.append(f"limit {render_span(said.time_limit)}")
    if said.concurrency is not None:
        parts.append(f"concurrency {said.concurrency}")
    parts += render_budget(said.calls, said.seconds)
    if said.on_error is not None:
        parts.append(f"on error {said.on_error}{_clause('for', said.retry_for)}")
    if said.configuration:
        pairs = (f"{render_name(key)} {quote(value)}" for key, value in said.configuration)
        parts.append(f"with ({', '.join(pairs)})")
    return " ".join(parts)


def render_span(length: timedelta) -> str:
    """A short time in the largest unit that divides it.

    >>> render_span(timedelta(milliseconds=40)), render_span(timedelta(microseconds=1500))
    ('40 ms', '1500 us')
    """
    microseconds = length // timedelta(microseconds=1)
    if microseconds % 1_000_000 == 0:
        seconds = microseconds // 1_000_000
        return f"{seconds} second{'' if seconds == 1 else 's'}"
    return f"{microseconds // 1_000} ms" if microseconds % 1_000 == 0 else f"{microseconds} us"


def render_budget(calls: int | None, seconds: float | None) -> list[str]:
    """The options that say what an operator may use.

    >>> render_budget(100, 2.5)
    ['budget 100 calls per minute', 'budget 2.5 seconds per minute']
    """
    said = [] if calls is None else [f"budget {calls} calls per minute"]
    return said if seconds is None else [*said, f"budget {render_constant(seconds)} seconds per minute"]


def print_parameters(parameters: tuple[Parameter, ...] | None) -> str:
    """The parameters of an operator as they are declared; nothing where they were not.

    >>> print_parameters((Parameter("place", "input", "text"), Parameter("metres", "result", "number")))
    '(place text, ?metres number)'
    """
    return "" if parameters is None else f"({', '.join(map(_parameter, parameters))})"


def _parameter(one: Parameter) -> str:
    match one.role:
        case "result":
            return f"?{one.name} {one.type}"
        case "attribute":
            return f"{render_name(one.name)} attribute"
        case "input":
            return f"{render_name(one.name)} {one.type}"


def _subscribe(statement: Subscribe) -> str:
    sheet = "" if statement.sheet is None else f" apply {quote(statement.sheet)}"
    text = f"subscribe to {_name(statement.feed)}{sheet} {_output(statement.kind, statement.target)}"
    clauses = (("every", statement.every), ("for", statement.lifetime), ("from last", statement.back))
    return text + "".join(_clause(word, duration) for word, duration in clauses)


def _clause(word: str, duration: timedelta | None) -> str:
    return "" if duration is None else f" {word} {render_duration(duration)}"


def _unsubscribe(statement: Unsubscribe) -> str:
    if statement.ticket is not None:
        return f"unsubscribe ticket {quote(statement.ticket)}"
    if statement.feed is None:
        return f"unsubscribe {statement.number}"
    text = f"unsubscribe from {_name(statement.feed)}"
    return text if statement.kind is None else f"{text} {_output(statement.kind, statement.target)}"


def _output(kind: str, target: str | None) -> str:
    return f"output {kind}" if target is None else f"output {kind} {quote(target)}"


def _preview(statement: Preview) -> str:
    if statement.query is not None:
        subject = _text(statement.query)
    elif statement.feed is not None:
        subject = f"feed {_name(statement.feed)}"
    else:
        raise ValueError("a preview needs a query or a feed")
    return f"preview {subject}{_clause('over last', statement.back)}"


def _query(query: QueryText) -> str:
    match query.source:
        case GroupTerm(terms, None) if len(terms) > 1:
            source = " | ".join(map(_term, terms))
        case term:
            source = _term(term)
    source += "".join(f" {_join(clause)}" for clause in query.joins)
    if query.gate is not None:
        source += f" {query.gate.render()}"
    if not query.conditions:
        return f"from {source}"
    alone = len(query.conditions) == 1
    return f"from {source} where {' and '.join(_condition(one, alone) for one in query.conditions)}"


def _join(clause: JoinClause) -> str:
    extent = f"{clause.extent} items" if isinstance(clause.extent, int) else render_duration(clause.extent)
    condition = f"${clause.variable.text}[{render(clause.condition)}]"
    return f"join last {extent} on {_term(clause.window)} with {condition}"


def _term(term: Term) -> str:
    match term:
        case FeedTerm(feed, variable):
            text = _name(feed)
        case AllTerm(tags, variable):
            text = f"all feeds{_tagged(tags)}"
        case GroupTerm(terms, variable):
            text = f"({' | '.join(map(_term, terms))})"
    return text if variable is None else f"{text} as ${variable.text}"


def _condition(condition: Condition, alone: bool) -> str:
    text = render(condition.expression)
    if condition.variable is not None:
        return f"${condition.variable.text}[{text}]"
    return f"({text})" if isinstance(condition.expression, Or) and not alone else text


def _name(name: Name) -> str:
    return render_name(name.text)
