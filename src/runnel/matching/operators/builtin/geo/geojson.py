"""GeoJSON (RFC 7946) from anybody: the bytes of a FeatureCollection in, named geometries out, or where it is wrong.

Nothing of it is trusted: its size, its depth, the number of its corners, every coordinate and every ring are checked,
and an error says in which feature. Coordinates are longitude and latitude in WGS 84.
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
MAX_CORNERS = 4_000_000
MAX_NAME = 256
_DEEPEST = 4
"""Collections within collections that are followed."""

_NUMBERS = (float, int)
_HINT = "a FeatureCollection of GeoJSON is needed"


@dataclass(frozen=True, slots=True)
class Feature:
    """A named geometry; `place` says where in the file it stands."""

    name: str
    place: str
    geometry: dict[str, Any]


def read_features(configuration: Configuration, key: str, name: str) -> list[Feature]:
    """The features of the file that a key names; `name` is the property that names them."""
    return decode_features(configuration, key, configuration.read(key, MAX_BYTES), name)


def decode_features(configuration: Configuration, key: str, data: bytes, name: str) -> list[Feature]:
    """The features of a document, checked as far as their names."""
    document = _decoded(configuration, key, data)
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list) or document.get("type") != "FeatureCollection":
        raise configuration.refused("this is no FeatureCollection", key=key, hint=_HINT)
    if len(features) > MAX_FEATURES:
        raise configuration.refused(f"it has more than {MAX_FEATURES} features", key=key)
    if not features:
        raise configuration.refused("it has no features", key=key)
    return [_feature(configuration, key, number, one, name) for number, one in enumerate(features, 1)]


def _decoded(configuration: Configuration, key: str, data: bytes) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not a number")

    try:
        return json.loads(data.decode("utf-8-sig"), parse_constant=refuse)
    except RecursionError as error:
        raise configuration.refused("it is nested too deeply", key=key, hint=_HINT) from error
    except ValueError as error:
        raise configuration.refused(f"this is no JSON: {str(error)[:120]}", key=key, hint=_HINT) from error


def _feature(configuration: Configuration, key: str, number: int, value: Any, name: str) -> Feature:
    place = f"feature {number}"
    properties = value.get("properties") if isinstance(value, dict) else None
    named = properties.get(name) if isinstance(properties, dict) else None
    if isinstance(named, int | float) and not isinstance(named, bool):
        named = f"{named:g}"
    if not isinstance(named, str) or not 0 < len(named.strip()) <= MAX_NAME:
        hint = f"every feature needs a property {name!r} of at most {MAX_NAME} characters"
        raise configuration.refused(f"{place} has no name", key=key, hint=hint)
    text = clean_text(named).strip()
    geometry = value.get("geometry")
    if not isinstance(geometry, dict):
        raise configuration.refused(f"{place} ({text!r}) has no geometry", key=key)
    return Feature(text, f"{place} ({text!r})", geometry)


class AreaReader:
    """Makes areas of features, and counts their corners in all."""

    def __init__(self, configuration: Configuration, key: str) -> None:
        self._configuration = configuration
        self._key = key
        self._corners = 0

    def area(self, feature: Feature) -> shapely.Geometry:
        """The polygons of a feature as one geometry that is valid."""
        polygons = [
            self._polygon(rings, place) for rings, place in self._polygons(feature.geometry, feature.place, 0)
        ]
        if not polygons:
            raise self._refused(feature.place, "has no polygon")
        return polygons[0] if len(polygons) == 1 else shapely.union_all(polygons)

    def _polygons(self, geometry: Any, place: str, depth: int) -> Iterator[tuple[Any, str]]:
        match geometry:
            case {"type": "Polygon", "coordinates": list(rings)}:
                yield rings, place
            case {"type": "MultiPolygon", "coordinates": list(several)}:
                for number, rings in enumerate(several, 1):
                    yield rings, f"{place}, polygon {number}"
            case {"type": "GeometryCollection", "geometries": list(several)} if depth < _DEEPEST:
                for number, one in enumerate(several, 1):
                    yield from self._polygons(one, f"{place}, geometry {number}", depth + 1)
            case _:
                kind = geometry.get("type") if isinstance(geometry, dict) else None
                raise self._refused(place, f"is no area but {str(kind)[:40]!r}", "Polygon and MultiPolygon are areas")

    def _polygon(self, rings: Any, place: str) -> shapely.Geometry:
        if not isinstance(rings, list) or not rings:
            raise self._refused(place, "has no ring")
        shell, *holes = (self._ring(ring, f"{place}, ring {number}") for number, ring in enumerate(rings, 1))
        polygon = shapely.Polygon(shell, holes)
        if not shapely.is_valid(polygon):
            reason = str(shapely.is_valid_reason(polygon))[:120]
            raise self._refused(place, f"is not a valid area: {reason}", "mend it, as with ST_MakeValid")
        return polygon

    def _ring(self, ring: Any, place: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        if not isinstance(ring, list) or len(ring) < 4:
            raise self._refused(place, "has fewer than four corners", "the last is the first again")
        self._corners += len(ring)
        if self._corners > MAX_CORNERS:
            raise self._refused(place, f"is beyond the {MAX_CORNERS} corners that a file may have", "simplify it")
        corners = [position(one) for one in ring]
        for number, corner in enumerate(corners, 1):
            if corner is None:
                hint = "longitude from -180 to 180, then latitude from -90 to 90"
                raise self._refused(f"{place}, corner {number}", "is no position", hint)
        if corners[0] != corners[-1]:
            raise self._refused(place, "is not closed", "its last corner must be its first again")
        return np.array(corners, dtype=np.float64)

    def _refused(self, place: str, words: str, hint: str | None = None) -> Exception:
        return self._configuration.refused(f"{place} {words}", key=self._key, hint=hint)


def position(value: Any) -> tuple[float, float] | None:
    """Longitude and latitude of a position, or None where it is none; a height is dropped.

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
