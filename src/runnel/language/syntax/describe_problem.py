"""Syntax errors in the words of the person who wrote the text.

In: the token that the parser could not use, and what it expected there. Out: a StatementSyntaxError that names the
token and the expectations, and a hint where a common mistake or a habit from another language is recognized.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from runnel.algebra.nodes.durations import UNITS
from runnel.algebra.nodes.render import RESERVED
from runnel.errors import Span, StatementSyntaxError
from runnel.language.nearest import did_you_mean, nearest
from runnel.language.syntax import expectations as expects
from runnel.language.syntax.script_tokens import (
    BINDING,
    BLOCK,
    END,
    NUMBER,
    OPEN_BLOCK,
    PARAMETER,
    QUOTED,
    SIGN,
    STRANGE_WORD,
    TEXT,
    TOKEN,
    WORD,
    Script,
)

_NAMES = frozenset({expects.NAME, expects.CONDITION, expects.ARGUMENT})
_TEXTS = frozenset({expects.TEXT, expects.CONSTANT, expects.ARGUMENT})
_NAMES_OR_KINDS = _NAMES | {expects.KIND}
"""What is expected where a name, a text, or any word may stand."""

_CONSTANT_WORDS = frozenset({"true", "false", "date", "now"})
_TYPOGRAPHIC = frozenset("“”„‟‘’‚‛«»‹›`´")
_LATER = frozenset({"tree", "using", "table"})
_JOIN = "from News as $n join last 3 days on Photos with $n[title similar window.title]"
_SIGNS = {
    "&&": "write and",
    "||": "write or",
    "!": "write not",
    "&": "write and",
    "/*": "comments begin with --",
    "//": "comments begin with --",
    "#": "comments begin with --",
}
_CLOSING = frozenset({")", "]", ";"})
_ENDING = _CLOSING | {"where"}
_UNITS = tuple(f"{unit}s" for unit in UNITS)
_RUN = re.compile(r"\w+")
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class Problem:
    """The token that could not be used, where it stands, and what was expected instead."""

    script: Script
    start: int
    previous_end: int
    expected: frozenset[str]
    statements: Collection[str]
    """The words that begin statements."""
    conditions: Collection[str]
    """The words that begin conditions."""
    clause_hints: Collection[Callable[[Problem], str | None]]
    """What the clauses of gates recognize."""
    kind: str
    found: str

    @property
    def word(self) -> str:
        """The token in small letters, if it is a word or a number."""
        return self.found.lower() if self.kind in (WORD, STRANGE_WORD, NUMBER) else ""

    @property
    def before(self) -> str:
        """The last characters before the token."""
        return self.script.text[max(0, self.previous_end - 12) : self.previous_end]

    @property
    def missing(self) -> frozenset[str]:
        """What was expected; before a token that ends a condition or a source, only what closes it."""
        ending = self.expected & _CLOSING if self.found.lower() in _ENDING else frozenset[str]()
        return ending or self.expected

    def expects(self, *others: str) -> bool:
        """Whether one of these was expected."""
        return not self.expected.isdisjoint(others)


def describe_problem(
    script: Script,
    start: int,
    previous_end: int,
    expected: frozenset[str],
    statements: Collection[str],
    conditions: Collection[str],
    clause_hints: Collection[Callable[[Problem], str | None]] = (),
) -> StatementSyntaxError:
    """Why the token at an offset is refused. `previous_end` is where the token before it ends."""
    match = TOKEN.match(script.text, start)
    kind = (match.lastgroup if match else None) or END
    found = match[kind] if match else ""
    if kind == END:
        return _describe_end(script, previous_end, expected)
    if kind == NUMBER and (run := _RUN.match(script.text, start)) and run.end() > start + len(found):
        found = run[0]  # `1password` is no number to the person who wrote it
    if kind == OPEN_BLOCK:
        kind, found = WORD, found[: len("graph")]
    if kind == SIGN and found in "'\"":
        return _describe_unclosed_quote(script.span(start, start + 1), found)
    problem = Problem(script, start, previous_end, expected, statements, conditions, clause_hints, kind, found)
    span = script.span(start, start + len(found.split("\n", 1)[0]))
    message = f"expected {_list(problem.missing)} but found {_shown(found)}"
    return StatementSyntaxError(message, span=span, hint=_hint(problem))


def _describe_end(script: Script, end: int, expected: frozenset[str]) -> StatementSyntaxError:
    """The text ends too early; the error points behind its last token."""
    hint = _open_bracket(script, end)
    if hint is None and expected == {";"}:
        hint = "every statement of a script ends with ;"
    return StatementSyntaxError(
        f"expected {_list(expected)} but the text ends here", span=script.span(end, end), hint=hint
    )


def _describe_unclosed_quote(span: Span, quote: str) -> StatementSyntaxError:
    if quote == "'":
        hint = "close it with '; a quote inside a text is written twice: 'it''s'"
        return StatementSyntaxError("this text has no closing quote", span=span, hint=hint)
    hint = 'close it with "; texts are written in single quotes'
    return StatementSyntaxError("this name has no closing quote", span=span, hint=hint)


def _hint(problem: Problem) -> str | None:
    """What to write instead: the hint of the first check that recognizes the mistake."""
    checks: tuple[Callable[[Problem], str | None], ...] = (
        _parameter_hint,
        _block_hint,
        _sign_hint,
        _quotes_hint,
        _relation_hint,
        _constant_hint,
        *problem.clause_hints,
        _join_hint,
        _clause_hint,
        _missing_hint,
        _near_hint,
        _open_hint,
    )
    return next((hint for check in checks if (hint := check(problem)) is not None), None)


def _parameter_hint(problem: Problem) -> str | None:
    if problem.kind == PARAMETER:
        return "a parameter stands for a value of the type that is expected here, never for a name or a keyword"
    return None


def _block_hint(problem: Problem) -> str | None:
    if problem.kind == BLOCK and problem.expects("and"):
        return "is `and` or `or` missing before it?"
    if problem.kind == BLOCK:
        return "a graph pattern is a condition of its own: where title contains 'rock' and graph { … }"
    if problem.found == "{" or (
        problem.found == "}" and (problem.expects(expects.CONDITION) or problem.expects("and"))
    ):
        return "only graph patterns are written in braces: graph { ?page rdf:type ?kind }"
    if problem.word == "graph" and problem.expects(expects.CONDITION):
        return 'a graph pattern is written in braces: graph { ?page rdf:type ?kind }; the attribute is "graph"'
    return None


def _sign_hint(problem: Problem) -> str | None:
    found, before = problem.found, problem.before
    if found in _TYPOGRAPHIC:
        return "these are typographic quotes: texts are written in straight single quotes, 'like this'"
    if found == "=" and before.endswith("="):
        return "write = once"
    if found == "|" and problem.expects("and"):
        return "write or"
    if found == ":" and re.search(r"\bfeed\s+https?$", before, re.IGNORECASE):
        return "write the address in single quotes: register feed 'https://…' as Name"
    if found in _SIGNS:
        return _SIGNS[found]
    if problem.kind == BINDING and problem.expects(expects.CONSTANT):
        return "an attribute is compared with constants; give it to an operator to have it compared with a result"
    if found == "-" and not problem.expects(expects.VARIABLE, expects.CONDITION) and before[-1:].isalnum():
        return 'a name with other characters than letters, digits and _ is written in double quotes: "dc-title"'
    return None


def _quotes_hint(problem: Problem) -> str | None:
    found = problem.found
    if problem.kind == QUOTED and problem.expects(*_TEXTS):
        return f"texts are written in single quotes: '{_cut(found[1:-1])}'"
    if problem.kind == TEXT and problem.expects(*_NAMES) and not problem.expects(*_TEXTS):
        return f'names are bare words or in double quotes: "{_cut(found[1:-1])}"'
    if found in (":", "-", "/") and problem.before[-1:].isalnum() and problem.expects(expects.RELATION):
        return 'a name with other characters than letters, digits and _ is written in double quotes: "dc:title"'
    if problem.kind == STRANGE_WORD:
        return 'a name with other characters than letters, digits and _ is written in double quotes: "música"'
    return None


def _relation_hint(problem: Problem) -> str | None:
    """Comparisons that other languages have."""
    if not problem.expects(expects.RELATION):
        return None
    match problem.word:
        case "like" | "ilike" | "has" | "rlike" | "regexp":
            return "to find words write: attribute contains 'word', or contains pattern 'conc*', or matches 'gr[ae]y'"
        case "is":
            return "write: attribute exists, or: not attribute exists"
        case "equals":
            return "write ="
    return None


def _constant_hint(problem: Problem) -> str | None:
    """Words where a constant is expected."""
    word = problem.word
    if problem.expects(expects.AGO_UNIT) and (unit := did_you_mean(word, _UNITS)):
        return unit
    if problem.expects(expects.CONSTANT) and word in ("null", "none", "nil"):
        return "a missing attribute has no value: write attribute exists, or not attribute exists"
    if not word or word in RESERVED or word == "as" or problem.expects(*_NAMES) or not problem.expects(*_TEXTS):
        return None
    hint = f"texts are written in single quotes: '{_cut(problem.found)}'"
    if problem.expects(expects.BINDING):
        hint += "; an attribute stands on the left of a comparison with a constant, or is given to an operator"
    return hint


def _join_hint(problem: Problem) -> str | None:
    """Joins as SQL writes them, or with a part missing or in the wrong position."""
    match problem.word:
        case "left" | "right" | "full" | "inner" | "outer" | "cross" | "natural" if problem.expects("join"):
            return f"there is one kind of join: {_JOIN}"
        case "join" if problem.expects("where", "and") and not problem.expects("join"):
            return f"joins stand right after the from clause, before distinct and where: {_JOIN}"
        case "window" if problem.expects(expects.CONDITION):
            return "in the condition of a join, window stands on the right: title = window.title"
        case "window" if not problem.expects(*_NAMES_OR_KINDS - _TEXTS):
            return "window can follow =, !=, <, <=, >, >=, contains, similar, references, extends and shares"
    before = problem.before.lower()
    if problem.expected == {"."} and before.endswith("window"):
        return "name an attribute of the window item: window.title"
    if problem.expects("last") and before.endswith("join"):
        return f"a join needs a window, by time or by number of items: {_JOIN}"
    if problem.expects(expects.INTEGER) and re.search(r"join\s+last$", before):
        return "a window has a number: join last 3 days on …, or join last 100 items on …"
    if problem.expects("items") and problem.expects(expects.UNIT):
        return "a window has a unit: join last 3 days on …, or join last 100 items on …"
    if problem.expected == {"on"}:
        return f"is on missing before {_cut(problem.found)}? write: {_JOIN}"
    if problem.expects("with") and problem.expected <= {"with", "as", "tagged", "feeds"}:
        if problem.found in ("|", ","):
            return "several feeds of a window are written in parentheses: join last 3 days on (A | B) with …"
        return f"the condition of a join follows with: {_JOIN}"
    if problem.expects(expects.VARIABLE) and before.endswith("with"):
        return f"with names a variable of the from clause: {_JOIN}"
    if problem.expected == {"["}:
        return "a condition on a variable is written in brackets: $v[title contains 'rock']"
    return None


def _clause_hint(problem: Problem) -> str | None:
    """Clauses that stand elsewhere, or have another name, or do not exist."""
    match problem.word:
        case "apply" if not problem.expects(*_NAMES_OR_KINDS):
            return "apply stands right after the feed: subscribe to Feed apply 'sheet.xsl' output …"
        case word if word in _LATER and not problem.expects(*_NAMES_OR_KINDS):
            return f"{word} is not part of this version's language"
    return None


def _missing_hint(problem: Problem) -> str | None:
    """Something is missing before the token."""
    if problem.expects(";") and problem.word in problem.statements:
        return f"is a ; missing before {_cut(problem.found)}?"
    if problem.word in ("and", "or", "where") and problem.expects(expects.CONDITION):
        return f"is a condition missing before {problem.word}?"
    return None


def _near_hint(problem: Problem) -> str | None:
    """A reserved word, or a keyword that is spelled wrong."""
    if problem.word in RESERVED and problem.expects(*_NAMES):
        return f'{problem.word} is a reserved word; a feed or attribute of that name is written "{problem.found}"'
    words = {word for word in problem.expected if word.isalpha()}
    if problem.expects(expects.STATEMENT):
        words.update(problem.statements)
    if problem.expects(expects.CONDITION):
        words.update(word for word in (*problem.conditions, "not") if word.islower())
    if problem.expects(expects.CONSTANT, expects.ARGUMENT):
        words |= _CONSTANT_WORDS
    found = nearest(problem.word, sorted(words))
    return f"did you mean {found}?" if found and found != problem.word else None


def _open_hint(problem: Problem) -> str | None:
    """A quote or a bracket that was opened before and not closed where it was meant to be."""
    script = problem.script
    tokens = deque(_tokens(script.text, problem.previous_end), maxlen=1)
    last = tokens.pop() if tokens else None
    if last is not None and last.lastgroup in (TEXT, QUOTED) and re.search(r"[;\n]", last[last.lastgroup]):
        place = script.span(last.start(last.lastgroup), last.end())
        return f"the quote at line {place.line}, column {place.column} reaches to here: is its closing quote missing?"
    if problem.found in (")", "]") and _open_bracket(script, problem.start) is None:
        return f"there is no {'(' if problem.found == ')' else '['} that this closes"
    closing = problem.found == ";" or problem.missing <= {")", "]", ","}
    return _open_bracket(script, problem.start) if closing else None


def _open_bracket(script: Script, end: int) -> str | None:
    """The innermost bracket that the statement that ends here opened and did not close."""
    opened: list[tuple[str, int]] = []
    for token in _tokens(script.text, end):
        match token[SIGN]:
            case ";":
                opened.clear()
            case "(" | "[" as bracket:
                opened.append((bracket, token.start(SIGN)))
            case ")" | "]" if opened:
                opened.pop()
    if not opened:
        return None
    bracket, start = opened[-1]
    place = script.span(start, start + 1)
    return f"the {bracket} at line {place.line}, column {place.column} is not closed"


def _tokens(text: str, end: int) -> Iterator[re.Match[str]]:
    """The tokens before an offset."""
    return (match for match in TOKEN.finditer(text, 0, end) if match.lastgroup != END)


def _list(expected: frozenset[str]) -> str:
    """What was expected, as people write it: first what stands for many tokens, signs last."""
    rest = set(expected).difference(expects.FIRST)
    named: list[str] = [one for one in expects.FIRST if one in expected]
    for seldom in expects.SELDOM:
        if len(rest) > 1:
            rest.discard(seldom)
    named += sorted((_named(one) for one in rest), key=lambda one: (len(one) == 3, one))
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} or {named[-1]}"


def _named(expected: str) -> str:
    return expected if " " in expected else f"`{expected}`"


def _shown(found: str) -> str:
    if found.isprintable():
        return f"`{_cut(found)}`"
    return _cut(repr(found.split("\n", 1)[0]) if len(found) > 1 else f"the character U+{ord(found):04X}")


def _cut(found: str) -> str:
    # Lone surrogates cannot be written to a terminal or a file, and a message goes to both.
    found = found if len(found) <= _LONGEST else found[:_LONGEST] + "…"
    return found.encode("utf-8", "replace").decode("utf-8")
