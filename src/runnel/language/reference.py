"""The reference of the language, as Markdown. In: the tables below. Out: a page whose examples were all parsed.

A test parses every example and refuses every mistake, so the page cannot describe a language that is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from runnel.algebra.attributes import PARTS
from runnel.algebra.durations import UNITS
from runnel.algebra.render import RESERVED
from runnel.algebra.stems import languages
from runnel.errors import StatementError
from runnel.language.conditions import DEEPEST
from runnel.language.parser import parse
from runnel.language.printing import print_script
from runnel.model.item import MAX_NAME, MOMENTS


@dataclass(frozen=True, slots=True)
class Entry:
    """A statement of the language: how it is written, what it does, and an example that parses."""

    title: str
    syntax: str
    meaning: str
    example: str


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: a form, what it means, and an example (of a condition, or of a constant)."""

    form: str
    meaning: str
    example: str


STATEMENTS: tuple[Entry, ...] = (
    Entry(
        "register feed",
        "register feed 'path or URL' as Name [every duration];\nregister feed Name;",
        "Declares a source feed. With an address its items are read from there; without one they come by `publish`. "
        "`every` says how often an address on the web is asked.",
        "register feed 'https://muse.example/rss' as MuseNews every 10 minutes;\nregister feed Friends;",
    ),
    Entry(
        "register feed … apply",
        "register feed Feed apply 'stylesheet' as Name;",
        "Declares a materialised feed: a source feed whose items a stylesheet makes from those of another feed. The "
        "stylesheet is a file in the root's folder `sheets`, taken as it is at this moment.",
        "register feed MusePhotos apply 'IncludePhotos.xsl' as MuseWithPhotos;",
    ),
    Entry(
        "register operator",
        "register operator Name [( parameter [, parameter]… )] from 'source' [option]…;\n\n"
        "parameter: name text|number|int|boolean|date | name attribute | ?name text|number|int|boolean|date\n"
        "option: release 'text' | cost number us|ms|seconds | pure | impure | reading attribute [, attribute]…\n"
        "  | batch number | limit number us|ms|seconds | concurrency number\n"
        "  | budget number calls per minute | budget number seconds per minute\n"
        "  | on error unknown | on error retry [for duration] | with ( key 'value' [, key 'value']… )",
        "Declares an operator: a predicate backed by code, which conditions call. The source is the name of an "
        "installed operator, or `module:function` of a module that the setting `operator_modules` allows. A "
        "parameter is a constant, an `attribute` of the item, or with `?` a result. Without parameters the operator "
        "has those that its code names. Options stand in any order, each once. A name that is there already is "
        "replaced: the "
        "queries that use it use the new one. Only the installation itself registers operators, nobody with a token. "
        "[Write an operator](../how-to/write-an-operator.md) says what the options mean.",
        "register operator mobPattern(?people int) from 'city.vision:mob_pattern' cost 40 ms;\n"
        "register operator near(place text, ?metres number) from 'distance' on error retry for 6 hours\n"
        "  with (places 'places.geojson');",
    ),
    Entry(
        "create feed",
        "create [or replace] feed Name [tagged tag [, tag]…] from term [| term]… [distinct …] [where conditions];\n\n"
        "term: Feed [as $variable] | ( term [| term]… ) [as $variable]",
        "Declares a virtual feed: the items of all its terms that satisfy the conditions. `|` is a union; a group in "
        "parentheses, or a single feed, may be named by a variable. `or replace` keeps the subscriptions. Tags are "
        "names by which commands select queries; case makes no difference in them.",
        "create feed RockConcerts tagged music, beta from (Friends | Events as $e | Followed) as $r\n"
        "  where $e[title contains 'rock'] and $r[description contains 'concert'];",
    ),
    Entry(
        "create feed … distinct",
        "create feed Name from term [| term]… distinct [by attribute, …] [within duration] [where conditions];",
        "A virtual feed without duplicates: of what the conditions let through, an item is left out if an earlier "
        "one has the same attributes (`by`; the item's id unless given) and was accepted less than the duration "
        "(30 days unless given, at most 366) before. [Duplicates](../explanation/distinct.md) says when items are "
        "the same.",
        "create feed MuseNews from (Wire | Agency | Blog) distinct by title within 2 days\n"
        "  where title contains 'muse';",
    ),
    Entry(
        "subscribe",
        "subscribe to Feed [apply 'stylesheet'] output kind ['target'] [every duration] [for duration] "
        "[from last duration];",
        "Delivers a feed's items: `apply` shapes messages with a stylesheet of the root's folder `sheets`, `every` "
        "collects items to one delivery per period, `for` ends the subscription, `from last` begins in the past "
        "instead of now. The clauses after the target may stand in any order. The answer shows the subscription's "
        "ticket, and a webhook's signing key, this once.",
        "subscribe to RockConcerts output rss 'concerts.rss' every 10 minutes for 30 days from last 7 days;\n"
        "subscribe to RockConcerts apply 'Title.xsl' output mail 'me@mail.example' every 3 hours;",
    ),
    Entry(
        "unsubscribe",
        "unsubscribe number;\nunsubscribe ticket 'ticket';\nunsubscribe from Feed [output kind ['target']];",
        "Ends one subscription by its number, or by its ticket (whoever has it), or all of one's own to a feed that "
        "have this kind and target.",
        "unsubscribe 12;\nunsubscribe ticket 'qL2x…';\nunsubscribe from RockConcerts output rss;",
    ),
    Entry(
        "renew",
        "renew subscription number [for duration];\nrenew ticket 'ticket' [for duration];",
        "Lets a subscription last for this long from now on; without `for`, as long as a new one would.",
        "renew subscription 12 for 30 days;",
    ),
    Entry(
        "rotate key",
        "rotate key of subscription number;",
        "Gives a webhook's subscription a new signing key, shown this once. The old one signs as well for a day.",
        "rotate key of subscription 12;",
    ),
    Entry(
        "drop feed",
        "drop feed Name [cascade];",
        "Removes a feed. Refused while other feeds or subscriptions depend on it, unless `cascade` removes them too.",
        "drop feed RockConcerts cascade;",
    ),
    Entry(
        "drop operator",
        "drop operator Name [cascade];",
        "Removes an operator. Refused while queries use it, unless `cascade` removes them too.",
        "drop operator mobPattern;",
    ),
    Entry(
        "pause and resume",
        "pause feed Name;\nresume feed Name;\npause subscription number;\nresume subscription number;",
        "Stops a feed or a subscription for a while, and lets it go on.",
        "pause feed MuseNews;\nresume subscription 3;",
    ),
    Entry(
        "show",
        "show feeds;\nshow subscriptions;\nshow operators;\nshow quarantine;\nshow dead letters;\nshow feed Name;\n"
        "show operator Name;",
        "Lists what was declared, or what was set aside because it could not be processed, or the messages that no "
        "endpoint took, or shows one feed or operator.",
        "show feeds;\nshow feed RockConcerts;",
    ),
    Entry(
        "explain feed",
        "explain feed Name;",
        "Shows how a feed is computed, what it shares with others, and what it costs.",
        "explain feed RockConcerts;",
    ),
    Entry(
        "explain message",
        "explain message 'key';",
        "Shows what is in a message, and every attempt to deliver it that failed.",
        "explain message '5f3a-12-7';",
    ),
    Entry(
        "replay",
        "replay message 'key';\nreplay subscription number;",
        "Sends a dead letter, or all dead letters of a subscription, again, under the same key.",
        "replay message '5f3a-12-7';\nreplay subscription 12;",
    ),
    Entry(
        "why item",
        "why item 'id' in Feed;",
        "Shows which conditions made an item match, or not match, a feed.",
        "why item 'https://muse.example/1' in RockConcerts;",
    ),
    Entry(
        "preview",
        "preview create feed … [over last duration];\npreview feed Name [over last duration];",
        "Shows what a query would have matched among the stored items. It declares and delivers nothing.",
        "preview create feed Jazz from MuseNews where title contains 'jazz' over last 7 days;",
    ),
)

ATOMS: tuple[Row, ...] = (
    Row(
        "a contains 'words'",
        "the words stand next to each other in the text, in any case",
        "title contains 'rock band'",
    ),
    Row("a contains all ('…', …)", "each of the phrases", "title contains all ('rock', 'new album')"),
    Row("a contains any ('…', …)", "at least one of the phrases", "title contains any ('rock', 'pop')"),
    Row(
        "a contains pattern '…'",
        "words that fit: `*` is any run of letters, `?` one letter, `*` alone any word",
        "title contains pattern 'conc* h?ll'",
    ),
    Row(
        "a contains '…' stemmed in language",
        "words with the same stems",
        "title contains 'running shoes' stemmed in english",
    ),
    Row(
        "a similar to 'text' [at least n]",
        "of all distinct words of both texts, at least this share (0.5 unless given) is in both",
        "title similar to 'rock am ring' at least 0.6",
    ),
    Row("a matches '…'", "the regular expression (RE2) is found in the text", "title matches '(?i)gr[ae]y'"),
    Row("a = c", "a value equals the constant", "category = 'rock'"),
    Row("a != c, a <> c", "no value equals the constant: the same as not a = c", "category != 'rock'"),
    Row("a < c, <=, >, >=", "a value of the constant's type is smaller, …", "price <= 20"),
    Row("a between c and d", "a value lies between the two, both included", "price between 10 and 20"),
    Row("a in (c, …)", "a value equals one of the constants", "category in ('rock', 'pop')"),
    Row(
        "a within last duration",
        "a moment not longer ago than this at the item's acceptance, and not after it",
        "published within last 2 days",
    ),
    Row(
        "a in network '…'",
        "a text is an IP address of the network, or of one of several in parentheses",
        "client in network ('10.0.0.0/8', '2001:db8::/32')",
    ),
    Row(
        "a references '…'",
        "a link in the text leads to the host, or a host below it, or to exactly this URL",
        "link references 'muse.example'",
    ),
    Row("a extends 'URL'", "a link leads to the URL or below its path", "link extends 'https://muse.example/news'"),
    Row(
        "a shares 'URL'",
        "a link is the URL, or one of several in parentheses",
        "content shares ('https://muse.example/tour', 'https://muse.example/album')",
    ),
    Row("a exists", "the attribute has a value", "author exists"),
    Row("a not …", "the complement of any atom above but those with a sign", "title not contains 'cancelled'"),
    Row("a.part …", "a part of a date, a number", "published.weekday in (6, 7)"),
    Row("item …", "any value of any attribute", "item contains 'rock'"),
    Row("true, false", "always, never", "true"),
)

OPERATORS: tuple[Row, ...] = (
    Row(
        "name(argument, …)",
        "the operator holds for the item; an argument is a constant, an attribute or a variable",
        "stockOf(symbol, 'XETRA', ?price)",
    ),
    Row("?x < q, <=, >, >=", "a result is smaller, … than the quantity", "?price < 2 * ?average"),
    Row("?x = q, ?x != q, ?x <> q", "a result equals the quantity, or does not", "?name = 'Bronx'"),
    Row("?x between q and r", "both included; also not between", "?metres between 100 and 1000"),
    Row("?x in (q, …)", "a result equals one of them; also not in", "?code in ('en', 'fr')"),
)

CONSTANTS: tuple[Row, ...] = (
    Row("text", "in single quotes; a quote inside is written twice", "'it''s'"),
    Row("number", "a double", "-1.5e3"),
    Row("truth value", "true or false", "true"),
    Row("day", "a whole day in UTC", "date '2026-11-15'"),
    Row("instant", "in UTC where no zone is given", "date '2026-11-15T09:30:00+01:00'"),
    Row("… ago", "so long before the item's acceptance; not with `=`, `!=` and `in`", "2 days ago"),
    Row("now", "the item's acceptance", "now"),
)

MISTAKES: tuple[str, ...] = (
    "creat feed Rock from News;",
    "create feed Rock from News where title like 'rock';",
    'create feed Rock from News where title contains "rock";',
    "create feed Rock from (News | Events where title contains 'rock';",
    "create feed Rock from News where title contains 'rock;",
    "create feed Rock from News as $n where not $n[title contains 'pop'];",
    "create feed Rock from News where price between 20 and 10;",
    "create feed Rock from News where published.yaer = 2026;",
    "create feed Rock from News where title contains 'rocks' stemmed in englich;",
    "create feed Rock from News where title matches 'rock (and|or pop';",
    "create feed Rock from News where client in network '10.1.2.3/8';",
    "create feed Rock from News where link references 'muse.example/news';",
    "create feed Rock from News where published >= 2 dyas ago;",
    "create feed Rock from News where title contains 'rock' distinct by title;",
    "create feed Rock from News distinct by title within 2 years;",
    "subscribe to Rock output rss 'rock.rss' every 3 horus;",
    "create feed Rock from News\nshow feeds;",
    "create feed Near from News where distance('Liberty', ?x) and 5 > 3;",
    "create feed Near from News where distance('Liberty', ?x) and price < ?x;",
    "register operator near(place string) from 'distance';",
    "register operator near from 'distance' cost 40 ms cost 3 ms;",
)

_SEMANTICS = """\
- Logic has two values: an atom on a missing attribute is false, and `not` is the complement. So `price != 3` holds
  for an item without a price; write `price exists and price != 3` to leave such items out.
- An attribute may have several values. An atom holds if any value satisfies it.
- Values of two types stand in no relation: `price < 20` is false for the text `'15'`.
- `$v[condition]` filters the items that come through the term that `$v` names, and no others. `or` and `not` stand
  inside the brackets. A condition without a variable applies to the whole `from`.
- An item that reaches a feed by several ways is there once; any accepting way suffices.
- `not` binds more tightly than `and`, `and` more tightly than `or`; parentheses change that.
- Variables of operators (`?x`) are shared within one condition: it holds if some values satisfy all of it. Under
  `not` they are local, and a feed that reads another sees none of its variables.
- An operator that fails says nothing: what depends on it is unknown, and an item for which that is so is no match.
- Words are compared without regard to case; punctuation separates them. Texts compared with `=` must be equal letter
  by letter.
- Relative times count from the item's acceptance and never from the clock, so that a replay gives the same answer.
- A day includes all of it: `published <= date '2026-11-15'` holds in that day's evening."""


def language_reference() -> str:
    """The whole page.

    >>> language_reference().splitlines()[0]
    '# The language'
    """
    sections = (
        "# The language",
        "A script is a sequence of statements, each of which ends with `;`. Words of the language may be written in "
        "capitals or not. A comment begins with `--` and ends with its line. A name is a word of letters, digits and "
        f'`_`, or any text of up to {MAX_NAME} characters in double quotes (`"dc:creator"`). Parentheses may be '
        f"nested {DEEPEST} levels deep.",
        "## Statements",
        *map(_statement, STATEMENTS),
        "## Conditions",
        "Conditions are made of atoms with `and`, `or`, `not` and parentheses. `a` is an attribute, `c` a constant.",
        _table("atom", ATOMS),
        f"The parts of a date are {_words(PARTS)}, in UTC; weekdays count from Monday = 1 to Sunday = 7. A text that "
        f"is compared with {_words(sorted(MOMENTS))} is read as a date.",
        'An attribute that is really named `item` is written `"item"`. Languages of `stemmed in` are '
        f"{_words(list(languages()))}. [Conditions](../explanation/conditions.md) says what each condition means.",
        "## Operators in conditions",
        "`q` is a quantity: a variable, a constant, or numbers and variables with `+`, `-`, `*`, `/` and "
        "parentheses. A variable is a result of an operator beside it.",
        _table("condition", OPERATORS),
        "## Constants",
        _table("constant", CONSTANTS),
        "## Durations",
        f"A whole number and a unit: {_words([f'{unit}s' for unit in UNITS])}, also in the singular. A month is 30 "
        "days, a year 365. At least one second, at most 100 years.",
        "## What conditions mean",
        _SEMANTICS,
        "## Reserved words",
        "These are never bare names; a feed or attribute of such a name is written in double quotes: "
        f"{_words(sorted(RESERVED))}.",
        "## Mistakes and what is said about them",
        *map(_mistake, MISTAKES),
    )
    return "\n\n".join(sections) + "\n"


def refusal(text: str) -> str:
    """What is said about a text that is refused, as a terminal shows it."""
    try:
        parse(text)
    except StatementError as error:
        return error.render()
    raise ValueError(f"this is no mistake: {text}")


def _statement(entry: Entry) -> str:
    canonical = print_script(parsed.statement for parsed in parse(entry.example)).rstrip()
    parts = [f"### {entry.title}", _block(entry.syntax), entry.meaning, "Example:", _block(entry.example)]
    if canonical != entry.example:
        parts += ["In canonical form, as it is stored:", _block(canonical)]
    return "\n\n".join(parts)


def _table(title: str, rows: tuple[Row, ...]) -> str:
    lines = [f"| {title} | meaning | example |", "|---|---|---|"]
    lines += [f"| `{row.form}` | {row.meaning} | `{row.example}` |" for row in rows]
    return "\n".join(lines)


def _mistake(text: str) -> str:
    return _block(refusal(text))


def _block(text: str) -> str:
    return f"```\n{text}\n```"


def _words(words: tuple[str, ...] | list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)
