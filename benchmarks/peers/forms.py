"""The workloads as other systems read them: lines of queries and of items (see the drivers)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.event_workload import Events
from benchmarks.workloads import NUMBERS, Items, QuerySet, frequencies

from runnel.algebra.nodes.expressions import Atom, Between, Compare, Contains, ContainsPattern

_MILLION = 1_000_000


def monitor_queries(queries: QuerySet) -> Iterator[str]:
    """The queries for Lucene's monitor: an id and clauses."""
    atoms = [_monitor_atom(atom) for atom in queries.atoms]
    clauses = [
        " ".join(f"-{atoms[value >> 1]}" if value & 1 else atoms[value >> 1] for value in row)
        for row in queries.clauses.lists()
    ]
    for query, row in zip(queries.query_ids.tolist(), queries.queries.lists(), strict=True):
        yield "\t".join([str(query), *(clauses[value] for value in row)])


def _monitor_atom(atom: Atom) -> str:
    match atom:
        case Contains(_, (word,)):
            return word
        case Between(attribute, float(low), float(high)):
            return f"#{attribute.name}:{low}:{high}"
        case Compare(attribute, "=", float(constant)):
            return f"#{attribute.name}:{constant}:{constant}"
        case Compare(attribute, ">=", float(constant)):
            return f"#{attribute.name}:{constant}:Infinity"
        case _:
            raise ValueError(f"the monitor's driver does not know {atom!r}")


def monitor_items(items: Items) -> Iterator[str]:
    """The items for Lucene's monitor: numbers and the text."""
    for record in items.records():
        yield "\t".join([*(str(record[name]) for name in NUMBERS), record["text"]])


def monitor_frequencies() -> Iterator[str]:
    """Words and how many of a million items hold them."""
    for word, share in frequencies().items():
        yield f"{word}\t{max(1, round(share * _MILLION))}"


def ruler_rules(queries: QuerySet) -> Iterator[str]:
    """The queries for Event Ruler: an id and the rule, in which an attribute has alternatives."""
    for query, row in zip(queries.query_ids.tolist(), queries.queries.lists(), strict=True):
        rule: dict[str, list[Any]] = {}
        for clause in row:
            for literal in queries.clauses.row(clause).tolist():
                atom = queries.atoms[literal >> 1]
                rule.setdefault(atom.attribute.name, []).append(_ruler_pattern(atom))
        yield f"{query}\t{json.dumps(rule)}"


def _ruler_pattern(atom: Atom) -> Any:
    match atom:
        case Compare(_, "=", str(constant)):
            return constant
        case Between(_, low, high):
            return {"numeric": [">=", low, "<=", high]}
        case ContainsPattern(_, (pattern,)):
            return {"prefix": pattern.removesuffix("*")}
        case _:
            raise ValueError(f"Event Ruler's driver does not know {atom!r}")


def ruler_events(events: Events) -> Iterator[str]:
    """The events for Event Ruler."""
    return map(json.dumps, events.records())


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write lines to a file."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
    return path
