"""Description of syntax errors.

In: the token that the parser could not use, and the tokens that it expected instead. Out: a StatementSyntaxError that
names both, with a hint if the text contains a known mistake, such as syntax of another query language.
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
    NON_ASCII_WORD,
    NUMBER,
    OPEN_BLOCK,
    PARAMETER,
    QUOTED,
    SIGN,
    TEXT,
    TOKEN,
    WORD,
    Script,
)

_NAMES = frozenset({expects.NAME, expects.CONDITION, expects.ARGUMENT})
_TEXTS = frozenset({expects.TEXT, expects.CONSTANT, expects.ARGUMENT})
_NAMES_OR_KINDS = _NAMES | {expects.KIND}
"""Expectations that a name, a text, or any word would satisfy."""

_CONSTANT_WORDS = frozenset({"true", "false", "date", "now"})
_TYPOGRAPHIC = frozenset("“”„‟‘’‚‛«»‹›`´")
_NOT_YET_SUPPORTED = frozenset({"using", "table"})
_JOIN = "from News as $n join last 3 days on Photos with $n[title similar window.title]"
_SIGN_HINTS = {
    "&&": "write and",
    "||": "write or",
    "!": "write not",
    "&": "write and",
    "/*": "comments begin with --",
    "//": "comments begin with --",
    "#": "comments begin with --",
}
_CLOSING_TOKENS = frozenset({")", "]", ";"})
_ENDING_TOKENS = _CLOSING_TOKENS | {"where"}
_UNITS = tuple(f"{unit}s" for unit in UNITS)
_WORD_CHARACTERS = re.compile(r"\w+")
_MAX_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Problem:
    """An unexpected token: its kind, text and offset, and the tokens that were expected instead."""

    script: Script
    start: int
    previous_end: int
    expected: frozenset[str]
    statements: Collection[str]
    """Keywords that begin statements."""
    conditions: Collection[str]
    """Keywords, signs and token kinds that begin conditions."""
    clause_hints: Collection[Callable[[Problem], str | None]]
    """Functions that return a hint if they recognize a mistake in the clause of a gate."""
    kind: str
    found_text: str

    @property
    def word(self) -> str:
        """The token in lower case if it is a word or a number, else an empty string."""
        return self.found_text.lower() if self.kind in (WORD, NON_ASCII_WORD, NUMBER) else ""

    @property
    def before(self) -> str:
        """Up to 12 characters that end with the previous token."""
        return self.script.text[max(0, self.previous_end - 12) : self.previous_end]

    @property
    def missing(self) -> frozenset[str]:
        """The expectations to list. If the token ends a condition or a `from`, list only closing tokens if any."""
        is_ending = self.found_text.lower() in _ENDING_TOKENS
        closing = self.expected & _CLOSING_TOKENS if is_ending else frozenset[str]()
        return closing or self.expected

    def expects(self, *expectations: str) -> bool:
        """Return whether at least one of these was expected."""
        return not self.expected.isdisjoint(expectations)


def describe_problem(
    script: Script,
    start: int,
    previous_end: int,
    expected: frozenset[str],
    statements: Collection[str],
    conditions: Collection[str],
    clause_hints: Collection[Callable[[Problem], str | None]] = (),
) -> StatementSyntaxError:
    """Return the error for the unexpected token at offset `start`. The previous token ends at `previous_end`."""
    match = TOKEN.match(script.text, start)
    kind = (match.lastgroup if match else None) or END
    found_text = match[kind] if match else ""
    if kind == END:
        return _describe_end(script, previous_end, expected)
    word = _WORD_CHARACTERS.match(script.text, start)
    if kind == NUMBER and word is not None and word.end() > start + len(found_text):
        found_text = word[0]  # quote all of `1password`, not only the number 1
    if kind == OPEN_BLOCK:
        kind, found_text = WORD, found_text[: len("graph")]
    if kind == SIGN and found_text in "'\"":
        return _describe_unclosed_quote(script.span(start, start + 1), found_text)
    problem = Problem(script, start, previous_end, expected, statements, conditions, clause_hints, kind, found_text)
    span = script.span(start, start + len(found_text.split("\n", 1)[0]))
    message = f"expected {_join_expected(problem.missing)} but found {_show_token(found_text)}"
    return StatementSyntaxError(message, span=span, hint=_hint(problem))


def _describe_end(script: Script, end: int, expected: frozenset[str]) -> StatementSyntaxError:
    """Return the error for a text that ends too early. It points to the end of the last token."""
    hint = _find_open_bracket(script, end)
    if hint is None and expected == {";"}:
        hint = "in a script of several statements, each one ends with ;"
    return StatementSyntaxError(
        f"expected {_join_expected(expected)} but the text ends here", span=script.span(end, end), hint=hint
    )


def _describe_unclosed_quote(span: Span, quote: str) -> StatementSyntaxError:
    if quote == "'":
        hint = "close it with '; inside a text, write a quote twice: 'it''s'"
        return StatementSyntaxError("this text has no closing quote", span=span, hint=hint)
    hint = 'close it with "; use single quotes for texts'
    return StatementSyntaxError("this name has no closing quote", span=span, hint=hint)


def _hint(problem: Problem) -> str | None:
    """Return the hint of the first check that recognizes the mistake, or None."""
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
        _spelling_hint,
        _unclosed_hint,
    )
    return next((hint for check in checks if (hint := check(problem)) is not None), None)


def _parameter_hint(problem: Problem) -> str | None:
    if problem.kind == PARAMETER:
        return "a parameter can replace a constant of the expected type, but not a name or a keyword"
    return None


def _block_hint(problem: Problem) -> str | None:
    if problem.kind == BLOCK and problem.expects("and"):
        return "is `and` or `or` missing before it?"
    if problem.kind == BLOCK:
        return "a graph pattern is a complete condition: where title contains 'rock' and graph { … }"
    if problem.found_text == "{" or (
        problem.found_text == "}" and (problem.expects(expects.CONDITION) or problem.expects("and"))
    ):
        return "braces enclose only graph patterns: graph { ?page rdf:type ?kind }"
    if problem.word == "graph" and problem.expects(expects.CONDITION):
        return 'write graph patterns in braces: graph { ?page rdf:type ?kind }; write the attribute as "graph"'
    return None


def _sign_hint(problem: Problem) -> str | None:
    sign, before = problem.found_text, problem.before
    if sign in _TYPOGRAPHIC:
        return "replace the typographic quotes by straight single quotes: 'like this'"
    if sign == "=" and before.endswith("="):
        return "write = once"
    if sign == "|" and problem.expects("and"):
        return "write or"
    if sign == ":" and re.search(r"\bfeed\s+https?$", before, re.IGNORECASE):
        return "write the URL in single quotes: register feed 'https://…' as Name"
    if sign in _SIGN_HINTS:
        return _SIGN_HINTS[sign]
    if problem.kind == BINDING and problem.expects(expects.CONSTANT):
        return "attributes can only be compared with constants; to relate one to a variable, pass both to an operator"
    if sign == "-" and not problem.expects(expects.VARIABLE, expects.CONDITION) and before[-1:].isalnum():
        return 'names with characters other than a-z, A-Z, 0-9 and _ need double quotes: "dc-title"'
    return None


def _quotes_hint(problem: Problem) -> str | None:
    found_text = problem.found_text
    if problem.kind == QUOTED and problem.expects(*_TEXTS):
        return f"write texts in single quotes: '{_shorten(found_text[1:-1])}'"
    if problem.kind == TEXT and problem.expects(*_NAMES) and not problem.expects(*_TEXTS):
        return f'write names without quotes or in double quotes: "{_shorten(found_text[1:-1])}"'
    if found_text in (":", "-", "/") and problem.before[-1:].isalnum() and problem.expects(expects.RELATION):
        return 'names with characters other than a-z, A-Z, 0-9 and _ need double quotes: "dc:title"'
    if problem.kind == NON_ASCII_WORD:
        return 'names with characters other than a-z, A-Z, 0-9 and _ need double quotes: "música"'
    return None


def _relation_hint(problem: Problem) -> str | None:
    """Recognize comparisons of other query languages."""
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
    """Recognize words that were written instead of a constant."""
    word = problem.word
    if problem.expects(expects.AGO_UNIT) and (unit := did_you_mean(word, _UNITS)):
        return unit
    if problem.expects(expects.CONSTANT) and word in ("null", "none", "nil"):
        return "there is no null value: write attribute exists, or not attribute exists"
    if not word or word in RESERVED or word == "as" or problem.expects(*_NAMES) or not problem.expects(*_TEXTS):
        return None
    hint = f"write texts in single quotes: '{_shorten(problem.found_text)}'"
    if problem.expects(expects.BINDING):
        hint += "; attributes can only be compared with constants, on the left side, or passed to an operator"
    return hint


def _join_hint(problem: Problem) -> str | None:
    """Recognize joins as SQL writes them, and joins with a missing or misplaced part."""
    match problem.word:
        case "left" | "right" | "full" | "inner" | "outer" | "cross" | "natural" if problem.expects("join"):
            return f"there is one kind of join: {_JOIN}"
        case "join" if problem.expects("where", "and") and not problem.expects("join"):
            return f"write joins right after the from clause, before distinct and where: {_JOIN}"
        case "window" if problem.expects(expects.CONDITION):
            return "in the condition of a join, write window on the right side: title = window.title"
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
        return f"is on missing before {_shorten(problem.found_text)}? write: {_JOIN}"
    if problem.expects("with") and problem.expected <= {"with", "as", "tagged", "feeds"}:
        if problem.found_text in ("|", ","):
            return "several feeds of a window are written in parentheses: join last 3 days on (A | B) with …"
        return f"the condition of a join follows with: {_JOIN}"
    if problem.expects(expects.VARIABLE) and before.endswith("with"):
        return f"with names a variable of the from clause: {_JOIN}"
    if problem.expected == {"["}:
        return "a condition on a variable is written in brackets: $v[title contains 'rock']"
    return None


def _clause_hint(problem: Problem) -> str | None:
    """Recognize clauses in the wrong position, and clauses that this version does not support."""
    match problem.word:
        case "apply" if not problem.expects(*_NAMES_OR_KINDS):
            return "write apply right after the feed: subscribe to Feed apply 'sheet.xsl' output …"
        case word if word in _NOT_YET_SUPPORTED and not problem.expects(*_NAMES_OR_KINDS):
            return f"this version of the language does not support {word}"
    return None


def _missing_hint(problem: Problem) -> str | None:
    """Recognize a missing `;` or condition before the token."""
    if problem.expects(";") and problem.word in problem.statements:
        return f"is a ; missing before {_shorten(problem.found_text)}?"
    if problem.word in ("and", "or", "where") and problem.expects(expects.CONDITION):
        return f"is a condition missing before {problem.word}?"
    return None


def _spelling_hint(problem: Problem) -> str | None:
    """Recognize a reserved word that was used as a name, and misspelled keywords."""
    if problem.word in RESERVED and problem.expects(*_NAMES):
        return f'{problem.word} is a reserved word; to use it as a name, write "{problem.found_text}"'
    words = {word for word in problem.expected if word.isalpha()}
    if problem.expects(expects.STATEMENT):
        words.update(problem.statements)
    if problem.expects(expects.CONDITION):
        words.update(word for word in (*problem.conditions, "not") if word.islower())
    if problem.expects(expects.CONSTANT, expects.ARGUMENT):
        words |= _CONSTANT_WORDS
    keyword = nearest(problem.word, sorted(words))
    return f"did you mean {keyword}?" if keyword and keyword != problem.word else None


def _unclosed_hint(problem: Problem) -> str | None:
    """Recognize a quote or a bracket that was probably closed too late or not at all."""
    script = problem.script
    tokens = deque(_tokens_before(script.text, problem.previous_end), maxlen=1)
    last = tokens.pop() if tokens else None
    if last is not None and last.lastgroup in (TEXT, QUOTED) and re.search(r"[;\n]", last[last.lastgroup]):
        span = script.span(last.start(last.lastgroup), last.end())
        return f"the quote at line {span.line}, column {span.column} ends only here: is its closing quote missing?"
    if problem.found_text in (")", "]") and _find_open_bracket(script, problem.start) is None:
        return f"there is no {'(' if problem.found_text == ')' else '['} that this closes"
    may_close = problem.found_text == ";" or problem.missing <= {")", "]", ","}
    return _find_open_bracket(script, problem.start) if may_close else None


def _find_open_bracket(script: Script, end: int) -> str | None:
    """Return a hint at the innermost bracket that is still open at offset `end`, or None."""
    opened: list[tuple[str, int]] = []
    for token in _tokens_before(script.text, end):
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
    span = script.span(start, start + 1)
    return f"the {bracket} at line {span.line}, column {span.column} is not closed"


def _tokens_before(text: str, end: int) -> Iterator[re.Match[str]]:
    """Return the tokens before an offset."""
    return (match for match in TOKEN.finditer(text, 0, end) if match.lastgroup != END)


def _join_expected(expected: frozenset[str]) -> str:
    """Return the expectations as an English list: those of `FIRST`, then keywords and other names, then signs."""
    rest = set(expected).difference(expects.FIRST)
    names: list[str] = [name for name in expects.FIRST if name in expected]
    for rare in expects.RARE:
        if len(rest) > 1:
            rest.discard(rare)
    names += sorted((_quote_expected(name) for name in rest), key=lambda name: (len(name) == 3, name))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _quote_expected(expected: str) -> str:
    return expected if " " in expected else f"`{expected}`"


def _show_token(text: str) -> str:
    if text.isprintable():
        return f"`{_shorten(text)}`"
    return _shorten(repr(text.split("\n", 1)[0]) if len(text) > 1 else f"the character U+{ord(text):04X}")


def _shorten(text: str) -> str:
    # Replace lone surrogates: they cannot be encoded, and messages are written to terminals and files.
    text = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    return text.encode("utf-8", "replace").decode("utf-8")
