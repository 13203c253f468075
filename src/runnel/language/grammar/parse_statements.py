"""Grammar rules for statements except `register`. In: the token after the first keyword. Out: a statement."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast
from typing import Literal as OneOf

from runnel.algebra.nodes.gate_rules import GateRule
from runnel.errors import StatementSyntaxError
from runnel.language.grammar.parse_conditions import parse_condition
from runnel.language.grammar.parse_joins import parse_joins
from runnel.language.grammar.parse_registrations import parse_register
from runnel.language.grammar.parse_tables import parse_show_rows
from runnel.language.grammar.parse_values import (
    parse_duration,
    parse_name,
    parse_tag_list,
    parse_tags,
    parse_variable,
)
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.conditions import split_conjuncts
from runnel.language.syntax.literals import read_integer, read_item_id, read_verbatim
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.script_tokens import Token
from runnel.language.syntax.statements import (
    AllTerm,
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
    Pause,
    Preview,
    QueryText,
    Renew,
    Replay,
    RotateKey,
    SendNow,
    Show,
    ShowRows,
    Subscribe,
    SubscribeSpans,
    TagFeed,
    Term,
    Unsubscribe,
    Why,
)

if TYPE_CHECKING:
    from runnel.language.syntax.reader import ParseStatement


# Queries.


def parse_create(tokens: TokenReader, keyword: Token) -> CreateFeed:
    """Parse `create [or replace] feed Name [tagged …] from … [join …] [gate …] [where …]`."""
    replace = tokens.take("or")
    if replace:
        tokens.expect("replace")
    tokens.expect("feed")
    name = parse_name(tokens)
    tags = parse_tags(tokens)
    tokens.expect("from")
    terms = _parse_source(tokens)
    source = terms[0] if len(terms) == 1 else GroupTerm(terms)
    joins = parse_joins(tokens, _parse_term)
    gate = _parse_gate(tokens)
    conditions = split_conjuncts(parse_condition(tokens), keyword) if tokens.take("where") else ()
    return CreateFeed(name, QueryText(source, conditions, gate, joins), replace, tags)


def _parse_source(tokens: TokenReader) -> tuple[Term, ...]:
    """Parse nested groups of feeds. A variable may name each feed and each group (RoSeS §3.1)."""
    terms = [_parse_term(tokens)]
    while tokens.take("|"):
        terms.append(_parse_term(tokens))
    return tuple(terms)


def _parse_term(tokens: TokenReader) -> Term:
    if tokens.is_at("("):
        tokens.open()
        terms = _parse_source(tokens)
        tokens.close()
        return GroupTerm(terms, parse_variable(tokens))
    tokens.note_expected(expects.ALL_FEEDS)
    span, is_all = tokens.span, tokens.word == "all"
    feed = parse_name(tokens)
    # A feed can have the name `all`, but `feeds` never follows the name of a feed.
    if is_all and tokens.word == "feeds":
        tokens.advance()
        tags = parse_tags(tokens)
        return AllTerm(tags, parse_variable(tokens), span)
    return FeedTerm(feed, parse_variable(tokens))


def _parse_gate(tokens: TokenReader) -> GateRule | None:
    """Parse the clause of a gate. Return None if there is none."""
    return next((gate.parse(tokens) for gate in tokens.grammar.gates if tokens.take(gate.word)), None)


def _parse_preview(tokens: TokenReader, keyword: Token) -> Preview:
    created = tokens.take_one_of("create")
    if created is not None:
        query = parse_create(tokens, created)
        return Preview(query=query, back=_parse_over_last(tokens))
    tokens.expect("feed")
    feed = parse_name(tokens)
    return Preview(feed=feed, back=_parse_over_last(tokens))


def _parse_over_last(tokens: TokenReader) -> timedelta | None:
    if not tokens.take("over"):
        return None
    tokens.expect("last")
    return parse_duration(tokens).length


# Subscriptions and their messages.


def _parse_subscribe(tokens: TokenReader, keyword: Token) -> Subscribe:
    tokens.expect("to")
    feed = parse_name(tokens)
    sheet = tokens.expect_text() if tokens.take("apply") else None
    sheet_span = None if sheet is None else sheet.span
    tokens.expect("output")
    kind = tokens.expect_word(expects.KIND)
    kind_span = kind.span
    target = tokens.take_text()
    spans = SubscribeSpans(kind_span, kind_span if target is None else target.span, sheet_span or kind_span)
    lengths: dict[str, timedelta] = {}
    while (word := tokens.take_one_of("every", "for", "from")) is not None:
        clause = word.text.lower()
        if clause == "from":
            tokens.expect("last")
        length = parse_duration(tokens).length
        if clause in lengths:
            raise StatementSyntaxError(
                f"the clause {clause} is given twice", span=word.span, hint="remove one of the two"
            )
        lengths[clause] = length
    return Subscribe(
        feed,
        kind.text.lower(),
        _read_target(target),
        lengths.get("every"),
        lengths.get("for"),
        lengths.get("from"),
        None if sheet is None else read_verbatim(sheet, "the name of a stylesheet"),
        spans,
    )


def _read_target(token: Token | None) -> str | None:
    return None if token is None else read_verbatim(token, "the target")


def _parse_unsubscribe(tokens: TokenReader, keyword: Token) -> Unsubscribe:
    if tokens.take("ticket"):
        ticket = tokens.expect_text()
        return Unsubscribe(ticket=read_verbatim(ticket, "a ticket"), span=ticket.span)
    if tokens.take("from"):
        span = keyword.span
        feed = parse_name(tokens)
        if not tokens.take("output"):
            return Unsubscribe(feed=feed, span=span)
        kind = tokens.expect_word(expects.KIND)
        return Unsubscribe(feed=feed, kind=kind.text.lower(), target=_read_target(tokens.take_text()), span=span)
    number = tokens.expect_integer()
    return Unsubscribe(read_integer(number), span=number.span)


def _parse_renew(tokens: TokenReader, keyword: Token) -> Renew:
    number = _take_subscription(tokens)
    if number is not None:
        lifetime = _parse_lifetime(tokens)
        return Renew(number=read_integer(number), lifetime=lifetime, span=number.span)
    tokens.expect("ticket")
    ticket = tokens.expect_text()
    return Renew(ticket=read_verbatim(ticket, "a ticket"), lifetime=_parse_lifetime(tokens), span=ticket.span)


def _parse_lifetime(tokens: TokenReader) -> timedelta | None:
    return parse_duration(tokens).length if tokens.take("for") else None


def _take_subscription(tokens: TokenReader) -> Token | None:
    """Parse an optional `subscription 12` and return the number."""
    return tokens.expect_integer() if tokens.take("subscription") else None


def _parse_rotate(tokens: TokenReader, keyword: Token) -> RotateKey:
    tokens.expect("key", "of", "subscription")
    number = tokens.expect_integer()
    return RotateKey(read_integer(number), number.span)


def _parse_replay(tokens: TokenReader, keyword: Token) -> Replay:
    number = _take_subscription(tokens)
    if number is not None:
        return Replay(subscription=read_integer(number), span=number.span)
    tokens.expect("message")
    key = tokens.expect_text()
    return Replay(message=read_verbatim(key, "the key of a message"), span=key.span)


def _parse_send(tokens: TokenReader, keyword: Token) -> SendNow:
    number = _take_subscription(tokens)
    if number is None:
        tokens.expect("all")
    tokens.expect("now")
    return SendNow(span=keyword.span) if number is None else SendNow(read_integer(number), number.span)


def _parse_confirm(tokens: TokenReader, keyword: Token) -> Confirm:
    tokens.expect("subscription")
    number = tokens.expect_integer()
    code = tokens.take_text()
    if code is None:
        return Confirm(read_integer(number), None, number.span)
    return Confirm(read_integer(number), read_verbatim(code, "a code"), code.span)


# Feeds, operators and prefixes.


def _parse_drop(tokens: TokenReader, keyword: Token) -> Drop | DropOperator | DropPrefix | DropTable:
    if tokens.take("operator"):
        return DropOperator(parse_name(tokens), tokens.take("cascade"))
    if tokens.take("prefix"):
        return DropPrefix(parse_name(tokens))
    if tokens.take("table"):
        return DropTable(parse_name(tokens))
    tokens.expect("feed")
    return Drop(parse_name(tokens), tokens.take("cascade"))


def _parse_tag(tokens: TokenReader, keyword: Token) -> TagFeed:
    tokens.expect("feed")
    name = parse_name(tokens)
    tokens.expect("as")
    return TagFeed(name, parse_tag_list(tokens))


def _parse_untag(tokens: TokenReader, keyword: Token) -> TagFeed:
    tokens.expect("feed")
    return TagFeed(parse_name(tokens))


def _parse_pause(tokens: TokenReader, keyword: Token) -> Pause:
    is_paused = keyword.text.lower() == "pause"
    number = _take_subscription(tokens)
    if number is not None:
        return Pause(is_paused, subscription=read_integer(number), span=number.span)
    tokens.expect("feed")
    feed = parse_name(tokens)
    return Pause(is_paused, feed=feed, span=feed.span)


# Statements that only read.

_LISTS: Final = ("feeds", "tables", "subscriptions", "quarantine", "operators", "prefixes")


def _parse_show(tokens: TokenReader, keyword: Token) -> Show | ShowRows:
    listed = tokens.take_one_of(*_LISTS)
    if listed is not None:
        kind = OneOf["feeds", "tables", "subscriptions", "quarantine", "operators", "prefixes"]
        return Show(cast(kind, listed.text.lower()))
    if tokens.take("dead"):
        tokens.expect("letters")
        return Show("dead letters")
    if tokens.take("operator"):
        return Show("operator", parse_name(tokens))
    if tokens.take("rows"):
        return parse_show_rows(tokens)
    tokens.expect("feed")
    return Show("feed", parse_name(tokens))


def _parse_explain(tokens: TokenReader, keyword: Token) -> Explain | ExplainMessage:
    if tokens.take("message"):
        key = tokens.expect_text()
        return ExplainMessage(read_verbatim(key, "the key of a message"), key.span)
    tokens.expect("feed")
    return Explain(parse_name(tokens))


def _parse_why(tokens: TokenReader, keyword: Token) -> Why:
    tokens.expect("item")
    item = read_item_id(tokens.expect_text())
    tokens.expect("in")
    return Why(item, parse_name(tokens))


STATEMENTS: Mapping[str, ParseStatement] = MappingProxyType(
    {
        "create": parse_create,
        "register": parse_register,
        "subscribe": _parse_subscribe,
        "unsubscribe": _parse_unsubscribe,
        "renew": _parse_renew,
        "rotate": _parse_rotate,
        "replay": _parse_replay,
        "send": _parse_send,
        "confirm": _parse_confirm,
        "drop": _parse_drop,
        "tag": _parse_tag,
        "untag": _parse_untag,
        "pause": _parse_pause,
        "resume": _parse_pause,
        "show": _parse_show,
        "explain": _parse_explain,
        "why": _parse_why,
        "preview": _parse_preview,
    }
)
"""Rules for statements, by their first keyword."""
