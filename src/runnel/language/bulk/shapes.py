"""Many statements at once: statements of one shape are parsed once, and only their words, texts and numbers differ.

In: a script. Out: the statements that the parser would give, places included; or None where the parser should read
the script itself, as it does for everything unusual and for every error.

A shape is the sequence of a statement's lexemes, each replaced by the set of the grammar's terminals that it could
be. Which of these it is the parser decides by what stands before, so all statements of one shape have one syntax
tree; and so have all of one outline (see `outlines`) but for their conditions. The grammar stays the only definition:
terminals, trees and callbacks are those of the parser.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from threading import Lock

from lark import Lark
from lark.exceptions import UnexpectedInput

from runnel.algebra.nodes.render import RESERVED
from runnel.errors import StatementError
from runnel.language.bulk.outlines import Memos, Outlines
from runnel.language.bulk.positions import Positions
from runnel.language.bulk.recipes import RecipeLearner, StatementRecipe
from runnel.language.grammar.token_checks import TokenChecks, TokenRecorder
from runnel.language.syntax.conditions import DEEPEST
from runnel.language.syntax.graph_blocks import BLOCK, BRACES
from runnel.language.syntax.statements import Parsed
from runnel.model.item import MAX_NAME

_STATEMENT = re.compile(rf"""[^;'"{{-]*+(?:(?:'[^']*+'|"[^"]*+"|--[^\n]*+|-|{BRACES})[^;'"{{-]*+)*+;""")
"""A statement up to its `;`. One inside quotes, in a comment or in braces ends nothing."""

_LEXEME = re.compile(
    rf"""{BLOCK}
      | [A-Za-z_]\w*+
      | '[^']*+(?:''[^']*+)*+'
      | [;|()\[\],]
      | "[^"]*+(?:""[^"]*+)*+"
      | [$?]\w*+
      | --[^\n]*+
      | [+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?
      | <=|>=|<>|!=|=|<|>
      | [^\s\ufeff\u200b]""",
    re.VERBOSE,
)
"""Cuts where the grammar's terminals do. When a shape is first met, the cuts are compared with the parser's own."""

_COMMENT = "--"
_KEPT = 10_000
_LEXEMES_KEPT = 500_000
_ALLOWANCE = 300
"""New shapes in one script before it is asked whether they come again."""

_EXEMPLARS = {"word": "a", "'": "''", '"': '""', "$": "$a", "?": "?a"}
"""A lexeme of each sort that comes in endless number; the others of its sort are nearly always of the same class."""


class _UnusualError(Exception):
    """Something that only the parser itself can judge."""


class _Known:
    """What was learned: recipes by outline, or by shape where an outline does not do."""

    def __init__(self) -> None:
        self.outlines = Outlines()
        self.recipes: dict[str, StatementRecipe] = {}
        self.exact: dict[str, StatementRecipe] = {}

    def __len__(self) -> int:
        return len(self.outlines) + len(self.recipes) + len(self.exact)


class Shapes:
    """The shapes that were met, each with the recipe for its statements. Safe to share between threads."""

    def __init__(self, make_parser: Callable[[TokenChecks], Lark]) -> None:
        """`make_parser` gives a parser of the grammar that makes syntax trees, and notes positions in them."""
        self._recorder = TokenRecorder()
        self._parser = make_parser(self._recorder)
        self._terminals = _Terminals(self._parser)
        self._opening = self._terminals.class_of("(")
        self._known = _Known()
        self._learning = Lock()

    def parse(self, text: str) -> list[Parsed] | None:
        """The statements of a script, or None where the plain parser should read it."""
        found: list[Parsed] = []
        reading = _Reading(self._terminals, Positions(text), self._known)
        end = 0
        try:
            # Where none is found it is in a comment at the end, or in something unusual: the last line tells.
            while match := _STATEMENT.match(text, end):
                found.append(self._statement(match[0], end, reading))
                end = match.end()
                if reading.learned > _ALLOWANCE + len(found) // 2:
                    return None  # every statement has a shape of its own: nothing is gained
        except (UnexpectedInput, StatementError, _UnusualError):
            return None
        return found if all(map(_is_comment, _LEXEME.findall(text, end))) else None

    def _statement(self, statement: str, start: int, reading: _Reading) -> Parsed:
        lexemes = _LEXEME.findall(statement)
        if _COMMENT in statement:
            lexemes = [lexeme for lexeme in lexemes if not _is_comment(lexeme)]
        shape = "".join(map(reading.classes.__getitem__, lexemes))
        outline, values, widths = reading.known.outlines.outline(shape, lexemes, reading.memos)
        recipe = reading.known.recipes.get(outline)
        if recipe is None or shape in reading.known.exact:
            recipe = reading.known.exact.get(shape)
            if recipe is None:
                reading.learned += 1
                recipe = self._learn(statement, shape, lexemes, reading)
                outline, values, widths = reading.known.outlines.outline(shape, lexemes, reading.memos)
            if shape in reading.known.exact:
                values, widths = [], []
        elif shape.count(self._opening) > DEEPEST:
            raise _UnusualError  # what stands for a mark may be nested itself
        numbers = [plain + sum(widths[:marks]) for plain, marks, _ in recipe.placed]
        places = _places(statement, max(numbers, default=-1) + 1)
        token = reading.positions.token
        tokens = [
            token(kind, lexemes[number], start + places[number])
            for number, (_, _, kind) in zip(numbers, recipe.placed, strict=True)
        ]
        return recipe.build(values, tokens)  # type: ignore[no-any-return]

    def _learn(self, statement: str, shape: str, lexemes: list[str], reading: _Reading) -> StatementRecipe:
        """Parse a statement whose outline is new, and keep how its parts became what they are."""
        with self._learning:
            tree = self._parser.parse(statement)
            seen = self._recorder.seen
            starts = _places(statement, len(lexemes))
            if [token.start_pos for token in seen] != starts or [str(token) for token in seen] != lexemes:
                raise _UnusualError  # the parser cuts this text elsewhere
            ends = [start + len(lexeme) for start, lexeme in zip(starts, lexemes, strict=True)]
            teacher = RecipeLearner(tree.children[0], shape, starts, ends)
            learned = teacher.teach()
            if len(self._known) >= _KEPT and self._known is reading.known:
                reading.known = self._known = _Known()
            known = reading.known
            known.outlines.add(dict(learned.atoms), dict(learned.groups))
            outline, _, widths = known.outlines.outline(shape, lexemes, reading.memos)
            if (outline, widths) == (learned.outline, learned.widths):
                return known.recipes.setdefault(outline, learned.recipe)
            return known.exact.setdefault(shape, teacher.teach_exactly())


def _is_comment(lexeme: str) -> bool:
    return lexeme.startswith(_COMMENT)


def _places(statement: str, count: int) -> list[int]:
    """Where the first so many lexemes begin."""
    found = _LEXEME.finditer(statement)
    if _COMMENT in statement:
        return [match.start() for match in islice((one for one in found if not _is_comment(one[0])), count)]
    return [match.start() for match in islice(found, count)]


class _Terminals:
    """The grammar's terminals: which of them a lexeme could be."""

    def __init__(self, parser: Lark) -> None:
        left_out = {*parser.ignore_tokens, "UNKNOWN"}
        self._all = {one.name: one.pattern.to_regexp() for one in parser.terminals if one.name not in left_out}
        self._patterns = {name: re.compile(pattern) for name, pattern in self._all.items()}
        self._classes: dict[frozenset[str], str] = {}
        self._graph = self._letter("graph {}")
        self._sorts = {sort: self._sort(exemplar) for sort, exemplar in _EXEMPLARS.items()}

    def class_of(self, lexeme: str) -> str:
        """One character for the set of terminals that a lexeme could be."""
        begin = lexeme[0]
        if begin in "gG" and "{" in lexeme:
            return self._graph  # no word holds a brace
        sort = self._sorts.get(begin) or (self._sorts["word"] if begin.isalpha() or begin == "_" else None)
        if sort is not None and sort.has(lexeme):
            return sort.letter
        return self._letter(lexeme)

    def _letter(self, lexeme: str) -> str:
        possible = {name for name, pattern in self._patterns.items() if pattern.fullmatch(lexeme)}
        if not possible or ("NAME" in possible and len(lexeme) > MAX_NAME):
            raise _UnusualError
        if lexeme.lower() in RESERVED:
            possible.add("RESERVED")
        return self._classes.setdefault(frozenset(possible), chr(len(self._classes) + 33))

    def _sort(self, exemplar: str) -> _Sort:
        fitting = {pattern for name, pattern in self._all.items() if self._patterns[name].fullmatch(exemplar)}
        others = {pattern for pattern in self._all.values() if pattern not in fitting}
        return _Sort(
            self._letter(exemplar),
            tuple(re.compile(pattern) for pattern in sorted(fitting)),
            re.compile("|".join(f"(?:{pattern})" for pattern in sorted(others))),
            is_word=exemplar == _EXEMPLARS["word"],
        )


@dataclass(frozen=True, slots=True)
class _Sort:
    """Lexemes of the class of one exemplar: what fits it fits them, and nothing else does."""

    letter: str
    fitting: tuple[re.Pattern[str], ...]
    others: re.Pattern[str]
    is_word: bool

    def has(self, lexeme: str) -> bool:
        """Whether the lexeme is certainly of this class."""
        return (
            all(pattern.fullmatch(lexeme) for pattern in self.fitting)
            and not self.others.fullmatch(lexeme)
            and not (self.is_word and (len(lexeme) > MAX_NAME or lexeme.lower() in RESERVED))
        )


class _Classes(dict[str, str]):
    """The classes of the lexemes of one script: words and texts come again and again."""

    def __init__(self, terminals: _Terminals) -> None:
        super().__init__()
        self._terminals = terminals

    def __missing__(self, lexeme: str) -> str:
        if len(self) >= _LEXEMES_KEPT:
            self.clear()
        found = self[lexeme] = self._terminals.class_of(lexeme)
        return found


class _Reading:
    """One script that is being read."""

    def __init__(self, terminals: _Terminals, positions: Positions, known: _Known) -> None:
        self.classes = _Classes(terminals)
        self.memos: Memos = defaultdict(dict)
        self.positions = positions
        self.known = known
        self.learned = 0
