"""Operators for tests that read their results from the items' attributes."""

from __future__ import annotations

import time
from pathlib import Path

from runnel.model.item import Attributes, Value


def mob_pattern(attributes: Attributes) -> list[Value]:
    """Return the number of people that each camera of the item counts."""
    return list(attributes.get("people", ()))


def boats(attributes: Attributes, kind: str) -> list[Value]:
    """Return the number of boats of a kind."""
    return list(attributes.get(f"{kind} boats", ()))


def is_alarming(attributes: Attributes) -> bool:
    """Return whether the item is alarming. Raise an exception for items with the attribute `broken`."""
    if "broken" in attributes:
        raise ValueError("the camera is broken")
    return attributes.get("alarm", (False,))[0] is True


def moody(attributes: Attributes) -> bool:
    """Return True if the file that the item names exists, otherwise raise an exception."""
    if not Path(str(attributes["file"][0])).exists():
        raise ConnectionError("the service is away")
    return True


def endless(attributes: Attributes) -> bool:
    """Never return."""
    while True:
        time.sleep(1)
