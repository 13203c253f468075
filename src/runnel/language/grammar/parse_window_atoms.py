"""`window.x` after a relation. In: the word `window`. Out: an atom of a join's condition."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, cast

from runnel.algebra.nodes.expressions import Expression
from runnel.algebra.nodes.window_atoms import WindowAtom, WindowRelation
from runnel.algebra.values.similarity import DEFAULT_LEAST
from runnel.errors import InvalidConditionError
from runnel.language.grammar.parse_values import parse_attribute
from runnel.language.syntax.literals import LocatedAttribute
from runnel.language.syntax.reader import TokenReader
from runnel.language.syntax.text_conditions import read_similarity, require_text

COMPARISONS: Final = frozenset({"<", "<=", ">", ">="})


def parse_window_atom(tokens: TokenReader, located: LocatedAttribute, relation: str) -> Expression:
    """`window.attribute` after a relation, and for `similar` an optional `at least 0.6`."""
    span = tokens.take_token().span
    if not tokens.is_joined:
        raise InvalidConditionError(
            "window can only be used in the condition of a join",
            span=span,
            hint="write: from News as $n join last 3 days on Photos with $n[title similar window.title]",
        )
    tokens.expect(".")
    other = parse_attribute(tokens)
    if relation not in ("=", *COMPARISONS):
        require_text(located, "text")
        require_text(other, "text")
    least = _parse_least(tokens) if relation == "similar" else None
    return cast(Expression, WindowAtom(cast(WindowRelation, relation), located.attribute, other.attribute, least))


def _parse_least(tokens: TokenReader) -> Fraction:
    if not tokens.take("at"):
        return DEFAULT_LEAST
    tokens.expect("least")
    return read_similarity(tokens.expect_number())
