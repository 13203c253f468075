"""Operators for runners that are killed: one that always works, and one whose service is sometimes unavailable."""

from __future__ import annotations

from pathlib import Path

from runnel.model.item import Attributes, Value


def loudness(attributes: Attributes) -> list[Value]:
    """Return the volume of an item."""
    return list(attributes["volume"])


def is_moody(attributes: Attributes) -> bool:
    """Return the answer of `moody` when its service is available."""
    return int(_volume(attributes)) % 2 == 0


def moody(attributes: Attributes, switch: str) -> bool:
    """Answer like `is_moody`, but fail for every third item while the file `switch` does not exist."""
    if int(_volume(attributes)) % 3 == 0 and not Path(switch).exists():
        raise ConnectionError("the service is away")
    return is_moody(attributes)


def _volume(attributes: Attributes) -> float:
    volume = attributes["volume"][0]
    if not isinstance(volume, float | int):
        raise TypeError("the volume is no number")
    return volume
