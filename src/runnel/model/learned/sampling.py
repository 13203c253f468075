"""Reproducible pseudo-random numbers, so that a replay samples the same items."""

from __future__ import annotations


def scattered(sequence: int) -> int:
    """Return a pseudo-random number that depends only on the sequence, to avoid aliasing with periodic streams."""
    mixed = (sequence + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
    return ((mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 & 0xFFFFFFFFFFFFFFFF) >> 32
