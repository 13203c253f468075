"""The operator `distance`: the distance of an item from a place, in meters along a great circle.

The place is a named point of a GeoJSON or CSV file, or a point in the call itself. There is one row per distinct
distance, with an item's points measured separately. Earth is treated as a sphere; the error is below 0.6 %.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from runnel.matching.operators.builtin.configuration import Configuration
from runnel.matching.operators.builtin.geo.geojson import MAX_NAME, decode_features, position
from runnel.matching.operators.builtin.geo.points import (
    KEYS,
    Point,
    PointReader,
    make_point,
    parse_number,
    parse_point,
)
from runnel.matching.operators.builtin.recent_values import RecentValues
from runnel.matching.operators.builtin.suggest import suggestion
from runnel.matching.operators.builtin.text.input_texts import only_text
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, OperatorContext
from runnel.model.item import clean_text
from runnel.model.operator import Parameter

RADIUS = 6_371_008.8
"""The mean radius of Earth in meters (IUGG)."""

MAX_BYTES = 32 << 20
MAX_PLACES = 500_000
_COLUMNS = ("name", "latitude", "longitude")
_MAX_CACHED_POINTS = 10_000
_OPTIONS = ("places", "name", *KEYS)


class Distance:
    """Computes the distance of an item from a place: `distanceFrom('StatueOfLiberty', ?metres)`.

    The place is a name in the file of the option `places`, or a point such as '40.6892, -74.0445'.

    >>> distance = Distance(OperatorContext())
    >>> calls = [OperatorCall({"latitude": (48.8566,), "longitude": (2.3522,)}, ("51.5074, -0.1278",))]
    >>> [[round(metres / 1000) for (metres,) in rows] for rows in distance.answer(calls)]
    [[344]]
    """

    parameters = (Parameter("place", "input", "text"), Parameter("metres", "result", "number"))
    cost = timedelta(microseconds=10)
    pure = True
    batch = 1024

    def __init__(self, context: OperatorContext) -> None:
        configuration = Configuration("distance", context, _OPTIONS)
        self._reader = PointReader.of(configuration)
        self._points = RecentValues(parse_point, max_values=_MAX_CACHED_POINTS)
        self._places: dict[str, Point] = read_places(configuration) if configuration.has("places") else {}

    def answer(self, calls: Sequence[OperatorCall]) -> Sequence[Answer]:
        """Return the distinct distances, in meters, from the place to the points of each item, in rows."""
        return [self._answer(call) for call in calls]

    def _answer(self, call: OperatorCall) -> Answer:
        name = only_text(call, "the name of a place")
        if isinstance(name, FailedCall):
            return name
        center = self._places.get(name) or self._points.get(name)
        if center is None:
            hint = suggestion(name, self._places) or "; use a name of the file, or write 'latitude, longitude'"
            return FailedCall(f"there is no place {name[:80]!r}{hint}", passing=False)
        distances = {great_circle(center, point) for point in self._reader.points(call.attributes)}
        return tuple((distance,) for distance in sorted(distances))


def great_circle(start: Point, end: Point) -> float:
    """Return the meters between two points by the haversine formula, which is accurate for near and opposite points.

    >>> round(great_circle(Point(0.0, 0.0), Point(0.0, 180.0)) / 1000)
    20015
    """
    start_latitude, end_latitude = math.radians(start.latitude), math.radians(end.latitude)
    half_latitude = math.sin((end_latitude - start_latitude) / 2)
    half_longitude = math.sin(math.radians(end.longitude - start.longitude) / 2)
    cosines = math.cos(start_latitude) * math.cos(end_latitude)
    haversine = half_latitude * half_latitude + cosines * half_longitude * half_longitude
    return 2 * RADIUS * math.asin(math.sqrt(min(1.0, haversine)))


def read_places(configuration: Configuration) -> dict[str, Point]:
    """Read the named points of the file of the option `places`.

    A file that begins with a brace or a bracket is GeoJSON; any other file is CSV with a header line.
    """
    data = configuration.read("places", MAX_BYTES)
    name_key = configuration.text("name", "name")
    is_json = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    read_points = _from_json if is_json else _from_csv
    places: dict[str, Point] = {}
    for name, point in read_points(configuration, data, name_key):
        if places.setdefault(name, point) != point:
            raise configuration.error(f"two places have the name {name!r}", key="places")
        if len(places) > MAX_PLACES:
            raise configuration.error(f"the file has more than {MAX_PLACES} places", key="places")
    return places


def _from_json(configuration: Configuration, data: bytes, name_key: str) -> Iterator[tuple[str, Point]]:
    for feature in decode_features(configuration, "places", data, name_key):
        is_point = feature.geometry.get("type") == "Point"
        coordinates = position(feature.geometry.get("coordinates")) if is_point else None
        if coordinates is None:
            raise configuration.error(
                f"{feature.location} is not a valid Point",
                key="places",
                hint="write longitude from -180 to 180, then latitude from -90 to 90",
            )
        yield feature.name, Point(coordinates[1], coordinates[0])


def _from_csv(configuration: Configuration, data: bytes, name_key: str) -> Iterator[tuple[str, Point]]:
    try:
        lines = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)
        columns = (name_key, *_COLUMNS[1:])
        if not set(columns) <= set(lines.fieldnames or ()):
            raise configuration.error(
                f"the first line of a CSV file must have the columns {', '.join(columns)}", key="places"
            )
        for line in lines:
            yield _parse_line(configuration, line, name_key, f"line {lines.line_num}")
    except (ValueError, csv.Error) as error:
        raise configuration.error(f"the file is not CSV in UTF-8: {str(error)[:120]}", key="places") from error


def _parse_line(
    configuration: Configuration, line: Mapping[str, str | None], name_key: str, location: str
) -> tuple[str, Point]:
    name = clean_text(line[name_key] or "").strip()
    if not 0 < len(name) <= MAX_NAME:
        raise configuration.error(f"{location} must have a name of 1 to {MAX_NAME} characters", key="places")
    latitude, longitude = parse_number(line["latitude"] or ""), parse_number(line["longitude"] or "")
    point = None if latitude is None or longitude is None else make_point(latitude, longitude)
    if point is None:
        raise configuration.error(
            f"{location} ({name!r}) has no valid position",
            key="places",
            hint="write latitude from -90 to 90 and longitude from -180 to 360, in degrees",
        )
    return name, point
