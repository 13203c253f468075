"""From grammar to statements: the callbacks that lark's parser calls, rule by rule, while it reads.

In: tokens and what was built of the parts. Out: `Parsed` statements. There is no syntax tree in between, and nothing
here recurses, so the depth of a text is limited by choice and not by Python's stack.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal as OneOf
from typing import cast

from lark import Token, v_args

from runnel.algebra.nodes.attributes import Attribute
from runnel.algebra.nodes.expressions import (
    FALSE,
    TRUE,
    AtomRelation,
    Compare,
    Exists,
    Expression,
    Not,
    conjunction,
    disjunction,
    negation,
)
from runnel.algebra.nodes.render import NOW
from runnel.algebra.semantics.distinct import DEFAULT_WINDOW, ID
from runnel.errors import InvalidConditionError, StatementSyntaxError
from runnel.language.grammar.graph_rules import GraphRules
from runnel.language.syntax.conditions import (
    AtomOf,
    Built,
    Conjuncts,
    build_between,
    build_one_of,
    build_within,
    conditions_of,
    unscoped,
)
from runnel.language.syntax.distinct_clause import read_keys, read_window
from runnel.language.syntax.literals import (
    Duration,
    Literal,
    Located,
    fitting,
    fitting_exactly,
    read_ago,
    read_attribute,
    read_date,
    read_duration,
    read_exact,
    read_integer,
    read_item_id,
    read_name,
    read_number,
    read_text,
    read_variable,
    span_of,
)
from runnel.language.syntax.register_clauses import FeedClause, register_feed
from runnel.language.syntax.statements import (
    NOWHERE,
    AllTerm,
    Condition,
    Confirm,
    CreateFeed,
    DistinctText,
    Drop,
    Explain,
    ExplainMessage,
    FeedTerm,
    GroupTerm,
    MaterialiseFeed,
    Name,
    Parsed,
    Pause,
    Preview,
    QueryText,
    Renew,
    Replay,
    RotateKey,
    SendNow,
    Show,
    Statement,
    Subscribe,
    SubscribeSpans,
    TagFeed,
    Term,
    Unsubscribe,
    Why,
)
from runnel.language.syntax.tag_names import read_tags
from runnel.language.syntax.text_conditions import (
    Tokens,
    build_contains,
    build_extends,
    build_in_network,
    build_pattern,
    build_references,
    build_regular_expression,
    build_shares,
    build_similar,
)


@v_args(inline=True)
class StatementTransformer(GraphRules):
    """One method per rule or alias of grammar.lark; those that operators and graphs need are inherited."""

    def start(self, *statements: Parsed) -> list[Parsed]:
        return list(statements)

    # Statements.

    def register_address(self, keyword: Token, address: Token, name: Name, *clauses: FeedClause) -> Parsed:
        text = read_exact(address, "an address")
        return _parsed(keyword, register_feed(name, text, span_of(address), clauses))

    def register_published(self, keyword: Token, name: Name, *clauses: FeedClause) -> Parsed:
        return _parsed(keyword, register_feed(name, None, name.span, clauses))

    def feed_every(self, keyword: Token, period: Duration) -> FeedClause:
        return FeedClause("every", period.length, span_of(keyword))

    def feed_text(self, keyword: Token, text: Token) -> FeedClause:
        return FeedClause(keyword.lower(), read_exact(text, f"a {keyword.lower()}"), span_of(keyword))

    def feed_tags(self, tags: tuple[str, ...]) -> FeedClause:
        return FeedClause("tagged", tags, NOWHERE)

    def feed_open(self, keyword: Token, items: Token | None) -> FeedClause:
        limit = None if items is None else read_integer(items)
        if items is not None and not limit:
            raise StatementSyntaxError(
                "an open feed takes at least one item per minute",
                span=span_of(items),
                hint="write 1 or more; a feed without `open` is closed",
            )
        return FeedClause("open", limit or 0, span_of(keyword))

    def tag_feed(self, keyword: Token, name: Name, *tags: Name) -> Parsed:
        return _parsed(keyword, TagFeed(name, read_tags(tags)))

    def create(
        self,
        keyword: Token,
        replace: Token | None,
        name: Name,
        tags: tuple[str, ...] | None,
        terms: tuple[Term, ...],
        distinct: DistinctText | None,
        where: Built | None,
    ) -> Parsed:
        source = terms[0] if len(terms) == 1 else GroupTerm(terms)
        query = QueryText(source, () if where is None else conditions_of(where, keyword), distinct)
        return _parsed(keyword, CreateFeed(name, query, replace is not None, tags or ()))

    def subscribe(
        self,
        keyword: Token,
        feed: Name,
        sheet: Token | None,
        kind: Token,
        target: Token | None,
        *clauses: tuple[Token, Duration],
    ) -> Parsed:
        lengths: dict[str, timedelta] = {}
        for word, duration in clauses:
            if word.type in lengths:
                raise StatementSyntaxError(f"{word.lower()} is given twice", span=span_of(word))
            lengths[word.type] = duration.length
        return _parsed(
            keyword,
            Subscribe(
                feed,
                kind.lower(),
                _target(target),
                lengths.get("EVERY"),
                lengths.get("FOR"),
                lengths.get("FROM_CLAUSE"),
                None if sheet is None else read_exact(sheet, "a stylesheet's name"),
                SubscribeSpans(span_of(kind), span_of(target or kind), span_of(sheet or kind)),
            ),
        )

    def materialise(self, keyword: Token, origin: Name, sheet: Token, name: Name) -> Parsed:
        text = read_exact(sheet, "a stylesheet's name")
        return _parsed(keyword, MaterialiseFeed(name, origin, text, span_of(sheet)))

    def renew_number(self, keyword: Token, number: Token, word: Token | None, length: Duration | None) -> Parsed:
        renewed = Renew(number=read_integer(number), lifetime=length and length.length, span=span_of(number))
        return _parsed(keyword, renewed)

    def renew_ticket(self, keyword: Token, ticket: Token, word: Token | None, length: Duration | None) -> Parsed:
        text = read_exact(ticket, "a ticket")
        return _parsed(keyword, Renew(ticket=text, lifetime=length and length.length, span=span_of(ticket)))

    def rotate_key(self, keyword: Token, number: Token) -> Parsed:
        return _parsed(keyword, RotateKey(read_integer(number), span_of(number)))

    def replay_message(self, keyword: Token, key: Token) -> Parsed:
        return _parsed(keyword, Replay(message=read_exact(key, "a message's key"), span=span_of(key)))

    def replay_subscription(self, keyword: Token, number: Token) -> Parsed:
        return _parsed(keyword, Replay(subscription=read_integer(number), span=span_of(number)))

    def send_subscription(self, keyword: Token, number: Token) -> Parsed:
        return _parsed(keyword, SendNow(read_integer(number), span_of(number)))

    def send_all(self, keyword: Token) -> Parsed:
        return _parsed(keyword, SendNow(span=span_of(keyword)))

    def confirm_subscription(self, keyword: Token, number: Token, code: Token | None) -> Parsed:
        text = None if code is None else read_exact(code, "a code")
        return _parsed(keyword, Confirm(read_integer(number), text, span_of(number if code is None else code)))

    def unsubscribe_ticket(self, keyword: Token, ticket: Token) -> Parsed:
        return _parsed(keyword, Unsubscribe(ticket=read_exact(ticket, "a ticket"), span=span_of(ticket)))

    def unsubscribe_number(self, keyword: Token, number: Token) -> Parsed:
        return _parsed(keyword, Unsubscribe(read_integer(number), span=span_of(number)))

    def unsubscribe_feed(self, keyword: Token, feed: Name, kind: str | None, target: Token | None) -> Parsed:
        return _parsed(keyword, Unsubscribe(feed=feed, kind=kind, target=_target(target), span=span_of(keyword)))

    def drop(self, keyword: Token, name: Name, cascade: Token | None) -> Parsed:
        return _parsed(keyword, Drop(name, cascade is not None))

    def pause_feed(self, keyword: Token, feed: Name) -> Parsed:
        return _parsed(keyword, Pause(keyword.type == "PAUSE", feed=feed, span=feed.span))

    def pause_subscription(self, keyword: Token, number: Token) -> Parsed:
        return _parsed(
            keyword, Pause(keyword.type == "PAUSE", subscription=read_integer(number), span=span_of(number))
        )

    def show_all(self, keyword: Token, what: Token) -> Parsed:
        lists = OneOf["feeds", "subscriptions", "quarantine", "operators", "prefixes"]
        return _parsed(keyword, Show(cast(lists, what.lower())))

    def show_letters(self, keyword: Token, dead: Token) -> Parsed:
        return _parsed(keyword, Show("dead letters"))

    def show_feed(self, keyword: Token, name: Name) -> Parsed:
        return _parsed(keyword, Show("feed", name))

    def explain(self, keyword: Token, name: Name) -> Parsed:
        return _parsed(keyword, Explain(name))

    def explain_message(self, keyword: Token, key: Token) -> Parsed:
        return _parsed(keyword, ExplainMessage(read_exact(key, "a message's key"), span_of(key)))

    def why(self, keyword: Token, item: Token, feed: Name) -> Parsed:
        return _parsed(keyword, Why(read_item_id(item), feed))

    def preview_query(self, keyword: Token, query: Parsed, back: Duration | None) -> Parsed:
        return _parsed(keyword, Preview(query=cast(CreateFeed, query.statement), back=back and back.length))

    def preview_feed(self, keyword: Token, feed: Name, back: Duration | None) -> Parsed:
        return _parsed(keyword, Preview(feed=feed, back=back and back.length))

    def tags(self, *names: Name) -> tuple[str, ...]:
        return read_tags(names)

    def tag(self, word: Name | Token) -> Name:
        return Name(read_exact(word, "a tag"), span_of(word)) if isinstance(word, Token) else word

    # The `from` clause.

    def source(self, *terms: Term) -> tuple[Term, ...]:
        return terms

    def feed_term(self, feed: Name, variable: Token | None) -> Term:
        return FeedTerm(feed, None if variable is None else read_variable(variable))

    def all_term(self, keyword: Token, tags: tuple[str, ...] | None, variable: Token | None) -> Term:
        return AllTerm(tags or (), None if variable is None else read_variable(variable), span_of(keyword))

    def group_term(self, terms: tuple[Term, ...], variable: Token | None) -> Term:
        return GroupTerm(terms, None if variable is None else read_variable(variable))

    def distinct(self, by: tuple[Attribute, ...] | None, window: Duration | None) -> DistinctText:
        return DistinctText(by or (ID,), DEFAULT_WINDOW if window is None else read_window(window))

    def keys(self, *attributes: Located) -> tuple[Attribute, ...]:
        return read_keys(attributes)

    # Conditions.

    def any_of(self, *parts: Built) -> Expression:
        return disjunction([unscoped(part, "or") for part in parts])

    def all_of(self, *parts: Built) -> Built:
        if not any(isinstance(part, Conjuncts) for part in parts):
            return conjunction([cast(Expression, part) for part in parts])
        scoped: list[Condition] = []
        plain: list[Expression] = []
        for part in parts:
            if isinstance(part, Conjuncts):
                scoped.extend(part.scoped)
                plain.extend(part.plain)
            else:
                plain.append(part)
        return Conjuncts(tuple(scoped), tuple(plain))

    def negate(self, part: Built) -> Expression:
        return negation(unscoped(part, "not"))

    def scoped(self, variable: Token, condition: Built) -> Built:
        name = read_variable(variable)
        if isinstance(condition, Conjuncts):
            inner = condition.scoped[0].variable
            raise InvalidConditionError(
                "a condition on a variable cannot hold another one",
                span=inner.span if inner else name.span,
                hint="join them with and: $a[…] and $b[…]",
            )
        return Conjuncts((Condition(name, condition),))

    def always(self) -> Expression:
        return TRUE

    def never(self) -> Expression:
        return FALSE

    def comparison(self, located: Located, operator: Token, literal: Literal) -> Expression:
        if operator in ("!=", "<>"):
            return Not(Compare(located.attribute, "=", fitting_exactly(located, literal)))
        constant = (fitting_exactly if operator == "=" else fitting)(located, literal)
        return Compare(located.attribute, cast(AtomRelation, str(operator)), constant)

    def exists(self, located: Located) -> Expression:
        return Exists(located.attribute)

    def missing(self, located: Located) -> Expression:
        return Not(Exists(located.attribute))

    def plain_atom(self, located: Located, atom: AtomOf) -> Expression:
        return atom(located)

    def negated_atom(self, located: Located, atom: AtomOf) -> Expression:
        return negation(atom(located))

    def contains(self, token: Token, language: Token | None) -> AtomOf:
        return lambda located: build_contains(located, token, language)

    def contains_several(self, word: Token, tokens: Tokens, language: Token | None) -> AtomOf:
        combine = conjunction if word.type == "ALL" else disjunction
        return lambda located: combine([build_contains(located, token, language) for token in tokens])

    def contains_pattern(self, token: Token) -> AtomOf:
        return lambda located: build_pattern(located, token)

    def contains_patterns(self, word: Token, tokens: Tokens) -> AtomOf:
        combine = conjunction if word.type == "ALL" else disjunction
        return lambda located: combine([build_pattern(located, token) for token in tokens])

    def similar(self, token: Token, least: Token | None) -> AtomOf:
        return lambda located: build_similar(located, token, least)

    def matches(self, token: Token) -> AtomOf:
        return lambda located: build_regular_expression(located, token)

    def in_network(self, token: Token) -> AtomOf:
        return lambda located: build_in_network(located, (token,))

    def in_networks(self, tokens: Tokens) -> AtomOf:
        return lambda located: build_in_network(located, tokens)

    def references(self, token: Token) -> AtomOf:
        return lambda located: build_references(located, token)

    def extends(self, token: Token) -> AtomOf:
        return lambda located: build_extends(located, token)

    def shares(self, token: Token) -> AtomOf:
        return lambda located: build_shares(located, (token,))

    def shares_any(self, tokens: Tokens) -> AtomOf:
        return lambda located: build_shares(located, tokens)

    def texts(self, *tokens: Token) -> Tokens:
        return tokens

    def within(self, duration: Duration) -> AtomOf:
        return lambda located: build_within(located, duration)

    def between(self, low: Literal, high: Literal) -> AtomOf:
        return lambda located: build_between(located, low, high)

    def one_of(self, *literals: Literal) -> AtomOf:
        return lambda located: build_one_of(located, literals)

    def attribute(self, name: Token, part: Token | None) -> Located:
        return read_attribute(name, part)

    # Constants, names and durations.

    def number(self, token: Token) -> Literal:
        return Literal(read_number(token), token)

    def ago(self, count: Token, unit: Token) -> Literal:
        return Literal(read_ago(count, unit), count)

    def now(self, token: Token) -> Literal:
        return Literal(NOW, token)

    def text(self, token: Token) -> Literal:
        return Literal(read_text(token), token)

    def date_constant(self, token: Token) -> Literal:
        return Literal(read_date(read_text(token), token), token)

    def true_constant(self, token: Token) -> Literal:
        return Literal(True, token)

    def false_constant(self, token: Token) -> Literal:
        return Literal(False, token)

    def clause(self, word: Token, duration: Duration) -> tuple[Token, Duration]:
        return word, duration

    def duration(self, count: Token, unit: Token) -> Duration:
        return read_duration(count, unit)

    def name(self, token: Token) -> Name:
        return Name(read_name(token), span_of(token))

    def kind(self, token: Token) -> str:
        return token.lower()


def _parsed(keyword: Token, statement: Statement) -> Parsed:
    return Parsed(statement, span_of(keyword))


def _target(token: Token | None) -> str | None:
    return None if token is None else read_exact(token, "a target")
