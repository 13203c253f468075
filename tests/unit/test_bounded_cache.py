"""The bounded cache: its weight never exceeds the limit, and the least recently used values are evicted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.bounded_cache import BoundedCache

_LIMIT = 100


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, _LIMIT), st.booleans()), max_size=60))
@settings(deadline=None, max_examples=100)
def test_weight_is_bounded_and_the_most_recently_used_values_stay(steps: list[tuple[int, int, bool]]) -> None:
    cache = BoundedCache[int, int](_LIMIT)
    newest: list[int] = []
    for key, weight, put in steps:
        if put:
            cache.put(key, weight, weight)
            assert cache.get(key) == weight
        elif cache.get(key) is None:
            continue
        newest = [*(value for value in newest if value != key), key]
        assert cache.weight <= _LIMIT
    kept = [key for key in newest if cache.get(key) is not None]
    assert kept == newest[len(newest) - len(kept) :], "the least recently used values were evicted"
    assert cache.weight == sum(cache.get(key) or 0 for key in kept)
    assert len(cache) == len(kept)
    cache.clear()
    assert (len(cache), cache.weight) == (0, 0)


def test_value_over_the_limit_is_not_cached_and_evicts_no_other() -> None:
    cache = BoundedCache[str, str](10)
    cache.put("a", "exactly at the limit", 10)
    cache.put("b", "one beyond", 11)
    assert (cache.get("a"), cache.get("b"), cache.weight) == ("exactly at the limit", None, 10)
    cache.put("a", "one beyond", 11)
    assert (cache.get("a"), cache.weight) == (None, 0), "the old value of the same key is outdated"


def test_default_weight_makes_the_limit_a_number_of_values() -> None:
    cache = BoundedCache[int, int](2)
    for number in range(3):
        cache.put(number, number)
    assert [cache.get(number) for number in range(3)] == [None, 1, 2]
