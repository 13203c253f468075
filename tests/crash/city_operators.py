"""Operators for runners that are killed: one that always answers, and one whose service goes away."""

from __future__ import annotations

from pathlib import Path

from runnel.model.item import Attributes, Value


def loudness(attributes: Attributes) -> list[Value]:
    """How loud an item is."""
    return list(attributes["volume"])


def is_moody(attributes: Attributes) -> bool:
    """What `moody` says once it is asked at a good time."""
    return int(_volume(attributes)) % 2 == 0


def moody(attributes: Attributes, switch: str) -> bool:
    """The same, but of every third item it knows nothing while the file `switch` is not there."""
    if int(_volume(attributes)) % 3 == 0 and not Path(switch).exists():
        raise ConnectionError("the service is away")
    return is_moody(attributes)


def _volume(attributes: Attributes) -> float:
    volume = attributes["volume"][0]
    if not isinstance(volume, float | int):
        raise TypeError("the volume is no number")
    return volume
