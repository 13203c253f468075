"""The words of a graph block. In: the token of a whole block. Out: its words and their spans.

A `graph { … }` block contains triples in the syntax of SPARQL, whose words differ from those of statements:
`'it\\'s'` is a text, `<http://a.example/b--c>` contains no comment, and `;` does not end a statement. Therefore the
grammar treats a block as one token, which this module and `read_graph` split further.
"""

from __future__ import annotations

import re

from runnel.errors import InvalidConditionError, Span, StatementSyntaxError
from runnel.language.syntax.script_tokens import BLANK, Token

_HEX_DIGIT = r"[0-9A-Fa-f]"
_LOCAL_NAME = rf"(?:[\w:]|-(?!-)|%{_HEX_DIGIT}{{2}}|\.++(?=[\w:%]|-(?!-)))*+"
_WORD = re.compile(
    BLANK
    + rf"""(?:
        (?P<variable>\?[A-Za-z_][A-Za-z0-9_]*+)
      | (?P<blank>_:[\w](?:[\w]|-(?!-)|\.++(?=[\w]|-(?!-)))*+)
      | (?P<name>(?:[A-Za-z](?:\w|-(?!-)|\.++(?=[\w-]))*+)?:{_LOCAL_NAME})
      | (?P<iri><(?:[^\x00-\x20<>"{{}}|^`\\]|\\u{_HEX_DIGIT}{{4}}|\\U{_HEX_DIGIT}{{8}})*+>)
      | (?P<text>"(?:[^"\\\n\r]|\\[^\n\r])*+"|'(?:[^'\\\n\r]|\\[^\n\r])*+')
      | (?P<number>[+-]?(?:[0-9]++(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
      | (?P<tag>@[A-Za-z]++(?:-[A-Za-z0-9]++)*+)
      | (?P<word>[^\W\d]\w*+)
      | (?P<sign>\^\^|&&|\|\||(?s:.))
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_RELATION = re.compile(BLANK + r"(<=|>=|<>|!=|=(?!=)|<|>|in\b|not\b(?=" + BLANK + r"in\b))", re.IGNORECASE)
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_OPENING = re.compile(rf"graph{BLANK}\{{", re.IGNORECASE)
_MAX_SHOWN = 40


class BlockReader:
    """Reads a block from left to right. `kind`, `text`, `start` and `end` describe the next word.

    >>> reader = BlockReader(Token("graph { ?x ex:year 2003 }"))
    >>> reader.take(), reader.take(), reader.kind
    ('?x', 'ex:year', 'number')
    """

    def __init__(self, token: Token, *, is_open: bool = False) -> None:
        """Start after the opening brace. If `is_open`, the block has no closing brace, and every hint says so."""
        self._is_open = is_open
        self._text = token.text
        self._line, self._column = token.span.line, token.span.column
        self._is_single_line = "\n" not in self._text
        opening = _OPENING.match(self._text)
        self._brace = opening.end() - 1 if opening else 0
        self._previous_end = 0
        self._read_word(self._brace + 1)
        unstorable = _UNSTORABLE.search(self._text)
        if unstorable:
            raise StatementSyntaxError(
                "a graph pattern cannot contain NUL or lone surrogates",
                span=self.span(unstorable.start(), unstorable.end()),
            )

    def _read_word(self, position: int) -> None:
        match = _WORD.match(self._text, position)
        assert match is not None, "any character matches at least as a sign"  # noqa: S101
        self.kind = match.lastgroup or "end"
        self.start, self.end = match.span(self.kind)
        self.text = self._text[self.start : self.end]

    def take(self) -> str:
        """Return the next word and advance."""
        text = self.text
        self._previous_end = self.end
        self._read_word(self.end)
        return text

    def take_relation(self) -> str | None:
        """Return the comparison after an operand and advance, or return None if there is no comparison.

        The position decides how `<` is read: after `?x`, the text `<5 and ?y>` begins with a comparison, elsewhere
        with an IRI.
        """
        match = _RELATION.match(self._text, self._previous_end)
        if match is None:
            return None
        self._previous_end = match.end()
        self._read_word(match.end())
        return match[1].lower()

    @property
    def word(self) -> str:
        """The next word in lower case if it is a bare word, else an empty text."""
        return self.text.lower() if self.kind == "word" else ""

    def is_call(self) -> bool:
        """Return whether `(` directly follows the next word."""
        return self._text.startswith("(", self.end)

    def is_sign(self, sign: str) -> bool:
        """Return whether the next word is this sign."""
        return self.text == sign and self.kind == "sign"

    @property
    def here(self) -> Span:
        """The span of the next word."""
        return self.span(self.start, self.end)

    def span(self, start: int, end: int) -> Span:
        """Return the span of the characters from `start` to `end` of the block in the whole script."""
        line, column = self._line, self._column
        if self._is_single_line:  # a fast path: most blocks are, and every variable needs a span
            return Span(line, column + start, column + max(end, start + 1))
        line_break = self._text.rfind("\n", 0, start)
        if line_break >= 0:
            line, column = line + self._text.count("\n", 0, start), -line_break
        width = max(1, end - start) if "\n" not in self._text[start:end] else 1
        return Span(line, column + start, column + start + width)

    def expected(self, expectation: str, hint: str | None = None) -> StatementSyntaxError:
        """Return the syntax error for the next word, where `expectation` was expected."""
        if self.kind == "end":
            return StatementSyntaxError(
                f"expected {expectation} but the text ends here", span=self.here, hint=self._unclosed()
            )
        if self.kind == "sign" and self.text in "\"'":
            return StatementSyntaxError(
                "this text has no closing quote on its line",
                span=self.here,
                hint=f"close it with {self.text}; inside it, write a quote as \\{self.text} and a line break as \\n",
            )
        hint = hint or self._usual_mistake()
        if self._is_open:
            hint = self._unclosed()
        return StatementSyntaxError(f"expected {expectation} but found {self.shown()}", span=self.here, hint=hint)

    def unsupported(self, feature: str, hint: str, *, start: int | None = None) -> InvalidConditionError:
        """Return the error for a feature of SPARQL that graph patterns do not support."""
        span = self.here if start is None else self.span(start, self.end)
        return InvalidConditionError(f"not supported in graph {{ … }}: {feature}", span=span, hint=hint)

    def shown(self) -> str:
        """Return the next word, quoted for an error message."""
        if not self.text.isprintable():
            return f"the character U+{ord(self.text[0]):04X}"
        return f"`{self.text if len(self.text) <= _MAX_SHOWN else self.text[:_MAX_SHOWN] + '…'}`"

    def _unclosed(self) -> str:
        span = self.span(self._brace, self._brace + 1)
        return f"the {{ at line {span.line}, column {span.column} is not closed"

    def _usual_mistake(self) -> str | None:
        """Return a hint if the next word is a mistake that users of other languages make."""
        match self.text:
            case "#":
                return "comments begin with --"
            case "$":
                return "variables begin with ?, such as ?x"
            case "<":
                return "write IRIs in angle brackets and without spaces: <http://muse.example/name>"
            case "\\":
                return "names with characters other than letters, digits and _-.:% need a full IRI: <http://…>"
            case _:
                return None
