"""Generate the page of the language, from the tables below.

Tests parse every example, and check that mistakes are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scripts.reference_statements import STATEMENTS, Entry

from runnel.algebra.graphs.edges import MAX_EDGES, MAX_VARIABLES
from runnel.algebra.nodes.attributes import PARTS
from runnel.algebra.nodes.durations import UNITS
from runnel.algebra.nodes.render import RESERVED
from runnel.algebra.trees import steps as tree_steps
from runnel.algebra.trees.steps import MAX_STEPS
from runnel.algebra.values.stems import languages
from runnel.errors import StatementError
from runnel.language.grammar.parser import parse
from runnel.language.graphs.iri_prefixes import PREDEFINED_PREFIXES
from runnel.language.syntax.nesting import MAX_NESTING
from runnel.model.item import MAX_NAME, MOMENTS


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: a form, its meaning, and an example of a condition or constant."""

    form: str
    meaning: str
    example: str


ATOMS: tuple[Row, ...] = (
    Row(
        "a contains 'words'",
        "a text contains the words next to each other, ignoring case",
        "title contains 'rock band'",
    ),
    Row(
        "a contains all ('…', …)",
        "the values contain each of the phrases",
        "title contains all ('rock', 'new album')",
    ),
    Row(
        "a contains any ('…', …)", "a text contains at least one of the phrases", "title contains any ('rock', 'pop')"
    ),
    Row(
        "a contains pattern '…'",
        "a text contains words that match: `*` is any number of letters, `?` one letter, a `*` on its own any word",
        "title contains pattern 'conc* h?ll'",
    ),
    Row(
        "a contains '…' stemmed in language",
        "a text contains words with the same stems next to each other",
        "title contains 'running shoes' stemmed in english",
    ),
    Row(
        "a similar to 'text' [at least n]",
        "the share of distinct words that are in both texts is at least n (default 0.5)",
        "title similar to 'rock am ring' at least 0.6",
    ),
    Row("a matches '…'", "the regular expression (RE2) matches a part of a text", "title matches '(?i)gr[ae]y'"),
    Row("a = c", "a value equals the constant", "category = 'rock'"),
    Row("a != c, a <> c", "no value equals the constant; equivalent to not a = c", "category != 'rock'"),
    Row("a < c, <=, >, >=", "a value of the constant's type is less than it, and so on", "price <= 20"),
    Row("a between c and d", "a value lies between the two constants, inclusive", "price between 10 and 20"),
    Row("a in (c, …)", "a value equals one of the constants", "category in ('rock', 'pop')"),
    Row(
        "a within last duration",
        "a point in time is at most this long before the item's acceptance, and not after it",
        "published within last 2 days",
    ),
    Row(
        "a in network '…'",
        "a text is an IP address in the network, or in one of several networks in parentheses",
        "client in network ('10.0.0.0/8', '2001:db8::/32')",
    ),
    Row(
        "a references '…'",
        "a link points to this host or one of its subdomains, or equals this URL",
        "link references 'muse.example'",
    ),
    Row("a extends 'URL'", "a link equals the URL or is below its path", "link extends 'https://muse.example/news'"),
    Row(
        "a shares 'URL'",
        "a link equals the URL, or one of several URLs in parentheses",
        "content shares ('https://muse.example/tour', 'https://muse.example/album')",
    ),
    Row("a exists", "the attribute has a value", "author exists"),
    Row(
        "a not …",
        "the complement of any atom above, except those with a comparison sign",
        "title not contains 'canceled'",
    ),
    Row("a.part …", "a part of a date, which is a number", "published.weekday in (6, 7)"),
    Row("item …", "refers to all values of all attributes", "item contains 'rock'"),
    Row(
        "graph { … }",
        "the edges can be mapped into the item's graph, and the filters are true",
        "graph { ?page rdf:type foaf:Document ; dc:date ?day . filter(?day > '2026') }",
    ),
    Row(
        "tree …",
        "a tree of the item has nodes that satisfy the pattern",
        "tree //news[//company = 'ACME'][/author!val]//headline!cont",
    ),
    Row("true, false", "always true, always false", "true"),
)

GRAPHS: tuple[Row, ...] = (
    Row("subject label object .", "an edge; the last dot is optional", "?page dc:title ?title . ?page dc:date ?day"),
    Row(";", "another edge of the same subject", "?x dc:title ?t ; dc:date ?day"),
    Row(",", "another edge of the same subject and label", "?x dc:title ?t, 'Rock'"),
    Row("<…>", "an IRI in full", "?page <http://muse.example/year> ?year"),
    Row("name:rest", "an IRI by its prefix", "?page dcterms:subject skos:Concept"),
    Row("a", "as a label: `rdf:type`", "?page a foaf:Document"),
    Row("?x", "a variable: any node or label, the same wherever it occurs", "?x ?label ?y"),
    Row("_:x, []", "a variable that is not visible outside the block", "?page dc:creator _:x . _:x foaf:knows []"),
    Row("\"…\", '…'", "a text; `\\\"`, `\\'`, `\\n`, `\\u00e9` … inside", '?page dc:title "it\'s \\"Rock\\""'),
    Row(
        "'…'@en, '…'^^type", "a text in a language, or of a type", "?x dc:title 'Chat'@fr ; dc:date '2026'^^xsd:gYear"
    ),
    Row("numbers, true, false", "an integer, a decimal, a double or a boolean", "?x schema:price 2, 2.5, 2e3, true"),
    Row(
        "filter(…)",
        "comparisons with `and`, `or`, `not` (`&&`, `\\|\\|`, `!(…)`)",
        "?x dc:date ?d . filter(?d != '2026')",
    ),
    Row(
        "?x in (…)", "one of these terms; also `not in`", "?x a ?kind . filter(?kind not in (foaf:Agent, foaf:Group))"
    ),
    Row("prefix name: <…>", "defines a prefix for this block", "prefix ex: <http://muse.example/> ?x ex:year ?y"),
)

TREES: tuple[Row, ...] = (
    Row("/name", "a child with this name; at the beginning, the root", "/news/author"),
    Row("//name", "a node with this name at any depth below", "//author"),
    Row("/@name", "an attribute of an element", "//a/@href"),
    Row("*, @*", "any element, any attribute", "/*/@*"),
    Row("prefix:name", "a name in the namespace of a registered prefix", "//dc:creator"),
    Row('"…"', "a name with other characters; a namespace in braces", '//"first name"/"{urn:x}title"'),
    Row("[…]", "a condition on the node: paths with `and`, `or`, `not`", "//news[/author and not (/draft or /old)]"),
    Row("[path = c]", "a node of the path has this value; also `!= < <= > >=`", "//line[/qty > 5 and /sku != 'A']"),
    Row("[. = c]", "the node itself has this value", "//company[. = 'ACME']"),
    Row("between, in", "a range, a list; also with `not`", "//line[/qty between 2 and 5][/sku in ('A', 'B')]"),
    Row("contains, matches", "words, a regular expression", "//p[. contains 'rock' or . matches '^Re:']"),
    Row("!val", "binds the text or number of the node to a variable with its name", "//news/author!val"),
    Row("!cont", "binds the canonical XML or JSON of the node", "//news!cont"),
    Row("!id", "binds the position of the node, such as /1/3/2", "//news!id"),
    Row("as ?x", "names the variable of a mark", "//line[/qty!val as ?n > 5]/@id!val as ?line"),
)

OPERATORS: tuple[Row, ...] = (
    Row(
        "name(argument, …)",
        "the operator is true for the item; an argument is a constant, an attribute or a variable",
        "stockOf(symbol, 'XETRA', ?price)",
    ),
    Row("?x < q, <=, >, >=", "a result is less than the quantity, and so on", "?price < 2 * ?average"),
    Row("?x = q, ?x != q, ?x <> q", "a result equals the quantity, or differs from it", "?name = 'Bronx'"),
    Row("?x between q and r", "inclusive; also not between", "?metres between 100 and 1000"),
    Row("?x in (q, …)", "a result equals one of the quantities; also not in", "?code in ('en', 'fr')"),
)

CONSTANTS: tuple[Row, ...] = (
    Row("text", "in single quotes; a quote inside is written twice", "'it''s'"),
    Row("number", "a double", "-1.5e3"),
    Row("truth value", "true or false", "true"),
    Row("day", "a whole day in UTC", "date '2026-11-15'"),
    Row("instant", "a point in time; in UTC if no time zone is given", "date '2026-11-15T09:30:00+01:00'"),
    Row("… ago", "this long before the item's acceptance; not allowed with `=`, `!=` and `in`", "2 days ago"),
    Row("now", "the time of the item's acceptance", "now"),
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
    "create feed Acme from News where tree //news[company = 'ACME'];",
    "create feed Acme from News where tree //news/company = 'ACME';",
    "create feed Acme from News where tree //news[1];",
    "create feed Acme from News where tree //news/author/text();",
    "create feed Acme from News where tree //news[/author!val or /draft];",
    "register prefix ex as 'terms#';",
    "register operator near(place string) from 'distance';",
    "register operator near from 'distance' cost 40 ms cost 3 ms;",
)

EBNF = Path(__file__).with_name("language.ebnf").read_text(encoding="utf-8")
"""The grammar. A test derives statements from it and compares its words with those that the parser knows."""

SHOWN_MISTAKES = 6
"""The number of mistakes, from the first, that the page shows. The others are only tested."""


def language_reference() -> str:
    """Return the page.

    >>> language_reference().splitlines()[0]
    '# The language'
    """
    sections = (
        "# The language",
        "A script is a sequence of statements, each of which ends with `;`. In a script of one statement, it is "
        "optional. Keywords are not case-sensitive. A comment begins with `--` and extends to the end of the line. A "
        "name is a word of letters, digits and `_`, or any text "
        f'of up to {MAX_NAME} characters in double quotes (`"dc:creator"`). '
        f"Parentheses may be nested {MAX_NESTING} levels deep.",
        "[Semantics on one page](../start/semantics.md) summarizes the meaning of conditions, and "
        "[Conditions](conditions.md) defines it.",
        "## Statements",
        *map(_statement, STATEMENTS),
        "## Conditions",
        "Conditions combine atoms with `and`, `or`, `not` and parentheses. `not` binds more tightly than `and`, and "
        "`and` more tightly than `or`. `a` is an attribute, `c` a constant.",
        _table("atom", ATOMS),
        f"The parts of a date are {_words(PARTS)}, in UTC; weekdays count from Monday = 1 to Sunday = 7. A text that "
        f"is compared with {' or '.join(f'`{name}`' for name in sorted(MOMENTS))} is read as a date.",
        'An attribute that is named `item` is written `"item"`. The languages of `stemmed in` are '
        f"{_words(list(languages()))}.",
        "## Operators in conditions",
        "`q` is a quantity: a variable, a constant, or numbers and variables with `+`, `-`, `*`, `/` and "
        "parentheses. A variable is a result of an operator, or a variable of a graph block, in the same condition.",
        _table("condition", OPERATORS),
        "## Graph patterns",
        "`graph { … }` is a condition on the RDF graph of an item. Edges are written like triples in SPARQL, and "
        f"terms are compared by SPARQL's rules. A block has at most {MAX_EDGES} edges and {MAX_VARIABLES} "
        "variables. Its variables are shared with the rest of the condition: two blocks that share a variable refer "
        "to the same node. [Graph patterns](graph-patterns.md) has the details.",
        _table("in a block", GRAPHS),
        f"The prefixes {_words(list(PREDEFINED_PREFIXES))} are predefined; `register prefix` adds more.",
        "## Tree patterns",
        "`tree …` is a condition on the XML or JSON documents of an item, the values of the attribute `tree`. It is "
        "a path of steps with conditions in brackets, as in XPath. A name without a prefix has any namespace. In "
        "JSON, "
        "the root is named `json`, members are its children by key, and each element of an array has the name of the "
        "array. White space around texts does not count. `!=` means that no node has the value. Steps under `or` and "
        "`not` have no marks. Patterns that share a variable hold in the same document, with equal values. A "
        f"pattern has at most {MAX_STEPS} steps and {tree_steps.MAX_VARIABLES} variables. "
        "[Match XML and JSON](../guides/match-xml-and-json.md) has examples.",
        _table("after `tree`", TREES),
        "## Constants",
        _table("constant", CONSTANTS),
        'In Python a constant may be a parameter: `engine.execute("… where title contains :word", word=text)`, and '
        "`runnel.compile` likewise. A parameter stands for a text, a number, a truth value, a day or an instant, or "
        "for a list with its parentheses: `category in :names`. It never stands for a name or a keyword, and `:word` "
        "inside a text or a graph pattern is not a parameter.",
        "## Durations",
        f"A duration is a whole number and a unit: {_words([f'{unit}s' for unit in UNITS])}, also in the singular. A "
        "month is 30 days, a year 365. A duration is at least one second and at most 100 years.",
        "## Grammar",
        "The grammar is in EBNF: `?` means at most one, `*` any number, `+` at least one. `WORD` is a word, "
        "`QUOTED` a name in double "
        "quotes, `TEXT` a text in single quotes, `NUMBER` a number with or without a sign, `INTEGER` digits alone, "
        "`UNIT` a unit of a duration, `VARIABLE` a word after `$`, `BINDING` a word after `?`, `GRAPH` a whole "
        "block `graph { … }`, and `TREE` a tree pattern. A `WORD` that is a name must not be reserved.",
        _block(EBNF.rstrip()),
        "## Reserved words",
        f"A feed or attribute with one of these names is written in double quotes: {_words(sorted(RESERVED))}.",
        "## Errors",
        "The error for a refused statement shows its position and often a hint.",
        *map(_mistake, MISTAKES[:SHOWN_MISTAKES]),
    )
    return "\n\n".join(sections) + "\n"


def refusal(text: str) -> str:
    """Return the error for a text that is refused, as a terminal shows it."""
    try:
        parse(text)
    except StatementError as error:
        return error.render()
    raise ValueError(f"the text is not refused: {text}")


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
