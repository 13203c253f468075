"""The workloads in other systems' forms, what their drivers write, and what happens where they cannot be run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.event_workload import make_event_queries, make_events
from benchmarks.peers.forms import monitor_items, monitor_queries, ruler_events, ruler_rules, write_lines
from benchmarks.peers.java import EVENT_RULER, LUCENE_MONITOR, Missing, prepare, read_matches
from benchmarks.spark_join import query_tables
from benchmarks.workloads import make_items, make_queries

from runnel.algebra.semantics.evaluate import holds


def test_a_monitor_line_says_what_the_query_says() -> None:
    queries, items = make_queries("M", 300), make_items(10)
    lines = list(monitor_queries(queries))
    assert [int(line.split("\t")[0]) for line in lines] == queries.query_ids.tolist()
    numbers = [
        dict(zip(("price", "score", "day", "source"), line.split("\t")[:4], strict=True))
        for line in monitor_items(items)
    ]
    held = 0
    for record, given in zip(items.records(), numbers, strict=True):
        words = set(record["text"].split())
        attributes = {name: (value,) for name, value in record.items()}
        for line, expression in zip(lines, queries.expressions(), strict=True):
            read = all(any(_true(part, words, given) for part in clause.split()) for clause in line.split("\t")[1:])
            assert read == holds(expression, attributes)
            held += read
    assert held > 5


def _true(literal: str, words: set[str], numbers: dict[str, str]) -> bool:
    """What the driver makes of a literal."""
    if literal.startswith("-"):
        return not _true(literal[1:], words, numbers)
    if literal.startswith("#"):
        name, low, high = literal[1:].split(":")
        return float(low) <= float(numbers[name]) <= float(high)
    return literal in words


def test_a_rule_says_what_the_query_says() -> None:
    queries, events = make_event_queries(400), make_events(60)
    rules = [json.loads(line.split("\t")[1]) for line in ruler_rules(queries)]
    held = 0
    for line in ruler_events(events):
        event = json.loads(line)
        attributes = {name: (value,) for name, value in event.items()}
        for rule, expression in zip(rules, queries.expressions(), strict=True):
            read = all(any(_fits(pattern, event[name]) for pattern in patterns) for name, patterns in rule.items())
            assert read == holds(expression, attributes)
            held += read
    assert held > 5


def _fits(pattern: object, value: object) -> bool:
    match pattern:
        case {"numeric": [">=", low, "<=", high]}:
            return bool(low <= value <= high)
        case {"prefix": prefix}:
            return str(value).startswith(prefix)
        case _:
            return pattern == value


def test_what_a_driver_writes_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "matches"
    path.write_bytes(np.array([2, 7, 9, 0, 1, 3], dtype=">i4").tobytes())
    matches = read_matches(path)
    assert [matches.row(row).tolist() for row in range(len(matches))] == [[7, 9], [], [3]]
    assert write_lines(tmp_path / "lines", ["a", "b"]).read_text() == "a\nb\n"


def test_a_system_that_cannot_be_run_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(Missing, match="there is no java"):
        prepare(LUCENE_MONITOR, tmp_path)
    for name, script in (("java", "exit 0"), ("javac", "echo unreadable >&2; exit 1")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    with pytest.raises(Missing, match="no Maven to fetch event-ruler"):
        prepare(EVENT_RULER, tmp_path)
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / EVENT_RULER.jar).touch()
    with pytest.raises(Missing, match=r"RulerDriver.java cannot be compiled: unreadable"):
        prepare(EVENT_RULER, tmp_path)


def test_the_tables_of_the_join_hold_every_literal() -> None:
    queries = make_queries("M", 200)
    tables = query_tables(queries)
    literals = int(queries.clauses.lengths[queries.queries.values].sum())
    assert len(tables["terms"]) + len(tables["ranges"]) == literals
    assert tables["queries"]["needed"].sum() == len(queries.queries.values)
    negated = tables["terms"][tables["terms"]["negated"] == 1]
    assert (negated["negations"] == 1).all()
    assert tables["queries"]["given"].sum() == len(negated)
