"""Measure the time from text to a live plan: of many statements at once, and of one more statement after very many.

Prints one JSON line per figure.

    python -m benchmarks.statements [--statements 20000] [--parts parse,bind,compile,whole,change] [--seed 7]

A script declares queries of the workload M and a subscription to each, so half of its statements are `create feed`
and half `subscribe`. While the whole script is declared, another process publishes an item every few milliseconds:
`longest_wait` is how long one publication had to wait.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks import measuring
from benchmarks.workloads import QuerySet, make_queries
from sqlalchemy import Connection

from runnel.algebra.nodes.query import Node
from runnel.catalog.logs import plan_versions
from runnel.catalog.store.connection import Catalog
from runnel.engine import Engine, connect
from runnel.engine.declare import commit_change
from runnel.engine.planning.plan_change import compile_plan, publish_change, read_change
from runnel.language.binding.bind_query import bind_query
from runnel.language.gc_paused import gc_paused
from runnel.language.grammar.parser import parse as parse_script
from runnel.language.syntax.statements import CreateFeed, Parsed
from runnel.matching.compile.compile_plan import compute_layout
from runnel.matching.compile.warm_up import warm_up
from runnel.optimizer.optimize import optimize
from runnel.plan.logical_plan import PlanQuery

_FIRST = "register feed News;"
_PAUSE = 0.004


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--statements", type=int, default=20_000)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--changes", type=int, default=20, help="queries added and removed one by one")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    warm_up()
    queries = make_queries("M", options.statements // 2, options.seed)
    run = Run(options.statements, options.changes, queries)
    for part in options.parts.split(","):
        PARTS[part](run)


@dataclass
class Run:
    """What is declared, and as text."""

    statements: int
    changes: int
    queries: QuerySet
    text: str = field(init=False)

    def __post_init__(self) -> None:
        self.text = "".join(
            f"{statement};\nsubscribe to Q{number} output log;\n"
            for number, statement in enumerate(self.queries.statements(), start=1)
        )

    def say(self, figure: str, seconds: float, **values: Any) -> None:
        """A figure with how many statements that is in a second."""
        rate = self.statements / seconds
        measuring.say(
            "statements", figure, statements=self.statements, seconds=seconds, statements_per_second=rate, **values
        )


# --- without a catalog ---------------------------------------------------------------------------------------------


def parse(run: Run) -> None:
    """Text to statements."""
    parse_script("show feeds;")
    seconds, _ = _timed(lambda: parse_script(run.text))
    run.say("parse", seconds)


def bind(run: Run) -> None:
    """Text to query nodes."""
    with gc_paused():  # as a transaction does it
        seconds, nodes = _timed(lambda: _bound(parse_script(run.text)))
    run.say("parse and bind", seconds, queries=len(nodes))


def _bound(script: list[Parsed]) -> dict[int, Node]:
    """The nodes of a script's queries, as a transaction would number them."""
    ids = {"News": 1}
    nodes: dict[int, Node] = {}
    for parsed in script:
        if isinstance(parsed.statement, CreateFeed):
            number = len(ids) + 1
            nodes[number] = bind_query(parsed.statement.query, ids.get, ids.keys)
            ids[parsed.statement.name.text] = number
    return nodes


def compile_queries(run: Run) -> None:
    """Query nodes to a plan that could be written."""
    nodes = run.queries.definitions()
    queries = [PlanQuery(node) for node in nodes]
    seconds, laid_out = _timed(lambda: compute_layout(optimize(queries, nodes)))
    run.say("compile", seconds, queries=laid_out.logical.counts["queries"])


# --- with one ------------------------------------------------------------------------------------------------------


def whole(run: Run) -> None:
    """Text to live plan, while another process writes."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder, connect(folder) as engine:
        engine.execute(_FIRST)
        with _writer(folder) as written, _locks() as held:
            started = time.process_time()
            seconds = _seconds(lambda: engine.execute(run.text))
            used = time.process_time() - started
        waits = written()
        run.say(
            "declare",
            seconds,
            cpu_seconds=used,
            statements_per_cpu_second=run.statements / used,
            lock_held_seconds=max(held)[0],
            lock_held_cpu_seconds=max(held)[1],
            writes_meanwhile=len(waits),
            longest_wait=max(waits, default=0.0),
            queries_live=_live(engine),
        )


@contextmanager
def _locks() -> Iterator[list[tuple[float, float]]]:
    """Record how long each transaction of this process held the catalog's write lock, in wall-clock and CPU time."""
    held: list[tuple[float, float]] = []
    write = Catalog.write

    @contextmanager
    def measured(catalog: Catalog) -> Iterator[Connection]:
        with write(catalog) as connection:
            connection.exec_driver_sql("select 1")
            started, used = time.perf_counter(), time.process_time()
            yield connection
        held.append((time.perf_counter() - started, time.process_time() - used))

    Catalog.write = measured  # type: ignore[method-assign, assignment]
    try:
        yield held
    finally:
        Catalog.write = write  # type: ignore[method-assign]


@contextmanager
def _writer(folder: str) -> Iterator[Callable[[], list[float]]]:
    """Another process that publishes; what is given tells, afterwards, how long each of its writes took."""
    spawn = multiprocessing.get_context("spawn")
    ready, stop, times = spawn.Event(), spawn.Event(), spawn.SimpleQueue()
    process = spawn.Process(target=_write, args=(folder, ready, stop, times))
    process.start()
    ready.wait()
    numbers: list[float] = []
    try:
        yield lambda: numbers
    finally:
        stop.set()
        numbers.extend(times.get())
        process.join()


def _write(folder: str, ready: Any, stop: Any, times: Any) -> None:
    waits: list[float] = []
    with connect(folder) as engine:
        engine.publish("News", [{"id": "first"}])
        ready.set()
        while not stop.wait(_PAUSE):
            waits.append(_seconds(lambda: engine.publish("News", [{"id": str(len(waits))}])))
    times.put(waits)


def change(run: Run) -> None:
    """Measure adding and removing one query: the whole statement, and the part that the plan takes."""
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder, connect(folder) as engine:
        engine.execute(_FIRST)
        engine.execute(run.text)
        for turn in range(run.changes + 2):  # the first two are not counted
            name = f"More{turn}"
            with _steps() as steps:
                added = _seconds(
                    lambda: engine.execute(
                        f"create feed {name} from News where text contains 'w{turn}'; subscribe to {name} output log;"  # noqa: B023
                    )
                )
            _note("add a query", turn, added, steps)
            for figure, doomed in (("remove a new query", name), ("remove an old query", f"Q{turn + 1}")):
                with _steps() as steps:
                    removed = _seconds(lambda: engine.execute(f"unsubscribe from {doomed};"))  # noqa: B023
                _note(figure, turn, removed, steps)
        for figure, rows in _noted.items():
            middle = {name: statistics.median(row[name] for row in rows) * 1e3 for name in rows[0]}
            about = {"queries": len(run.queries), "changes": len(rows)}
            measuring.say(
                "statements", figure, **about, **{f"{name}_milliseconds": value for name, value in middle.items()}
            )


_noted: dict[str, list[dict[str, float]]] = {}


def _note(figure: str, turn: int, whole_seconds: float, steps: dict[str, float]) -> None:
    if turn >= 2:
        used = sum(seconds for step, seconds in steps.items() if step.endswith("_cpu"))
        _noted.setdefault(figure, []).append({"whole": whole_seconds, "plan_cpu": used, **steps})


@contextmanager
def _steps() -> Iterator[dict[str, float]]:
    """How long reading, compiling and publishing a change take."""
    steps: dict[str, float] = {}
    original = {"read": read_change, "compile": compile_plan, "publish": publish_change}

    def measured(step: str) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            started = time.perf_counter()
            used = time.process_time()
            result = original[step](*arguments)  # type: ignore[operator]
            steps[step] = time.perf_counter() - started
            steps[f"{step}_cpu"] = time.process_time() - used
            return result

        return run

    names = {"read": "read_change", "compile": "compile_plan", "publish": "publish_change"}
    for step, name in names.items():
        setattr(commit_change, name, measured(step))
    try:
        yield steps
    finally:
        for step, name in names.items():
            setattr(commit_change, name, original[step])


def _live(engine: Engine) -> int:
    with engine.workspace.catalog.read() as connection:
        current = plan_versions.current_plan(connection)
    return 0 if current is None else current.queries


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


PARTS: dict[str, Callable[[Run], None]] = {
    "parse": parse,
    "bind": bind,
    "compile": compile_queries,
    "whole": whole,
    "change": change,
}


if __name__ == "__main__":
    main()
