"""The benchmark of tree patterns runs, and lxml has the same answers."""

from __future__ import annotations

import argparse
import json

import pytest
from benchmarks import trees
from benchmarks.tree_workload import TreeWorkload

OPTIONS = argparse.Namespace(documents=6, nodes=60, rounds=1, seed=1, asked=50)


def test_benchmark_runs_with_equal_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert trees.measure(60, OPTIONS)
    ours, peer = map(json.loads, capsys.readouterr().out.splitlines())
    assert ours["matches"] > 1
    assert (ours["figure"], peer["figure"], peer["equal"]) == ("trees", "lxml", True)


def test_wrong_answers_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "ask_lxml", lambda patterns, documents: (1.0, {(0, 0), (5, 49)}))
    assert not trees.measure(60, OPTIONS)


def test_workload_is_repeatable() -> None:
    first, second = (TreeWorkload(20, 2, 40, seed=7) for _ in range(2))
    assert first.make_documents() == second.make_documents()
    assert first.make_patterns() == second.make_patterns()
    assert len(set(first.make_patterns())) == 20
