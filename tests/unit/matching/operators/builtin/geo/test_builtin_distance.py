"""The operator `distance`: known distances, properties of a metric, and files of places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.errors import OperatorRefusedError
from runnel.matching.operators.builtin.geo.distance import Distance, great_circle
from runnel.matching.operators.builtin.geo.points import Point
from runnel.matching.operators.plugins.contract import FailedCall, OperatorCall, OperatorContext

POINTS = st.builds(Point, st.floats(-90, 90), st.floats(-180, 180))


@pytest.mark.parametrize(
    ("one", "other", "kilometres"),
    [
        (Point(51.5074, -0.1278), Point(48.8566, 2.3522), 343.6),  # London, Paris
        (Point(40.6413, -73.7781), Point(33.9416, -118.4085), 3974),  # two airports: JFK, LAX
        (Point(-33.8688, 151.2093), Point(-36.8485, 174.7633), 2156),  # Sydney, Auckland
        (Point(64.8, -170.0), Point(64.8, 170.0), 944.5),  # across the antimeridian
        (Point(90.0, 0.0), Point(-90.0, 77.0), 20015.1),  # pole to pole
        (Point(90.0, 10.0), Point(90.0, -120.0), 0.0),  # a pole is one point
        (Point(0.0, 0.0), Point(0.0, 1.0), 111.195),  # a degree of the equator
    ],
)
def test_known_distances_are_computed(one: Point, other: Point, kilometres: float) -> None:
    assert great_circle(one, other) / 1000 == pytest.approx(kilometres, rel=0.002, abs=0.001)


@settings(deadline=None, max_examples=200)
@given(POINTS, POINTS, POINTS)
def test_distances_are_symmetric_and_satisfy_the_triangle_inequality(one: Point, other: Point, third: Point) -> None:
    direct = great_circle(one, other)
    assert 0 <= direct <= 20_015_200
    assert direct == pytest.approx(great_circle(other, one), abs=1e-3)
    assert great_circle(one, one) == 0
    assert direct <= great_circle(one, third) + great_circle(third, other) + 1.0


def written(folder: Path, text: str, **more: str) -> Distance:
    (folder / "places").write_text(text, "utf-8")
    return Distance(OperatorContext({"places": "places", **more}, folder))


def test_places_are_read_from_csv_and_geojson(tmp_path: Path) -> None:
    liberty = {"type": "Point", "coordinates": [-74.0445, 40.6892]}
    document = {"type": "FeatureCollection", "features": [{"properties": {"name": "Liberty"}, "geometry": liberty}]}
    item = {"latitude": (40.6892,), "longitude": (-74.0445,)}
    for text in ("\ufeffname,latitude,longitude,note\nLiberty,40.6892,-74.0445,a statue\n", json.dumps(document)):
        distance = written(tmp_path, text)
        near, missing = distance.answer([OperatorCall(item, ("Liberty",)), OperatorCall(item, ("Libert",))])
        assert near == ((0.0,),)
        assert missing == FailedCall("there is no place 'Libert'; did you mean Liberty?", passing=False)


def test_every_distinct_distance_of_an_items_points_is_a_row() -> None:
    distance = Distance(OperatorContext())
    item = {"georss:point": ("0 1", "0 2", "0 1"), "latitude": (0.0,), "longitude": (1.0,)}
    (rows,) = distance.answer([OperatorCall(item, ("0,0",))])
    assert not isinstance(rows, FailedCall)
    assert [round(metres) for (metres,) in rows if isinstance(metres, float)] == [111195, 222390]
    assert distance.answer([OperatorCall({}, ("0,0",))]) == [()]


@pytest.mark.parametrize("inputs", [(), ("nowhere",), (7.0,), ("91, 0",), ("0,0", "0,0"), (("0,0",),), ("",)])
def test_a_call_without_a_valid_place_fails_only_itself(inputs: tuple[str, ...]) -> None:
    item = {"latitude": (0.0,), "longitude": (1.0,)}
    wrong, right = Distance(OperatorContext()).answer([OperatorCall(item, inputs), OperatorCall(item, ("0, 1",))])
    assert isinstance(wrong, FailedCall)
    assert not wrong.passing
    assert right == ((0.0,),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must have the columns name, latitude, longitude"),
        ("a,b\n1,2\n", "must have the columns name, latitude, longitude"),
        ("name,latitude,longitude\n,1,2\n", "line 2 must have a name"),
        ("name,latitude,longitude\nA,1\n", "line 2 ('A') has no valid position"),
        ("name,latitude,longitude\nA,1,2\nB,100,0\n", "line 3 ('B') has no valid position"),
        ("name,latitude,longitude\nA,nan,2\n", "has no valid position"),
        ("name,latitude,longitude\nA,1,2\nA,1,3\n", "two places have the name 'A'"),
        ('name,latitude,longitude\n"A,1,2\n', "is not CSV in UTF-8"),
        (
            '{"type": "FeatureCollection", "features": [{"properties": {"name": "A"}, "geometry": {}}]}',
            "is not a valid Point",
        ),
        ("[]", "not a FeatureCollection"),
    ],
)
def test_invalid_files_are_refused_with_line_or_feature(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(OperatorRefusedError) as caught:
        written(tmp_path, text)
    assert words in caught.value.message


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "places").write_bytes(b"name,latitude,longitude\n\xff,1,2\n")
    with pytest.raises(OperatorRefusedError, match="is not CSV in UTF-8"):
        Distance(OperatorContext({"places": "places"}, tmp_path))
