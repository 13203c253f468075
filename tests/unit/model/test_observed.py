"""What is learned of a stream: merging, fading, forgetting the light, and reading only what makes sense."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.model.learned.stream_statistics import (
    HALF_LIFE_DAYS,
    HALF_LIFE_ITEMS,
    ObservedShare,
    StreamSample,
    merged,
)

counts = st.integers(0, 1000).map(float)
observations = st.builds(
    StreamSample,
    counts,
    st.dictionaries(st.text(min_size=1, max_size=3), counts, max_size=6),
    st.dictionaries(st.text(max_size=3), st.builds(ObservedShare, counts, counts), max_size=4),
    counts,
)


@settings(deadline=None, max_examples=100)
@given(st.lists(observations, max_size=5))
def test_merging_does_not_depend_on_the_order(some: list[StreamSample]) -> None:
    forwards, backwards = merged(some), merged(reversed(some))
    assert forwards == backwards
    assert forwards.items == sum(entry.items for entry in some)
    for word in forwards.words:
        assert forwards.words[word] == sum(entry.words.get(word, 0) for entry in some)


@settings(deadline=None, max_examples=100)
@given(observations, st.integers(0, 8), st.integers(0, 4))
def test_most_frequent_words_are_kept_and_floor_bounds_the_others(one: StreamSample, words: int, atoms: int) -> None:
    kept = one.bounded(words=words, atoms=atoms)
    assert len(kept.words) == min(words, len(one.words))
    assert len(kept.atoms) == min(atoms, len(one.atoms))
    lost = [held for word, held in one.words.items() if word not in kept.words]
    assert all(held <= kept.floor for held in lost)
    assert all(held >= max(lost, default=0) for held in kept.words.values())


@settings(deadline=None, max_examples=100)
@given(observations)
def test_json_round_trip(one: StreamSample) -> None:
    assert StreamSample.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_numbers_in_json_are_rounded() -> None:
    faded = StreamSample(3, {"rock": 2}).decayed(items=1)
    assert len(json.dumps(faded.decayed(days=1).to_json())) < 50
    assert StreamSample.from_json(faded.to_json()).words["rock"] == pytest.approx(faded.words["rock"], rel=1e-3)


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        "text",
        {"items": -1},
        {"items": True},
        {"items": math.nan},
        {"items": 1, "words": ["rock"]},
        {"items": 1, "words": {"rock": "two"}},
        {"items": 1, "words": {"rock": math.inf}},
        {"items": 1, "atoms": {"a": 1}},
        {"items": 1, "atoms": {"a": [1, 2, 3]}},
    ],
)
def test_invalid_json_is_ignored(told: object) -> None:
    assert StreamSample.from_json(told) == StreamSample()


def test_observations_lose_half_their_weight_per_half_life() -> None:
    stream_sample = StreamSample(8, {"rock": 4}, {"a": ObservedShare(2, 1)}, 2)
    half = StreamSample(4, {"rock": 2}, {"a": ObservedShare(1, 0.5)}, 1)
    assert stream_sample.decayed(items=HALF_LIFE_ITEMS) == stream_sample.decayed(days=HALF_LIFE_DAYS) == half
    assert stream_sample.decayed(items=-5, days=-5) == stream_sample, "a clock that goes back makes nothing heavier"


def test_frequency_moves_from_the_guess_to_the_observed_share() -> None:
    for items, least, most in ((0, 0.01, 0.01), (20, 0.2, 0.3), (20_000, 0.49, 0.5)):
        assert least <= StreamSample(items, {"rock": items / 2}).frequency("rock", 0.01) <= most
    assert StreamSample(20_000, {}).frequency("never", 0.3) < 0.001
    assert StreamSample(20_000, {}, floor=2_000).frequency("perhaps", 0.01) == pytest.approx(0.05, rel=0.01)
    assert StreamSample(0, {}, {"a": ObservedShare(80, 40)}).share("a", 0.0) == 0.4
    assert StreamSample().share("a", 0.25) == 0.25
    known = StreamSample(1_000, {"rock": 900, "odd": 5_000}).frequencies()
    assert (len(known), set(known), known["odd"]) == (2, {"rock", "odd"}, 1.0)
    assert "rock" in StreamSample(3, {"rock": 1}).frequencies()
    assert "jazz" not in StreamSample(3, {"rock": 1}).frequencies()
