"""Read untrusted GeoJSON (RFC 7946). In: the bytes of a FeatureCollection. Out: named geometries, or an error.

The size, the depth, the number of vertices, every coordinate and every ring are checked. Errors name the feature.
Coordinates are longitude and latitude in WGS 84.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely

from runnel.matching.operators.builtin.configuration import Configuration
from runnel.model.item import clean_text

MAX_BYTES = 32 << 20
MAX_FEATURES = 200_000
MAX_VERTICES = 4_000_000
MAX_NAME = 256
_MAX_DEPTH = 4
"""Maximum nesting of geometry collections."""

_NUMBERS = (float, int)
_HINT = "use a GeoJSON file with a FeatureCollection"


@dataclass(frozen=True, slots=True)
class Feature:
    """A named geometry. `location` is the feature's number and name, for error messages."""

    name: str
    location: str
    geometry: dict[str, Any]


def read_features(configuration: Configuration, key: str, name_key: str) -> list[Feature]:
    """Read the features of the file that the option `key` names. `name_key` is the property with their names."""
    return decode_features(configuration, key, configuration.read(key, MAX_BYTES), name_key)


def decode_features(configuration: Configuration, key: str, data: bytes, name_key: str) -> list[Feature]:
    """Decode the features of a document. Their names are checked, their geometries are not."""
    document = _decode_json(configuration, key, data)
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list) or document.get("type") != "FeatureCollection":
        raise configuration.error("the file is not a FeatureCollection", key=key, hint=_HINT)
    if len(features) > MAX_FEATURES:
        raise configuration.error(f"the file has more than {MAX_FEATURES} features", key=key)
    if not features:
        raise configuration.error("the file has no features", key=key)
    return [_decode_feature(configuration, key, number, value, name_key) for number, value in enumerate(features, 1)]


def _decode_json(configuration: Configuration, key: str, data: bytes) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not a number")

    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=refuse)
    except RecursionError as error:
        raise configuration.error("the JSON is nested too deeply", key=key, hint=_HINT) from error
    except ValueError as error:
        raise configuration.error(
            f"the file is not JSON in UTF-8: {str(error)[:120]}", key=key, hint=_HINT
        ) from error


def _decode_feature(configuration: Configuration, key: str, number: int, value: Any, name_key: str) -> Feature:
    location = f"feature {number}"
    properties = value.get("properties") if isinstance(value, dict) else None
    name = properties.get(name_key) if isinstance(properties, dict) else None
    if isinstance(name, int | float) and not isinstance(name, bool):
        name = f"{name:g}"
    if not isinstance(name, str) or not 0 < len(name.strip()) <= MAX_NAME:
        raise configuration.error(
            f"{location} must have a property {name_key!r} with a name of 1 to {MAX_NAME} characters", key=key
        )
    text = clean_text(name).strip()
    geometry = value.get("geometry")
    if not isinstance(geometry, dict):
        raise configuration.error(f"{location} ({text!r}) has no geometry", key=key)
    return Feature(text, f"{location} ({text!r})", geometry)


class AreaReader:
    """Converts features to areas, and limits the total number of their vertices."""

    def __init__(self, configuration: Configuration, key: str) -> None:
        self._configuration = configuration
        self._key = key
        self._vertices = 0

    def area(self, feature: Feature) -> shapely.Geometry:
        """Return the polygons of a feature as one valid geometry."""
        polygons = [
            self._polygon(rings, location)
            for rings, location in self._polygons(feature.geometry, feature.location, 0)
        ]
        if not polygons:
            raise self._error(feature.location, "has no polygon")
        return polygons[0] if len(polygons) == 1 else shapely.union_all(polygons)

    def _polygons(self, geometry: Any, location: str, depth: int) -> Iterator[tuple[Any, str]]:
        match geometry:
            case {"type": "Polygon", "coordinates": list(rings)}:
                yield rings, location
            case {"type": "MultiPolygon", "coordinates": list(polygons)}:
                for number, rings in enumerate(polygons, 1):
                    yield rings, f"{location}, polygon {number}"
            case {"type": "GeometryCollection", "geometries": list(geometries)} if depth < _MAX_DEPTH:
                for number, member in enumerate(geometries, 1):
                    yield from self._polygons(member, f"{location}, geometry {number}", depth + 1)
            case {"type": "GeometryCollection", "geometries": list()}:
                raise self._error(location, f"is nested in more than {_MAX_DEPTH} geometry collections")
            case _:
                kind = geometry.get("type") if isinstance(geometry, dict) else None
                raise self._error(
                    location,
                    f"is not a valid area: {str(kind)[:40]!r}",
                    "use Polygon, MultiPolygon or a GeometryCollection of these",
                )

    def _polygon(self, rings: Any, location: str) -> shapely.Geometry:
        if not isinstance(rings, list) or not rings:
            raise self._error(location, "has no ring")
        shell, *holes = (self._ring(ring, f"{location}, ring {number}") for number, ring in enumerate(rings, 1))
        polygon = shapely.Polygon(shell, holes)
        if not shapely.is_valid(polygon):
            reason = str(shapely.is_valid_reason(polygon))[:120]
            raise self._error(
                location, f"is not a valid polygon: {reason}", "repair it, for example with ST_MakeValid"
            )
        return polygon

    def _ring(self, ring: Any, location: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        if not isinstance(ring, list) or len(ring) < 4:
            raise self._error(
                location, "must have at least four vertices", "the last vertex of a ring repeats the first"
            )
        self._vertices += len(ring)
        if self._vertices > MAX_VERTICES:
            raise self._error(
                location, f"exceeds the limit of {MAX_VERTICES} vertices per file", "simplify the polygons"
            )
        vertices = [position(coordinates) for coordinates in ring]
        for number, vertex in enumerate(vertices, 1):
            if vertex is None:
                hint = "write longitude from -180 to 180, then latitude from -90 to 90"
                raise self._error(f"{location}, vertex {number}", "is not a valid position", hint)
        if vertices[0] != vertices[-1]:
            raise self._error(location, "is not closed", "the last vertex of a ring must repeat the first")
        return np.array(vertices, dtype=np.float64)

    def _error(self, location: str, problem: str, hint: str | None = None) -> Exception:
        return self._configuration.error(f"{location} {problem}", key=self._key, hint=hint)


def position(value: Any) -> tuple[float, float] | None:
    """Return longitude and latitude of a GeoJSON position without its altitude, or None if it is invalid.

    >>> position([-73.9, 40.8, 12]), position([-73.9]), position([0, 100])
    ((-73.9, 40.8), None, None)
    """
    if type(value) is not list or not 2 <= len(value) <= 3:
        return None
    longitude, latitude = value[0], value[1]
    if type(longitude) not in _NUMBERS or type(latitude) not in _NUMBERS:
        return None
    within = -180 <= longitude <= 180 and -90 <= latitude <= 90
    return (float(longitude), float(latitude)) if within else None
