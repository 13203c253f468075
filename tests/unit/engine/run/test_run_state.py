"""The state of a run: paused parts are reported, stuck parts are detected, and counters add up across threads."""

from __future__ import annotations

import threading

from runnel.engine.run.run_state import RunState


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_loop_with_an_overdue_turn_makes_the_run_not_live() -> None:
    clock = Clock()
    run_state = RunState(clock)
    run_state.note_turn("runnel-deliver", period=0.05)
    clock.now = 119
    assert run_state.health(matching=True, lag=0, lag_limit=10).live
    clock.now = 121
    health = run_state.health(matching=True, lag=0, lag_limit=10)
    assert (health.live, health.ready) == (False, False)
    assert health.reasons == ("runnel-deliver is stuck: its turn is overdue by 121 seconds",)
    run_state.note_turn("runnel-deliver", period=0.05)
    assert run_state.health(matching=True, lag=0, lag_limit=10).live


def test_loop_may_rest_for_its_period_and_take_as_long_for_a_turn() -> None:
    clock = Clock()
    run_state = RunState(clock)
    run_state.note_turn("runnel-rebalance", period=600, rests=600)
    for clock.now in range(0, 1200, 10):
        assert run_state.health(matching=True, lag=0, lag_limit=10).live
    clock.now = 1201
    assert not run_state.health(matching=True, lag=0, lag_limit=10).live


def test_progress_within_a_long_turn_keeps_the_run_live() -> None:
    clock = Clock()
    run_state = RunState(clock)
    run_state.note_turn("runnel-divide", period=5)
    for clock.now in range(0, 600, 100):
        run_state.note_progress("runnel-divide")
        run_state.note_progress("MainThread")
        assert run_state.health(matching=True, lag=0, lag_limit=10).live
    clock.now += 121
    assert run_state.health(matching=True, lag=0, lag_limit=10).reasons == (
        "runnel-divide is stuck: its turn is overdue by 121 seconds",
    )


def test_ended_loop_is_no_longer_watched() -> None:
    clock = Clock()
    run_state = RunState(clock)
    run_state.note_turn("runnel-poll")
    run_state.end_loop("runnel-poll")
    clock.now = 1e6
    assert run_state.health(matching=True, lag=0, lag_limit=10).ready


def test_paused_part_makes_the_run_unready_until_it_resumes() -> None:
    run_state = RunState()
    run_state.state = "running"
    assert run_state.pause_part("matching", "the disk is full")
    assert not run_state.pause_part("matching", "the disk is full"), "reported once"
    health = run_state.health(matching=True, lag=0, lag_limit=10)
    assert (health.live, health.ready, health.reasons) == (True, False, ("matching is paused: the disk is full",))
    assert run_state.describe_state() == "paused: the disk is full"
    assert run_state.resume_part("matching")
    assert not run_state.resume_part("matching")
    assert (run_state.describe_state(), run_state.health(matching=True, lag=0, lag_limit=10).ready) == (
        "running",
        True,
    )


def test_run_is_unready_without_query_or_catalog_or_with_a_large_lag() -> None:
    run_state = RunState()
    assert run_state.health(matching=False, lag=0, lag_limit=10).reasons == ("matching is not running: starting",)
    assert run_state.health(matching=True, lag=None, lag_limit=10).reasons == ("the catalog is unavailable",)
    assert run_state.health(matching=True, lag=10, lag_limit=10).reasons == ("10 items wait for matching",)


def _is_live(run_state: RunState, lag: int | None = 5) -> bool:
    return run_state.health(matching=True, lag=lag, lag_limit=10).live


def test_matching_is_stuck_after_stall_seconds_without_progress() -> None:
    clock = Clock()
    run_state = RunState(clock, stall_seconds=600)
    run_state.state = "running"
    assert not run_state.note_matching("a", 5)
    clock.now = 600
    assert not run_state.note_matching("a", 6)
    assert _is_live(run_state)
    assert run_state.describe_state() == "running"
    clock.now = 601
    assert run_state.note_matching("a", 7)
    assert not run_state.note_matching("a", 7), "reported once"
    stuck = "matching is stuck: 7 items wait, and there was no progress for 601 seconds"
    health = run_state.health(matching=True, lag=7, lag_limit=10)
    assert (health.live, health.ready, health.reasons) == (False, False, (stuck,))
    assert run_state.describe_state() == stuck
    assert _is_live(run_state, lag=0), "nothing waits any more"
    assert _is_live(run_state, lag=None), "the catalog is unavailable, which is another reason"
    assert run_state.health(matching=False, lag=7, lag_limit=10).live, "the query is being started again"
    assert not run_state.note_matching("b", 7)
    assert _is_live(run_state)
    clock.now = 1202
    assert run_state.note_matching("b", 7), "reported again"


def test_long_batch_that_makes_progress_is_not_stuck() -> None:
    clock = Clock()
    run_state = RunState(clock, stall_seconds=600)
    for clock.now in range(0, 36_000, 500):
        assert not run_state.note_matching((0, clock.now), 50_000)
        assert _is_live(run_state)


def test_idle_matching_is_not_stuck_when_items_arrive() -> None:
    clock = Clock()
    run_state = RunState(clock, stall_seconds=600)
    for clock.now in range(0, 10_000, 1_000):
        assert not run_state.note_matching("a", 0)
    assert _is_live(run_state)
    clock.now += 600
    assert not run_state.note_matching("a", 1)
    assert _is_live(run_state)


def test_time_without_progress_is_not_counted_while_matching_is_paused() -> None:
    clock = Clock()
    run_state = RunState(clock, stall_seconds=600)
    for part in ("matching", "Spark", "runnel-tidy"):
        run_state.note_matching("a", 5)
        run_state.pause_part(part, "the disk is full")
        clock.now += 5_000
        assert not run_state.note_matching("a", 5)
        assert _is_live(run_state)
        clock.now += 5_000
        assert _is_live(run_state), "the thread that records progress may be paused too"
        run_state.resume_part(part)
        assert _is_live(run_state)
        assert not run_state.note_matching("a", 5)
        clock.now += 600
        assert not run_state.note_matching("a", 5)
        assert _is_live(run_state)
        clock.now += 1
        assert not _is_live(run_state)
        run_state.start_matching()
        assert _is_live(run_state), "a new query gets its time"


def test_stuck_matching_is_detected_without_further_progress_notes() -> None:
    clock = Clock()
    run_state = RunState(clock, stall_seconds=600)
    run_state.note_matching("a", 5)
    clock.now = 601
    assert not _is_live(run_state)


def test_stuck_matching_is_detected_while_a_loop_pauses_repeatedly() -> None:
    clock = Clock()
    run_state = RunState(clock, stall_seconds=600)
    run_state.note_turn("runnel-deliver", period=1.0)
    for clock.now in range(0, 1_000, 100):
        run_state.note_matching("a", 5)
        run_state.pause_part("runnel-deliver", "the mail server does not answer")
        run_state.note_matching("a", 5)
        run_state.resume_part("runnel-deliver")
        run_state.note_turn("runnel-deliver", period=1.0)
    assert not _is_live(run_state)


def test_counters_add_up_across_threads() -> None:
    run_state = RunState()
    threads = [threading.Thread(target=_count_many, args=(run_state,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run_state.total("items") == 16_000
    assert run_state.health(matching=True, lag=0, lag_limit=1).counts == {"items": 16_000}


def _count_many(run_state: RunState) -> None:
    for _ in range(2000):
        run_state.count("items")
