"""The workload of the benchmark on a cluster is what it says it is, and what is measured without Spark adds up."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks import cluster_plots
from benchmarks.cluster import Cost, configurations, report_fit
from benchmarks.cluster_figures import Bench, PaperStages, Stages, pairs_of, shared_by
from benchmarks.cluster_runs import Configuration, Run
from benchmarks.cluster_watch import Watch, mapped_files, processes, worker_of
from benchmarks.cluster_workload import Mix, items_of, joined_plans, kept_plan, make_plan

from runnel.arrays import Rows
from runnel.catalog.logs.match_segments import MatchSegment
from runnel.matching.compile.build_matcher import build_matcher
from runnel.matching.compile.compile_plan import compile_logical
from runnel.model.item_batch import ItemBatch
from runnel.model.match import Matches
from runnel.plan.store import PlanVersion, load
from runnel.plan.validate import validate
from runnel.scaleout.partitioning import Strategy
from runnel.storage.file_storage import FileStorage

MIX = Mix(queries=600, operators=20, event_feeds=3, topics=4)


def _matched(folder: Path, mix: Mix) -> dict[str, int]:
    storage = FileStorage(folder.as_uri())
    compile_logical(storage, "plans/base", make_plan(mix))
    matcher = build_matcher(load(storage, PlanVersion(1, "plans/base")))
    numbers: dict[str, int] = {}
    for _, values in items_of(mix, 900, 1, "a"):
        family = values[0].feed.rstrip("0123456789")
        numbers[family] = numbers.get(family, 0) + matcher.match(ItemBatch.of(values, mix.feeds)).total
    return numbers


def test_every_family_is_matched(tmp_path: Path) -> None:
    results = _matched(tmp_path, MIX)
    assert set(results) == {"News", "Events", "Pages"}
    assert all(results.values()), results


def test_the_same_seed_gives_the_same_plan_and_it_is_kept(tmp_path: Path) -> None:
    first, again = kept_plan(MIX, tmp_path), kept_plan(MIX, tmp_path)
    made = make_plan(MIX)
    for name, array in made.arrays().items():
        assert np.array_equal(array, first.arrays()[name]), name
        assert np.array_equal(array, again.arrays()[name]), name
    validate("plan", made, np.empty(0, dtype=np.int64))


def test_all_queries_are_there_once() -> None:
    plan = make_plan(MIX)
    assert len(np.unique(plan.query_ids)) == len(plan.query_ids)
    assert len(plan.operators) == MIX.counts["operators"] == 20
    assert sum(MIX.counts.values()) == plan.counts["queries"] == 600


def test_plans_with_wide_scopes_are_not_joined() -> None:
    plan = make_plan(MIX)
    wide = replace(plan, scopes=Rows.of([[1, 2], *([number] for number in range(3, 2 + len(plan.scopes)))], np.int64))
    with pytest.raises(ValueError, match="one source"):
        joined_plans([wide])


def test_items_come_again_under_other_ids() -> None:
    element, other = (list(items_of(MIX, 700, 1, prefix)) for prefix in "ab")
    assert [(feed, [item.attributes for item in values]) for feed, values in element] == [
        (feed, [item.attributes for item in values]) for feed, values in other
    ]
    assert sum(len(values) for _, values in element) == 700
    ids = [(feed, item.id) for value in (element, other) for feed, values in value for item in values]
    assert len(set(ids)) == len(ids)


def test_runs_with_one_partitioning_follow_one_another_and_a_quarter_is_a_budget() -> None:
    options = argparse.Namespace(
        workers="1,2", partitions="1,4", strategies="grouped,spread", batch="10,20", quarter=False, budget=25.0
    )
    results = [
        (configuration.workers, configuration.partitions, configuration.strategy, configuration.batch)
        for configuration in configurations(options, 0)
    ]
    assert results == [
        (workers, partitions, strategy, batch)
        for partitions, strategy in ((1, None), (4, "grouped"), (4, "spread"))
        for workers in (1, 2)
        for batch in (10, 20)
    ]
    options.quarter, options.partitions, options.budget = True, "24", 12.5
    assert {
        (configuration.partitions, configuration.budget) for configuration in configurations(options, 400 << 20)
    } == {(24, 50)}


def test_what_batches_cost_is_told_apart_from_what_items_cost(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten seconds for a batch and a tenth for an item."""
    costs = [Cost(100, batches, {"java": 10.0 * batches + 0.1 * 100}) for batches in (10, 2)]
    report_fit(Configuration(1, 4), costs)
    document = json.loads(capsys.readouterr().out)
    assert document["milliseconds_per_batch"] == pytest.approx(10_000)
    assert document["microseconds_per_item"] == pytest.approx(100_000)
    report_fit(Configuration(1, 4), costs[:1])
    assert capsys.readouterr().out == "", "one size tells nothing"


@pytest.mark.parametrize(("cold", "warm"), [(0, 3), (10, 3), (11, 2), (20, 2), (40, 1), (99, 1)])
def test_some_items_only_warm_up(cold: int, warm: int, tmp_path: Path) -> None:
    segments = [MatchSegment(1, batch, 0, 0, 1, 10, 0) for batch in range(4)]
    run = Run(Configuration(1, 4), segments, Watch(tmp_path, -1, tmp_path), {}, "")
    assert len(run.warm(cold)) == warm


def test_a_process_is_watched_by_the_folder_it_runs_in(tmp_path: Path) -> None:
    own, plans = tmp_path / "work-3" / "app" / "0", tmp_path / "plans"
    own.mkdir(parents=True)
    plans.mkdir()
    file = plans / "arrays.npy"
    np.save(file, np.zeros(1 << 16))
    script = f"import numpy, time\nkept = numpy.load({str(file)!r}, mmap_mode='r')\nprint(1, flush=True)\n"
    script += "end = time.process_time() + 0.5\nwhile time.process_time() < end: pass\ntime.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", script], cwd=own, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        watch = Watch(tmp_path, -1, plans)
        watch.look()
        start = watch.moments[-1]
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and watch.seconds(start, time.time()).get(("worker-3", "python"), 0) <= 0.1:
            time.sleep(0.05)
            watch.look()
        assert watch.seconds(start, watch.moments[-1])["worker-3", "python"] > 0.1
        assert mapped_files(child.pid, plans) == {file: file.stat().st_size}
        assert watch.seen["worker-3"].peak_bytes == file.stat().st_size
        assert [process.owner for process in processes(tmp_path, -1)] == ["worker-3"]
    finally:
        child.kill()
        child.wait()
    assert worker_of(Path("/elsewhere"), tmp_path) is None


def test_both_stages_find_what_the_whole_plan_finds(tmp_path: Path) -> None:
    options = argparse.Namespace(subscriptions=300, publications=12, rounds=1, seed=1, merging="0,70")
    bench = Bench(options, 3, FileStorage(tmp_path.as_uri()))
    assert len(bench.whole.found)
    wanted: list[tuple[int | None, Strategy]] = [(None, "grouped"), (40, "spread")]
    for most, strategy in wanted:
        stages = bench.divided(most, 2, strategy)
        assert np.array_equal(stages.found, bench.whole.found)
        assert 0 < stages.copies <= 2
    paper = PaperStages(bench, 80)
    assert paper.index.root_count < bench.subscriptions
    assert len(paper.stages(2).partitions) == 2


def test_nodes_that_all_route_take_their_part_of_it() -> None:
    stages = Stages(60.0, (10.0, 50.0), 1.0, np.empty(0))
    assert stages.slowest == 60.0
    assert shared_by(stages, 2).slowest == 80.0


def test_pairs_are_of_the_rows_that_were_chosen() -> None:
    assert pairs_of(np.array([2, 5]), Matches.of([[7], [8, 9]])).tolist() == [
        (2 << 32) + 7,
        (5 << 32) + 8,
        (5 << 32) + 9,
    ]


def test_curves_are_drawn(tmp_path: Path) -> None:
    lines = [
        {"figure": "figure9i", "curve": "merging, grouped", "nodes": nodes, "times_one_node": nodes / 2}
        for nodes in (3, 2)
    ]
    lines += [
        {"figure": "figure10", "curve": "merging, spread", "nodes": 5, "merge_percentage": 90, "times_one_node": 1.5}
    ]
    assert cluster_plots.by_nodes(lines) == {"merging, grouped": [(2, 1.0), (3, 1.5)]}
    assert cluster_plots.by_percentage(lines) == {("merging, spread", 5): [(90, 1.5)]}
    cluster_plots.draw(tmp_path / "picture.svg", lines)
    assert "merge percentage" in (tmp_path / "picture.svg").read_text()
