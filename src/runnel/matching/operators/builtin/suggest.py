"""What somebody may have meant: a name that is not known in, words with the nearest known one out."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

_LOOKED_AT = 5000


def suggestion(name: str, known: Collection[str]) -> str:
    """Words to follow an error about a name, empty where nothing is near.

    >>> suggestion("Bronks", ["Bronx", "Queens"]), suggestion("Paris", ["Bronx"])
    ('; did you mean Bronx?', '')
    """
    if len(known) > _LOOKED_AT:
        return ""
    near = get_close_matches(name[:80], known, 1)
    return f"; did you mean {near[0]}?" if near else ""
