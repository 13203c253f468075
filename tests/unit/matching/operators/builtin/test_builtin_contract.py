"""What holds for every built-in operator: it is found by its name, and no call makes it raise."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runnel.matching.operators.plugins.contract import FailedCall, OperatorCall, OperatorContext
from runnel.model.item import clean_text
from runnel.model.operator import Parameter

OURS = {entry.name: entry for entry in entry_points(group="runnel.operators") if entry.value.startswith("runnel.")}
LOCAL = sorted(OURS.keys() - {"http"})

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]]}
REGIONS = {"type": "FeatureCollection", "features": [{"properties": {"name": "Square"}, "geometry": SQUARE}]}
CONFIGURATIONS: dict[str, dict[str, str]] = {
    "region": {"regions": "regions.json"},
    "region_of": {"regions": "regions.json"},
    "lookup": {"database": "market", "table": "stocks", "key": "symbol", "columns": "price"},
    "rules": {"rules": "holds(A, V) :- has(A, V). holds(P, V) :- input(P, V)."},
}

TEXTS = st.sampled_from(["Square", "Muse on tour", "40.5 -73.9", "1, 1", "ACME", "'", "\\", "a\nb", "élan", "東京"])
VALUES = (
    (TEXTS | st.text(max_size=20).map(clean_text))
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.datetimes(timezones=st.just(UTC))
)
NAMES = st.sampled_from(
    ["title", "description", "latitude", "longitude", "georss:point", "geo:lat", "geo:long", "X y"]
)
ATTRIBUTES = st.dictionaries(NAMES, st.lists(VALUES, max_size=3).map(tuple), max_size=4)
ASKS = st.builds(
    OperatorCall, ATTRIBUTES, st.lists(VALUES | st.lists(VALUES, max_size=2).map(tuple), max_size=3).map(tuple)
)


def test_all_built_in_operators_are_found() -> None:
    assert set(OURS) == {
        "region",
        "region_of",
        "distance",
        "lookup",
        "rules",
        "language",
        "near_duplicate",
        "similarity",
        "semantic",
        "http",
    }


@pytest.mark.parametrize("name", OURS)
def test_every_operator_declares_the_defaults_of_a_registration(name: str) -> None:
    operator: Any = OURS[name].load()
    assert all(isinstance(parameter, Parameter) for parameter in operator.parameters)
    assert isinstance(operator.cost, timedelta)
    assert isinstance(operator.pure, bool)
    assert 1 <= operator.batch <= 10_000
    assert operator.__doc__


@pytest.fixture(scope="module", params=LOCAL)
def operator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder: Path = tmp_path_factory.mktemp("operators")
    (folder / "regions.json").write_text(json.dumps(REGIONS))
    connection = sqlite3.connect(folder / "market.sqlite")
    with connection:
        connection.execute("create table stocks (symbol text, price real)")
        connection.execute("insert into stocks values ('ACME', 12.5)")
    connection.close()
    databases = {"market": f"sqlite:///{folder}/market.sqlite"}
    made = OURS[request.param].load()(OperatorContext(CONFIGURATIONS.get(request.param, {}), folder, databases))
    yield made
    if hasattr(made, "close"):
        made.close()


def test_operators_may_be_called_from_several_threads(operator: Any) -> None:
    inputs: list[Any] = [
        (),
        ("Square",),
        ("1, 1",),
        ("ACME",),
        (("ACME", "Muse on tour"),),
        (("Muse",), "tour of muse"),
    ]
    attributes: Any = {
        "title": ("Muse on tour",),
        "latitude": (1.0,),
        "longitude": (1.5,),
        "description": ("a b c d",),
    }
    batches = [
        [OperatorCall({**attributes, "n": (str(n),)}, given) for given in inputs for n in range(4)] for _ in range(12)
    ]
    alone = [operator.answer(batch) for batch in batches]
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(operator.answer, batches)) == alone


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ASKS, max_size=6))
def test_operators_answer_any_call_without_an_exception(operator: Any, calls: list[OperatorCall]) -> None:
    answers = operator.answer(calls)
    assert len(answers) == len(calls)
    for answer in answers:
        if isinstance(answer, FailedCall):
            assert answer.reason
            continue
        assert isinstance(answer, tuple)
        assert len(set(answer)) == len(answer)
        assert len({len(row) for row in answer}) <= 1
        assert all(isinstance(value, str | float | bool | datetime) for row in answer for value in row)
    assert list(operator.answer([*calls, *calls])) == [*answers, *answers]
