"""Read the positions of an item from its attributes, in the forms of JSON lines, GeoRSS and the W3C geo vocabulary.

Positions are in degrees in WGS 84: latitudes from -90 to 90, longitudes from -180 to 180. Longitudes from 180 to 360,
counted eastward, are converted.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from runnel.matching.operators.builtin.configuration import Configuration
from runnel.model.item import Attributes, Value

KEYS = ("latitude", "longitude")
MAX_POINTS = 64
"""Maximum number of points that are read from an item."""

_PAIRS = (("latitude", "longitude"), ("geo:lat", "geo:long"))
_TEXTS = ("georss:point", "gml:pos")
_NUMBER = re.compile(r"[+-]?\d{1,12}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,2})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Point:
    """A position on Earth, in degrees."""

    latitude: float
    longitude: float


@dataclass(frozen=True, slots=True)
class PointReader:
    """Reads the points of items. `pairs` are attributes for latitude and longitude; those of `texts` contain both."""

    pairs: tuple[tuple[str, str], ...] = _PAIRS
    texts: tuple[str, ...] = _TEXTS

    @staticmethod
    def of(configuration: Configuration) -> PointReader:
        """Return a reader of the attributes in the options `latitude` and `longitude`, or of the usual attributes."""
        if not any(map(configuration.has, KEYS)):
            return PointReader()
        names = (configuration.text("latitude"), configuration.text("longitude"))
        return PointReader(pairs=(names,), texts=())

    def points(self, attributes: Attributes) -> list[Point]:
        """Return the distinct points of an item. Positions out of range are skipped.

        >>> PointReader().points({"georss:point": ("40.85 -73.87",), "geo:lat": ("91",), "geo:long": ("0",)})
        [Point(latitude=40.85, longitude=-73.87)]
        """
        points: dict[Point, None] = {}
        for latitude_name, longitude_name in self.pairs:
            latitudes, longitudes = attributes.get(latitude_name, ()), attributes.get(longitude_name, ())
            if len(latitudes) != len(longitudes):
                continue  # items drop repeated values of an attribute, so it is unknown which values belong together
            for latitude, longitude in zip(latitudes[:MAX_POINTS], longitudes[:MAX_POINTS], strict=True):
                _add(points, parse_number(latitude), parse_number(longitude))
        for name in self.texts:
            for value in attributes.get(name, ())[:MAX_POINTS]:
                if isinstance(value, str) and (point := parse_point(value)) is not None:
                    points[point] = None
        return list(points)[:MAX_POINTS]


def parse_point(text: str) -> Point | None:
    """Parse "latitude longitude", separated by a space or a comma. Return None if that fails.

    >>> parse_point("40.6892, -74.0445"), parse_point("Liberty")
    (Point(latitude=40.6892, longitude=-74.0445), None)
    """
    parts = text[:100].replace(",", " ").split()
    points: dict[Point, None] = {}
    if len(parts) == 2:
        _add(points, parse_number(parts[0]), parse_number(parts[1]))
    return next(iter(points), None)


def parse_number(value: Value) -> float | None:
    """Return a number, or parse a text as a number. Return None for other values.

    >>> parse_number(40.5), parse_number(" 40.5 "), parse_number("north"), parse_number(True)
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


def make_point(latitude: float, longitude: float) -> Point | None:
    """Return a point, or None if it is out of range. Longitudes from 180 to 360 are converted to negative ones.

    >>> make_point(10.0, 190.0), make_point(95.0, 0.0)
    (Point(latitude=10.0, longitude=-170.0), None)
    """
    if not (-90.0 <= latitude <= 90.0 and -180.0 <= longitude <= 360.0):
        return None
    return Point(latitude, longitude - 360.0 if longitude > 180.0 else longitude)


def _add(points: dict[Point, None], latitude: float | None, longitude: float | None) -> None:
    if latitude is not None and longitude is not None and (point := make_point(latitude, longitude)) is not None:
        points[point] = None
