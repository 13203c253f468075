"""Suggest a similar name for error messages about unknown names."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

_MAX_NAMES = 5000


def suggestion(name: str, known: Collection[str]) -> str:
    """Return the end of an error message with the most similar known name, or an empty text if none is similar.

    >>> suggestion("Bronks", ["Bronx", "Queens"]), suggestion("Paris", ["Bronx"])
    ('; did you mean Bronx?', '')
    """
    if len(known) > _MAX_NAMES:
        return ""
    near = get_close_matches(name[:80], known, 1)
    return f"; did you mean {near[0]}?" if near else ""
