"""What is wrong with a text, in the words of the person who wrote it.

In: the place where lark's parser stopped, and what it could have gone on with. Out: a SyntaxProblem that says what
was found, what was expected, and, where a habit from elsewhere is recognised, what to write instead.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lark.exceptions import UnexpectedInput, UnexpectedToken

from runnel.algebra.nodes.durations import UNITS
from runnel.algebra.nodes.render import RESERVED
from runnel.errors import Span, StatementSyntaxError
from runnel.language.nearest import nearest
from runnel.language.syntax.graph_blocks import BLOCK

_TOKEN = re.compile(
    rf"""(?P<blank>[\s\ufeff\u200b]+|--[^\n]*)
      | (?P<block>{BLOCK})
      | (?P<text>'[^']*+(?:''[^']*+)*+')
      | (?P<quoted>"[^"]*+(?:""[^"]*+)*+")
      | (?P<word>\w+)
      | (?P<variable>[$?]\w+)
      | (?P<sign><=|>=|<>|!=|==|&&|\|\||/\*|//|.)""",
    re.VERBOSE | re.DOTALL,
)
"""Tokens as a reader sees them, without regard to what the grammar expects."""

_NAMED = {
    "NAME": "a name",
    "QUOTED": "a name",
    "KIND": "a kind of output such as rss",
    "UNIT": "a unit of time such as hours",
    "PART": "a part of a date such as year",
    "LANGUAGE": "a language such as english",
    "AGO_UNIT": "a unit of time such as days",
    "STRING": "a text in single quotes",
    "NUMBER": "a number",
    "INTEGER": "a whole number",
    "VARIABLE": "a variable such as $v",
    "BINDING": "a variable such as ?x",
    "TYPE": "a type such as text",
    "POLICY": "`unknown` or `retry`",
    "TIME_UNIT": "a unit of time such as ms",
    "BUDGET_UNIT": "`calls` or `seconds`",
    "OPERATOR": "a comparison (= != < <= > >=)",
    "FROM_CLAUSE": "`from last`",
    "ALL_OF": "`all feeds`",
    "$END": "the end",
    "_SEMICOLON": "`;`",
    "_PIPE": "`|`",
    "_LPAR": "`(`",
    "_RPAR": "`)`",
    "_LSQB": "`[`",
    "_RSQB": "`]`",
    "_COMMA": "`,`",
    "_DOT": "`.`",
}

_CONSTANT = frozenset({"NUMBER", "STRING", "TRUE_CONSTANT", "FALSE_CONSTANT", "_DATE", "NOW"})
_CONDITION = frozenset(
    [
        "NAME",
        "QUOTED",
        "ITEM",
        "VARIABLE",
        "BINDING",
        "NUMBER",
        "_NOT",
        "_TRUE",
        "_FALSE",
        "_LPAR",
        "GRAPH",
        "OPEN_GRAPH",
    ]
)
_ARGUMENT = frozenset(
    {"NAME", "QUOTED", "ITEM", "BINDING", "NUMBER", "STRING", "TRUE_CONSTANT", "FALSE_CONSTANT", "_DATE"}
)
_SIGN = frozenset({"PLUS", "MINUS", "STAR", "SLASH"})
_STATEMENT = frozenset(
    [
        "CREATE",
        "REGISTER",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "RENEW",
        "ROTATE",
        "REPLAY",
        "SEND",
        "CONFIRM",
        "DROP",
        "PAUSE",
        "RESUME",
        "TAG",
        "UNTAG",
        "SHOW",
        "EXPLAIN",
        "WHY",
        "PREVIEW",
    ]
)
_GROUPS = (
    (_STATEMENT, "a statement"),
    (_CONDITION, "a condition"),
    (_ARGUMENT, "an argument (an attribute, a constant, or a variable such as ?x)"),
    (_CONSTANT, "a constant (a number, 'text', true, false or date '2026-11-15')"),
)

_TYPOGRAPHIC = frozenset("“”„‟‘’‚‛«»‹›`´")
_LATER = frozenset({"join", "tree", "window", "with", "using", "on", "table"})
_SIGNS = {
    "==": "write = once",
    "&&": "write and",
    "||": "write or",
    "!": "write not",
    "&": "write and",
    "/*": "comments begin with --",
    "//": "comments begin with --",
    "#": "comments begin with --",
}
_UNITS = tuple(f"{unit}s" for unit in UNITS)
_LONGEST = 40


class _Place(NamedTuple):
    """Where the parser stopped: the token there as a reader sees it."""

    position: int
    kind: str
    found: str
    expected: frozenset[str]

    @property
    def word(self) -> str:
        return self.found.lower() if self.kind == "word" else ""


def describe_problem(error: UnexpectedInput, text: str) -> StatementSyntaxError:
    """The problem that made lark's parser stop, for a person."""
    expected = frozenset(error.accepts or ()) if isinstance(error, UnexpectedToken) else frozenset[str]()
    position = error.pos_in_stream or 0
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return _describe_end(text, expected)
    seen = _TOKEN.match(text, position)
    found = seen.group() if seen else ""
    place = _Place(position, (seen.lastgroup if seen else None) or "sign", found, expected)
    shown = found.split("\n", 1)[0]
    span = Span(error.line, error.column, error.column + max(1, len(shown)))
    unclosed = _unclosed_quote(place)
    if unclosed:
        return StatementSyntaxError(
            unclosed[0], span=Span(span.line, span.column, span.column + 1), hint=unclosed[1], text=text
        )
    message = f"expected {_list(expected)} but found {_shown(found)}" if expected else f"found {_shown(found)}"
    return StatementSyntaxError(message, span=span, hint=_hint(place, text), text=text)


def _describe_end(text: str, expected: frozenset[str]) -> StatementSyntaxError:
    """The text ended too early: say so after its last token, which comments and blanks are not."""
    end = max((seen.end() for seen in _TOKEN.finditer(text) if seen.lastgroup != "blank"), default=0)
    line, column = _line_and_column(text, end)
    hint = _open_bracket(text, end)
    if hint is None and expected == {"_SEMICOLON"}:
        hint = "every statement of a script ends with ;"
    message = f"expected {_list(expected)} but the text ends here"
    return StatementSyntaxError(message, span=Span(line, column, column + 1), hint=hint, text=text)


def _unclosed_quote(place: _Place) -> tuple[str, str] | None:
    if place.kind == "sign" and place.found == "'":
        return "this text has no closing quote", "close it with '; a quote inside a text is written twice: 'it''s'"
    if place.kind == "sign" and place.found == '"':
        return "this name has no closing quote", 'close it with "; texts are written in single quotes'
    return None


def _hint(place: _Place, text: str) -> str | None:
    """What to write instead: the first habit that is recognised."""
    for find in (_sign_hint, _quotes_hint, _word_hint, _end_hint, _near_hint, _open_hint):
        hint = find(place, text)
        if hint is not None:
            return hint
    return None


def _sign_hint(place: _Place, text: str) -> str | None:
    if place.kind == "block" and "_AND" in place.expected:
        return "is `and` or `or` missing before it?"
    if place.kind == "block":
        return "a graph pattern is a condition of its own: where title contains 'rock' and graph { … }"
    before = text[: place.position].rstrip()[-12:]
    if place.found in _TYPOGRAPHIC:
        return "these are typographic quotes: texts are written in straight single quotes, 'like this'"
    if place.found in "{}":
        return "only graph patterns stand in braces: graph { ?page rdf:type ?kind }"
    if place.found == "=" and before.endswith("="):
        return _SIGNS["=="]
    if place.found == "|" and "_AND" in place.expected:
        return _SIGNS["||"]
    if re.search(r"\bfeed\s+https?$", before, re.IGNORECASE) and place.found == ":":
        return "write the address in single quotes: register feed 'https://…' as Name"
    if place.kind == "sign" and place.found in _SIGNS:
        return _SIGNS[place.found]
    if place.kind == "variable" and place.found[0] == "?" and place.expected >= _CONSTANT:
        return "an attribute is compared with constants; give it to an operator to have it compared with a result"
    if place.found == "-" and "VARIABLE" not in place.expected and before[-1:].isalnum():
        return 'a name with other characters than letters, digits and _ is written in double quotes: "dc-title"'
    return None


def _quotes_hint(place: _Place, text: str) -> str | None:
    if place.kind == "quoted" and "STRING" in place.expected:
        return f"texts are written in single quotes: '{_cut(place.found[1:-1])}'"
    if place.kind == "text" and "QUOTED" in place.expected and "STRING" not in place.expected:
        return f'names are bare words or in double quotes: "{_cut(place.found[1:-1])}"'
    before = text[: place.position].rstrip()
    if place.kind == "sign" and place.found in ":-/" and before[-1:].isalnum() and "OPERATOR" in place.expected:
        return 'a name with other characters than letters, digits and _ is written in double quotes: "dc:title"'
    if place.kind == "word" and not place.found.isascii():
        return 'a name with other characters than letters, digits and _ is written in double quotes: "música"'
    return None


def _word_hint(place: _Place, text: str) -> str | None:
    word = place.word
    if not word:
        return None
    if word == "graph" and "GRAPH" in place.expected:
        return 'a graph pattern stands in braces: graph { ?page rdf:type ?kind }; the attribute is written "graph"'
    infix = "OPERATOR" in place.expected
    if infix and word in ("like", "ilike", "has", "rlike", "regexp"):
        return "to find words write: attribute contains 'word', or contains pattern 'conc*', or matches 'gr[ae]y'"
    if "AGO_UNIT" in place.expected and (unit := nearest(word, _UNITS)):
        return f"did you mean {unit}?"
    if infix and word == "is":
        return "write: attribute exists, or: not attribute exists"
    if infix and word == "equals":
        return "write ="
    if place.expected >= _CONSTANT and word in ("null", "none", "nil"):
        return "a missing attribute has no value: write attribute exists, or not attribute exists"
    if place.expected >= {"BINDING", "STRING"} and "NAME" not in place.expected and word not in RESERVED:
        return (
            f"texts are written in single quotes: '{_cut(place.found)}'; an attribute stands on the left of a "
            "comparison with a constant, or is given to an operator"
        )
    if place.expected & {"STRING"} and word not in RESERVED and "NAME" not in place.expected and word != "as":
        return f"texts are written in single quotes: '{_cut(place.found)}'"
    if word == "apply" and not place.expected & {"NAME", "KIND"}:
        return "apply stands right after the feed: subscribe to Feed apply 'sheet.xsl' output …"
    if word == "distinct" and place.expected & {"_AND", "_OVER"}:
        return "distinct stands before where: from A | B distinct by title within 2 days where …"
    if word in ("unique", "dedupe", "deduplicate", "deduplicated") and "_DISTINCT" in place.expected:
        return "write: distinct by title within 2 days"
    if word in ("on", "using") and "_BY" in place.expected:
        return "write by: distinct by title within 2 days"
    if word in _LATER and not place.expected & {"NAME", "KIND"}:
        return f"{word} is not part of this version's language"
    return None


def _end_hint(place: _Place, text: str) -> str | None:
    """A missing `;`: the word here begins a statement, and one could have ended before."""
    if "_SEMICOLON" in place.expected and place.word.upper() in _STATEMENT:
        return f"is a ; missing before {_cut(place.found)}?"
    return None


def _near_hint(place: _Place, text: str) -> str | None:
    if place.word in ("and", "or", "where") and place.expected >= _CONDITION:
        return f"is a condition missing before {place.word}?"
    if place.word in RESERVED and "NAME" in place.expected:
        return f'{place.word} is a reserved word; a feed or attribute of that name is written "{place.found}"'
    if not place.word:
        return None
    words = {_keyword(one) for one in place.expected if one not in _NAMED}
    found = nearest(place.word, sorted(words))
    return f"did you mean {found}?" if found and found != place.word else None


def _open_hint(place: _Place, text: str) -> str | None:
    """A quote or a bracket that was opened before and not closed where it was meant to be."""
    last = None
    for seen in _TOKEN.finditer(text, 0, place.position):
        if seen.lastgroup != "blank":
            last = seen
    if last is not None and last.lastgroup in ("text", "quoted") and re.search(r"[;\n]", last.group()):
        line, column = _line_and_column(text, last.start())
        return f"the quote at line {line}, column {column} reaches to here: is its closing quote missing?"
    if place.found in (")", "]") and _open_bracket(text, place.position) is None:
        return f"there is no {'(' if place.found == ')' else '['} that this closes"
    closing = place.found == ";" or place.expected <= {"_RPAR", "_RSQB", "_COMMA"}
    return _open_bracket(text, place.position) if closing else None


def _open_bracket(text: str, end: int) -> str | None:
    """The innermost bracket that the statement ending here opened and did not close."""
    opened: list[tuple[str, int]] = []
    for seen in _TOKEN.finditer(text, 0, end):
        match seen.group():
            case ";":
                opened.clear()
            case "(" | "[" as bracket:
                opened.append((bracket, seen.start()))
            case ")" | "]" if opened:
                opened.pop()
    if not opened:
        return None
    line, column = _line_and_column(text, opened[-1][1])
    return f"the {opened[-1][0]} at line {line}, column {column} is not closed"


def _list(expected: frozenset[str]) -> str:
    """What was expected, grouped and named as people write it."""
    left = set(expected)
    found: list[str] = []
    for group, name in _GROUPS:
        if group <= left:
            left -= group
            found.append(name)
    if left & _SIGN:
        left -= _SIGN
        found.append("a calculation (+ - * /)")
    for seldom in ("_DOT", "AGO_UNIT"):
        if len(left) > 1:
            left.discard(seldom)
    if left - {"$END"} or found:
        left.discard("$END")
    # Signs come after words.
    found += sorted({_NAMED.get(one) or f"`{_keyword(one)}`" for one in left}, key=lambda one: (len(one) == 3, one))
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} or {found[-1]}"


def _keyword(terminal: str) -> str:
    return terminal.strip("_").lower().removesuffix("_constant")


def _shown(found: str) -> str:
    if found.isprintable():
        return f"`{_cut(found)}`"
    return _cut(repr(found.split("\n", 1)[0]) if len(found) > 1 else f"the character U+{ord(found):04X}")


def _cut(found: str) -> str:
    # Lone surrogates cannot be written to a terminal or a file, and a message goes to both.
    found = found if len(found) <= _LONGEST else found[:_LONGEST] + "…"
    return found.encode("utf-8", "replace").decode("utf-8")


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    line_start = text.rfind("\n", 0, position) + 1
    return text.count("\n", 0, position) + 1, position - line_start + 1
