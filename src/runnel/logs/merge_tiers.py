"""Choose the files of a log to merge into larger ones that cover minutes, then hours, then days.

In: the live files that do not yet cover a whole day, in order. Out: runs of neighboring files, each to become one
file. Each item or match is rewritten at most three times, however long the log is: a day is never rewritten to add an
hour.
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
    """The range of a file: one commit, some minutes, an hour, or a day."""

    FRESH = 0
    MINUTES = 1
    HOUR = 2
    DAY = 3


class LogFile(Protocol):
    """A file of a log, as listed in its manifest."""

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
    """Neighboring files that become one file of a level."""

    level: Level
    files: tuple[P, ...]

    @property
    def sequences(self) -> tuple[int, int]:
        """The first and the last sequence."""
        return self.files[0].first_sequence, self.files[-1].last_sequence


def due_runs(files: Sequence[P], *, open_from: int, at_least: int) -> Iterator[MergeRun[P]]:
    """Yield the runs to merge now. Hours and days that end at or before `open_from` are complete.

    In an hour that is not complete, fresh files are merged once there are `at_least` of them. Files with exactly the
    same sequences are layers of one file: they count once and stay together.
    """
    for day, of_day in groupby(_layered(files), key=lambda layers: layers[0].began // DAY):
        files_of_day = list(of_day)
        if (day + 1) * DAY <= open_from:
            yield from _cut(Level.DAY, files_of_day)
            continue
        for hour, of_hour in groupby(files_of_day, key=lambda layers: layers[0].began // HOUR):
            if (hour + 1) * HOUR <= open_from:
                yield from _cut(Level.HOUR, [layers for layers in of_hour if layers[0].level < Level.HOUR])
                continue
            unmerged = [layers for layers in of_hour if layers[0].level == Level.FRESH]
            if len(unmerged) >= at_least:
                yield from _cut(Level.MINUTES, unmerged)


def _layered(files: Sequence[P]) -> Iterator[tuple[P, ...]]:
    """Yield the files in order, grouped by their sequences."""
    for _, layers in groupby(files, key=lambda file: (file.first_sequence, file.last_sequence)):
        yield tuple(layers)


def _cut(level: Level, files: Sequence[tuple[P, ...]]) -> Iterator[MergeRun[P]]:
    """Yield runs without gaps that fit into one file. Layers are never separated."""
    run: list[P] = []
    size = 0
    for layers in files:
        bytes_of = sum(file.bytes for file in layers)
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
