"""The text of a graph pattern, word by word. In: the token of a whole block. Out: its words, and places in it.

`graph { … }` is written as SPARQL writes triples, another language with words of its own: `'it\\'s'` is a text there,
`<http://a.example/b--c>` holds no comment, and `;` ends no statement. So the grammar takes a block, up to the brace
that closes it, for one token, which is read here and in `read_graph`.
"""

from __future__ import annotations

import re

from runnel.errors import InvalidConditionError, Span, StatementSyntaxError
from runnel.language.syntax.script_tokens import BLANK, Token

_CODE = r"[0-9A-Fa-f]"
_LOCAL = rf"(?:[\w:]|-(?!-)|%{_CODE}{{2}}|\.++(?=[\w:%]|-(?!-)))*+"
_WORD = re.compile(
    BLANK
    + rf"""(?:
        (?P<variable>\?[A-Za-z_][A-Za-z0-9_]*+)
      | (?P<blank>_:[\w](?:[\w]|-(?!-)|\.++(?=[\w]|-(?!-)))*+)
      | (?P<name>(?:[A-Za-z](?:\w|-(?!-)|\.++(?=[\w-]))*+)?:{_LOCAL})
      | (?P<iri><(?:[^\x00-\x20<>"{{}}|^`\\]|\\u{_CODE}{{4}}|\\U{_CODE}{{8}})*+>)
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
_LONGEST = 40


class BlockReader:
    """Reads a block from left to right: `kind` and `text` are those of the next word, which begins at `start`.

    >>> reader = BlockReader(Token("graph { ?x ex:year 2003 }"))
    >>> reader.take(), reader.take(), reader.kind
    ('?x', 'ex:year', 'number')
    """

    def __init__(self, token: Token, *, is_open: bool = False) -> None:
        """`is_open` says that the block is never closed: then every error says so."""
        self._is_open = is_open
        self._whole = token.text
        place = token.span
        self._first, self._column = place.line, place.column
        self._is_flat = "\n" not in self._whole
        opening = _OPENING.match(self._whole)
        self._opened = opening.end() - 1 if opening else 0
        self._before = 0
        self._read(self._opened + 1)
        unstorable = _UNSTORABLE.search(self._whole)
        if unstorable:
            raise StatementSyntaxError(
                "a graph pattern cannot hold NUL characters or lone surrogates",
                span=self.span(unstorable.start(), unstorable.end()),
            )

    def _read(self, position: int) -> None:
        found = _WORD.match(self._whole, position)
        assert found is not None, "every character is a sign at least"  # noqa: S101
        self.kind = found.lastgroup or "end"
        self.start, self.end = found.span(self.kind)
        self.text = self._whole[self.start : self.end]

    def take(self) -> str:
        """The next word; the one after it is next then."""
        text = self.text
        self._before = self.end
        self._read(self.end)
        return text

    def take_relation(self) -> str | None:
        """As `take`, where a comparison may stand; None, and nothing taken, where it does not.

        Behind `?x` the text `<5 and ?y>` begins with a comparison, elsewhere it could begin with an IRI.
        """
        found = _RELATION.match(self._whole, self._before)
        if found is None:
            return None
        self._before = found.end()
        self._read(found.end())
        return found[1].lower()

    @property
    def word(self) -> str:
        """The next word in small letters, if it is one and no name, sign or constant."""
        return self.text.lower() if self.kind == "word" else ""

    def is_call(self) -> bool:
        """Whether a parenthesis stands right behind the next word."""
        return self._whole.startswith("(", self.end)

    def is_sign(self, sign: str) -> bool:
        """Whether a sign is next."""
        return self.text == sign and self.kind == "sign"

    @property
    def here(self) -> Span:
        """The place of the next word."""
        return self.span(self.start, self.end)

    def span(self, start: int, end: int) -> Span:
        """The place of some characters of the block in the whole text."""
        first, column = self._first, self._column
        if self._is_flat:  # most are, and every variable has its place
            return Span(first, column + start, column + max(end, start + 1))
        before = self._whole.rfind("\n", 0, start)
        if before >= 0:
            first, column = first + self._whole.count("\n", 0, start), -before
        width = max(1, end - start) if "\n" not in self._whole[start:end] else 1
        return Span(first, column + start, column + start + width)

    def expected(self, what: str, hint: str | None = None) -> StatementSyntaxError:
        """The refusal of what is next, where something else should be."""
        if self.kind == "end":
            return StatementSyntaxError(
                f"expected {what} but the text ends here", span=self.here, hint=self._unclosed()
            )
        if self.kind == "sign" and self.text in "\"'":
            return StatementSyntaxError(
                "this text has no closing quote on its line",
                span=self.here,
                hint=f"close it with {self.text}; inside it \\{self.text} is a quote and \\n a new line",
            )
        hint = hint or self._habit()
        if self._is_open:
            hint = self._unclosed()
        return StatementSyntaxError(f"expected {what} but found {self.shown()}", span=self.here, hint=hint)

    def unsupported(self, what: str, hint: str, *, start: int | None = None) -> InvalidConditionError:
        """The refusal of what SPARQL has and graph patterns have not."""
        place = self.here if start is None else self.span(start, self.end)
        return InvalidConditionError(f"not supported in graph {{ … }}: {what}", span=place, hint=hint)

    def shown(self) -> str:
        """The next word, for a message."""
        if not self.text.isprintable():
            return f"the character U+{ord(self.text[0]):04X}"
        return f"`{self.text if len(self.text) <= _LONGEST else self.text[:_LONGEST] + '…'}`"

    def _unclosed(self) -> str:
        place = self.span(self._opened, self._opened + 1)
        return f"the {{ at line {place.line}, column {place.column} is not closed"

    def _habit(self) -> str | None:
        """What to write instead, where a habit from elsewhere is recognised."""
        match self.text:
            case "#":
                return "comments begin with --"
            case "$":
                return "variables are written ?x"
            case "<":
                return "an IRI is written in angle brackets, without blanks: <http://muse.example/name>"
            case "\\":
                return "a name with other characters than letters, digits and _-.:% is written in full: <http://…>"
            case _:
                return None
