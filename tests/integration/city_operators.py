"""Operators of a test's city: what cameras see is in the items' attributes."""

from __future__ import annotations

import time
from pathlib import Path

from runnel.model.item import Attributes, Value


def mob_pattern(attributes: Attributes) -> list[Value]:
    """How many people each camera that saw the item counts."""
    return list(attributes.get("people", ()))


def boats(attributes: Attributes, kind: str) -> list[Value]:
    """How many boats of a kind there are."""
    return list(attributes.get(f"{kind} boats", ()))


def is_alarming(attributes: Attributes) -> bool:
    """Whether the item says so; fails where it should not be asked."""
    if "broken" in attributes:
        raise ValueError("the camera is broken")
    return attributes.get("alarm", (False,))[0] is True


def moody(attributes: Attributes) -> bool:
    """Works while the file that the item names is there."""
    if not Path(str(attributes["file"][0])).exists():
        raise ConnectionError("the service is away")
    return True


def endless(attributes: Attributes) -> bool:
    """Never comes to an end."""
    while True:
        time.sleep(1)
