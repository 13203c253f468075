"""Which files of a log are merged into larger ones, and when: minutes, then hours, then days.

In: the live files that are not whole days yet, in order. Out: runs of neighbours, each to become one file. What is
accepted or committed goes up three steps at most, however long the log is: a day is never written anew for an hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import Generic, Protocol, TypeVar

HOUR = 3_600_000_000
DAY = 24 * HOUR

FILE_ITEMS = 200_000
FILE_BYTES = 64 << 20
_FILES = 1_000


class Level(IntEnum):
    """How much a file holds: what came at once, some minutes, an hour, or a day."""

    FRESH = 0
    MINUTES = 1
    HOUR = 2
    DAY = 3


class LogFile(Protocol):
    """A file of a log, as its manifest has it."""

    @property
    def level(self) -> int: ...
    @property
    def first_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def began(self) -> int: ...


P = TypeVar("P", bound=LogFile)


@dataclass(frozen=True, slots=True)
class MergeRun(Generic[P]):
    """Neighbouring files that become one file of a level."""

    level: Level
    pieces: tuple[P, ...]

    @property
    def sequences(self) -> tuple[int, int]:
        """The first and the last sequence."""
        return self.pieces[0].first_sequence, self.pieces[-1].last_sequence


def due_runs(pieces: Sequence[P], *, open_from: int, at_least: int) -> Iterator[MergeRun[P]]:
    """The runs to merge now. Hours and days that end at or before `open_from` get nothing more.

    In an hour that goes on, fresh files are merged once there are `at_least` so many. Files with exactly the same
    sequences are layers of one: they count once, and go where the first of them goes.
    """
    for day, of_day in groupby(_layered(pieces), key=lambda layers: layers[0].began // DAY):
        some = list(of_day)
        if (day + 1) * DAY <= open_from:
            yield from _cut(Level.DAY, some)
            continue
        for hour, of_hour in groupby(some, key=lambda layers: layers[0].began // HOUR):
            if (hour + 1) * HOUR <= open_from:
                yield from _cut(Level.HOUR, [layers for layers in of_hour if layers[0].level < Level.HOUR])
                continue
            fresh = [layers for layers in of_hour if layers[0].level == Level.FRESH]
            if len(fresh) >= at_least:
                yield from _cut(Level.MINUTES, fresh)


def _layered(pieces: Sequence[P]) -> Iterator[tuple[P, ...]]:
    """Files in order, those with the same sequences together."""
    for _, layers in groupby(pieces, key=lambda piece: (piece.first_sequence, piece.last_sequence)):
        yield tuple(layers)


def _cut(level: Level, pieces: Sequence[tuple[P, ...]]) -> Iterator[MergeRun[P]]:
    """Runs without gaps that stay within what one file may hold; layers are never parted."""
    run: list[P] = []
    size = 0
    for layers in pieces:
        bytes_of = sum(piece.bytes for piece in layers)
        if run and (
            layers[0].first_sequence != run[-1].last_sequence + 1
            or layers[0].last_sequence - run[0].first_sequence >= FILE_ITEMS
            or size + bytes_of > FILE_BYTES
            or len(run) + len(layers) > _FILES
        ):
            yield MergeRun(level, tuple(run))
            run, size = [], 0
        run += layers
        size += bytes_of
    if run:
        yield MergeRun(level, tuple(run))
