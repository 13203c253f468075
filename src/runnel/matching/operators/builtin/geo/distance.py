"""Distances: how far an item is from a named place, in metres along a great circle.

In: named points from a GeoJSON or CSV file once (or a point in the call itself), then asks about items that have a
position. Out: a row of metres for every point of the item. Earth is a sphere here; the error is below 0.6 %.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from runnel.matching.operators.builtin.configuration import Configuration
from runnel.matching.operators.builtin.geo.geojson import MAX_NAME, decode_features, position
from runnel.matching.operators.builtin.geo.points import KEYS, Point, PointReader, checked, number_of, point_of
from runnel.matching.operators.builtin.recent_values import RecentValues
from runnel.matching.operators.builtin.suggest import suggestion
from runnel.matching.operators.builtin.text.input_texts import only_text
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed, OperatorContext
from runnel.model.item import clean_text
from runnel.model.operator import Parameter

RADIUS = 6_371_008.8
"""Metres from the centre of Earth, in the mean (IUGG)."""

MAX_BYTES = 32 << 20
MAX_PLACES = 500_000
_COLUMNS = ("name", "latitude", "longitude")
_KEPT_POINTS = 10_000
_SETTINGS = ("places", "name", *KEYS)


class Distance:
    """How far an item is from a place: `distanceFrom('StatueOfLiberty', ?metres)`.

    The place is a name in the file of `places`, or a point such as '40.6892, -74.0445'.

    >>> distance = Distance(OperatorContext())
    >>> asks = [Ask({"latitude": (48.8566,), "longitude": (2.3522,)}, ("51.5074, -0.1278",))]
    >>> [[round(metres / 1000) for (metres,) in rows] for rows in distance.answer(asks)]
    [[344]]
    """

    parameters = (Parameter("place", "input", "text"), Parameter("metres", "result", "number"))
    cost = timedelta(microseconds=10)
    pure = True
    batch = 1024

    def __init__(self, place: OperatorContext) -> None:
        configuration = Configuration("distance", place, _SETTINGS)
        self._reader = PointReader.of(configuration)
        self._points = RecentValues(point_of, most=_KEPT_POINTS)
        self._places: dict[str, Point] = read_places(configuration) if configuration.has("places") else {}

    def answer(self, asks: Sequence[Ask]) -> Sequence[Answer]:
        """A row with the metres from the place to every point of the item."""
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Answer:
        name = only_text(ask, "the name of a place")
        if isinstance(name, Failed):
            return name
        centre = self._places.get(name) or self._points.get(name)
        if centre is None:
            hint = suggestion(name, self._places) or "; name one of the file, or write 'latitude, longitude'"
            return Failed(f"there is no place {name[:80]!r}{hint}", passing=False)
        metres = {great_circle(centre, point) for point in self._reader.points(ask.attributes)}
        return tuple((one,) for one in sorted(metres))


def great_circle(one: Point, other: Point) -> float:
    """Metres between two points, by the haversine formula: exact enough for near and for opposite points alike.

    >>> round(great_circle(Point(0.0, 0.0), Point(0.0, 180.0)) / 1000)
    20015
    """
    first, second = math.radians(one.latitude), math.radians(other.latitude)
    half_latitude = math.sin((second - first) / 2)
    half_longitude = math.sin(math.radians(other.longitude - one.longitude) / 2)
    chord = half_latitude * half_latitude + math.cos(first) * math.cos(second) * half_longitude * half_longitude
    return 2 * RADIUS * math.asin(math.sqrt(min(1.0, chord)))


def read_places(configuration: Configuration) -> dict[str, Point]:
    """The named points of the file of `places`: GeoJSON where it begins with a brace, else CSV with a heading."""
    data = configuration.read("places", MAX_BYTES)
    named = configuration.text("name", "name")
    is_json = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    found: dict[str, Point] = {}
    for name, point in _from_json(configuration, data, named) if is_json else _from_csv(configuration, data, named):
        if found.setdefault(name, point) != point:
            raise configuration.refused(f"there are two places {name!r}", key="places")
        if len(found) > MAX_PLACES:
            raise configuration.refused(f"it has more than {MAX_PLACES} places", key="places")
    return found


def _from_json(configuration: Configuration, data: bytes, named: str) -> Iterator[tuple[str, Point]]:
    for feature in decode_features(configuration, "places", data, named):
        where = position(feature.geometry.get("coordinates")) if feature.geometry.get("type") == "Point" else None
        if where is None:
            raise configuration.refused(f"{feature.place} is no Point", key="places", hint="longitude, then latitude")
        yield feature.name, Point(where[1], where[0])


def _from_csv(configuration: Configuration, data: bytes, named: str) -> Iterator[tuple[str, Point]]:
    try:
        lines = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        columns = (named, *_COLUMNS[1:])
        if not set(columns) <= set(lines.fieldnames or ()):
            hint = f"its first line must name {', '.join(columns)}"
            raise configuration.refused("this is no CSV of places", key="places", hint=hint)
        for line in lines:
            yield _place(configuration, line, named, f"line {lines.line_num}")
    except (ValueError, csv.Error) as error:
        raise configuration.refused(f"this is no CSV in UTF-8: {str(error)[:120]}", key="places") from error


def _place(configuration: Configuration, line: Mapping[str, str | None], named: str, where: str) -> tuple[str, Point]:
    name = clean_text(line[named] or "").strip()
    if not 0 < len(name) <= MAX_NAME:
        raise configuration.refused(f"{where} has no name of at most {MAX_NAME} characters", key="places")
    latitude, longitude = number_of(line["latitude"] or ""), number_of(line["longitude"] or "")
    point = None if latitude is None or longitude is None else checked(latitude, longitude)
    if point is None:
        raise configuration.refused(f"{where} ({name!r}) has no position", key="places", hint="in degrees")
    return name, point
