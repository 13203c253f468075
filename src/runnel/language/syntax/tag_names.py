"""Tags: words by which people gather queries. In: the names after `tagged`. Out: tags as they are kept."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from runnel.errors import StatementSyntaxError
from runnel.language.syntax.statements import Name

MOST_TAGS = 16
LONGEST_TAG = 64
"""Tags that a query may have, and the characters of one."""


def read_tags(names: Sequence[Name]) -> tuple[str, ...]:
    """Tags in their canonical form: folded, ascending, each once.

    >>> read_tags([Name("Sport"), Name("beta"), Name("SPORT")])
    ('beta', 'sport')
    """
    for name in names:
        if len(fold_tag(name.text)) > LONGEST_TAG:
            raise StatementSyntaxError(
                f"a tag has at most {LONGEST_TAG} characters, not {len(fold_tag(name.text))}",
                span=name.span,
                hint="a tag is a short word that several queries share",
            )
    tags = {fold_tag(name.text): name for name in names}
    if len(tags) > MOST_TAGS:
        raise StatementSyntaxError(
            f"a query has at most {MOST_TAGS} tags, not {len(tags)}",
            span=list(tags.values())[MOST_TAGS].span,
            hint="leave some out",
        )
    return tuple(sorted(tags))


def fold_tag(text: str) -> str:
    """A tag as it is kept and compared: without regard to case and to spaces around it.

    >>> fold_tag(" Straße ")
    'strasse'
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()).strip()
