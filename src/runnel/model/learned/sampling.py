"""Chance that can be repeated: the same for the same number, so that a replay sees what was seen before."""

from __future__ import annotations


def scattered(sequence: int) -> int:
    """A number that looks like chance but is always the same for a sequence: streams have rhythms of their own."""
    mixed = (sequence + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    return ((mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 & 0xFFFFFFFFFFFFFFFF) >> 32
