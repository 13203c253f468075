"""The operators `region` and `region_of`: agreement with a simple point-in-polygon test, and invalid GeoJSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.builtin.geo import geojson
from runnel.matching.operators.builtin.geo.region import Region, RegionOf
from runnel.matching.operators.plugins.contract import FailedCall, OperatorCall, OperatorContext
from runnel.model.operator import HOLDS

Corners = Sequence[Sequence[Any]]


def square(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def feature(name: Any, geometry: Any) -> dict[str, Any]:
    return {"type": "Feature", "properties": {"name": name}, "geometry": geometry}


def polygon(*rings: Corners) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [list(ring) for ring in rings]}


def place_of(folder: Path, document: Any, **more: str) -> OperatorContext:
    text = document if isinstance(document, str) else json.dumps(document)
    (folder / "regions.json").write_text(text)
    return OperatorContext({"regions": "regions.json", **more}, folder)


def collection(*features: Any) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": list(features)}


def at(latitude: float, longitude: float, region: str | None = None) -> OperatorCall:
    return OperatorCall({"latitude": (latitude,), "longitude": (longitude,)}, () if region is None else (region,))


CITY = collection(
    feature("Bronx", polygon(square(-74, 40, -73, 41))),
    feature("Park", polygon(square(-73.6, 40.4, -73.2, 40.8), square(-73.5, 40.5, -73.4, 40.6))),
    feature("Isles", {"type": "MultiPolygon", "coordinates": [[square(0, 0, 1, 1)], [square(5, 5, 6, 6)]]}),
    feature("Isles", polygon(square(0.5, 0, 2, 1))),
    feature(
        "Date line", {"type": "MultiPolygon", "coordinates": [[square(179, -5, 180, 5)], [square(-180, -5, -179, 5)]]}
    ),
)


def test_an_item_is_in_the_regions_that_cover_it(tmp_path: Path) -> None:
    region, region_of = Region(place_of(tmp_path, CITY)), RegionOf(place_of(tmp_path, CITY))
    expected = {
        (40.45, -73.5): {"Bronx", "Park"},
        (40.55, -73.45): {"Bronx"},  # in the hole of the park
        (41.0, -73.0): {"Bronx"},  # on its corner
        (40.5, -73.45): {"Bronx", "Park"},  # on the hole's border
        (0.5, 1.5): {"Isles"},
        (5.5, 5.5): {"Isles"},
        (3.0, 3.0): set(),
        (0.0, 180.0): {"Date line"},
        (0.0, -180.0): {"Date line"},
        (0.0, 181.0): {"Date line"},
    }
    names = ["Bronx", "Park", "Isles", "Date line"]
    results = region_of.answer([at(*point) for point in expected])
    assert [{name for (name,) in rows} for rows in results if not isinstance(rows, FailedCall)] == list(
        expected.values()
    )
    for point, inside in expected.items():
        answers = region.answer([at(*point, name) for name in names])
        assert [answer == HOLDS for answer in answers] == [name in inside for name in names], point


@pytest.mark.parametrize(
    "attributes",
    [
        {"georss:point": ("40.5 -73.9",)},
        {"gml:pos": (" 40.5,-73.9 ",)},
        {"geo:lat": ("40.5",), "geo:long": ("-73.9",)},
        {"latitude": (0.0, 40.5), "longitude": (0.0, -73.9)},
        {"georss:point": ("nowhere", "40.5 -73.9")},
    ],
)
def test_positions_are_read_in_all_forms_of_sources(tmp_path: Path, attributes: Any) -> None:
    assert Region(place_of(tmp_path, CITY)).answer([OperatorCall(attributes, ("Bronx",))]) == [HOLDS]


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"latitude": (40.5,)},
        {"latitude": (40.5, 40.6), "longitude": (-73.9,)},
        {"latitude": (True,), "longitude": (-73.9,)},
        {"latitude": ("forty",), "longitude": (-73.9,)},
        {"latitude": (4000.0,), "longitude": (-73.9,)},
        {"georss:point": ("40.5 -73.9 7",)},
    ],
)
def test_an_item_without_a_position_is_in_no_region(tmp_path: Path, attributes: Any) -> None:
    assert Region(place_of(tmp_path, CITY)).answer([OperatorCall(attributes, ("Bronx",))]) == [()]
    assert RegionOf(place_of(tmp_path, CITY)).answer([OperatorCall(attributes)]) == [()]


def test_configured_attributes_and_name_property_are_used(tmp_path: Path) -> None:
    named = collection({**feature("x", polygon(square(0, 0, 1, 1))), "properties": {"borough": 7}})
    region_of = RegionOf(place_of(tmp_path, named, name="borough", latitude="y", longitude="x"))
    inside = OperatorCall({"y": (0.5,), "x": ("0.5",), "latitude": (50.0,), "longitude": (50.0,)})
    assert region_of.answer([inside, at(0.5, 0.5)]) == [(("7",),), ()]


def test_a_call_with_an_unknown_region_fails_only_itself(tmp_path: Path) -> None:
    answers = Region(place_of(tmp_path, CITY)).answer(
        [at(40.5, -73.9, "Bronks"), at(40.5, -73.9, "Bronx"), OperatorCall({})]
    )
    assert answers[0] == FailedCall("there is no region 'Bronks'; did you mean Bronx?", passing=False)
    assert answers[1] == HOLDS
    assert isinstance(answers[2], FailedCall)


def crossings(corners: Corners, x: float, y: float) -> bool:
    """Whether a point is inside a ring, by counting the edges to the east of it."""
    inside = False
    for (x1, y1), (x2, y2) in pairwise(corners):
        if (y1 > y) != (y2 > y) and x < (x2 - x1) * (y - y1) / (y2 - y1) + x1:
            inside = not inside
    return inside


def on_border(corners: Corners, x: float, y: float) -> bool:
    """Whether a point is as near to an edge as rounding matters."""
    for (x1, y1), (x2, y2) in pairwise(corners):
        length = (x2 - x1) ** 2 + (y2 - y1) ** 2
        share = min(1.0, max(0.0, ((x - x1) * (x2 - x1) + (y - y1) * (y2 - y1)) / length))
        if math.hypot(x - x1 - share * (x2 - x1), y - y1 - share * (y2 - y1)) < 1e-6:
            return True
    return False


@st.composite
def stars(draw: st.DrawFn) -> list[list[float]]:
    """A ring around a center: never crossing itself, but not convex."""
    count = draw(st.integers(3, 9))
    radii = draw(st.lists(st.floats(1, 20), min_size=count, max_size=count))
    x, y = draw(st.floats(-40, 40)), draw(st.floats(-40, 40))
    ring = [
        [x + radius * math.cos(2 * math.pi * turn / count), y + radius * math.sin(2 * math.pi * turn / count)]
        for turn, radius in enumerate(radii)
    ]
    return [*ring, ring[0]]


@settings(deadline=None, max_examples=60)
@given(st.lists(stars(), min_size=1, max_size=6), st.lists(st.tuples(st.floats(-60, 60), st.floats(-60, 60))))
def test_regions_agree_with_the_ray_casting_test(
    rings: list[list[list[float]]], points: list[tuple[float, float]]
) -> None:
    points = [point for point in points if not any(on_border(ring, *point) for ring in rings)]
    document = collection(*(feature(f"R{number}", polygon(ring)) for number, ring in enumerate(rings)))
    with TemporaryDirectory() as folder:
        place = place_of(Path(folder), document)
        region, region_of = Region(place), RegionOf(place)
    expected = [tuple((f"R{n}",) for n, ring in enumerate(rings) if crossings(ring, x, y)) for x, y in points]
    assert list(region_of.answer([at(y, x) for x, y in points])) == expected
    for number in range(len(rings)):
        answers = region.answer([at(y, x, f"R{number}") for x, y in points])
        assert [answer == HOLDS for answer in answers] == [(f"R{number}",) in rows for rows in expected]


BOW = [[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("", "not JSON in UTF-8"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "not a FeatureCollection"),
        ('{"type": "FeatureCollection", "features": [NaN]}', "NaN is not a number"),
        (collection(), "no features"),
        (collection(7), "feature 1 must have a property 'name'"),
        (collection(feature("", None)), "feature 1 must have a property 'name'"),
        (collection(feature("a" * 300, None)), "feature 1 must have a property 'name'"),
        (collection(feature("A", None)), "feature 1 ('A') has no geometry"),
        (collection(feature("A", {"type": "Point", "coordinates": [0, 0]})), "is not a valid area: 'Point'"),
        (collection(feature("A", polygon())), "feature 1 ('A') has no ring"),
        (collection(feature("A", polygon([[0, 0], [1, 1], [0, 0]]))), "ring 1 must have at least four vertices"),
        (collection(feature("A", polygon(square(0, 0, 1, 1)[:-1]))), "ring 1 is not closed"),
        (collection(feature("A", polygon([*square(0, 0, 1, 1)[:-1], [0, 0.5]]))), "ring 1 is not closed"),
        (collection(feature("A", polygon([*square(0, 0, 1, 1), ["x", 0]]))), "vertex 6 is not a valid position"),
        (collection(feature("A", polygon([[0, 91], *square(0, 0, 1, 1)]))), "vertex 1 is not a valid position"),
        (collection(feature("A", polygon([[0, True], *square(0, 0, 1, 1)]))), "vertex 1 is not a valid position"),
        (collection(feature("A", polygon([[0, 1e999], *square(0, 0, 1, 1)]))), "is not a number"),
        (collection(feature("A", polygon(BOW))), "is not a valid polygon: Self-intersection"),
        (
            collection(feature("A", {"type": "MultiPolygon", "coordinates": [[square(0, 0, 1, 1)], [BOW]]})),
            "feature 1 ('A'), polygon 2 is not a valid polygon",
        ),
        (collection(feature("A", {"type": "GeometryCollection", "geometries": []})), "has no polygon"),
    ],
)
def test_invalid_documents_are_refused_with_the_feature(tmp_path: Path, document: Any, words: str) -> None:
    with pytest.raises(OperatorRefusedError) as caught:
        Region(place_of(tmp_path, document))
    assert words in caught.value.message
    assert caught.value.place == "region, regions"


def test_deeply_nested_geometry_collections_are_refused(tmp_path: Path) -> None:
    inner: Any = polygon(square(0, 0, 1, 1))
    for _ in range(3):
        inner = {"type": "GeometryCollection", "geometries": [inner]}
    assert RegionOf(place_of(tmp_path, collection(feature("A", inner)))).answer([at(0.5, 0.5)]) == [(("A",),)]
    for _ in range(3):
        inner = {"type": "GeometryCollection", "geometries": [inner]}
    with pytest.raises(OperatorRefusedError, match="nested in more than 4 geometry collections"):
        RegionOf(place_of(tmp_path, collection(feature("A", inner))))


def test_the_number_of_vertices_of_a_file_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geojson, "MAX_VERTICES", 9)
    Region(place_of(tmp_path, collection(feature("A", polygon(square(0, 0, 1, 1))))))
    other = collection(feature("A", polygon(square(0, 0, 1, 1))), feature("B", polygon(square(0, 0, 1, 1))))
    with pytest.raises(OperatorRefusedError, match=r"feature 2 \('B'\), ring 1 exceeds the limit of 9 vertices"):
        Region(place_of(tmp_path, other))


def test_the_options_for_regions_are_required(tmp_path: Path) -> None:
    with pytest.raises(OperatorRefusedError, match="is required"):
        Region(OperatorContext({}, tmp_path))
    with pytest.raises(OperatorRefusedError, match="is required"):
        Region(place_of(tmp_path, CITY, latitude="y"))
