"""The operators `region` (whether an item is in a named region) and `region_of` (the regions of an item).

The regions are named areas of a GeoJSON file and include their borders. Edges are straight lines in longitude and
latitude. According to RFC 7946, a region across the antimeridian consists of two polygons that meet there, so a point
on the antimeridian is tested with longitudes 180 and -180. An item without a position is in no region.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import shapely

from runnel.matching.operators.builtin.configuration import Configuration
from runnel.matching.operators.builtin.geo.geojson import AreaReader, read_features
from runnel.matching.operators.builtin.geo.points import KEYS, Point, PointReader
from runnel.matching.operators.builtin.suggest import suggestion
from runnel.matching.operators.builtin.text.input_texts import only_text
from runnel.matching.operators.plugins.contract import Answer, FailedCall, OperatorCall, OperatorContext
from runnel.model.operator import HOLDS, Parameter, Rows

_OPTIONS = ("regions", "name", *KEYS)
_Positions = list[tuple[float, float]]


class _Regions:
    """Named areas with a spatial index."""

    def __init__(self, context: OperatorContext, operator: str) -> None:
        configuration = Configuration(operator, context, _OPTIONS)
        self.reader = PointReader.of(configuration)
        features = read_features(configuration, "regions", configuration.text("name", "name"))
        area_reader = AreaReader(configuration, "regions")
        areas: dict[str, list[Any]] = {}
        for feature in features:
            areas.setdefault(feature.name, []).append(area_reader.area(feature))
        self.names = list(areas)
        self.areas = np.array([_union(same_name) for same_name in areas.values()], dtype=object)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        shapely.prepare(self.areas)
        self._lock = threading.Lock()  # a prepared area builds its index on first use
        self._tree = shapely.STRtree(self.areas)

    def covering(self, positions: _Positions) -> tuple[Any, Any]:
        """Return the pairs of a position and a region that covers it, as an array of indexes and one of numbers.

        The bounding boxes are searched first, then the candidates are tested exactly.
        """
        points, regions = self._tree.query(shapely.points(_array(positions)))
        is_covered = self.covers(regions, [positions[point] for point in points])
        return points[is_covered], regions[is_covered]

    def covers(self, regions: Any, positions: _Positions) -> Any:
        """Return whether each region covers the position with the same index, as an array of booleans."""
        coordinates = _array(positions)
        with self._lock:
            return shapely.intersects_xy(self.areas[regions], coordinates[:, 0], coordinates[:, 1])


class Region:
    """Tests whether an item is in a region: `locIn('Bronx')`.

    >>> import json, pathlib, tempfile
    >>> square = {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]]}
    >>> feature = {"type": "Feature", "properties": {"name": "Square"}, "geometry": square}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "regions.geojson")
    ...     _ = file.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    ...     region = Region(OperatorContext({"regions": "regions.geojson"}, pathlib.Path(folder)))
    >>> inside, outside = {"latitude": (1.0,), "longitude": (1.5,)}, {"latitude": (1.0,), "longitude": (3.0,)}
    >>> region.answer([OperatorCall(attributes, ("Square",)) for attributes in (inside, outside, {})])
    [((),), (), ()]
    """

    parameters = (Parameter("region", "input", "text"),)
    cost = timedelta(microseconds=20)
    pure = True
    batch = 1024

    def __init__(self, context: OperatorContext) -> None:
        self._regions = _Regions(context, "region")

    def answer(self, calls: Sequence[OperatorCall]) -> Sequence[Answer]:
        """Return an empty row for each item with a point in the region that the call names, and no row otherwise."""
        answers: list[Answer] = [()] * len(calls)
        indexes: list[int] = []
        regions: list[int] = []
        positions: _Positions = []
        for index, call in enumerate(calls):
            region = self._region_number(call)
            if isinstance(region, FailedCall):
                answers[index] = region
                continue
            for position in _positions(self._regions.reader.points(call.attributes)):
                indexes.append(index)
                regions.append(region)
                positions.append(position)
        is_covered = self._regions.covers(np.array(regions, dtype=np.intp), positions)
        for index, is_inside in zip(indexes, is_covered.tolist(), strict=True):
            if is_inside:
                answers[index] = HOLDS
        return answers

    def _region_number(self, call: OperatorCall) -> int | FailedCall:
        name = only_text(call, "the name of a region")
        if isinstance(name, FailedCall):
            return name
        number = self._regions.numbers.get(name)
        if number is None:
            hint = suggestion(name, self._regions.names)
            return FailedCall(f"there is no region {name[:80]!r}{hint}", passing=False)
        return number


class RegionOf:
    """Returns the regions of an item, one row per region: `regionOf(?name)`."""

    parameters = (Parameter("name", "result", "text"),)
    cost = timedelta(microseconds=30)
    pure = True
    batch = 1024

    def __init__(self, context: OperatorContext) -> None:
        self._regions = _Regions(context, "region_of")

    def answer(self, calls: Sequence[OperatorCall]) -> Sequence[Answer]:
        """Return a row with the name of every region that covers a point of the item, in the order of the file."""
        indexes: list[int] = []
        positions: _Positions = []
        for index, call in enumerate(calls):
            for position in _positions(self._regions.reader.points(call.attributes)):
                indexes.append(index)
                positions.append(position)
        region_numbers: list[set[int]] = [set() for _ in calls]
        points, regions = self._regions.covering(positions)
        for point, region in zip(points.tolist(), regions.tolist(), strict=True):
            region_numbers[indexes[point]].add(region)
        return [self._rows(numbers) for numbers in region_numbers]

    def _rows(self, numbers: Iterable[int]) -> Rows:
        return tuple((self._regions.names[number],) for number in sorted(numbers))


def _positions(points: Iterable[Point]) -> _Positions:
    """Return longitude and latitude of points. A point on the antimeridian has two positions, at 180 and -180."""
    positions: _Positions = []
    for point in points:
        positions.append((point.longitude, point.latitude))
        if abs(point.longitude) == 180.0:
            positions.append((-point.longitude, point.latitude))
    return positions


def _array(positions: _Positions) -> Any:
    return np.array(positions, dtype=np.float64).reshape(-1, 2)


def _union(areas: Sequence[Any]) -> Any:
    return areas[0] if len(areas) == 1 else shapely.union_all(areas)
