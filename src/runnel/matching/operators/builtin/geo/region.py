"""Regions: whether an item lies in a named region, and in which regions it lies.

In: a GeoJSON file of named areas once, then asks about items that have a position. Out: rows. A region has its border
too. Edges are straight lines of latitude and longitude, as RFC 7946 says: a region across the antimeridian is cut
there in two, and a point on it is looked for on both sides. An item without a position lies nowhere.
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
from runnel.matching.operators.plugins.contract import Answer, Ask, Failed, OperatorContext
from runnel.model.operator import HOLDS, Parameter, Rows

_SETTINGS = ("regions", "name", *KEYS)
_Positions = list[tuple[float, float]]


class _Regions:
    """Named areas, ready to be asked for points."""

    def __init__(self, place: OperatorContext, operator: str) -> None:
        configuration = Configuration(operator, place, _SETTINGS)
        self.reader = PointReader.of(configuration)
        features = read_features(configuration, "regions", configuration.text("name", "name"))
        areas = AreaReader(configuration, "regions")
        parts: dict[str, list[Any]] = {}
        for feature in features:
            parts.setdefault(feature.name, []).append(areas.area(feature))
        self.names = list(parts)
        self.areas = np.array([_joined(several) for several in parts.values()], dtype=object)
        self.numbers = {name: number for number, name in enumerate(self.names)}
        shapely.prepare(self.areas)
        self._lock = threading.Lock()  # A prepared area makes its index when it is first asked.
        self._tree = shapely.STRtree(self.areas)

    def covering(self, positions: _Positions) -> tuple[Any, Any]:
        """Pairs of position and region that covers it, as two arrays of numbers: boxes first, then prepared areas."""
        points, regions = self._tree.query(shapely.points(_array(positions)))
        held = self.covers(regions, [positions[point] for point in points])
        return points[held], regions[held]

    def covers(self, regions: Any, positions: _Positions) -> Any:
        """Whether each of some regions covers the position beside it, as an array of truths."""
        where = _array(positions)
        with self._lock:
            return shapely.intersects_xy(self.areas[regions], where[:, 0], where[:, 1])


class Region:
    """Whether an item lies in a region: `locIn('Bronx')`.

    >>> import json, pathlib, tempfile
    >>> square = {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]]}
    >>> feature = {"type": "Feature", "properties": {"name": "Square"}, "geometry": square}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "regions.geojson")
    ...     _ = file.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    ...     region = Region(OperatorContext({"regions": "regions.geojson"}, pathlib.Path(folder)))
    >>> inside, outside = {"latitude": (1.0,), "longitude": (1.5,)}, {"latitude": (1.0,), "longitude": (3.0,)}
    >>> region.answer([Ask(inside, ("Square",)), Ask(outside, ("Square",)), Ask({}, ("Square",))])
    [((),), (), ()]
    """

    parameters = (Parameter("region", "input", "text"),)
    cost = timedelta(microseconds=20)
    pure = True
    batch = 1024

    def __init__(self, place: OperatorContext) -> None:
        self._regions = _Regions(place, "region")

    def answer(self, asks: Sequence[Ask]) -> Sequence[Answer]:
        """One empty row where a point of the item lies in the region that the call names."""
        answers: list[Answer] = [()] * len(asks)
        owners: list[int] = []
        wanted: list[int] = []
        positions: _Positions = []
        for place, ask in enumerate(asks):
            number = self._number(ask)
            if isinstance(number, Failed):
                answers[place] = number
                continue
            for position in _positions(self._regions.reader.points(ask.attributes)):
                owners.append(place)
                wanted.append(number)
                positions.append(position)
        held = self._regions.covers(np.array(wanted, dtype=np.intp), positions)
        for owner, inside in zip(owners, held.tolist(), strict=True):
            if inside:
                answers[owner] = HOLDS
        return answers

    def _number(self, ask: Ask) -> int | Failed:
        name = only_text(ask, "the name of a region")
        if isinstance(name, Failed):
            return name
        number = self._regions.numbers.get(name)
        if number is None:
            hint = suggestion(name, self._regions.names)
            return Failed(f"there is no region {name[:80]!r}{hint}", passing=False)
        return number


class RegionOf:
    """The regions that an item lies in, one row for each: `regionOf(?name)`."""

    parameters = (Parameter("name", "result", "text"),)
    cost = timedelta(microseconds=30)
    pure = True
    batch = 1024

    def __init__(self, place: OperatorContext) -> None:
        self._regions = _Regions(place, "region_of")

    def answer(self, asks: Sequence[Ask]) -> Sequence[Answer]:
        """A row with the name of every region that covers a point of the item, in the order of the file."""
        owners: list[int] = []
        positions: _Positions = []
        for place, ask in enumerate(asks):
            for position in _positions(self._regions.reader.points(ask.attributes)):
                owners.append(place)
                positions.append(position)
        found: list[set[int]] = [set() for _ in asks]
        points, regions = self._regions.covering(positions)
        for point, region in zip(points.tolist(), regions.tolist(), strict=True):
            found[owners[point]].add(region)
        return [self._rows(numbers) for numbers in found]

    def _rows(self, numbers: Iterable[int]) -> Rows:
        return tuple((self._regions.names[number],) for number in sorted(numbers))


def _positions(points: Iterable[Point]) -> _Positions:
    """Longitude and latitude of points; those on the antimeridian from both of its sides."""
    found: _Positions = []
    for point in points:
        found.append((point.longitude, point.latitude))
        if abs(point.longitude) == 180.0:
            found.append((-point.longitude, point.latitude))
    return found


def _array(positions: _Positions) -> Any:
    return np.array(positions, dtype=np.float64).reshape(-1, 2)


def _joined(areas: Sequence[Any]) -> Any:
    return areas[0] if len(areas) == 1 else shapely.union_all(areas)
