"""The page of the language, from the tables below. A test parses every example, and every mistake is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scripts.reference_statements import STATEMENTS, Entry

from runnel.algebra.graphs.edges import MAX_EDGES, MAX_VARIABLES
from runnel.algebra.nodes.attributes import PARTS
from runnel.algebra.nodes.durations import UNITS
from runnel.algebra.nodes.render import RESERVED
from runnel.algebra.values.stems import languages
from runnel.errors import StatementError
from runnel.language.grammar.parser import parse
from runnel.language.graphs.iri_prefixes import PREDEFINED_PREFIXES
from runnel.language.syntax.nesting import MAX_NESTING
from runnel.model.item import MAX_NAME, MOMENTS


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: a form, what it means, and an example (of a condition, or of a constant)."""

    form: str
    meaning: str
    example: str


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
    Row(
        "graph { … }",
        "the edges can be laid into the item's graph, and the filters hold",
        "graph { ?page rdf:type foaf:Document ; dc:date ?day . filter(?day > '2026') }",
    ),
    Row("true, false", "always, never", "true"),
)

GRAPHS: tuple[Row, ...] = (
    Row(
        "subject label object .", "an edge; the last dot may be missing", "?page dc:title ?title . ?page dc:date ?day"
    ),
    Row("; and ,", "more edges of the same subject, and of the same label", "?x dc:title ?t, 'Rock' ; dc:date ?day"),
    Row("<…>", "an IRI in full", "?page <http://muse.example/year> ?year"),
    Row("name:rest", "an IRI by its prefix", "?page dcterms:subject skos:Concept"),
    Row("a", "as a label: `rdf:type`", "?page a foaf:Document"),
    Row("?x", "a variable: any node or label, the same one wherever it stands", "?one ?label ?other"),
    Row("_:x, []", "a variable that nobody sees outside the block", "?page dc:creator _:x . _:x foaf:knows []"),
    Row("\"…\", '…'", "a text; `\\\"`, `\\'`, `\\n`, `\\u00e9` … inside", '?page dc:title "it\'s \\"Rock\\""'),
    Row(
        "'…'@en, '…'^^type", "a text in a language, or of a type", "?x dc:title 'Chat'@fr ; dc:date '2026'^^xsd:gYear"
    ),
    Row("numbers, true, false", "an integer, a decimal or a double; a truth", "?x schema:price 2, 2.5, 2e3, true"),
    Row(
        "filter(…)",
        "comparisons with `and`, `or`, `not` (`&&`, `\\|\\|`, `!(…)`)",
        "?x dc:date ?d . filter(?d != '2026')",
    ),
    Row(
        "?x in (…)", "one of some terms; also `not in`", "?x a ?kind . filter(?kind not in (foaf:Agent, foaf:Group))"
    ),
    Row(
        "prefix name: <…>", "what a name stands for in this block", "prefix ex: <http://muse.example/> ?x ex:year ?y"
    ),
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
    "create feed Pages from News where graph { ?page dc:date ?day . filter(?dya > '2026') };",
    "create feed Pages from News where graph { ?page dc:date ?day . optional { ?page dc:title ?t } };",
    "create feed Pages from News where graph { ?page dc:creator/foaf:name 'Ann' };",
    "create feed Pages from News where graph { 2003 dc:date ?page };",
    "create feed Pages from News where graph { ?page dc:title 'it''s' };",
    "create feed Pages from News where graph { ?page dc:title ?t ;",
    "register prefix ex as 'terms#';",
    "register operator near(place string) from 'distance';",
    "register operator near from 'distance' cost 40 ms cost 3 ms;",
)

EBNF = Path(__file__).with_name("language.ebnf").read_text(encoding="utf-8")
"""The grammar. A test derives statements from it and compares its words with those that the parser knows."""

SHOWN_MISTAKES = 6
"""The number of mistakes, from the first, that the page shows. The others are only tested."""


def language_reference() -> str:
    """The whole page.

    >>> language_reference().splitlines()[0]
    '# The language'
    """
    sections = (
        "# The language",
        "A script is a sequence of statements, each of which ends with `;`. Keywords are not case-sensitive. A "
        "comment begins with `--` and ends with its line. A name is a word of letters, digits and `_`, or any text "
        f'of up to {MAX_NAME} characters in double quotes (`"dc:creator"`). '
        f"Parentheses may be nested {MAX_NESTING} levels deep.",
        "[Semantics on one page](../start/semantics.md) says what conditions mean, and [Conditions](conditions.md) "
        "describes each of them.",
        "## Statements",
        *map(_statement, STATEMENTS),
        "## Conditions",
        "Conditions combine atoms with `and`, `or`, `not` and parentheses. `not` binds more tightly than `and`, and "
        "`and` more tightly than `or`. `a` is an attribute, `c` a constant.",
        _table("atom", ATOMS),
        f"The parts of a date are {_words(PARTS)}, in UTC; weekdays count from Monday = 1 to Sunday = 7. A text that "
        f"is compared with {_words(sorted(MOMENTS))} is read as a date.",
        'An attribute that is named `item` is written `"item"`. The languages of `stemmed in` are '
        f"{_words(list(languages()))}.",
        "## Operators in conditions",
        "`q` is a quantity: a variable, a constant, or numbers and variables with `+`, `-`, `*`, `/` and "
        "parentheses. A variable is a result of an operator in the same condition.",
        _table("condition", OPERATORS),
        "## Graph patterns",
        "`graph { … }` is a condition on the RDF graph of an item. Edges are written like triples in SPARQL, and "
        f"terms are compared by SPARQL's rules. A block has at most {MAX_EDGES} edges and {MAX_VARIABLES} "
        "variables. Its variables are shared with the rest of the condition: two blocks that share a variable refer "
        "to the same node. [Graph patterns](graph-patterns.md) has the details.",
        _table("in a block", GRAPHS),
        f"The prefixes {_words(list(PREDEFINED_PREFIXES))} are predefined; `register prefix` adds more.",
        "## Constants",
        _table("constant", CONSTANTS),
        'In Python a constant may be a parameter: `engine.execute("… where title contains :word", word=text)`, and '
        "`runnel.compile` likewise. A parameter stands for a text, a number, a truth value, a day or an instant, or "
        "for a list with its parentheses: `category in :names`. It never stands for a name or a keyword, and `:word` "
        "inside a text or a graph pattern is no parameter.",
        "## Durations",
        f"A whole number and a unit: {_words([f'{unit}s' for unit in UNITS])}, also in the singular. A month is 30 "
        "days, a year 365. At least one second, at most 100 years.",
        "## Grammar",
        "In EBNF: `?` is at most one, `*` any number, `+` at least one. `WORD` is a word, `QUOTED` a name in double "
        "quotes, `TEXT` a text in single quotes, `NUMBER` a number with or without a sign, `INTEGER` digits alone, "
        "`UNIT` a unit of a duration, `VARIABLE` a word after `$`, `BINDING` a word after `?`, and `GRAPH` a whole "
        "block `graph { … }`. A `WORD` that is a name must not be reserved.",
        _block(EBNF.rstrip()),
        "## Reserved words",
        f"A feed or attribute with one of these names is written in double quotes: {_words(sorted(RESERVED))}.",
        "## Errors",
        "A refused statement is shown with the position and, if there is one, a hint.",
        *map(_mistake, MISTAKES[:SHOWN_MISTAKES]),
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
    parts = [f"### {entry.title}", _block(entry.syntax), entry.meaning, "Example:", _block(entry.example)]
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
