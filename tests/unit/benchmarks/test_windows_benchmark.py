"""`benchmarks.windows` at small sizes: all contenders give the same answers, and a wrong answer makes it fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from benchmarks import windows, windows_contenders, windows_duckdb
from benchmarks.windows_contenders import LookUps, NestedLoop, PrefixPostings
from benchmarks.windows_ours import OurPlan, Resolved
from benchmarks.windows_workload import make_workload

from runnel.algebra.values.similarity import DEFAULT_LEAST, similar
from runnel.model.item_batch import ItemBatch

SMALL = ["--windows", "300", "--items", "40", "--queries", "60", "--shared-windows", "8", "--rounds", "1"]


def run(part: str) -> None:
    windows.main([*SMALL, "--parts", part, "--peers", "duckdb"])


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("part", "contenders"),
    [("look_up", 3), ("values", 2), ("sharing", 3), ("filters", 1), ("peers", 4)],
)
def test_all_contenders_give_the_same_answers(part: str, contenders: int, capsys: pytest.CaptureFixture[str]) -> None:
    run(part)
    lines = lines_of(capsys.readouterr().out)
    compared = [line for line in lines if "equal" in line]
    assert len(compared) == contenders
    assert all(line["equal"] for line in compared), compared
    assert all(line["met"] in (True, False) for line in lines if "goal" in line)


def without_the_last_pair(look_up: Callable[..., LookUps]) -> Callable[..., LookUps]:
    def broken(*arguments: Any) -> LookUps:
        found = look_up(*arguments)
        return replace(found, pairs=found.pairs[:-1])

    return broken


@pytest.mark.parametrize(
    ("part", "owner", "name", "wrong"),
    [
        ("look_up", windows, "look_up", "ours"),
        ("look_up", windows_contenders.PrefixPostings, "look_up", "prefix postings"),
        ("look_up", windows_contenders.NestedLoop, "look_up", "ours"),
        ("values", windows, "look_up", "equal values"),
    ],
)
def test_a_contender_that_loses_a_pair_makes_it_fail(
    part: str, owner: Any, name: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, without_the_last_pair(getattr(owner, name)))
    with pytest.raises(SystemExit, match=f"not all contenders give the same answers.*{wrong}"):
        run(part)


@pytest.mark.parametrize(
    ("lost", "wrong"),
    [
        ({"matches": slice(-1)}, "one join query, shared windows"),
        ({"annotations": slice(-1)}, "annotations of shared windows"),
    ],
)
def test_a_resolution_that_loses_something_makes_it_fail(
    lost: dict[str, slice], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = OurPlan.resolve

    def broken(self: OurPlan, batch: ItemBatch) -> Resolved:
        resolved = right(self, batch)
        if "matches" in lost:
            return replace(resolved, matches=resolved.matches[lost["matches"]])
        return replace(resolved, annotations=dict(list(resolved.annotations.items())[lost["annotations"]]))

    monkeypatch.setattr(OurPlan, "resolve", broken)
    with pytest.raises(SystemExit, match=wrong):
        run("sharing")


def test_a_wrong_statement_makes_it_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    statement = "duckdb, join of words"
    wrong = windows_duckdb.PAIRS[statement].replace("2 * common >= ", "common >= ")
    monkeypatch.setitem(windows_duckdb.PAIRS, statement, wrong)
    with pytest.raises(SystemExit, match=statement):
        run("peers")


def test_contenders_agree_with_the_definition_of_similarity() -> None:
    workload = make_workload(200, 60, 1, 3)
    photos = [text.split() for text in workload.photos.texts(0, 200)]
    news = [text.split() for text in workload.news.texts(0, 60)]
    expected = [
        [item, row]
        for item, title in enumerate(news)
        for row, other in enumerate(photos)
        if similar(title, other, DEFAULT_LEAST)
    ]
    assert len(expected) > 20
    for contender in (NestedLoop(workload.photos), PrefixPostings(workload.photos)):
        assert np.array_equal(contender.look_up(workload.news, range(60)).pairs, expected)
