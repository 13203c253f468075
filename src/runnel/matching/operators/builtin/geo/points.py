"""Where an item is: its attributes in, points in degrees out, as JSON lines, GeoRSS and W3C's geo vocabulary say it.

Latitudes from -90 to 90, longitudes from -180 to 180, in WGS 84. A longitude up to 360 is taken to go on eastwards.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from runnel.matching.operators.builtin.configuration import Configuration
from runnel.model.item import Attributes, Value

KEYS = ("latitude", "longitude")
MAX_POINTS = 64
"""Points of one item that are looked at."""

_PAIRS = (("latitude", "longitude"), ("geo:lat", "geo:long"))
_TEXTS = ("georss:point", "gml:pos")
_NUMBER = re.compile(r"[+-]?\d{1,12}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,2})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Point:
    """A place on Earth, in degrees."""

    latitude: float
    longitude: float


@dataclass(frozen=True, slots=True)
class PointReader:
    """Finds the points of items, under the names of attributes that are configured or usual."""

    pairs: tuple[tuple[str, str], ...] = _PAIRS
    texts: tuple[str, ...] = _TEXTS

    @staticmethod
    def of(configuration: Configuration) -> PointReader:
        """Reads the attributes that `latitude` and `longitude` name, or else the usual ones."""
        if not any(map(configuration.has, KEYS)):
            return PointReader()
        names = (configuration.text("latitude"), configuration.text("longitude"))
        return PointReader(pairs=(names,), texts=())

    def points(self, attributes: Attributes) -> list[Point]:
        """The points of an item, each once; those out of range are none.

        >>> PointReader().points({"georss:point": ("40.85 -73.87",), "geo:lat": ("91",), "geo:long": ("0",)})
        [Point(latitude=40.85, longitude=-73.87)]
        """
        found: dict[Point, None] = {}
        for name_of_latitude, name_of_longitude in self.pairs:
            latitudes, longitudes = attributes.get(name_of_latitude, ()), attributes.get(name_of_longitude, ())
            if len(latitudes) != len(longitudes):
                continue  # An item has equal values of an attribute once: which belong together cannot be told.
            for latitude, longitude in zip(latitudes[:MAX_POINTS], longitudes[:MAX_POINTS], strict=True):
                _add(found, number_of(latitude), number_of(longitude))
        for name in self.texts:
            for value in attributes.get(name, ())[:MAX_POINTS]:
                if isinstance(value, str) and (point := point_of(value)) is not None:
                    found[point] = None
        return list(found)[:MAX_POINTS]


def point_of(text: str) -> Point | None:
    """The point of "latitude longitude", with a space or a comma between them.

    >>> point_of("40.6892, -74.0445"), point_of("Liberty")
    (Point(latitude=40.6892, longitude=-74.0445), None)
    """
    parts = text[:100].replace(",", " ").split()
    found: dict[Point, None] = {}
    if len(parts) == 2:
        _add(found, number_of(parts[0]), number_of(parts[1]))
    return next(iter(found), None)


def number_of(value: Value) -> float | None:
    """A number, or the number that a text is.

    >>> number_of(40.5), number_of(" 40.5 "), number_of("north"), number_of(True)
    (40.5, 40.5, None, None)
    """
    match value:
        case bool():
            return None
        case int() | float() if math.isfinite(value):
            return float(value)
        case str() if len(value) < 100 and _NUMBER.fullmatch(value.strip()):
            return float(value)
        case _:
            return None


def checked(latitude: float, longitude: float) -> Point | None:
    """A point within the ranges, or None; a longitude beyond 180 goes on eastwards.

    >>> checked(10.0, 190.0), checked(95.0, 0.0)
    (Point(latitude=10.0, longitude=-170.0), None)
    """
    if not (-90.0 <= latitude <= 90.0 and -180.0 <= longitude <= 360.0):
        return None
    return Point(latitude, longitude - 360.0 if longitude > 180.0 else longitude)


def _add(found: dict[Point, None], latitude: float | None, longitude: float | None) -> None:
    if latitude is not None and longitude is not None and (point := checked(latitude, longitude)) is not None:
        found[point] = None
