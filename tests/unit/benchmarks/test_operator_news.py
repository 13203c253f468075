"""The workload of news with operators: the same for the same seed, and decided the same by every order, and alone."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from benchmarks.operator_interests import (
    LANGUAGES,
    SENTENCES,
    Interest,
    Predicate,
    make_interests,
    make_news,
    phrases,
    places_file,
    region_names,
    regions_file,
    script,
)
from benchmarks.operators_news import MODELS, ORDERS, declared, process

from runnel.language.grammar.parser import parse
from runnel.matching.operators.builtin.geo.distance import Distance
from runnel.matching.operators.builtin.geo.region import Region
from runnel.matching.operators.builtin.text.language import Language
from runnel.matching.operators.plugins.contract import FailedCall, OperatorCall, OperatorContext
from runnel.testing.world_words import TOPICS, places

SEED = 7


def test_the_same_seed_gives_the_same_workload() -> None:
    assert script(make_interests(SEED, 50)) == script(make_interests(SEED, 50))
    assert script(make_interests(SEED, 50)) != script(make_interests(SEED + 1, 50))
    assert list(make_news(SEED, 20)) == list(make_news(SEED, 20))
    assert [item.attributes for item in make_news(SEED, 20)] != [
        item.attributes for item in make_news(SEED, 20, week=1)
    ]


def test_the_same_content_comes_under_new_ids() -> None:
    first, again = list(make_news(SEED, 20)), list(make_news(SEED, 20, 1_000))
    assert [item.attributes for item in first] == [item.attributes for item in again]
    assert not {entry.id for entry in first} & {entry.id for entry in again}


def test_every_interest_is_a_statement() -> None:
    interests = make_interests(SEED, 200)
    assert len(list(parse(script(interests)))) == 1 + 5 + 2 * 200
    assert {len(value.groups) for value in interests} == {2, 3}
    assert {entry.operator for interest in interests for group in interest.groups for entry in group} == {
        "languageOf",
        "locIn",
        "distanceFrom",
        "semantic",
        "like",
    }


def test_sentences_are_in_their_languages(tmp_path: Path) -> None:
    language = Language(OperatorContext({"languages": ", ".join(LANGUAGES)}, folder=tmp_path))
    for code in LANGUAGES:
        lines = SENTENCES[code].strip().split("\n")
        assert len(lines) == len(TOPICS)
        assert {len(line.split(" | ")) for line in lines} == {2}
        (answer,) = language.answer([OperatorCall({"title": (" ".join(lines),)})])
        assert not isinstance(answer, FailedCall)
        assert answer[0][0] == code


def test_operators_know_the_regions_and_places_that_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "regions.geojson").write_text(regions_file(SEED), "utf-8")
    (tmp_path / "places.csv").write_text(places_file(SEED), "utf-8")
    region = Region(OperatorContext({"regions": "regions.geojson"}, folder=tmp_path))
    distance = Distance(OperatorContext({"places": "places.csv"}, folder=tmp_path))
    item = next(value for value in make_news(SEED, 50) if "latitude" in value.attributes)
    inside = region.answer([OperatorCall(item.attributes, (name,)) for name in region_names()])
    far = distance.answer([OperatorCall(item.attributes, (name,)) for name in places()[:120]])
    assert not [value for value in (*inside, *far) if isinstance(value, FailedCall)]
    assert sum(bool(value) for value in inside) >= 2, "a province and its country"
    assert ((0.0,),) in far, "it lies at one of the places"


def test_phrases_are_many_and_differ() -> None:
    made = [phrase for topic in phrases(SEED) for phrase in topic]
    assert len(made) == len(set(made)) == 300


def test_an_interest_asks_until_one_fails() -> None:
    far, near = Predicate("locIn", "far"), Predicate("locIn", "near")
    meaning = Predicate("semantic", "late match", ">", 0.3)
    answers = {far: (), near: ((),), meaning: ((0.4,),)}
    assert Interest(1, "true", ((far, near), (meaning,))).ask_alone(answers.__getitem__) == (
        True,
        [far, near, meaning],
    )
    assert Interest(1, "true", ((far,), (meaning,))).ask_alone(answers.__getitem__) == (False, [far])
    assert Interest(1, "true", ((near, far),)).ask_alone(answers.__getitem__) == (True, [near])
    assert not Predicate("languageOf", None, "=", "en", negated=True).holds((("en", 0.9),))


def test_all_orders_decide_the_same_and_ask_less_than_queries_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interests = make_interests(SEED, 150)
    sizes = {"seed": SEED, "items": 60, "learning": 30, "counted": 60, "orders": ",".join(ORDERS)}
    with declared(tmp_path / "root", interests, SEED) as engine:
        process(engine, interests, argparse.Namespace(**sizes))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (alone,) = [line for line in lines if line["figure"] == "unshared"]
    measured = [line for line in lines if line["figure"] == "process"]
    cold = {line["order"]: line for line in measured if line["cache"] == "cold"}
    assert alone["equal"]
    assert all(line.get("equal", True) and line["unknown"] == 0 for line in measured)
    assert {line["matches"] for line in measured} == {alone["matches"]} != {0.0}
    assert set(cold) == {*ORDERS[:-1], "chosen"}
    assert all(line["model_calls"] < alone["model_calls"] for line in cold.values())
    assert all(line["model_calls"] <= line["asked"] <= line["calls"] for line in cold.values())
    assert {line["asked"] for line in measured if line["cache"] != "cold"} == {0.0}
    (filed,) = [line for line in measured if line["cache"] == "in a file"]
    assert 0 < filed["bytes_per_answer"] < 200
    assert len(MODELS) == 2
