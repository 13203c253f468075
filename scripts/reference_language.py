"""The reference of the language, as Markdown. In: the tables below. Out: a page whose examples were all parsed.

A test parses every example and refuses every mistake, so the page cannot describe a language that is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scripts.reference_statements import STATEMENTS, Entry

from runnel.algebra.graphs.edges import MOST_EDGES, MOST_VARIABLES
from runnel.algebra.nodes.attributes import PARTS
from runnel.algebra.nodes.durations import UNITS
from runnel.algebra.nodes.render import RESERVED
from runnel.algebra.values.stems import languages
from runnel.errors import StatementError
from runnel.language.grammar.parser import parse
from runnel.language.graphs.iri_prefixes import KNOWN_PREFIXES
from runnel.language.printing import print_script
from runnel.language.syntax.nesting import DEEPEST
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

_SEMANTICS = """\
- Logic has two values: an atom on a missing attribute is false, and `not` is the complement. So `price != 3` holds
  for an item without a price; write `price exists and price != 3` to leave such items out.
- An attribute may have several values. An atom holds if any value satisfies it.
- Values of two types stand in no relation: `price < 20` is false for the text `'15'`.
- `$v[condition]` filters the items that come through the term that `$v` names, and no others. `or` and `not` stand
  inside the brackets. A condition without a variable applies to the whole `from`.
- An item that reaches a feed by several ways is there once; any accepting way suffices.
- A graph pattern holds if its edges can be laid into the item's graph in some way: two variables may stand for one
  node. A filter that cannot compare two terms, such as a text and a number, says neither yes nor no: it does not
  hold.
- `not` binds more tightly than `and`, `and` more tightly than `or`; parentheses change that.
- Variables of operators (`?x`) are shared within one condition: it holds if some values satisfy all of it. Under
  `not` they are local, and a feed that reads another sees none of its variables.
- An operator that fails says nothing: what depends on it is unknown, and an item for which that is so is no match.
- Words are compared without regard to case; punctuation separates them, even an apostrophe: `contains 'openai'` finds
  "OpenAI's". Only *n't* stays in its word. Texts compared with `=` must be equal letter
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
        "## Graph patterns",
        "`graph { … }` is a condition on the RDF graph that an item carries. Inside the braces edges are written as "
        "SPARQL writes triples, and terms are compared by SPARQL's rules. "
        f"A block has at most {MOST_EDGES} edges and {MOST_VARIABLES} variables. "
        "Its variables are shared with what stands beside it, as those of operators are; "
        "two blocks that share a variable speak of the same node.",
        _table("in a block", GRAPHS),
        f"Known from the start are the prefixes {_words(list(KNOWN_PREFIXES))}; `register prefix` adds more.",
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
        "`UNIT` a unit of a duration, `VARIABLE` a word behind `$` and `BINDING` a word behind `?`. `GRAPH` is a "
        "whole block `graph { … }`, described above. A name that is a `WORD` is not reserved. Elsewhere a `WORD` is "
        "a kind of output, a language, a type, a short unit of time, or a part of a date.",
        _block(EBNF.rstrip()),
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
