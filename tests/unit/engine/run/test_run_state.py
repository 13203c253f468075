"""The pulse of a run: what holds it up is said, a silent part is noticed, and counts add up across threads."""

from __future__ import annotations

import threading

from runnel.engine.run.run_state import RunState


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_turn_that_takes_too_long_means_not_alive() -> None:
    clock = Clock()
    pulse = RunState(clock)
    pulse.turned("runnel-deliver", period=0.05)
    clock.now = 119
    assert pulse.health(matching=True, lag=0, lag_limit=10).live
    clock.now = 121
    health = pulse.health(matching=True, lag=0, lag_limit=10)
    assert (health.live, health.ready) == (False, False)
    assert health.reasons == ("runnel-deliver is stuck: its turn is overdue by 121 seconds",)
    pulse.turned("runnel-deliver", period=0.05)
    assert pulse.health(matching=True, lag=0, lag_limit=10).live


def test_a_loop_may_rest_for_its_period_and_take_as_long_for_a_turn() -> None:
    clock = Clock()
    pulse = RunState(clock)
    pulse.turned("runnel-rebalance", period=600, rests=600)
    for clock.now in range(0, 1200, 10):
        assert pulse.health(matching=True, lag=0, lag_limit=10).live
    clock.now = 1201
    assert not pulse.health(matching=True, lag=0, lag_limit=10).live


def test_progress_within_a_long_turn_is_noticed() -> None:
    clock = Clock()
    pulse = RunState(clock)
    pulse.turned("runnel-divide", period=5)
    for clock.now in range(0, 600, 100):
        pulse.progressed("runnel-divide")
        pulse.progressed("MainThread")
        assert pulse.health(matching=True, lag=0, lag_limit=10).live
    clock.now += 121
    assert pulse.health(matching=True, lag=0, lag_limit=10).reasons == (
        "runnel-divide is stuck: its turn is overdue by 121 seconds",
    )


def test_a_part_that_ended_may_be_silent() -> None:
    clock = Clock()
    pulse = RunState(clock)
    pulse.turned("runnel-poll")
    pulse.ended("runnel-poll")
    clock.now = 1e6
    assert pulse.health(matching=True, lag=0, lag_limit=10).ready


def test_what_holds_a_part_up_makes_the_run_unready_until_it_passes() -> None:
    pulse = RunState()
    pulse.state = "running"
    assert pulse.hold_up("matching", "no room left")
    assert not pulse.hold_up("matching", "no room left"), "told once"
    health = pulse.health(matching=True, lag=0, lag_limit=10)
    assert (health.live, health.ready, health.reasons) == (True, False, ("matching is held up: no room left",))
    assert pulse.told_state() == "paused: no room left"
    assert pulse.release("matching")
    assert not pulse.release("matching")
    assert (pulse.told_state(), pulse.health(matching=True, lag=0, lag_limit=10).ready) == ("running", True)


def test_unready_without_a_query_a_catalog_or_with_too_much_waiting() -> None:
    pulse = RunState()
    assert pulse.health(matching=False, lag=0, lag_limit=10).reasons == ("matching is not under way: starting",)
    assert pulse.health(matching=True, lag=None, lag_limit=10).reasons == ("the catalog does not answer",)
    assert pulse.health(matching=True, lag=10, lag_limit=10).reasons == ("10 items wait for matching",)


def _is_live(pulse: RunState, lag: int | None = 5) -> bool:
    return pulse.health(matching=True, lag=lag, lag_limit=10).live


def test_matching_without_progress_is_stuck_beyond_the_bound() -> None:
    clock = Clock()
    pulse = RunState(clock, stall_seconds=600)
    pulse.state = "running"
    assert not pulse.note_matching("a", 5)
    clock.now = 600
    assert not pulse.note_matching("a", 6)
    assert _is_live(pulse)
    assert pulse.told_state() == "running"
    clock.now = 601
    assert pulse.note_matching("a", 7)
    assert not pulse.note_matching("a", 7), "reported once"
    stuck = "matching is stuck: 7 items wait, and there was no progress for 601 seconds"
    health = pulse.health(matching=True, lag=7, lag_limit=10)
    assert (health.live, health.ready, health.reasons) == (False, False, (stuck,))
    assert pulse.told_state() == stuck
    assert _is_live(pulse, lag=0), "nothing waits any more"
    assert _is_live(pulse, lag=None), "the catalog does not answer, which is another reason"
    assert pulse.health(matching=False, lag=7, lag_limit=10).live, "the query is being started again"
    assert not pulse.note_matching("b", 7)
    assert _is_live(pulse)
    clock.now = 1202
    assert pulse.note_matching("b", 7), "reported again"


def test_a_long_batch_that_makes_progress_is_not_stuck() -> None:
    clock = Clock()
    pulse = RunState(clock, stall_seconds=600)
    for clock.now in range(0, 36_000, 500):
        assert not pulse.note_matching((0, clock.now), 50_000)
        assert _is_live(pulse)


def test_matching_with_nothing_to_do_is_not_stuck_when_items_come() -> None:
    clock = Clock()
    pulse = RunState(clock, stall_seconds=600)
    for clock.now in range(0, 10_000, 1_000):
        assert not pulse.note_matching("a", 0)
    assert _is_live(pulse)
    clock.now += 600
    assert not pulse.note_matching("a", 1)
    assert _is_live(pulse)


def test_matching_that_is_held_up_is_not_stuck_and_gets_its_time_afterwards() -> None:
    clock = Clock()
    pulse = RunState(clock, stall_seconds=600)
    for part in ("matching", "Spark", "runnel-tidy"):
        pulse.note_matching("a", 5)
        pulse.hold_up(part, "no room left")
        clock.now += 5_000
        assert not pulse.note_matching("a", 5)
        assert _is_live(pulse)
        clock.now += 5_000
        assert _is_live(pulse), "the thread that notes progress may wait too"
        pulse.release(part)
        assert _is_live(pulse)
        assert not pulse.note_matching("a", 5)
        clock.now += 600
        assert not pulse.note_matching("a", 5)
        assert _is_live(pulse)
        clock.now += 1
        assert not _is_live(pulse)
        pulse.start_matching()
        assert _is_live(pulse), "a new query gets its time"


def test_a_thread_that_notes_no_progress_any_more_does_not_hide_that_matching_is_stuck() -> None:
    clock = Clock()
    pulse = RunState(clock, stall_seconds=600)
    pulse.note_matching("a", 5)
    clock.now = 601
    assert not _is_live(pulse)


def test_a_loop_that_is_held_up_now_and_then_does_not_hide_that_matching_is_stuck() -> None:
    clock = Clock()
    pulse = RunState(clock, stall_seconds=600)
    pulse.turned("runnel-deliver", period=1.0)
    for clock.now in range(0, 1_000, 100):
        pulse.note_matching("a", 5)
        pulse.hold_up("runnel-deliver", "the mail server does not answer")
        pulse.note_matching("a", 5)
        pulse.release("runnel-deliver")
        pulse.turned("runnel-deliver", period=1.0)
    assert not _is_live(pulse)


def test_counts_of_many_threads_add_up() -> None:
    pulse = RunState()
    threads = [threading.Thread(target=_count_many, args=(pulse,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pulse.counted("items") == 16_000
    assert pulse.health(matching=True, lag=0, lag_limit=1).counts == {"items": 16_000}


def _count_many(pulse: RunState) -> None:
    for _ in range(2000):
        pulse.count("items")
