"""Tags, the labels that group feeds. In: the names after `tagged`. Out: tags in canonical form."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from runnel.errors import StatementSyntaxError
from runnel.language.syntax.statements import Name

MAX_TAGS = 16
"""How many tags a feed can have."""
MAX_TAG_LENGTH = 64
"""How many characters a tag can have."""


def read_tags(names: Sequence[Name]) -> tuple[str, ...]:
    """Return tags in canonical form: case-folded, sorted and without duplicates.

    >>> read_tags([Name("Sport"), Name("beta"), Name("SPORT")])
    ('beta', 'sport')
    """
    for name in names:
        if len(fold_tag(name.text)) > MAX_TAG_LENGTH:
            raise StatementSyntaxError(
                f"a tag can have at most {MAX_TAG_LENGTH} characters, this one has {len(fold_tag(name.text))}",
                span=name.span,
                hint="use a shorter tag",
            )
    tags = {fold_tag(name.text): name for name in names}
    if len(tags) > MAX_TAGS:
        raise StatementSyntaxError(
            f"at most {MAX_TAGS} tags are allowed, this list has {len(tags)}",
            span=list(tags.values())[MAX_TAGS].span,
            hint="remove tags from the list",
        )
    return tuple(sorted(tags))


def fold_tag(text: str) -> str:
    """Return the canonical form of a tag: normalized to NFC, case-folded, without surrounding spaces.

    >>> fold_tag(" Straße ")
    'strasse'
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()).strip()
